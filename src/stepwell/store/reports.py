"""What runs report to their readers: named values, of which the last one counts, and the chunks of streams.

Both are written behind each other under a name, several in one row, and numbered from 1. Callers that wait for more are
told by hints, which carry only the run's number, and read all together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from stepwell.base.durations import Duration, datetime_of, seconds_of
from stepwell.base.events import InternalTaskFailed
from stepwell.base.futures import begin_apart
from stepwell.base.names import check_id, check_name, check_whole
from stepwell.errors import ChunksRemoved, RunNotFound, StepwellError, Timeout, ValueNotSet
from stepwell.records import Run, RunStatus
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.pending import Answer, Operation
from stepwell.store.results import Awaiting
from stepwell.store.rows import ROW_BYTES, Claimed, StepRow
from stepwell.store.run_key import WhichRun
from stepwell.store.settle import size_of_step
from stepwell.values.named_codecs import FORGOTTEN_VALUE, shown_value
from stepwell.values.stamp import read_value

if TYPE_CHECKING:
    from stepwell.store.database import Database

VALUE: Final = "value"
STREAM: Final = "stream"
PROGRESS: Final = "progress"  # the value that is kept in the run's own row, without a history
LOG: Final = "$log"  # the stream of a run's log lines; no stream of a user can have this name
ROWS_AT_ONCE: Final = 50  # that a reader of a stream takes: each has the chunks of one write
LAST: Final = 2**62

T_co = TypeVar("T_co", covariant=True)
Wanted = tuple[int, str, str, int]  # a run, a kind, a name, and the place behind which there is to be something


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A named value that a run has set, for people; `store.value` reads one as its type."""

    name: str
    value: Any
    set_at: datetime


@dataclass(frozen=True, slots=True)
class Chunk(Generic[T_co]):
    """One chunk of a stream; who goes on later passes its offset as `after`."""

    offset: int  # from 1
    data: T_co


class Reached(msgspec.Struct, frozen=True):
    """How far a run has come with what it reports under a name, and whether it reports no more."""

    place: int
    status: RunStatus
    ended: bool


class Reports(Awaiting[Wanted, Reached]):
    """What runs report, and all callers in this process that wait for more of it."""

    _name = "reports"

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._trimming: set[asyncio.Task[None]] = set()

    async def value(self, run: WhichRun, name: str, as_: Any, timeout: Duration | None) -> Any:
        """The last value that a run has set under a name, as soon as it has set one."""
        self._db.check()
        check_name(VALUE, name)
        seconds = None if timeout is None else seconds_of(timeout, "timeout")
        run_id = check_id(await self._db.run_id(run))
        news = await self._news((int(run_id), VALUE, name, 0), seconds)
        if news is None:
            told = f"run {run_id} has not set the value {name!r} in {seconds:g} s; it goes on, ask again"
            raise Timeout(told, seconds=seconds) from self._trouble
        if news.place == 0:
            raise ValueNotSet(run_id, name, news.status, [one.name for one in await self.values(run_id)])
        if name == PROGRESS:
            text = (await self._db.runs.get(run_id)).progress_text
            return read_value(text or "null", as_, what=f"value {name} of run {run_id}")
        found = await self._db.driver.read(Call("last_report", {"id": int(run_id), "kind": VALUE, "name": name}))
        if not found:
            raise RunNotFound(run_id)
        return read_value(parts_of(found[0])[-1], as_, what=f"value {name} of run {run_id}")

    async def values(self, run: WhichRun) -> Sequence[ValueInfo]:
        """The last value under each name that a run has set, by name, for people."""
        return await self.values_in(await self._db.runs.get(await self._db.run_id(run), deleted=True))

    async def values_in(self, found: Run[Any]) -> Sequence[ValueInfo]:
        """The same of a run that was read."""
        rows = await self._db.driver.read(Call("values_of", {"id": int(found.id)}))
        values = [
            ValueInfo(row["name"], shown_value(parts_of(row)[-1]), datetime_of(row["recorded_at"])) for row in rows
        ]
        if found.progress_text is not None:
            values.append(ValueInfo(PROGRESS, shown_value(found.progress_text), found.updated_at))
        return sorted(values, key=lambda one: one.name)

    async def streams_in(self, run_id: int, limit: int) -> Sequence[tuple[str, int]]:
        """The streams of a run that was read, by name, each with the offset of its last chunk."""
        found: list[tuple[str, int]] = []
        after = ""
        while len(found) < limit:
            rows = await self._db.driver.read(Call("stream_after", {"id": run_id, "after": after}))
            if not rows:
                break
            after = rows[0]["name"]
            if after != LOG:
                found.append((after, rows[0]["place"]))
        return found

    async def stream(
        self, run: WhichRun, name: str, as_: Any, after: int, *, follow: bool = True
    ) -> AsyncIterator[Chunk[Any]]:
        """The chunks of a stream of a run behind a place, in order, as they come; it ends with the run.

        Unless it is to `follow` what comes later: then it ends with what is there.
        """
        self._db.check()
        if name != LOG:
            check_name(STREAM, name)
        check_whole("after", after, 0, LAST)
        run_id = check_id(await self._db.run_id(run))
        while True:
            params = self._db.params(id=int(run_id), kind=STREAM, name=name, after=after, limit=ROWS_AT_ONCE)
            rows = await self._db.repeat(partial(self._db.driver.read, Call("reports_after", params)))
            for row in rows:
                parts = parts_of(row)
                first = row["place"] - len(parts) + 1
                if first > after + 1 and after > 0:
                    raise ChunksRemoved(run_id, name, after, first)
                for offset, text in enumerate(parts, first):
                    if offset > after:
                        yield Chunk(offset, read_value(text, as_, what=f"chunk {offset} of {name} of run {run_id}"))
                        after = offset
            if not rows and not follow:
                return
            if not rows:
                news = await self._news((int(run_id), STREAM, name, after), None)
                assert news is not None
                if news.place <= after:
                    return

    def submitted(
        self, task: Claimed, kind: str, name: str, chunks: Sequence[str], marks: Sequence[StepRow]
    ) -> Awaitable[Answer]:
        """Write what a turn of a run reports under a name, with marks of how much of it is written; a flush for all."""
        said, text = f"{kind}/{name}", f"[{','.join(chunks)}]"
        size = ROW_BYTES + len(text) + sum(map(size_of_step, marks))
        return self._db.flusher.submitted(
            Operation(
                "add_reports",
                (task.id, task.owner, task.turn, kind, name, len(chunks), text),
                row_id=(task.id, said),
                size=size,
                worker=task.owner,
                lane=task.id,
                order=(task.id, said),
                steps=[_marking(said, mark) for mark in marks],
            )
        )

    def written(self, run_id: int, kind: str, name: str, place: int, *, count: int, keep: int) -> None:
        """Tell who reads the run that it has reported, and remove what is older than what is kept, now and then."""
        self._db.wakeups.tell_reported(run_id)
        every = max(1, keep // 2)
        if place > keep and place // every != (place - count) // every:
            params: dict[str, Value] = {"id": run_id, "kind": kind, "name": name, "before": place - keep}
            job = begin_apart(self._trim(Call("trim_reports", params)), "stepwell-trim")
            self._trimming.add(job)
            job.add_done_callback(self._trimming.discard)

    async def _trim(self, call: Call) -> None:
        def script() -> Script[list[Row]]:
            return (yield call)

        try:
            await self._db.transact(script)
        except StepwellError as error:  # it is tried again as the run reports more
            self._db.telemetry.emit(InternalTaskFailed(f"removing old reports of run {call.params['id']}", str(error)))

    async def _news(self, wanted: Wanted, seconds: float | None) -> Reached | None:
        try:
            return await self._awaited(wanted, seconds)
        except RunNotFound:
            raise await self._db.no_run(wanted[0]) from None

    def _waited_of(self, run_ids: frozenset[int]) -> Collection[Wanted]:
        return [wanted for wanted in self._waiting if wanted[0] in run_ids]

    def _asking(self, some: Sequence[Wanted]) -> Call:
        return Call("news", self._db.params(), some)

    def _learn(self, some: Sequence[Wanted], rows: list[Row]) -> bool:
        found = {(row["run_id"], row["kind"], row["name"], row["after"]): row for row in rows}
        heard = False
        for wanted in some:
            if (row := found.get(wanted)) is None:
                self._end(wanted, RunNotFound(wanted[0]))
                heard = True
                continue
            is_progress = wanted[1:3] == (VALUE, PROGRESS) and row["has_progress"]
            place = 1 if is_progress else row["place"]
            if place > wanted[3] or row["ended"]:
                self._end(wanted, Reached(place, RunStatus(row["status"]), bool(row["ended"])))
                heard = True
        return heard


def parts_of(row: Row) -> list[str]:
    """The chunks of a row, each as it was written; one in the place of all if their subject was forgotten."""
    if row["data"] == FORGOTTEN_VALUE:
        return [FORGOTTEN_VALUE]
    return [bytes(part).decode() for part in msgspec.json.decode(row["data"], type=list[msgspec.Raw])]


def _marking(said: str, mark: StepRow) -> tuple[Any, ...]:
    """A mark as the row set of `settle_steps`: written if what it counts is."""
    # fmt: off
    return (mark.run_id, said, mark.generation, mark.key, mark.place, mark.status._value_, mark.attempt, mark.took,
            mark.input, mark.output, mark.error, mark.accepts)
    # fmt: on
