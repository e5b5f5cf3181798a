"""Group commit: all operations that are pending when a connection is free are written in one transaction.

There is no timer and no task. The operation of an idle caller is written at once, with those of the same turn of the
loop; under load all operations that were submitted during the last flush are written together. A flush that fails is
taken apart, so that no operation fails because of another: a refused row fails alone (`bisection.py`), and a locked one
waits apart (`lock_queue.py`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from stepwell.base.backoff import waits
from stepwell.base.deadlines import Deadlines
from stepwell.base.events import InternalTaskFailed, StoreBack, StoreLost
from stepwell.base.futures import Driven, begin_apart, resolve
from stepwell.errors import Refused, StepwellError, StoreBusy, StoreClosed, StoreLocked, StoreUnavailable
from stepwell.store.bisection import SEEKING, Isolated, isolated, one_by_one
from stepwell.store.driver import LOCKS, Call, Row, Script, Value
from stepwell.store.flush_calls import ADDED, PLACE_OF, UNSAID, Said, answers_of, calls_of
from stepwell.store.lock_queue import PATIENCE, Waiter, holder
from stepwell.store.pending import (
    MOST_ASIDE_BYTES,
    MOST_PENDING_BYTES,
    REQUESTS,
    Answer,
    Heard,
    Lane,
    Need,
    Operation,
    Requested,
    Room,
    RowId,
    answer_of,
    no_listener,
    tell_requests,
)

if TYPE_CHECKING:
    from stepwell.store.database import Database

T = TypeVar("T")
TRIES_TOGETHER: Final = 3  # a batch that loses its connection this often is tried one operation at a time
CROWD: Final = 300  # operations that wait in the first lane before the second is used: together they cost less
WAKING: Final = frozenset(("wake_parents", "next_in_group"))  # they return the queues of what is ready now
# The statement that repeats an operation when it is unknown whether the first try was written.
REPEATABLE: Final = {"add_tasks": "add_tasks_once", "hand_over": "add_tasks_once", "add_steps": "change_steps"}


class GroupCommit:
    """Collects operations and flushes them, one flush at a time on each of the driver's slots."""

    def __init__(self, database: Database) -> None:
        self._driver = driver = database.driver
        self._clock, self._telemetry = database.clock, database.telemetry
        self._lock_queue = database.lock_queue
        self._loop = asyncio.get_running_loop()
        self.shard = secrets.randbits(62)
        self.requested: Requested = no_listener  # called with the requests for turns, before any caller gets its answer
        self._woken = database.wakeups.hint  # for the queues to which a flush has added, or whose tasks it made ready
        # Back within a sixth of the lease after an outage, so that no healthy worker counts as dead.
        self._longest_wait = min(1.0, database.options.lease / 6)
        self._lanes = [Lane(slot) for slot in range(driver.flush_slots)]
        # An operation with a key may wait for another transaction, and its whole flush with it: those without never do.
        self._keyed = None if driver.key_slot is None else Lane(driver.key_slot)
        self._joining, self._leaving = Lane(driver.claim_slot), Lane(driver.claim_slot)  # the same of ordered groups
        self._every_lane = [*self._lanes, *filter(None, [self._keyed]), self._joining, self._leaving]
        self._operations_aside: dict[Operation, None] = {}
        self._room, self._room_aside = Room(MOST_PENDING_BYTES), Room(MOST_ASIDE_BYTES)
        self.deadlines: Deadlines[Operation] = Deadlines(self.give_up_on)
        self._closed = False
        self._naming: set[asyncio.Task[None]] = set()  # kept: the loop holds its tasks weakly

    async def submit(self, operation: Operation) -> Answer:
        """Write the operation with the next flush; waits first while too much is pending."""
        if self._closed:
            raise StoreClosed
        if not self._takes(operation):
            await self._room_of(operation).take(operation.size, operation.within)
        future: asyncio.Future[Answer] = self._loop.create_future()
        operation.future = future
        # By a timer, not where the flush fails: behind an operation that waits without a limit, nothing fails.
        if operation.within is not None:
            self.deadlines.add(operation, operation.within)
        self._append(operation)
        try:
            return await future
        finally:
            self.deadlines.remove(operation)
            if not operation.answered:  # its caller has gone: it need not be written any more
                operation.answered = True
                self._room_of(operation).give_back(operation.size)

    def submitted(self, operation: Operation) -> Awaitable[Answer]:
        """Write the operation, however long that takes, and whether or not the caller waits for the answer."""
        if self._closed or not self._takes(operation):
            return self.submit(operation)
        future = operation.future = self._loop.create_future()
        self._append(operation)
        return future

    def offer(self, operation: Operation, heard: Heard) -> bool:
        """Write the operation with the next flush and call `heard` with the answer; False if too much is pending."""
        if self._closed or not self._takes(operation):
            return False
        operation.heard = heard
        self._append(operation)
        return True

    def withdraw(self, operation: Operation) -> bool:
        """Do not write the operation, and give its caller no answer; False if a flush may have it already."""
        if operation.taken or operation.answered:
            return False
        operation.answered = True
        self._room_of(operation).give_back(operation.size)
        return True

    def replace(self, operation: Operation, row: tuple[Value, ...]) -> bool:
        """Write another row in the operation's place; False if a flush may have it already."""
        if operation.taken or operation.answered:
            return False
        operation.row = row
        return True

    def give_up_on(self, operation: Operation) -> None:
        """Tell the caller of the operation that it took too long, unless it was answered."""
        if operation.aside and not operation.repeated:
            job = begin_apart(self._name_holder(operation), "stepwell-holder")
            self._naming.add(job)
            job.add_done_callback(self._naming.discard)
            return
        troubles = (operation.trouble, *(lane.trouble for lane in self._every_lane))  # its own, or of those before it
        trouble = next((one for one in troubles if one is not None), None)
        why = getattr(trouble, "why", trouble) or "others before it were not written either"
        self._answer(operation, StoreUnavailable(f"not written in {operation.within:g} s: {why}"))

    def give_up(self, workers: set[int]) -> None:
        """Stop trying to write what these sessions have not written yet; it is unknown whether it was written."""
        waiting = [one for lane in self._every_lane for one in (*lane.under_way, *lane.pending)]
        given_up = [one for one in (*waiting, *self._operations_aside) if one.worker in workers]
        self._fail(given_up, StoreUnavailable("not written before its session ended"))

    async def close(self) -> None:
        """Flush what is pending, then refuse new operations."""
        self._closed = True
        await self.settled()
        while self._operations_aside:
            await self._lock_queue.empty()
            await self.settled()
        self.deadlines.close()

    async def settled(self) -> None:
        """Return when nothing is pending: all that was submitted was written, or its caller was told why not."""
        while busy := [lane for lane in self._every_lane if not lane.rests.is_set()]:
            await busy[0].rests.wait()

    def _takes(self, operation: Operation) -> bool:
        operation.aside = self._is_held(operation)
        return self._room_of(operation).takes(operation.size)

    def _room_of(self, operation: Operation) -> Room:
        return self._room_aside if operation.aside else self._room

    def _is_held(self, operation: Operation) -> bool:
        return bool(self._lock_queue.held) and self._lock_queue.holds(operation.needs)

    def _append(self, operation: Operation) -> None:
        if self._is_held(operation):
            self._wait_aside(operation, frozenset(), behind=True)
            return
        self._move(operation, aside=False)
        lane = self._lane_of(operation)
        lane.append(operation)
        if lane.rests.is_set():
            lane.rests.clear()
            self._loop.call_soon(Driven.begin, partial(self._drain, lane), partial(self._drained, lane))

    def _answer(self, operation: Operation, answer: Answer | BaseException) -> None:
        if operation.answered:
            return
        operation.answered = True
        self._room_of(operation).give_back(operation.size)
        if operation.future is not None:
            resolve(operation.future, answer)
            return
        assert operation.heard is not None
        try:
            operation.heard(answer)
        except Exception as error:  # noqa: BLE001 - one listener's defect must not become the answer of the others
            self._telemetry.emit(InternalTaskFailed("hearing an answer", repr(error)))

    def _resolve(self, batch: Sequence[Operation], answers: Mapping[RowId, Said]) -> None:
        # Before the callers get their answers: the workers wake up first, then the callers go on.
        if added := {
            one.adds_to for one in batch if one.adds_to is not None and answers.get(one.row_id, UNSAID)[0] == ADDED
        }:
            self._woken(added)
        for operation in batch:
            self._answer(operation, answer_of(*answers.get(operation.row_id, UNSAID), operation.repeated))

    def _fail(self, batch: Iterable[Operation], error: BaseException) -> None:
        for operation in batch:
            self._answer(operation, error)

    async def _name_holder(self, operation: Operation) -> None:
        """Say which transaction the operation waited for in vain, unless it was written in the meantime."""
        what = "its row" if operation.key is None else f"its key {operation.key[1]!r}"
        held = f"not written in {operation.within:g} s: {what} is held by {await holder(self._driver)}"
        self._answer(operation, StoreLocked(f"{held}; end that transaction, or try again later"))

    def _lane_of(self, operation: Operation) -> Lane:
        if operation.group is not None and operation.lane is None:
            return self._joining
        if operation.key is not None and operation.lane is None and self._keyed is not None:
            return self._keyed
        if operation.lane is not None:  # the operations of one task stay in one lane, so that they are written in order
            for lane in self._lanes:
                if operation.lane in lane.tasks:
                    return lane
            if operation.group is not None:
                return self._leaving
        if len(self._lanes[0].pending) <= CROWD:
            return self._lanes[0]
        return min(self._lanes, key=lambda lane: len(lane.pending))

    async def _drain(self, lane: Lane) -> None:
        try:
            while batch := lane.take():
                lane.under_way = batch
                try:
                    await self._flush(lane, batch)
                except Exception as error:  # noqa: BLE001 - its callers were told; the others' lane must go on
                    self._telemetry.emit(InternalTaskFailed("flush", repr(error)))
                finally:
                    lane.left(batch)
        finally:
            lane.under_way = []
            lane.rests.set()

    def _drained(self, lane: Lane, error: BaseException | None) -> None:
        if error is not None:  # with the loop, what it waited for was cancelled: its callers must not wait for ever
            self._fail(tuple(lane.pending), error)  # the next drain removes them

    async def _flush(self, lane: Lane, batch: list[Operation]) -> None:
        """Write a batch, and repeat it as its failures allow; every operation is answered when this returns."""
        try:
            await self._try(lane, batch)
            if _unanswered(batch):
                await self._repeat(lane, batch)
        except BaseException as error:
            self._fail(_unanswered(batch), error)  # no caller may be left waiting
            if not isinstance(error, StepwellError):
                raise

    async def _repeat(self, lane: Lane, batch: list[Operation]) -> None:
        """Write what a first try has left, until every operation is answered or waits aside."""
        pauses = waits(self._longest_wait, self._clock.random)
        together = TRIES_TOGETHER - 1
        await asyncio.sleep(next(pauses))
        while batch := _unanswered(batch):
            # Each in turn: an operation that can never be written does not delay the others.
            for part in [batch] if together > 0 else [[operation] for operation in batch]:
                await self._try(lane, part)
            if not all(isinstance(operation.trouble, StoreLocked) for operation in batch):
                together -= 1  # else a table is locked, for all operations
            if _unanswered(batch):
                await asyncio.sleep(next(pauses))

    async def _try(self, lane: Lane, batch: list[Operation]) -> None:
        """Write the operations in one transaction; those that it leaves unanswered are repeated."""
        calls, apart = self._calls(lane, batch), any(one.group is not None for one in batch)
        try:
            rows = await (
                self._transact(partial(one_by_one, calls), LOCKS) if apart else self._driver.run(lane.slot, calls)
            )
        except (Refused, StoreLocked) as error:
            await self._take_apart(lane, batch, error)
        except (StoreBusy, StoreUnavailable) as error:
            self._lost(lane, batch, error)
        else:
            self._found(lane)
            self._tell(calls, rows)
            self._resolve(batch, answers_of(calls, rows))

    def _transact(self, script: Callable[[], Script[T]], patience: float) -> Awaitable[T]:
        return begin_apart(self._driver.transact(script, patience=patience), "stepwell-flush-apart")

    async def _take_apart(self, lane: Lane, batch: list[Operation], error: Refused | StoreLocked) -> None:
        """Find the rows that the database refuses or that are locked, in one more transaction, and write the others."""
        if len(batch) == 1 and isinstance(error, Refused):
            self._fail(batch, error)
            return
        ordered = sorted(batch, key=lambda one: (PLACE_OF[one.statement], one.order))  # as a flush locks them
        locked = isinstance(error, StoreLocked)
        talk = partial(isolated, ordered, partial(self._calls, lane), is_locked=locked)
        try:
            found = await self._transact(talk, SEEKING)
        except (StoreBusy, StoreUnavailable) as lost:
            self._lost(lane, batch, lost)  # it may have been written nevertheless
            return
        self._found(lane)
        self._came_of(batch, found)

    def _came_of(self, batch: Sequence[Operation], found: Isolated) -> None:
        """Answer operations that were tried in parts; those whose rows are locked wait aside."""
        for calls, rows in found.written:
            self._tell(calls, rows)
        apart = found.refused.keys() | found.held.keys()
        answers = {row: answer for calls, rows in found.written for row, answer in answers_of(calls, rows).items()}
        self._resolve([operation for operation in batch if operation not in apart], answers)
        for operation, refusal in found.refused.items():
            self._fail([operation], refusal)
        for operation, held in found.held.items():
            if not operation.answered:
                self._wait_aside(operation, held, behind=False)

    def _wait_aside(self, operation: Operation, held: frozenset[Need], *, behind: bool) -> None:
        self._move(operation, aside=True)
        self._operations_aside[operation] = None
        self._lock_queue.put(
            Waiter(
                needs=operation.needs,
                held=held | operation.own,
                attempt=partial(self._try_aside, operation),
                drop=partial(self._answer, operation),
                go_on=partial(self._go_on, operation) if behind else None,
            )
        )

    def _go_on(self, operation: Operation) -> None:
        del self._operations_aside[operation]
        if not operation.answered:
            self._append(operation)

    def _move(self, operation: Operation, *, aside: bool) -> None:
        if operation.aside != aside:
            self._room_of(operation).give_back(operation.size)
            operation.aside = aside
            self._room_of(operation).overdraw(operation.size)

    async def _try_aside(self, operation: Operation) -> bool:
        """Write one operation alone; False if it has to wait longer, or for operations of its task in a lane."""
        if not operation.answered and not any(operation.lane in lane.tasks for lane in self._every_lane):
            lane = self._lanes[0]
            operation.taken = True
            talk = partial(isolated, [operation], partial(self._calls, lane), is_locked=False)
            try:
                found = await self._driver.transact(talk, patience=PATIENCE)
            except (StoreBusy, StoreUnavailable) as error:
                self._lost(lane, [operation], error)
                return operation.answered
            if not found.held:
                self._came_of([operation], found)
        if operation.answered:
            del self._operations_aside[operation]
        return operation.answered

    def _calls(self, lane: Lane, batch: Sequence[Operation]) -> list[Call]:
        clock: dict[str, Value] = {"now": self._clock.now(), "beat_now": self._clock.beat_now()}
        locks, beats = self._driver.key_slot is not None, self._driver.flush_beats
        return calls_of(batch, clock, slot=lane.slot, shard=self.shard, locks_tasks=locks, beats=beats)

    def _tell(self, calls: Sequence[Call], answered: Sequence[Sequence[Row]]) -> None:
        for call, rows in zip(calls, answered, strict=True):
            if call.statement in WAKING and (queues := {row["id"] for row in rows if row["answer"]}):
                self._woken(queues)
            if call.statement == REQUESTS and rows:
                tell_requests(rows, self.requested)

    def _lost(self, lane: Lane, batch: Sequence[Operation], error: StoreBusy | StoreUnavailable) -> None:
        again = any(operation.trouble is not None for operation in batch)
        lane.trouble = error
        for operation in batch:
            operation.trouble = error
        if isinstance(error, StoreBusy):
            if again:  # once is an ordinary race; a repeated failure is reported
                self._telemetry.emit(StoreLost.by(error))
            return
        for operation in batch:
            operation.repeated = True
            if operation.row_again is not None:
                operation.row = operation.row_again
            operation.statement = REPEATABLE.get(operation.statement, operation.statement)
        self._telemetry.emit(StoreLost(error.why))
        if lane.lost_since is None:
            lane.lost_since = self._clock.monotonic()

    def _found(self, lane: Lane) -> None:
        lane.trouble = None
        if lane.lost_since is not None:
            self._telemetry.emit(StoreBack(self._clock.monotonic() - lane.lost_since))
            lane.lost_since = None


def _unanswered(batch: Iterable[Operation]) -> list[Operation]:
    return [operation for operation in batch if not (operation.answered or operation.aside)]
