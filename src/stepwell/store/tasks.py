"""The verbs of a task's life: add, claim, settle, wake. Sets in, sets out; what an outcome means is decided above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from stepwell.clock import Clock
from stepwell.errors import IdempotencyConflict, LeaseLost, QueueDraining, Refused
from stepwell.names import HIGHEST_PRIORITY, LONGEST_NAME, LOWEST_PRIORITY
from stepwell.records import Claimed, NewTask, Settlement, TaskId, TaskKind
from stepwell.store.driver import Call, Driver, Row, Script, Value
from stepwell.store.flush import GroupCommit, Operation
from stepwell.store.ids import Ids
from stepwell.store.repeat import repeated
from stepwell.store.wakeups import Listener, Wakeups
from stepwell.telemetry import Telemetry

CHUNK: Final = 1000
CHUNK_BYTES: Final = 4 * 1024 * 1024
MOST_DUE: Final = 1000
ROW_BYTES: Final = 200 + LONGEST_NAME  # what a row weighs besides its JSON
MOST_RACES: Final = 10
SLOWEST_ROW: Final = 0.005  # seconds that a row of a bulk may take before the database counts as away

Place = tuple[int, int, int, int, int]  # queue, capacity, priority, run_at, id: where a claim above goes on
Wanted = tuple[int, int, int, int]  # queue, capacity, lowest and highest priority


class Tasks:
    """Tasks in one store."""

    def __init__(
        self,
        driver: Driver,
        flusher: GroupCommit,
        ids: Ids,
        clock: Clock,
        telemetry: Telemetry,
        wakeups: Wakeups,
        *,
        timeout: float,
    ) -> None:
        self._driver = driver
        self._flusher = flusher
        self._ids = ids
        self._clock = clock
        self._telemetry = telemetry
        self._timeout = timeout
        self._wakeups = wakeups
        # Postgres claims on a connection of its own, with a fence row of its own; an embedded store has one writer.
        self.claim_slot = driver.flush_slots if driver.claims_many_queues else 0

    def on_added(self, listener: Listener) -> None:
        """Tell the listener the queues to which tasks were added or given back: a hint, never relied on."""
        self._wakeups.on_added(listener)

    def off_added(self, listener: Listener) -> None:
        """Stop telling the listener."""
        self._wakeups.off_added(listener)

    def hint(self, queue_ids: set[int]) -> None:
        """Say, here and to other processes, that these queues may have something to claim."""
        self._wakeups.hint(queue_ids)

    async def add(self, task: NewTask) -> TaskId:
        """Write a task, or find the one that its key names already."""
        [task_id] = await self._ids.take(1)
        for _ in range(MOST_RACES):
            answer = await self._flusher.submit(self._adding(task, task_id))
            if answer.value is not None:
                if not task.delay and task.run_at is None:
                    self.hint({task.queue_id})
                return TaskId(task_id, created=True)
            if found := await self._found([(task, task_id)]):
                return found[task_id]
            refuse_closed([task], await self._repeated(asking_whether_closed([task])))
        raise Refused(f"key {task.key!r} was taken and freed {MOST_RACES} times while it was being used")

    async def add_many(self, tasks: Sequence[NewTask]) -> list[TaskId]:
        """Write all the tasks or none, in one transaction apart from the flushes; the ids come in the same order."""
        ids = await self._ids.take(len(tasks))
        numbered = list(zip(tasks, ids, strict=True))
        statement = "add_tasks_once" if any(task.key is not None for task in tasks) else "add_tasks"
        for _ in range(MOST_RACES):
            written = await self._write_all(statement, numbered)
            missing = [(task, task_id) for task, task_id in numbered if task_id not in written]
            found = await self._found(missing) if missing else {}
            if len(found) == len(missing):
                self.hint({task.queue_id for task in tasks})
                return [found.get(task_id) or TaskId(task_id, created=True) for task_id in ids]
            statement = "add_tasks_once"
        raise Refused(f"a key was taken and freed {MOST_RACES} times while it was being used")

    async def claim(
        self, worker: int, queues: Sequence[tuple[int, int]], limit: int, *, levels: Mapping[int, int] | None = None
    ) -> list[Claimed]:
        """Take up to `limit` ready tasks for a session: of each queue at most its capacity, in the order given.

        With `levels`, of each queue only the priority named for it.
        """
        params = self._params(worker=worker, slot=self.claim_slot, limit=limit)
        wanted = wanted_of(queues, levels or {})
        return _claimed(worker, await self.pick("claim", params, wanted), [queue_id for queue_id, _ in queues])

    async def pick(self, statement: str, params: dict[str, Value], wanted: Sequence[Wanted]) -> list[Row]:
        """Run a statement that takes ready tasks, for all the queues at once or one after the other."""
        if self._driver.claims_many_queues:
            [rows] = await self._driver.run(self.claim_slot, [Call(statement, params, wanted)])
            return rows
        return await self._driver.transact(lambda: _each_queue(statement, params, wanted))

    async def oldest(self, queues: Sequence[int]) -> dict[int, int]:
        """Of each queue that has something ready, the priority of what has been ready for longest."""
        rows = await self._driver.read(Call("oldest", self._params(), [(queue_id,) for queue_id in queues]))
        by_age = sorted(rows, key=lambda row: row["run_at"], reverse=True)
        return {row["queue_id"]: row["priority"] for row in by_age}  # the oldest comes last, and stays

    async def claim_above(self, worker: int, places: Sequence[Place], limit: int) -> list[Claimed]:
        """Claim in a backlog, going on where the last claim ended; Postgres only, where old index entries linger."""
        params = self._params(worker=worker, slot=self.claim_slot, limit=limit)
        [rows] = await self._driver.run(self.claim_slot, [Call("claim_above", params, places)])
        return _claimed(worker, rows, list(dict.fromkeys(place[0] for place in places)))

    async def settle(self, task_id: int, worker: int, turn: int, settlement: Settlement) -> str:
        """Close a turn with what came of it; repeats until the database answers. Returns the status the task has now.

        Raises `LeaseLost`, and has written nothing, if the session or the turn is no longer the task's.
        """
        answer = await self._flusher.submit(self._settling(task_id, worker, turn, settlement))
        if answer.value is not None:
            return answer.value
        if answer.repeated and (status := await self._settled_before(task_id, worker, turn)):
            return status
        raise LeaseLost(worker, task_id)

    async def wake_due(self) -> tuple[set[int], float | None]:
        """Make ready what is due. Returns the queues concerned, and in how many seconds the next task is due."""
        woken = await self.wake()
        wait = (await self._driver.read(Call("next_due", self._params())))[0]["wait"]
        return woken, None if wait is None else max(0.0, wait / 1_000_000)

    async def wake(self) -> set[int]:
        """Make ready what is due, a bounded number at once; the queues concerned."""
        [rows] = await self._driver.run(self.claim_slot, [Call("wake_due", self._params(limit=MOST_DUE))])
        return {row["queue_id"] for row in rows}

    def _adding(self, task: NewTask, task_id: int) -> Operation:
        return Operation(
            "add_tasks" if task.key is None else "add_tasks_once",
            row_of(task, task_id),
            row_id=task_id,
            size=_size(task),
            within=2 * self._timeout,  # time for one try that hangs until its own deadline, and one that answers
            order=(task.queue_id, task.key or "", task_id),
        )

    def _settling(self, task_id: int, worker: int, turn: int, settlement: Settlement) -> Operation:
        done = settlement
        row = (
            task_id,
            worker,
            turn,
            str(done.status),
            done.delay,
            int(done.attempt_back),
            int(done.alone),
            done.output,
            done.error,
            done.last_error,
        )
        return Operation(
            "settle",
            row,
            row_id=task_id,
            size=ROW_BYTES + len(done.output or "") + len(done.error or ""),
            within=None,  # a body that has finished is not to run again because the database was away
            worker=worker,
            keeps_lane=True,
            order=(task_id,),
        )

    async def _settled_before(self, task_id: int, worker: int, turn: int) -> str | None:
        """The task's status, if the settle whose reply was lost had been written; None if it was not ours any more."""
        [row] = await self._repeated(Call("turns_of", rows=[(task_id,)])) or [None]
        alive = await self._repeated(Call("living_workers", self._params()))
        if row is None or not any(session["worker_id"] == worker for session in alive):
            return None
        ours = row["turn"] == turn and row["owner"] is None
        return str(row["status"]) if ours else None

    async def _found(self, missing: Sequence[tuple[NewTask, int]]) -> dict[int, TaskId]:
        """Which task stands where each of these was to be written; none, if its key was freed since."""
        rows = await self._repeated(asking_after(missing))
        return found_among(missing, rows)

    async def _write_all(self, statement: str, numbered: Sequence[tuple[NewTask, int]]) -> set[int]:
        rows = in_lock_order(numbered)
        params = self._params()
        tries = 0

        async def write() -> set[int]:
            nonlocal tries
            tries += 1
            tolerant = statement if tries == 1 else "add_tasks_once"
            script = partial(add_chunks, tolerant, params, rows)
            return await self._driver.transact(script, timeout=self._timeout + len(rows) * SLOWEST_ROW)

        return await repeated(write, clock=self._clock, telemetry=self._telemetry, within=self._timeout)

    async def _repeated(self, call: Call) -> list[Row]:
        return await repeated(
            lambda: self._driver.read(call), clock=self._clock, telemetry=self._telemetry, within=self._timeout
        )

    def _params(self, **params: Value) -> dict[str, Value]:
        return {"now": self._clock.now(), "beat_now": self._clock.beat_now(), **params}


def asking_after(missing: Sequence[tuple[NewTask, int]]) -> Call:
    """Ask which task stands where each of these was to be written."""
    return Call("find_added", rows=[(task_id, task.queue_id, task.key) for task, task_id in missing])


def found_among(missing: Sequence[tuple[NewTask, int]], rows: Sequence[Row]) -> dict[int, TaskId]:
    """The answer, by the id that was to be written: our own write if it is there, else who has the key."""
    asked = {task_id: task for task, task_id in missing}
    found: dict[int, TaskId] = {}
    for row in rows:
        task, own = asked[row["asked"]], row["asked"] == row["id"]
        if not own and row["payload_hash"] != task.payload_hash:
            raise IdempotencyConflict(task.queue, task.key or "", row["id"])
        if own or row["asked"] not in found:
            found[row["asked"]] = TaskId(row["id"], created=own)
    return found


def asking_whether_closed(tasks: Sequence[NewTask]) -> Call:
    """Ask which queues of these tasks are being drained: for that one may be neither written nor found."""
    return Call("closed_queues", rows=[(queue_id,) for queue_id in sorted({task.queue_id for task in tasks})])


def refuse_closed(tasks: Sequence[NewTask], rows: Sequence[Row]) -> None:
    """Say that a queue is being drained; nothing if none is, and a race for a key was lost."""
    if rows:
        raise QueueDraining(next(task.queue for task in tasks if task.queue_id == rows[0]["id"]))


def _each_queue(statement: str, params: dict[str, Value], wanted: Sequence[Wanted]) -> Script[list[Row]]:
    """Claim of each queue in turn what is still wanted, in one transaction, where one statement serves one queue."""
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
    """Claimed rows in the order of the claim: what a statement returns has none."""
    place = {queue_id: index for index, queue_id in enumerate(queues)}
    return sorted(rows, key=lambda row: (place[row["queue_id"]], -row["priority"], row["run_at"], row["id"]))


def add_chunks(statement: str, params: dict[str, Value], numbered: Sequence[tuple[NewTask, int]]) -> Script[set[int]]:
    """Add in pieces that a statement can carry; the transaction makes them one."""
    written: set[int] = set()
    chunk: list[tuple[Value, ...]] = []
    size = 0
    for task, task_id in numbered:
        if chunk and (len(chunk) == CHUNK or size + _size(task) > CHUNK_BYTES):
            written.update(row["id"] for row in (yield Call(statement, params, chunk)))
            chunk, size = [], 0
        chunk.append(row_of(task, task_id))
        size += _size(task)
    if chunk:
        written.update(row["id"] for row in (yield Call(statement, params, chunk)))
    # Asked before the commit: another payload under one of the keys undoes all of it.
    if missing := [(task, task_id) for task, task_id in numbered if task_id not in written]:
        found = found_among(missing, (yield asking_after(missing)))
        unfound = [task for task, task_id in missing if task_id not in found]
        if unfound:
            refuse_closed(unfound, (yield asking_whether_closed(unfound)))
    return written


def row_of(task: NewTask, task_id: int) -> tuple[Value, ...]:
    """A new task as the row set `new_task` of tasks.sql."""
    return (
        task_id,
        str(task.kind),
        task.queue_id,
        task.priority,
        task.delay,
        task.run_at,
        task.max_attempts,
        task.key,
        task.key_scope,
        task.payload_hash,
        task.input,
        task.tags,
    )


def in_lock_order(numbered: Sequence[tuple[NewTask, int]]) -> list[tuple[NewTask, int]]:
    """By queue and key: two transactions that add the same keys wait for each other once, and never both."""
    return sorted(numbered, key=lambda pair: (pair[0].queue_id, pair[0].key or "", pair[1]))


def _size(task: NewTask) -> int:
    return ROW_BYTES + len(task.input)


def _claimed(worker: int, rows: Sequence[Row], queues: Sequence[int]) -> list[Claimed]:
    """Claimed tasks in the order they are to be started."""
    return [
        Claimed(
            id=row["id"],
            kind=TaskKind(row["kind"]),
            queue_id=row["queue_id"],
            owner=worker,
            turn=row["turn"],
            attempt=row["attempt"],
            max_attempts=row["max_attempts"],
            priority=row["priority"],
            run_at=row["run_at"],
            key=row["key"],
            input=row["input"],
            codec=row["codec"],
            payload_version=row["payload_version"],
            wakes=row["wakes"],
            suspect=bool(row["suspect"]),
            created_at=row["created_at"],
        )
        for row in in_claim_order(rows, queues)
    ]
