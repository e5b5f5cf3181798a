"""The output of the command line: lines, tables, JSON, progress. Colours only on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import click

from stepwell.operate.format import plain

if TYPE_CHECKING:
    from stepwell.cli.command import Invocation

T = TypeVar("T")
GLYPHS: Final = {
    "✓": "ok",
    "✕": "x",
    "◐": "*",
    "◷": "~",
    "↻": "@",
    "◌": "o",
    "‖": "=",
    "⊘": "/",
    "█": "#",
    "░": ".",
    "▒": "-",
    "·": "-",
    "━": "=",
    "─": "-",
    "│": "|",
    "╎": "!",
    "▸": ">",
    "→": "->",
    "…": "...",
}
COLOURS: Final = {"✓": "green", "✕": "red", "◐": "blue", "◷": "magenta", "↻": "yellow", "⊘": "bright_black"}
SHORTEST: Final = 12  # what is left of a last column, however narrow the terminal is
APPEARS: Final = 1.0  # seconds until progress is shown


def say(text: str = "", *, to_stderr: bool = False, hang: int | None = None, **style: Any) -> None:
    """Print a line, in characters that the output can show, coloured on a terminal unless NO_COLOR is set.

    With `hang` it is a sentence: on a narrow terminal it is wrapped between words and indented to that column.
    """
    out = sys.stderr if to_stderr else sys.stdout
    room = None if hang is None else _room(out)
    folded = (
        text
        if hang is None or room is None
        else "\n".join(each for line in text.split("\n") for each in fold(line, room, hang))
    )
    shown = click.style(folded, **style) if style else folded
    click.echo(drawable(shown, out.encoding), err=to_stderr, color=False if os.environ.get("NO_COLOR") else None)


def say_next(command: str) -> None:
    """Print the next useful command."""
    say(f"next: {command}", dim=True)


def say_json(value: object) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=True))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their heads, each column as wide as it needs; the last one takes the rest of the line."""
    lines = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(len(line[at]) for line in [list(heads), *lines]) for at in range(len(heads))]
    say("  ".join(head.ljust(width) for head, width in zip(heads, widths, strict=True)).rstrip(), dim=True)
    room = _room(sys.stdout)
    for line in lines:
        before = "".join(f"{cell.ljust(width)}  " for cell, width in zip(line[:-1], widths, strict=False))
        last = line[-1]
        if room is not None and len(last) > (left := max(SHORTEST, room - len(before))):
            last = last[: left - 1] + "…"
        say(_coloured(before + last).rstrip())


def fold(text: str, room: int, hang: int) -> list[str]:
    """The text wrapped at spaces; a long word is not broken. Styles are allowed at its beginning."""
    lines = []
    hidden = len(text) - len(click.unstyle(text))
    while len(text) - hidden > room:
        at = text.rfind(" ", hang + hidden + 1, room + hidden + 1)
        if at < 0 and (at := text.find(" ", hang + hidden + 1)) < 0:
            break
        lines.append(text[:at].rstrip())
        text, hidden = " " * hang + text[at:].lstrip(), 0
    return [*lines, text]


def drawable(text: str, encoding: str | None) -> str:
    """The text in characters that the output can show."""
    try:
        text.encode(encoding or "ascii")
    except UnicodeEncodeError:
        for glyph, letters in GLYPHS.items():
            text = text.replace(glyph, letters)
        return text.encode("ascii", "replace").decode()
    return text


def is_lively(out: TextIO) -> bool:
    """True if the output is a terminal that can redraw."""
    return out.isatty() and os.environ.get("TERM", "") not in ("", "dumb") and sys.platform != "win32"


def _room(out: TextIO) -> int | None:
    """The width of the terminal; None if there is none, or it is unknown."""
    return os.get_terminal_size(out.fileno()).columns or None if is_lively(out) else None


def _cell(value: object) -> str:
    return "" if value is None else " ".join(str(value).split())


def _coloured(line: str) -> str:
    glyph = line[:1]
    word = line.partition("  ")[0]
    return click.style(word, fg=COLOURS[glyph]) + line[len(word) :] if glyph in COLOURS else line


async def patiently(asked: Invocation, work: Coroutine[Any, Any, T], what: str, total: int | None = None) -> T:
    """Do the work; if it takes long, show its progress on standard error: on a terminal, and never with `--json`."""
    import asyncio

    from stepwell.store.progress import watched

    if asked.as_json or not is_lively(sys.stderr):
        return await work
    try:
        with _shown(what, total) as did, watched(did):
            return await work
    except asyncio.CancelledError:
        say("interrupted: what was done is kept, and the same command does the rest", to_stderr=True)
        raise


@contextmanager
def _shown(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A line that appears after a while, counts what is done, and disappears at the end."""
    import asyncio

    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

    columns: list[ProgressColumn] = [TextColumn("{task.description}")]
    if total is not None:
        columns += [BarColumn(30), TextColumn("{task.completed:,} of {task.total:,}")]
    else:
        columns.append(TextColumn("{task.fields[done]}"))
    progress = Progress(*columns, TimeElapsedColumn(), console=Console(file=sys.stderr), transient=True)
    line = progress.add_task(what, total=total, done="")

    def did(count: int) -> None:
        progress.advance(line, count)
        progress.update(line, done=f"{progress.tasks[0].completed:,} done")

    appears = asyncio.get_running_loop().call_later(APPEARS, progress.start)
    try:
        yield did
    finally:
        appears.cancel()
        progress.stop()
