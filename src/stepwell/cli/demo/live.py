"""The demo in a terminal: a view that redraws itself. The only part that needs rich."""

from __future__ import annotations

from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live as Redrawn
from rich.text import Text

from stepwell.cli.demo.story import Frame, Point, Result
from stepwell.cli.demo.words import SAID, STYLES, TITLE, marks, source, verdict
from stepwell.cli.output import drawable


class Live:
    """The workflow's source with the running lines lit, what happened so far, and how each point ended."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)
        self._encoding = out.encoding
        self._events: list[Text] = []
        self._frame = Frame(0.0, (), ())
        self._redrawn = Redrawn(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._redrawn.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._redrawn.stop()

    def say(self, at: float, what: str, more: str = "") -> None:
        """Add the event to those shown."""
        line = Text.assemble((f" {at:5.1f}  ", "dim"), (f"{what:<{SAID}}", "red" if what.startswith("kill") else ""))
        self._events.append(line.append(self._drawable(f" {more}"), "dim"))
        self._draw()

    def show(self, frame: Frame) -> None:
        """Redraw the source and the points."""
        self._frame = frame
        self._draw()

    def tell(self, result: Result) -> None:
        """Print the verdict below."""
        self._redrawn.stop()
        for style, text in verdict(result):
            self._console.print(Text(self._drawable(f" {text}"), STYLES[style]), soft_wrap=True)

    def _draw(self) -> None:
        lines = [Text(f" {TITLE}", "bold"), Text("")]
        lines += [Text(self._drawable(text), STYLES[style]) for style, text in source(self._frame.steps)]
        lines += [Text(""), *self._events]
        if self._frame.points:
            lines.append(Text(self._drawable(f"        {marks(self._frame.points)}"), "green"))
            if Point.KILLED in self._frame.points:
                lines.append(Text("        killed there; another worker finishes what they began", "dim"))
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        self._redrawn.update(Group(*lines), refresh=True)

    def _drawable(self, text: str) -> str:
        return drawable(text, self._encoding)
