"""The demo in a terminal: a view that redraws itself. The only part that needs rich."""

from __future__ import annotations

from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live as Redrawn
from rich.text import Text

from stepwell.cli.demo.story import Frame, Result
from stepwell.cli.demo.words import STYLES, TITLE, drawable, verdict

WIDTH = 40


class Live:
    """The workers and what each holds, how far the orders are, and what happened so far."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)
        self._encoding = out.encoding
        self._events: list[Text] = []
        self._frame: Frame | None = None
        self._redrawn = Redrawn(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._redrawn.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._redrawn.stop()

    def say(self, at: float, what: str, more: str = "") -> None:
        """Add the event to those shown."""
        line = self._text((f" {at:5.1f}  ", "dim"), (f"{what:<34}", "red" if what.startswith("kill") else ""))
        self._events.append(line.append(self._drawable(f" {more}"), "dim"))
        self._draw()

    def show(self, frame: Frame) -> None:
        """Redraw the workers and the bar."""
        self._frame = frame
        self._draw()

    def tell(self, result: Result) -> None:
        """Print the verdict below."""
        self._redrawn.stop()
        for style, text in verdict(result):
            self._console.print(Text(self._drawable(f" {text}"), STYLES[style]), soft_wrap=True)

    def _draw(self) -> None:
        lines = [Text(f" {TITLE}", "bold"), Text("")]
        if self._frame is not None:
            lines += [self._worker(self._frame, pid) for pid in self._frame.workers if pid]
            lines += [Text(""), self._bar(self._frame), Text("")]
        for line in (*lines, *self._events):
            line.no_wrap, line.overflow = True, "ellipsis"
        self._redrawn.update(Group(*lines, *self._events), refresh=True)

    def _worker(self, frame: Frame, pid: int) -> Text:
        line = self._text((f" worker {pid:<8}", "bold"))
        if pid in frame.killed:
            line.append(self._drawable("✕ killed"), "red")
            if held := frame.workers[pid]:
                line.append(f", still in its name: {', '.join(held)}", "dim")
        elif not frame.workers[pid]:
            line.append(self._drawable("· waiting"), "dim")
        for key in frame.workers[pid] if pid not in frame.killed else ():
            again = frame.books.asked("charge")[key] > 1
            line.append(self._drawable(f"◐ {key:<9}"), "yellow" if again else "cyan")
            line.append("again " if again else "", "yellow")
        return line

    def _bar(self, frame: Frame) -> Text:
        full = WIDTH * frame.finished // frame.orders
        charged = frame.books.times("charge").total()
        repeated = frame.books.asked("charge").total() - charged
        return self._text(
            (" " + "━" * full, "green"),
            ("─" * (WIDTH - full), "dim"),
            (f"  {frame.finished} of {frame.orders} finished", ""),
            (f"   cards charged {charged}, asked again {repeated}", "dim"),
        )

    def _text(self, *parts: tuple[str, str]) -> Text:
        return Text.assemble(*((self._drawable(text), style) for text, style in parts))

    def _drawable(self, text: str) -> str:
        return drawable(text, self._encoding)
