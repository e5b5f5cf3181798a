"""How the demo speaks: the lines every view shows, and the plain view."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, TextIO

from stepwell.cli.demo import shop
from stepwell.cli.demo.story import ORDERS, WORKERS, Frame, Result

TITLE: Final = f"{ORDERS} orders on SQLite, {WORKERS} worker processes, one outside service that keeps its own books"
STYLES: Final = {"good": "green", "bad": "red", "strong": "bold", "quiet": "dim", "plain": ""}
GLYPHS: Final = {"✓": "ok", "✕": "x", "◐": "*", "━": "=", "─": "-", "·": "-"}


class Plain:
    """Lines as things happen, for a pipe, a log or a terminal that can do no more."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._told = 0
        self._print(TITLE)

    def say(self, at: float, what: str, more: str = "") -> None:
        """Print the event."""
        self._print(f"{at:5.1f}  {what}" + (f"   ({more})" if more else ""))

    def show(self, frame: Frame) -> None:
        """Print a line at every tenth order."""
        if frame.finished // 10 > self._told:
            self._told = frame.finished // 10
            self.say(frame.at, f"{frame.finished} of {frame.orders} orders finished")

    def tell(self, result: Result) -> None:
        """Print the verdict."""
        for _, text in verdict(result):
            self._print(text)

    def _print(self, text: str) -> None:
        print(drawable(text, self._out.encoding), file=self._out, flush=True)


class Silent:
    """Nothing: the result alone is asked for."""

    def say(self, at: float, what: str, more: str = "") -> None:
        """Say nothing."""

    def show(self, frame: Frame) -> None:
        """Show nothing."""


def verdict(result: Result) -> list[tuple[str, str]]:
    """The last lines, each with its style."""
    counted = (
        f"  {result.orders} orders, {result.charged_once} charged exactly once, "
        f"{result.parcels_once} parcels sent exactly once"
    )
    again = len(result.interrupted)
    handlers = "handler" if again == 1 else "handlers"
    lines = [
        ("plain", ""),
        ("quiet", "From the outside service's own file:"),
        ("strong", counted),
        (
            "plain",
            f"  {again} {handlers} ran twice because of the kill; the service knew the key and charged nothing again",
        ),
    ]
    if others := len(result.ran_again) - again:
        lines.append(("plain", f"  {others} ran twice for another reason"))
    lines.append(("plain", ""))
    if not result.ok:
        lines += [("bad", f"✕ error: {problem}") for problem in result.problems]
        return [*lines, ("plain", "  try: run `stepwell demo` again; if it fails again, please report these lines")]
    return [
        *lines,
        ("good", f"✓ nothing lost, nothing charged twice, {result.seconds:.1f} s"),
        ("plain", ""),
        ("plain", "next"),
        ("plain", f"  read what ran    {_short(shop.__file__)}"),
        ("plain", "  write yours      @stepwell.handler('emails') on a function, store.enqueue(it, payload),"),
        ("plain", "                   Worker(store, [it]).run(signals=True); without asyncio: stepwell.sync"),
        ("plain", "  on Postgres      pip install 'stepwell[postgres]', STEPWELL_URL=postgresql://..."),
    ]


def drawable(text: str, encoding: str | None) -> str:
    """The text, in letters that the output can show."""
    try:
        text.encode(encoding or "ascii")
    except UnicodeEncodeError:
        for glyph, plain in GLYPHS.items():
            text = text.replace(glyph, plain)
        return text.encode("ascii", "replace").decode()
    return text


def is_lively(out: TextIO) -> bool:
    """True if the output is a terminal that can redraw."""
    return out.isatty() and os.environ.get("TERM", "") not in ("", "dumb") and sys.platform != "win32"


def _short(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
