"""The verbs of a run's steps: read what is recorded, and record."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from stepwell.base.events import InternalTaskFailed
from stepwell.base.futures import begin_apart, resolve, resolve_all
from stepwell.errors import LeaseLost, StepwellError
from stepwell.records import RunStatus
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.emission import Emission
from stepwell.store.pending import REQUESTS, Answer, Heard, Operation, tell_requests
from stepwell.store.rows import Claimed, StepRow
from stepwell.store.settle import size_of_step

if TYPE_CHECKING:
    from stepwell.store.database import Database

MOST_RUNS: Final = 500  # whose steps are read at once

Which = tuple[int, int]  # a run, and its generation


class InTurn(NamedTuple):
    """What was written with a result in the transaction of its body, and what the session's runs are asked."""

    queues: frozenset[int]
    requests: list[Row]


class Steps:
    """Steps in one store."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._driver, self._flusher, self._audit = database.driver, database.flusher, database.audit
        self._wanted: dict[Which, asyncio.Future[list[StepRow]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._late: set[asyncio.Task[None]] = set()

    async def of(self, run_id: int, generation: int) -> list[StepRow]:
        """What a run has recorded in this generation, in its order.

        It is read after the claim: from then on no other session records for the run. One statement answers all runs
        that ask at the same time; it is repeated until the database answers.
        """
        which = (run_id, generation)
        if which not in self._wanted:
            self._wanted[which] = asyncio.get_running_loop().create_future()
        wanted = self._wanted[which]
        if self._reading is None:
            self._reading = begin_apart(self._read_all(), "stepwell-steps")
        return await asyncio.shield(wanted)

    def begin(self, row: StepRow, worker: int, *, has_row: bool) -> Operation | None:
        """Write with the next flush that a step has begun; no caller waits for that, and it may be left out."""
        operation = _recording(row, worker, has_row=has_row)
        return operation if self._flusher.offer(operation, _unheard) else None

    async def record(self, row: StepRow, worker: int, begun: Operation | None, *, has_row: bool) -> None:
        """Write the result of a step; when this returns, no replay will execute it again. The first result wins.

        Raises `LeaseLost`, and writes nothing, if the session may not write any more.
        """
        answer = await self.submitted(row, worker, begun, has_row=has_row)
        if answer.value is None:
            await self.doubted(row, worker, answer)

    def offer(self, row: StepRow, worker: int, heard: Heard) -> Operation | None:
        """Write the result of a step that has no row and did not fail; None if there is no room for that.

        `heard` is called with the answer; one without a row is for `doubted`.
        """
        operation = _recording(row, worker, has_row=False)
        return operation if self._flusher.offer(operation, heard) else None

    def submitted(self, row: StepRow, worker: int, begun: Operation | None, *, has_row: bool) -> Awaitable[Answer]:
        """Write the result of a step; the caller has to pass an answer without a row to `doubted`.

        If its beginning still waits to be written, it is dropped: most steps are one row and one commit.
        """
        withdrawn = begun is None or self._flusher.withdraw(begun)
        operation = _recording(row, worker, has_row=has_row or not withdrawn)
        if (note := self._audit.failed_step(row, worker)) is not None:
            operation.notes = (note,)
        return self._flusher.submitted(operation)

    def keep_late(self, row: StepRow, turn: int, begun: Operation | None) -> None:
        """Write what a body returned after its run was stopped, unless a session has claimed the run since.

        No caller waits for it. It tells people what was done; a run that is retried does not execute that step again.
        """
        self.withdraw(begun)
        task = begin_apart(self._record_late(row, turn), "stepwell-late-result")
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def withdraw(self, begun: Operation | None) -> None:
        """Drop the note that a step has begun, if it still waits to be written."""
        if begun is not None:
            self._flusher.withdraw(begun)

    async def _record_late(self, row: StepRow, turn: int) -> None:
        values = (row.run_id, turn, row.generation, row.key, row.place, row.attempt, row.took, row.input, row.output)
        call = Call("record_late", self._db.params(), [values])
        try:
            await self._db.transact(lambda: _say(call))
        except StepwellError as error:
            self._db.telemetry.emit(
                InternalTaskFailed(f"recording {row.key} of run {row.run_id}, which came late", str(error))
            )

    def in_turn(self, row: StepRow, task: Claimed, emissions: Sequence[Emission]) -> Script[InTurn | None]:
        """Record a result, and the events of its body, in the transaction of that body, right before its commit.

        None, and the transaction is to be rolled back, if the turn does not stand any more or the step has a result.
        """
        if emissions:
            yield from self._db.outboxes.locking(emissions)
        values = (row.run_id, task.owner, task.turn, row.generation, row.key, row.place, row.attempt, row.took)
        if not (yield Call("record_in_turn", self._db.params(), [(*values, row.input, row.output)])):
            return None
        added = (yield from self._db.outboxes.writing(emissions)) if emissions else set()
        return InTurn(frozenset(added), (yield Call(REQUESTS, rows=[(task.owner,)])))

    def committed(self, written: InTurn) -> None:
        """Tell what came with a result: where its events wait, and what runs were asked meanwhile."""
        tell_requests(written.requests, self._flusher.requested)
        if written.queues:
            self._db.wakeups.hint(set(written.queues))

    async def after(self, row: StepRow, task: Claimed) -> StepRow | None:
        """What is recorded of a step, once no transaction of this turn can still record it.

        Raises `LeaseLost` if the turn does not stand any more.
        """

        def asking() -> Script[StepRow | None]:
            if not (yield Call("outlast_turns", rows=[(task.id, task.owner, task.turn)])):
                raise LeaseLost(task.owner, task.id)
            found = [step_of(one) for one in (yield Call("steps_of", rows=[(row.run_id, row.generation)]))]
            return next((one for one in found if one.key == row.key), None)

        return await self._db.transact(asking)

    async def doubted(self, row: StepRow, worker: int, answer: Answer) -> None:
        """Check a row that did not come back: raises `LeaseLost` unless it had been written before."""
        if not await self._recorded_before(row, worker, answer):
            raise LeaseLost(worker, row.run_id)

    async def _recorded_before(self, row: StepRow, worker: int, answer: Answer) -> bool:
        """True if an earlier try whose reply was lost has written the row, and the session still lives."""
        if not answer.repeated:
            return False
        alive = await self._read(Call("living_workers", self._db.params()))
        if not any(session["worker_id"] == worker for session in alive):
            return False
        found = [step_of(one) for one in await self._read(Call("steps_of", rows=[(row.run_id, row.generation)]))]
        return any((one.key, one.status, one.output) == (row.key, row.status, row.output) for one in found)

    async def _read_all(self) -> None:
        """Answer all runs that ask, until none is left."""
        while self._wanted:
            await asyncio.sleep(0)  # runs that were claimed with the first ask in the same turn of the loop
            asked = dict(list(self._wanted.items())[:MOST_RUNS])
            for which in asked:
                del self._wanted[which]  # before the read: a session that has claimed it since is answered by the next
            try:
                found = await self._grouped(asked)
            except BaseException as error:  # noqa: BLE001 - every one of those who wait is told
                resolve_all(asked.values(), error)
            else:
                for which, future in asked.items():
                    resolve(future, found[which])
        self._reading = None

    async def _grouped(self, asked: Iterable[Which]) -> dict[Which, list[StepRow]]:
        found: dict[Which, list[StepRow]] = defaultdict(list)
        for row in await self._read(Call("steps_of", rows=list(asked))):
            found[row["run_id"], row["generation"]].append(step_of(row))
        return found

    async def _read(self, call: Call) -> list[Row]:
        return await self._db.repeat(lambda: self._driver.read(call))


def values_of(row: StepRow, worker: int) -> tuple[Value, ...]:
    """A step as the row set `new_step` of steps.sql."""
    # fmt: off
    return (row.run_id, worker, row.generation, row.key, row.place, row.status._value_, row.attempt, row.took,
            row.input, row.output, row.error, row.accepts)
    # fmt: on


def _recording(row: StepRow, worker: int, *, has_row: bool) -> Operation:
    return Operation(
        "change_steps" if has_row else "add_steps",
        values_of(row, worker),
        row_id=(row.run_id, row.key),
        size=size_of_step(row),
        worker=worker,
        lane=row.run_id,
        order=(row.run_id, row.place),
    )


def step_of(row: Row) -> StepRow:
    """A step as it was read."""
    return StepRow(
        run_id=row["run_id"],
        generation=row["generation"],
        key=row["key"],
        place=row["place"],
        status=RunStatus(row["status"]),
        attempt=row["attempt"],
        input=row["input"],
        output=row["output"],
        error=row["error"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        accepts=row["accepts"],
    )


def _say(call: Call) -> Script[list[Row]]:
    return (yield call)


def _unheard(_: Answer | BaseException) -> None:
    """No caller waits for this answer."""
