"""How the command line speaks: lines, columns, times, statuses, JSON. Colours only where a terminal shows them."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, TextIO

import click

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
SHORTEST: Final = 12  # what a column is cut to at most


def say(text: str = "", *, to_stderr: bool = False, hang: int | None = None, **style: Any) -> None:
    """Print a line, in letters the output can show, coloured if it is a terminal and nobody said NO_COLOR.

    With `hang` it is a sentence: a narrow terminal gets it broken between words, the rest below that column.
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
    """Print rows under their heads, each column as wide as it needs; the last takes what is left of a terminal."""
    lines = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(len(line[at]) for line in [list(heads), *lines]) for at in range(len(heads))]
    say("  ".join(head.ljust(width) for head, width in zip(heads, widths, strict=True)).rstrip(), dim=True)
    room = _room(sys.stdout)
    for line in lines:
        before = "".join(f"{cell.ljust(width)}  " for cell, width in zip(line[:-1], widths, strict=False))
        last = line[-1]
        if room is not None and len(before) + len(last) > room:
            last = last[: max(SHORTEST, room - len(before) - 1)] + "…"
        say(_coloured(before + last).rstrip())


def plain(value: Any) -> Any:
    """A value as JSON has it: records by their fields, moments as ISO 8601, what is no JSON as its text."""
    match value:
        case None | bool() | float():
            return value
        case Enum():
            return str(value.value)
        case int():
            return int(value)
        case str():
            return value
        case datetime():
            return value.isoformat()
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
        case _ if dataclasses.is_dataclass(value):
            return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
        case _:
            return str(value)


def span(seconds: float | None) -> str:
    """A length of time in the unit that fits it."""
    if seconds is None:
        return ""
    for limit, size, unit in ((1, 0.001, "ms"), (60, 1, "s"), (3600, 60, "m"), (86_400, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.{1 if seconds < 10 * size else 0}f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def many(count: int, one: str, several: str | None = None) -> str:
    """A number of things: 1 run, 2 runs."""
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def ago(moment: datetime | None) -> str:
    """How long ago a moment was, or how far off it is."""
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"


def short(value: object, most: int = 60) -> str:
    """A value as JSON on one line, cut."""
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def fold(text: str, room: int, hang: int) -> list[str]:
    """The text in lines that fit, broken at blanks; a wider word stays whole. Styles may stand at its beginning."""
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
    """The text, in letters that the output can show."""
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
    """How wide a terminal is; None where nothing has to fit, or it does not say."""
    return os.get_terminal_size(out.fileno()).columns or None if is_lively(out) else None


def _cell(value: object) -> str:
    return "" if value is None else " ".join(str(value).split())


def _coloured(line: str) -> str:
    glyph = line[:1]
    word = line.partition("  ")[0]
    return click.style(word, fg=COLOURS[glyph]) + line[len(word) :] if glyph in COLOURS else line
