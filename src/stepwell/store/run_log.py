"""What code has logged inside runs, with Python's `logging`: lines, kept by run, step and attempt.

They stand in a stream of the run whose name no user can take, and go with the run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from stepwell.base.durations import datetime_of
from stepwell.errors import ChunksRemoved
from stepwell.store.driver import Call, Value
from stepwell.store.reports import LOG, STREAM, Chunk, parts_of
from stepwell.store.run_key import WhichRun
from stepwell.values.codec import decode
from stepwell.values.named_codecs import FORGOTTEN_VALUE

if TYPE_CHECKING:
    from stepwell.store.database import Database

LogLevel = Literal["debug", "info", "warning", "error", "critical", "none"]
ROWS: Final = 10  # that are read at once from the end, ...
MOST_READ: Final = 1024 * 1024  # ... until so many characters are read


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that code has logged inside a run: in its own code, or in an attempt of a step."""

    offset: int  # from 1, in the order in which the lines of the run were written
    at: datetime
    level: str
    logger: str
    text: str
    step: str | None  # the step's key; None in the workflow's own code
    attempt: int | None  # of the step
    turn: int  # of the run: it goes up whenever a worker claims the run


@dataclass(frozen=True, slots=True)
class LastLines:
    """The newest lines of a run or a step; `more` if there may be earlier ones."""

    lines: Sequence[LogLine]
    more: bool


async def lines(
    database: Database, run: WhichRun, *, step: str | None, attempt: int | None, after: int, follow: bool
) -> AsyncIterator[LogLine]:
    """The lines behind an offset, in order; those that are not kept any more are left out."""
    run_id = (await database.runs.get(await database.run_id(run), deleted=True)).id  # raises if there is no such run
    over = False
    while not over:
        try:
            async for chunk in database.reports.stream(run_id, LOG, list, after, follow=follow):
                after = chunk.offset
                line = _line(chunk)
                if _is_of(line, step, attempt):
                    yield line
            over = True
        except ChunksRemoved as removed:
            after = removed.first - 1


async def last_lines(database: Database, run_id: int, *, step: str | None, limit: int) -> LastLines:
    """The newest lines of a run, or of one step; reads no more than a bounded part of them."""
    found: list[LogLine] = []
    read, before = 0, 2**62
    while True:
        params: dict[str, Value] = {"id": run_id, "kind": STREAM, "name": LOG, "before": before, "limit": ROWS}
        rows = await database.driver.read(Call("reports_before", params))
        for row in rows:
            parts = parts_of(row)
            before = row["place"] - len(parts) + 1
            read += sum(map(len, parts))
            of_row = (
                _line(Chunk(offset, decode(text)))
                for offset, text in enumerate(parts, before)
                if text != FORGOTTEN_VALUE
            )
            found[:0] = [line for line in of_row if _is_of(line, step, None)]
            if len(found) > limit:
                return LastLines(found[-limit:], more=True)
            if read > MOST_READ:
                return LastLines(found, more=before > 1)
        if len(rows) < ROWS:
            return LastLines(found, more=False)


def _line(chunk: Chunk[list[Any]]) -> LogLine:
    at, level, logger, text, step, attempt, turn = chunk.data
    return LogLine(chunk.offset, datetime_of(at), level, logger, text, step, attempt, turn)


def _is_of(line: LogLine, step: str | None, attempt: int | None) -> bool:
    return (step is None or line.step == step) and (attempt is None or line.attempt == attempt)
