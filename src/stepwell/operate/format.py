"""Values in words and as JSON: statuses, lengths of time, moments, counts, records. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from stepwell.base.count import Count

# The words for a status, each with the statuses of its runs; a word of `IN_PART` means only some runs of a status.
IN_PART: Final[Mapping[str, tuple[str, ...]]] = {
    "queued": ("PENDING",),
    "waiting": ("PAUSED", "PENDING"),
    "retrying": ("PENDING",),
    "cancelling": ("RUNNING", "PAUSED", "PENDING"),
}
UNFINISHED_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "pending": ("PENDING",),
    "running": ("RUNNING",),
    "paused": ("PAUSED",),
    **IN_PART,
}
FAILED_WORDS: Final[Mapping[str, tuple[str, ...]]] = {"failed": ("ERROR",), "error": ("ERROR",)}
CANCELLED_WORDS: Final[Mapping[str, tuple[str, ...]]] = {"cancelled": ("CANCELLED",)}
STATUS_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    **UNFINISHED_WORDS,
    "success": ("SUCCESS",),
    "succeeded": ("SUCCESS",),
    **FAILED_WORDS,
    **CANCELLED_WORDS,
}


def statuses_in(words: Iterable[str]) -> tuple[str, ...]:
    """The statuses that these words mean together; a word that means only some runs of a status is refused."""
    asked = tuple(words)
    if partial := [word for word in asked if word in IN_PART]:
        from stepwell.errors import InvalidOption  # noqa: PLC0415 - `--help` loads no errors

        raise InvalidOption("status", partial[0], "it means only some runs of a status: ask for it alone")
    return tuple(dict.fromkeys(status for word in asked for status in STATUS_WORDS[word]))


def span(seconds: float | None) -> str:
    """A length of time in the unit that fits it."""
    if seconds is None:
        return ""
    for limit, size, unit in ((1, 0.001, "ms"), (60, 1, "s"), (3600, 60, "m"), (86_400, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.{1 if seconds < 10 * size else 0}f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def ago(moment: datetime | None) -> str:
    """How long ago a moment was, or how far off it is."""
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"


def many(count: int, one: str, several: str | None = None) -> str:
    """A number of things: 1 run, 2 runs."""
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def short(value: object, most: int = 60) -> str:
    """A value as JSON on one line, cut."""
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def plain(value: Any) -> Any:
    """A value as JSON has it: records by their fields, moments as ISO 8601, every other value as its text."""
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
            return _with_floors({str(name): each for name, each in value.items()})
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
        case _ if dataclasses.is_dataclass(value):
            return _with_floors({each.name: getattr(value, each.name) for each in dataclasses.fields(value)})
        case _:
            return str(value)


def _with_floors(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON has them; `at_least` names the counts among them that are floors, if there are any."""
    floors = [name for name, each in values.items() if isinstance(each, Count) and each.is_floor]
    told = {name: plain(each) for name, each in values.items()}
    return {**told, "at_least": floors} if floors else told
