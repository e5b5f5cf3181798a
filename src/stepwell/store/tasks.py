"""The verbs of a task's life: claim, settle, wake. Sets in, sets out; the code above judges the outcomes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stepwell.base.names import HIGHEST_PRIORITY, LOWEST_PRIORITY
from stepwell.errors import LeaseLost
from stepwell.records import RunStatus, TaskKind
from stepwell.store.audit import Note, rows_of
from stepwell.store.bisection import one_by_one
from stepwell.store.control import end_children
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.ends import tell_ends
from stepwell.store.handover import HandOver
from stepwell.store.hints.wakeups import Alarm, Listener
from stepwell.store.ordered_groups import let_next_go, lock_groups
from stepwell.store.pending import REQUESTS, Answer, GroupKey, Heard, Operation, Requested, tell_requests
from stepwell.store.rows import ROW_BYTES, Claimed, Settlement, Wish
from stepwell.store.settle import Following, ending_rows, settle_row, settled_step, size_of_step, wake_parents

if TYPE_CHECKING:
    from stepwell.store.database import Database

KINDS: Final = {kind.value: kind for kind in TaskKind}
MOST_DUE: Final = 1000
TICK_AGAIN: Final = 0.2  # seconds until the next look at ticks that could not be fired
PROGRESS_LIMIT: Final = 16 * 1024  # bytes that a run may report as its progress

Place = tuple[int, int, int, int, int]  # queue, capacity, priority, run_at, id: where a claim above goes on
Wanted = tuple[int, int, int, int]  # queue, capacity, lowest and highest priority


class Tasks:
    """Tasks in one store."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._driver, self._flusher, self._audit = database.driver, database.flusher, database.audit
        self.alarm = Alarm()
        self.hand_over = HandOver(database)
        self.limited: frozenset[int] = frozenset()  # the queues of which it is known that they have limits
        self._wishing: list[Requested] = []
        database.flusher.requested = self.wished

    def on_added(self, listener: Listener) -> None:
        """Call the listener with the queues to which tasks were added or given back: a hint, never relied on."""
        self._db.wakeups.on_added(listener)

    def off_added(self, listener: Listener) -> None:
        """Stop calling the listener."""
        self._db.wakeups.off_added(listener)

    def on_wish(self, listener: Requested) -> Callable[[], None]:
        """Call the listener with the requests for turns of running tasks, until the returned function is called."""
        self._wishing.append(listener)
        return lambda: self._wishing.remove(listener)

    def wished(self, wish: Wish, turns: Mapping[int, int]) -> None:
        """Say that this is requested of these turns, by task: here, or by a process whose request was read here."""
        for listener in tuple(self._wishing) if turns else ():
            listener(wish, turns)

    async def hear_requests(self, worker: int) -> None:
        """Read the requests for a session's turns, and report them: for bodies that record nothing for a while."""
        tell_requests(await self._driver.read(Call(REQUESTS, {}, [(worker,)])), self.wished)

    async def claim(
        self, worker: int, queues: Sequence[tuple[int, int]], limit: int, *, levels: Mapping[int, int] | None = None
    ) -> list[Claimed]:
        """Claim up to `limit` ready tasks for a session: of each queue at most its capacity, in the order given.

        With `levels`, of each queue only tasks of the priority named for it.
        """
        asked_at = time.monotonic()
        params = self._db.params(worker=worker, slot=self._db.claim_slot, limit=limit)
        rows = await self.pick("claim", params, wanted_of(queues, levels or {}))
        return claimed_of(worker, rows, [queue_id for queue_id, _ in queues], asked_at)

    async def pick(self, statement: str, params: dict[str, Value], wanted: Sequence[Wanted]) -> list[Row]:
        """Run a statement that takes ready tasks, for all the queues at once or one after the other."""
        if not self._driver.claims_many_queues:
            return await self._driver.transact(lambda: self._noted(params, _each_queue(statement, params, wanted)))
        return await self._claiming(Call(statement, params, wanted))

    async def oldest(self, queues: Sequence[int]) -> dict[int, int]:
        """Of each queue that has ready tasks, the priority of the task that has been ready for longest."""
        rows = await self._driver.read(Call("oldest", self._db.params(), [(queue_id,) for queue_id in queues]))
        by_age = sorted(rows, key=lambda row: row["run_at"], reverse=True)
        return {row["queue_id"]: row["priority"] for row in by_age}  # the oldest comes last, and stays

    async def claim_above(self, worker: int, places: Sequence[Place], limit: int) -> list[Claimed]:
        """Claim in a backlog from where the last claim ended; Postgres only, where old index entries remain."""
        asked_at = time.monotonic()
        params = self._db.params(worker=worker, slot=self._db.claim_slot, limit=limit)
        rows = await self._claiming(Call("claim_above", params, places))
        return claimed_of(worker, rows, list(dict.fromkeys(place[0] for place in places)), asked_at)

    async def settle(
        self,
        task_id: int,
        worker: int,
        turn: int,
        settlement: Settlement,
        *,
        parent: int | None = None,
        attempt: int | None = None,
        group: GroupKey | None = None,
    ) -> str:
        """Settle a turn with its result; repeats until the database answers. Returns the status that the task has now.

        Raises `LeaseLost`, and writes nothing, if the session or the turn no longer holds the task.
        """
        answer = await self._flusher.submit(
            self._settling(task_id, worker, turn, settlement, parent=parent, attempt=attempt, group=group)
        )
        return await self.settled(task_id, worker, turn, answer)

    async def settle_with(self, task_id: int, worker: int, turn: int, done: Settlement, what: Following) -> str:
        """Settle a turn, and do what follows from its outcome in the same transaction."""
        told: set[int] = set()
        settling, ended = self._settling(task_id, worker, turn, done, group=what.group), list[Row]()
        status = await self._db.repeat(
            lambda: self._driver.transact(lambda: self._settling_with(settling, what, told, ended)), patience=10
        )
        self._db.wakeups.hint(told)
        await self._db.control.tell_cancelled(ended, set())
        if status is None:
            status = await self._settled_before(task_id, worker, turn)
        if status is None:
            raise LeaseLost(worker, task_id)
        return status

    def settle_soon(
        self,
        task_id: int,
        worker: int,
        turn: int,
        settlement: Settlement,
        heard: Heard,
        *,
        parent: int | None = None,
        attempt: int | None = None,
        group: GroupKey | None = None,
    ) -> bool:
        """Settle without a waiting caller: `heard` is called with the answer, for `settled`. False if there is no room.

        A task that awaits its answer costs a third more client time than a callback.
        """
        return self._flusher.offer(
            self._settling(task_id, worker, turn, settlement, parent=parent, attempt=attempt, group=group), heard
        )

    def note_progress(
        self, task_id: int, worker: int, turn: int, text: str, before: Operation | None
    ) -> Operation | None:
        """Write the progress of a task, in place of the progress noted `before` if no flush has that yet.

        No caller waits for it; None if there is no room for it.
        """
        row = (task_id, worker, turn, text)
        if before is not None and self._flusher.replace(before, row):
            return before
        size = ROW_BYTES + PROGRESS_LIMIT  # also of the progress that may replace it
        operation = Operation("note_progress", row, row_id=task_id, size=size, worker=worker, lane=task_id, order=row)
        told = partial(self._progressed, task_id)
        return operation if self._flusher.offer(operation, told) else None

    def _progressed(self, run_id: int, answer: Answer | BaseException) -> None:
        if isinstance(answer, Answer) and answer.value is not None:
            self._db.wakeups.tell_reported(run_id)

    def _settling_with(
        self, settling: Operation, what: Following, told: set[int], ended: list[Row]
    ) -> Script[str | None]:
        params, groups = self._db.params(slot=self._db.claim_slot), list(filter(None, [settling.group]))
        yield from lock_groups(groups)
        counting = Call("count_settled", {"shard": self._flusher.shard}, fed_by=0)
        steps = Call("settle_steps", params, settling.steps, fed_by=0)
        ending = Call("end_steps", params, ending_rows(settling) if settling.ends_run else (), fed_by=0)
        noting = Call("note", params, rows_of(settling.notes), fed_by=0)
        yield Call("lock_ending" if what.ends else "lock_tasks", params, [(settling.lane, settling.worker)])
        settling_all = [Call("settle", params, [settling.row]), counting, steps, ending, noting]
        settled, *_ = yield from one_by_one(settling_all)
        if not settled:
            return None
        told |= yield from let_next_go(params, groups)
        told |= yield from wake_parents(params, settled, status="answer")
        status: str = settled[0]["answer"]
        if what.tells:
            told |= yield from tell_ends(self._db, [settled[0]["id"]] if status == settling.row[3] else [])
        if what.ends and RunStatus(status).finished:
            parent = {"id": settled[0]["id"], "ends_children": True}
            ended[:] = yield from end_children(params, [parent], told, self._audit, timed_out=what.timed_out)
        return status

    def give_up(self, workers: set[int]) -> None:
        """Write nothing more for these sessions: they end, and other sessions execute what they could not settle."""
        self._flusher.give_up(workers)

    async def settled(self, task_id: int, worker: int, turn: int, answer: Answer | BaseException) -> str:
        """The meaning of an answer to a settle: the status that the task has now, or `LeaseLost`."""
        if isinstance(answer, BaseException):
            raise answer
        if answer.value is not None:
            return answer.value
        if answer.repeated and (status := await self._settled_before(task_id, worker, turn)):
            return status
        raise LeaseLost(worker, task_id)

    async def again(self, task_id: int) -> Row | None:
        """The columns of a task that its claim did not return; None if the task is gone."""
        rows = await self._repeated(Call("task_again", {"id": task_id}), patience=10)
        return rows[0] if rows else None

    async def earlier_error(self, task_id: int) -> dict[str, Any]:
        """The error that an earlier turn of the task has stored; empty if none has."""
        again = await self.again(task_id)
        error: dict[str, Any] = {} if again is None else json.loads(again["error"] or "{}")
        return error

    async def wake_due(self) -> tuple[set[int], float | None]:
        """Make due tasks ready, fire due schedules. Returns their queues, and in how many seconds the next is due."""
        [rows] = await self._driver.run(self._db.claim_slot, [self._due(taken=False)])
        woken: set[int] = {row["queue_id"] for row in rows}
        [left] = await self._driver.read(Call("next_due", self._db.params()))
        if left["limited"] or self.limited:
            await self._db.limiters.look()
        if left["taken"]:
            woken |= await self.wake()
        waits = [] if left["wait"] is None else [max(0.0, left["wait"] / 1_000_000)]
        if left["expires"] is not None:
            waits.append(left["expires"] / 1_000_000)
            if left["expires"] <= 0:
                any_expired, parents = await self._db.control.expire()
                woken |= parents
                waits[-1] = 0.0 if any_expired else TICK_AGAIN
        if left["buffered"] or (left["tick"] is not None and left["tick"] <= 0):
            fired = await self._db.ticks.fire()
            woken |= fired
            waits.append(0.0 if fired else TICK_AGAIN)
        elif left["tick"] is not None:
            waits.append(left["tick"] / 1_000_000)
        return woken, min(waits, default=None)

    async def wake(self) -> set[int]:
        """Make due tasks ready, a bounded number at once, and take back messages taken by hand and not closed in time.

        That may end a task, which is noted and reported to its parent: several statements, so not for every sweep.
        """
        return await self._driver.transact(partial(self._waking, self._due(taken=True), self._db.params()))

    async def _claiming(self, call: Call) -> list[Row]:
        """Claim tasks by one statement; in one round trip, unless the audit notes claims."""
        if self._audit.everything:
            return await self._driver.transact(lambda: self._noted(dict(call.params), _say(call)))
        [rows] = await self._driver.run(self._db.claim_slot, [call])
        return rows

    def _due_after(self, delay: int) -> None:
        if delay:
            self.alarm.set(delay / 1_000_000)

    def _settling(
        self,
        task_id: int,
        worker: int,
        turn: int,
        done: Settlement,
        *,
        parent: int | None = None,
        attempt: int | None = None,
        group: GroupKey | None = None,
    ) -> Operation:
        self._due_after(done.delay)
        row = settle_row(task_id, worker, turn, done)
        size = ROW_BYTES + len(done.output or "") + len(done.error or "") + len(done.input or "")
        note = self._audit.settled(row, attempt)
        notes: Sequence[Note] = () if note is None else (note,)  # no empty list, for the garbage collector's sake
        steps: Sequence[tuple[Value, ...]] = ()
        if done.steps:
            size += sum(map(size_of_step, done.steps))
            failed = (self._audit.failed_step(step, worker, settled=True) for step in done.steps)
            notes = [*filter(None, failed), *notes]
            steps = [settled_step(step) for step in done.steps]
        return Operation(
            "settle",
            row,
            row_id=task_id,
            size=size,
            within=None,  # a body that has finished must not run again because the database was away
            worker=worker,
            lane=task_id,
            order=row,
            parent=parent,  # whatever the status is: if a cancel was requested, the task ends with this
            group=group,
            restarts=done.input is not None,
            ends_run=done.ends_run,
            steps=steps,
            notes=notes,
        )

    async def _settled_before(self, task_id: int, worker: int, turn: int) -> str | None:
        """The task's status, if an earlier settle whose reply was lost was written; None if the task was not ours."""
        [row] = await self._repeated(Call("turns_of", rows=[(task_id,)])) or [None]
        alive = await self._repeated(Call("living_workers", self._db.params()))
        if row is None or not any(session["worker_id"] == worker for session in alive):
            return None
        ours = row["turn"] == turn and row["owner"] is None
        return str(row["status"]) if ours else None

    def _due(self, *, taken: bool) -> Call:
        return Call("wake_due", self._db.params(limit=MOST_DUE, taken=taken))

    def _waking(self, due: Call, params: dict[str, Value]) -> Script[set[int]]:
        rows = yield due
        yield from self._audit.unacknowledged(params, rows)
        parents = yield from wake_parents(params, rows, status="answer")
        return {row["queue_id"] for row in rows} | parents

    def _noted(self, params: dict[str, Value], claiming: Script[list[Row]]) -> Script[list[Row]]:
        rows = yield from claiming
        yield from self._audit.claimed(params, rows)
        return rows

    async def _repeated(self, call: Call, *, patience: int = 1) -> list[Row]:
        return await self._db.repeat(lambda: self._driver.read(call), patience=patience)


def _say(call: Call) -> Script[list[Row]]:
    return (yield call)


def _unheard(_: Answer | BaseException) -> None:
    """No caller waits for this answer."""


def _each_queue(statement: str, params: dict[str, Value], wanted: Sequence[Wanted]) -> Script[list[Row]]:
    """Claim from each queue in turn, in one transaction, if one statement serves only one queue."""
    claimed: list[Row] = []
    limit = int(params["limit"] or 0)
    for queue_id, capacity, least, most in wanted:
        room = min(capacity, limit - len(claimed))
        if room > 0 and (yield Call("has_ready", {"queue_id": queue_id})):
            place = {"queue_id": queue_id, "limit": room, "least": least, "most": most}
            claimed += yield Call(statement, {**params, **place})
    return claimed


def wanted_of(queues: Sequence[tuple[int, int]], levels: Mapping[int, int]) -> list[Wanted]:
    """What to take of each queue: of every priority, or of the one named for it."""
    lowest = [levels.get(queue_id, LOWEST_PRIORITY) for queue_id, _ in queues]
    highest = [levels.get(queue_id, HIGHEST_PRIORITY) for queue_id, _ in queues]
    return [(*each, least, most) for each, least, most in zip(queues, lowest, highest, strict=True)]


def in_claim_order(rows: Sequence[Row], queues: Sequence[int]) -> list[Row]:
    """Claimed rows in the order of the claim: the rows of a statement have none."""
    place = {queue_id: index for index, queue_id in enumerate(queues)}
    return sorted(rows, key=lambda row: (place[row["queue_id"]], -row["priority"], row["run_at"], row["id"]))


def claimed_of(worker: int, rows: Sequence[Row], queues: Sequence[int], asked_at: float) -> list[Claimed]:
    """Claimed tasks in the order they are to be started."""
    # By place and not by name: a claim brings hundreds of rows.
    # fmt: off
    return [
        Claimed(task_id, KINDS[kind], queue_id, worker, turn, attempt, max_attempts, priority, run_at, key, text, wakes,
                bool(suspect), created_at, started_at, claimed_at, asked_at, parent_id, cleanup_until, generation,
                group_key, bool(keeps_result), headers, timeout, deadline_at, bool(ends_children))
        for (task_id, kind, queue_id, turn, attempt, max_attempts, priority, run_at, key, text, wakes, parent_id,
             suspect, created_at, claimed_at, started_at, cleanup_until, generation,
             group_key, keeps_result, headers, timeout, deadline_at, ends_children) in in_claim_order(rows, queues)
    ]
    # fmt: on
