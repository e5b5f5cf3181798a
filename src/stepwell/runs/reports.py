"""What a run reports while it is executed: its progress, named values, and the chunks of streams.

No caller has to wait for the write. What code of the workflow reports is written once in the life of a run: in the same
transaction a mark in its journal counts how often each branch has reported under each name, and a replay leaves out as
many. What the body of a step reports, every attempt of it reports anew.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stepwell.base.names import check_name, check_whole
from stepwell.errors import LeaseLost, NotInRun, TooMuchUnwritten
from stepwell.records import RunStatus
from stepwell.runs.background_writes import noticed
from stepwell.runs.call import Attempt, current_attempt
from stepwell.runs.caller import branch_of
from stepwell.runs.result_write import acknowledged
from stepwell.store.pending import Operation
from stepwell.store.reports import PROGRESS, STREAM, VALUE
from stepwell.store.rows import CHECKPOINT, TOLD, Claimed, StepRow
from stepwell.store.tasks import PROGRESS_LIMIT
from stepwell.values.codec import encode
from stepwell.values.lossless import refuse_unnamed
from stepwell.values.stamp import read_value, write_value
from stepwell.work.current import hidden

if TYPE_CHECKING:
    from stepwell.runs.turn import RunTurn
    from stepwell.store.database import Database

ROOM_AFTER: Final = 0.1  # seconds until a progress that found no room is tried again, if it is still the latest
VALUES_KEPT: Final = 100  # of one name
CHUNKS_KEPT: Final = 100_000  # of a stream
MOST_TOGETHER: Final = 1000  # chunks that are written in one row, ...
MOST_BYTES: Final = 256 * 1024  # ... unless they are larger than this
MOST_WAITING: Final = 16 * 1024 * 1024  # characters of one run that wait to be written
SLOW_DOWN: Final = 1024 * 1024  # from which on a thread waits


class Report(msgspec.Struct, frozen=True):
    """One value or chunk, to be written; code of a workflow says as which of those that its branch reports."""

    kind: str
    name: str
    text: str
    keep: int
    branch: str | None = None
    number: int = 0


class Stream:
    """A stream out of a run."""

    def __init__(self, run: RunTurn, name: str, keep: int) -> None:
        self._run = run
        self._name = check_name(STREAM, name)
        self._keep = check_whole("keep", keep, 1, 10**9)

    def write(self, chunk: object) -> None:
        """Append a chunk, any JSON value; returns before it is written.

        Chunks are written together, in their order, and before the step or the run that writes them ends. Code on the
        loop that writes faster than the database takes it has to `await stream.written()` now and then.
        """
        _report(self._run, STREAM, self._name, chunk, self._keep)

    async def written(self) -> None:
        """Return when everything that the run has reported until now is written."""
        if self._run.reporting is not None:
            await self._run.reporting.written()


class Tells:
    """What a context reports to the readers of its run."""

    _run: RunTurn

    def set_value(self, name: str, value: object) -> None:
        """Set a named value of the run, which any process reads with `store.value(run, name)`: the last one counts.

        In workflow code it is set once in the life of the run, not again on a replay; in the body of a step, in every
        attempt. It returns before the value is written, which it is before the next step begins and before the run
        ends. The last 100 of each name are kept.
        """
        _set_value(self._run, name, value)

    def checkpoint(self, value: object) -> None:
        """Note how far the body of a step is, for its next attempt, which finds it as `last_checkpoint`.

        Returns before it is written; a checkpoint that is replaced before its write is never written. After a kill the
        last one that was written counts, which is some milliseconds old.
        """
        attempt = _attempt_of(self._run, "checkpoint")
        options, what = self._run.slot.database.options, f"checkpoint of {attempt.call.key}"
        text = write_value(value, limit=options.payload_limit, what=what, codec=options.codec)
        refuse_unnamed(value, what=what, codec=options.codec)
        if not attempt.is_over:
            keep_checkpoint(self._run, attempt.call.key, text)

    @property
    def last_checkpoint(self) -> Any:
        """What the body of this step has noted last with `checkpoint`, in this or an earlier attempt; None if nothing.

        As plain JSON. A step begins without one after `ctx.restart` and in a fork.
        """
        key = _attempt_of(self._run, "last_checkpoint").call.key
        noted = kept_checkpoint(self._run, key)
        return None if noted is None else read_value(noted, what=f"checkpoint of {key}")

    def stream(self, name: str, *, keep: int = CHUNKS_KEPT) -> Stream:
        """A stream out of the run: any process reads with `store.stream(run, name)` what is written to it, in order.

        In workflow code each chunk is written once in the life of the run; in the body of a step, in every attempt. At
        least the last `keep` chunks are kept.
        """
        return Stream(self._run, name, keep)


def tell(run: RunTurn, value: object) -> None:
    """Write the progress of a run, from any thread; a value that is replaced before its write is never written."""
    text = progress_text(value)
    run.on_loop(lambda: reporter_of(run).progress.write(text))


def progress_text(value: object) -> str:
    """A progress as it is stored."""
    return encode(value, limit=PROGRESS_LIMIT, what="progress")


def _set_value(run: RunTurn, name: str, value: object) -> None:
    """Set a named value of a run, from any thread."""
    if check_name(VALUE, name) == PROGRESS:
        tell(run, value)
    else:
        _report(run, VALUE, name, value, VALUES_KEPT)


def _attempt_of(run: RunTurn, call: str) -> Attempt:
    attempt = current_attempt()
    if attempt is None or attempt.call.run is not run:
        raise NotInRun(f"{call} is for the body of a step; workflow code needs none, as its steps are recorded")
    return attempt


def kept_checkpoint(run: RunTurn, step: str) -> str | None:
    """What a step has noted last, as JSON."""
    noted = run.journal.marks.get(CHECKPOINT + step)
    return None if noted is None else noted.output


def keep_checkpoint(run: RunTurn, step: str, text: str) -> None:
    """Keep a checkpoint: at once for the next attempt in this turn, and soon in the database."""
    # PENDING, since the statement leaves what has a result as it is.
    row = StepRow(run.task.id, run.task.generation, CHECKPOINT + step, 0, RunStatus.PENDING, output=text)
    run.journal.marks[row.key] = row
    run.on_loop(lambda: reporter_of(run).add(Report(CHECKPOINT, step, text, 1)))


def _report(run: RunTurn, kind: str, name: str, value: object, keep: int) -> None:
    options, what = run.slot.database.options, f"{kind} {name}"
    text = write_value(value, limit=options.payload_limit, what=what, codec=options.codec)
    refuse_unnamed(value, what=what, codec=options.codec)
    attempt = current_attempt()
    if attempt is not None and attempt.call.run is run:
        if attempt.is_over:
            return  # it has outlived its time limit: the next attempt reports
        attempt.reports = True
        report = Report(kind, name, text, keep)
    else:
        branch, _, number = branch_of(run, what).key(f"{kind}/{name}").rpartition("#")
        run.check()
        if int(number) <= run.journal.told(branch):
            return  # an earlier turn has written it
        report = Report(kind, name, text, keep, branch, int(number))
    _make_room(run, what)
    run.on_loop(lambda: reporter_of(run).add(report))


def _make_room(run: RunTurn, what: str) -> None:
    """Slow a thread down that reports faster than the database takes it; refuse code on the loop that goes too far."""
    if run.reporting is None or run.reporting.size < SLOW_DOWN:
        return
    if threading.get_ident() != run.home:
        asyncio.run_coroutine_threadsafe(run.reporting.written(), run.loop).result()
    elif run.reporting.size > MOST_WAITING:
        raise TooMuchUnwritten(run.task.id, what, run.reporting.size)


def reporter_of(run: RunTurn) -> Reporter:
    """That of this turn; only called on the loop, or two threads might create two."""
    if run.reporting is None:
        run.reporting = Reporter(run)
    return run.reporting


class Progress:
    """The progress of one turn of a task. Used on the worker's loop only."""

    def __init__(self, database: Database, task: Claimed, is_over: Callable[[], bool]) -> None:
        self._db = database
        self._task = task
        self._is_over = is_over
        self._latest: str | None = None
        self._writing: Operation | None = None

    def write(self, text: str) -> None:
        """Write this progress with the next flush, unless another one replaces it first."""
        self._latest = text
        self._write(text)

    def _write(self, text: str) -> None:
        if text is not self._latest or self._is_over():
            return
        task = self._task
        self._writing = self._db.tasks.note_progress(task.id, task.owner, task.turn, text, self._writing)
        if self._writing is None:
            self._db.loop.call_later(ROOM_AFTER, self._write, text)


class Reporter:
    """What one turn of a run reports. Used on the worker's loop only."""

    def __init__(self, run: RunTurn) -> None:
        self._run = run
        self.progress = Progress(run.slot.database, run.task, lambda: run.unwinding or run.is_lost)
        self._waiting: list[Report] = []
        self._job: asyncio.Task[None] | None = None
        self.size = 0  # characters that wait to be written

    def add(self, report: Report) -> None:
        """Write this behind what was added before; no body begins, and the run does not end, before it is written."""
        run = self._run
        if run.is_lost or (run.unwinding and run.restarts_with is None):
            return
        self._waiting.append(report)
        self.size += len(report.text)
        if self._job is None:
            self._job = job = run.loop.create_task(self._write_all(), context=hidden())
            run.enter(job)
            job.add_done_callback(partial(noticed, run))
            run.notes.append(job)

    async def written(self) -> None:
        """Wait until everything that was added is written, or cannot be."""
        if self._job is not None:
            await asyncio.wait([self._job])

    async def _write_all(self) -> None:
        try:
            await acknowledged(self._run)
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                named: dict[tuple[str, str], list[Report]] = {}
                for report in waiting:
                    named.setdefault((report.kind, report.name), []).append(report)
                await asyncio.gather(*map(self._write, named.values()))
        finally:
            self._job, self._waiting, self.size = None, [], 0

    async def _write(self, reports: Sequence[Report]) -> None:
        """Write what is reported under one name."""
        task, database = self._run.task, self._run.slot.database
        kind, name = reports[0].kind, reports[0].name
        if kind == CHECKPOINT:
            await database.steps.record(self._run.journal.marks[CHECKPOINT + name], task.owner, None, has_row=True)
            self.size -= sum(len(one.text) for one in reports)
            return
        for some in _together(reports):
            counted = {one.branch: one.number for one in some if one.branch is not None}
            marks = list(starmap(partial(_mark, self._run), counted.items()))
            answer = await database.reports.submitted(task, kind, name, [one.text for one in some], marks)
            if answer.number is None:
                raise LeaseLost(task.owner, task.id)
            self.size -= sum(len(one.text) for one in some)
            database.reports.written(task.id, kind, name, answer.number, count=len(some), keep=some[-1].keep)


def _together(reports: Sequence[Report]) -> Iterator[list[Report]]:
    """Some after the other, each as many as go into one row."""
    some: list[Report] = []
    size = 0
    for report in reports:
        if some and (len(some) == MOST_TOGETHER or size + len(report.text) > MOST_BYTES):
            yield some
            some, size = [], 0
        some.append(report)
        size += len(report.text)
    if some:
        yield some


def _mark(run: RunTurn, branch: str, number: int) -> StepRow:
    """The mark that a branch has reported so often under a name."""
    # PENDING, since the statement leaves what has a result as it is.
    return StepRow(run.task.id, run.task.generation, TOLD + branch, 0, RunStatus.PENDING, output=str(number))
