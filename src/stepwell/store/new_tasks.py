"""The one way to write new tasks, messages and runs alike: in a flush, in bulk, or in the user's own transaction."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec

from stepwell.base.durations import Duration
from stepwell.base.events import StoreLost
from stepwell.base.program import Definition
from stepwell.errors import (
    InvalidOption,
    QueueNotFound,
    Refused,
    StepwellError,
    StoreBusy,
    StoreUnavailable,
    WorkflowNotFound,
)
from stepwell.records import TaskId, TaskKind
from stepwell.store.add import (
    SLOWEST_ROW,
    add_chunks,
    add_joined,
    add_together,
    in_lock_order,
    load,
)
from stepwell.store.conditions import ConditionOptions, with_deadline
from stepwell.store.draft import Addressed, Asked, Draft, Drafted, drafted_runs, examples
from stepwell.store.driver import LOCKS, Call, Row, Script, only_reads, refused_write
from stepwell.store.held_keys import (
    MOST_RACES,
    Ended,
    asking_after,
    asking_whether_closed,
    found_among,
    refuse_closed,
)
from stepwell.store.ordered_groups import conditional_row_of, order_keys, ordered_row_of, placed
from stepwell.store.pending import Answer, Operation
from stepwell.store.rows import NewTask, row_of, size_of
from stepwell.store.transaction import Tx
from stepwell.values.headers import Headers

if TYPE_CHECKING:
    from stepwell.store.database import Database

READ_COMMITTED: Final = "read committed"


class MessageOptions(ConditionOptions, total=False):
    """How a message is queued; the default is 0, none, or that of the handler and the store."""

    priority: int  # a higher one is handled first
    delay: Duration | None
    run_at: datetime | None
    max_attempts: int | None
    tags: Iterable[str]
    result: bool  # keep what the handler returns, for `store.result`
    limit_key: str | None  # whose limits it counts to, if its queue has limits and the input does not say it
    cost: int | None  # how many units of the rates of its queue it costs, if the input does not say it
    headers: Headers | None  # texts that travel with it, and with what it leads to


class Children(msgspec.Struct, frozen=True):
    """Runs that another run asks for, ready to be written: with their ids, and their queues."""

    drafted: Drafted
    ids: Sequence[int]
    queues: frozenset[int]


@dataclasses.dataclass(eq=False)
class NewTasks:
    """Writes drafted tasks."""

    _db: Database
    # Queues known to keep the order of their keys: an add that is mistaken writes nothing, and asks.
    in_order: set[int] = dataclasses.field(default_factory=set)

    async def add(self, drafted: Drafted, tx: object = None) -> list[TaskId]:
        """Write drafted tasks, in a transaction of their own or in the user's."""
        if only_reads.get() is not None:
            raise refused_write()
        if not drafted.tasks:
            return []
        if tx is not None:
            return await self._add_joined(drafted, tx)
        if self._db.options.encrypted:
            await self._db.subjects.admit({task.headers for task in drafted.tasks})
        try:
            return await self._write(drafted)
        except Refused as error:
            await self._explain(drafted, error)
        return await self._write(drafted)  # the queue was deleted meanwhile; a handler or a workflow creates it again

    async def _write(self, drafted: Drafted) -> list[TaskId]:
        # An unknown queue, by name, is an error: mostly it is misspelt. A handler is its own definition.
        if len(drafted.queues) > 1:
            return await self._write_together(drafted)
        [(name, create)] = drafted.queues.items()
        queue_id = await self._number(drafted, name, create=create)
        said = drafted.tasks[0].conditions
        if len(drafted.tasks) > 1 or (said is not None and said.changes_others):
            return await self.add_many(queue_id, drafted.tasks)
        return [await self.add_one(msgspec.structs.replace(drafted.tasks[0], queue_id=queue_id))]

    async def add_one(self, task: NewTask) -> TaskId:
        """Write a task, or find the one that has its key already."""
        [task_id] = await self._db.ids.take(1)
        for _ in range(MOST_RACES):
            if task.queue_id in self.in_order and task.group_key is None:
                task = await self._in_its_order(task, task_id)
            answer = await self._added(task, task_id)
            if answer.value is not None:
                if task.delay or task.conditions is not None:
                    self._due_after(_spans([task]))
                return TaskId(task_id)
            if found := await self._found([(task, task_id)]):
                return found[task_id]
            closed = await self._read(asking_whether_closed([task]))
            if task.group_key is None and any(row["ordered"] for row in closed):
                self.in_order.add(task.queue_id)
            else:
                refuse_closed([task], closed)
        raise Refused(f"key {task.key!r} was taken and freed {MOST_RACES} times while it was being used")

    async def _in_its_order(self, task: NewTask, task_id: int) -> NewTask:
        """The task; in the group of its key, if its queue keeps the order of its keys."""
        [(found, _)] = placed([(task, task_id)], await self._read(order_keys([(task, task_id)])))
        if found.group_key is None:
            self.in_order.discard(task.queue_id)  # it keeps none any more
        return found

    async def add_many(self, queue_id: int, tasks: Sequence[NewTask]) -> list[TaskId]:
        """Write all the tasks to a queue or none, in one transaction apart from the flushes; the ids are in order."""
        ids = await self._db.ids.take(len(tasks))
        self._due_after(_spans(tasks[:1]))
        if await self._loaded(queue_id, tasks, ids):
            self._db.wakeups.hint({queue_id})
            return list(map(TaskId, ids))
        placed = (msgspec.structs.replace(task, queue_id=queue_id) for task in tasks)
        numbered = list(zip(placed, ids, strict=True))
        for _ in range(MOST_RACES):
            done = await self._write_all(numbered)
            if len(done) == len(ids):
                self._db.wakeups.hint({queue_id})
                return [done[task_id] for task_id in ids]
        raise Refused(f"a key was taken and freed {MOST_RACES} times while it was being used")

    async def _added(self, task: NewTask, task_id: int) -> Answer:
        hand_over = self._db.tasks.hand_over
        if not self._db.audit.everything and (seat := hand_over.seat_for(task, task_id)) is not None:
            answer = await hand_over.add(task, task_id, seat)
            if answer is not None:
                return answer
        return await self._db.flusher.submit(self._adding(task, task_id))

    def _adding(self, task: NewTask, task_id: int) -> Operation:
        statement, row = "add_tasks" if task.key is None else "add_tasks_once", row_of(task, task_id)
        if task.group_key is not None:
            statement, row = "add_in_order", ordered_row_of(task, task_id)
        elif task.conditions is not None:
            statement, row = "add_with_conditions", conditional_row_of(task, task_id)
        audit = self._db.audit
        return Operation(
            statement,
            row,
            row_id=task_id,
            size=size_of(task),
            # Time for one try that hangs until its own deadline, and one that answers.
            within=2 * self._db.options.timeout,
            order=(task.queue_id, task.group_key or task.key or "", task_id),
            key=None if task.key is None else (task.queue_id, task.key),
            group=None if task.group_key is None else (task.queue_id, task.group_key),
            adds_to=None if task.delay or task.run_at is not None else task.queue_id,
            notes=(audit.creation(task_id),) if audit.everything else (),
        )

    async def _found(self, missing: Sequence[tuple[NewTask, int]]) -> dict[int, TaskId]:
        """Which task stands where each of these was to be written; none, if its key was freed since."""
        rows = await self._read(asking_after(missing))
        return found_among(missing, rows)

    async def _loaded(self, queue_id: int, tasks: Sequence[NewTask], ids: Sequence[int]) -> bool:
        """Write the tasks in bulk; False if that is not possible, or if it is unknown whether they were written."""
        if any(task.key is not None or task.conditions is not None for task in examples(tasks)):
            return False
        script = partial(load, self._db.params(queue_id=queue_id), tasks, ids, self._db.audit)
        try:
            return await self._db.driver.transact(script, timeout=self._patience(tasks))
        except (StoreBusy, StoreUnavailable) as error:
            self._db.telemetry.emit(StoreLost.by(error))
            return False

    async def _write_all(self, numbered: Sequence[tuple[NewTask, int]]) -> dict[int, TaskId]:
        """Write those that are not there yet, however often it was tried before."""
        ended, params, ordered = Ended(self._db.audit), self._db.params(), in_lock_order(numbered)
        timeout = self._patience(numbered)

        async def tried() -> dict[int, TaskId]:
            script = partial(add_chunks, "add_tasks_once", params, ordered, ended)
            try:
                return await self._db.driver.transact(script, timeout=timeout)
            finally:
                ended.again = True

        done = await self._db.repeat(tried)
        await self._tell(ended)
        return done

    async def _tell(self, ended: Ended) -> None:
        if ended.rows:
            await self._db.control.tell_cancelled(ended.rows, ended.woken)

    def _patience(self, rows: Sequence[object]) -> float:
        return self._db.options.timeout + len(rows) * SLOWEST_ROW

    async def _read(self, call: Call) -> list[Row]:
        return await self._db.repeat(lambda: self._db.driver.read(call))

    def _due_after(self, delays: Iterable[int]) -> None:
        """Wake upkeep when the first of these is due."""
        if first := min(filter(None, delays), default=0):
            self._db.tasks.alarm.set(first / 1_000_000)

    async def _write_together(self, drafted: Drafted) -> list[TaskId]:
        """Write tasks of several queues in one transaction; their ids are known before, so it may be repeated."""
        params, asked = self._db.params(), dataclasses.replace(drafted, required={})  # that was checked already
        numbers = await self._db.ids.take(len(drafted.tasks))
        ended = Ended(self._db.audit)

        def script(*, again: bool) -> Script[list[TaskId]]:
            ended.again = again
            return add_together(params, asked, numbers, self._db.living, ended)

        ids = await self._db.transact_again(script)
        await self._tell(ended)
        self._db.wakeups.hint({await self._number(drafted, name, create=False) for name in drafted.queues})
        self._due_after(_spans(drafted.tasks))
        return ids

    def add_here(self, drafted: Drafted, tx: object) -> list[TaskId]:
        """Write the tasks through the user's own sync connection, in the user's thread, which is this one."""
        if not drafted.tasks:
            return []
        self.share_here(drafted, tx)
        return self._db.transactions.play_here(self.joining(drafted), tx)

    async def draft_children(self, asked: Sequence[Asked[Any]], parent_id: int, deadline: int | None) -> Children:
        """Runs that a run with this deadline asks for, checked, encoded and numbered; nothing is written yet."""
        drafted = self.drafted_runs(asked, is_inside=True)
        await self.check_workflows(drafted)
        queues = [await self._number(drafted, name, create=create) for name, create in drafted.queues.items()]
        self._due_after(task.delay for task in drafted.tasks)
        if any(task.conditions is not None and task.conditions.on_conflict == "newest" for task in drafted.tasks):
            raise InvalidOption("newest", True, "a run waits for its children, and cancels none: trigger it in a step")
        tasks = [
            msgspec.structs.replace(
                task, parent_id=parent_id, inside=True, conditions=with_deadline(task.conditions, deadline)
            )
            for task in drafted.tasks
        ]
        ids = await self._db.ids.take(len(tasks))
        if not self.in_order.isdisjoint(queues):
            numbers = dict(zip(drafted.queues, queues, strict=True))
            given = [msgspec.structs.replace(task, queue_id=numbers[task.queue]) for task in tasks]
            numbered = list(zip(given, ids, strict=True))
            tasks = [task for task, _ in placed(numbered, await self._read(order_keys(numbered)))]
        children = dataclasses.replace(drafted, tasks=tasks, required={})  # that was checked already
        return Children(children, ids, frozenset(queues))

    def draft(self, queue: str | Addressed[Any], **options: Unpack[MessageOptions]) -> Draft:
        """What messages of one call have in common, checked; nothing is written yet."""
        known = MessageOptions.__annotations__
        if options and (unknown := options.keys() - known.keys()):
            raise TypeError(f"enqueue takes no option {min(unknown)!r}; it takes key, tx, {', '.join(known)}")
        if options.get("result") and not isinstance(queue, str):
            self._db.definitions.name(queue.queue, Definition(getattr(queue, "returns", Any)))
        store, attempts = self._db.options, self._db.options.retry.max_attempts
        limit, codec = store.payload_limit, store.codec
        return Draft(queue, payload_limit=limit, default_attempts=attempts, codec=codec, **options)

    def drafted_runs(self, asked: Sequence[Asked[Any]], *, is_inside: bool = False) -> Drafted:
        """Runs checked and encoded; nothing is written yet."""
        limit, attempts = self._db.options.payload_limit, self._db.options.retry.max_attempts
        codec = self._db.options.codec
        return drafted_runs(asked, payload_limit=limit, default_attempts=attempts, codec=codec, is_inside=is_inside)

    async def check_workflows(self, drafted: Drafted) -> None:
        """Refuse the call before anything is written: first for an unknown name, then for a missing worker."""
        if only_reads.get() is not None:
            raise refused_write()
        self._db.check()
        for name, defines in drafted.queues.items():
            if not defines:
                await self._db.workflow_id(name)
        await self._db.living.check(drafted.required)

    async def share(self, drafted: Drafted, tx: object) -> None:
        """Create the missing queues and workflows before these tasks join a transaction.

        If the transaction created them itself, no other transaction could use them, or create them, until it ends. A
        transaction that sees only what existed when it began would not see them: there they are created inside of it.
        """
        missing = await self._missing(drafted)
        if missing and await self._db.transactions.play(_isolation(), tx) == READ_COMMITTED:
            await self._make(drafted, missing)

    def share_here(self, drafted: Drafted, tx: object) -> None:
        """As `share`, for a transaction of the user's thread, which is this one."""
        missing = asyncio.run_coroutine_threadsafe(self._missing(drafted), self._db.loop).result()
        if missing and self._db.transactions.play_here(_isolation(), tx) == READ_COMMITTED:
            asyncio.run_coroutine_threadsafe(self._make(drafted, missing), self._db.loop).result()

    async def _missing(self, drafted: Drafted) -> list[str]:
        if self._db.driver.key_slot is None:  # one writer: while the user's transaction is open, we would wait for it
            return []
        missing = []
        for name in (name for name, create in drafted.queues.items() if create):
            try:
                await self._number(drafted, name, create=False)
            except (QueueNotFound, WorkflowNotFound):
                missing.append(name)
        return missing

    async def _make(self, drafted: Drafted, names: list[str]) -> None:
        await self._db.living.check({name: policy for name, policy in drafted.required.items() if policy == "error"})
        for name in names:
            try:
                await (self._db.workflows if drafted.kind is TaskKind.RUN else self._db.queues).create(name, LOCKS)
            except StepwellError:
                return  # perhaps the user created it in this very transaction: the join finds out

    async def _add_joined(self, drafted: Drafted, tx: object) -> list[TaskId]:
        await self.share(drafted, tx)
        ids = await self._db.transactions.play(self.joining(drafted), tx)
        if isinstance(tx, Tx):
            tx.touched.update(drafted.queues)
        return ids

    def joining(self, drafted: Drafted) -> Script[list[TaskId]]:
        """Write tasks as part of a transaction that the caller has begun."""
        return add_joined(self._db.params(), drafted, self._db.living, Ended(self._db.audit))

    async def _explain(self, drafted: Drafted, error: Refused) -> None:
        """Raise the reason why nothing was written, unless a queue was deleted meanwhile that may be created again."""
        gone = False
        for name, create in drafted.queues.items():
            self._db.queues.names.forget(name)
            self._db.workflows.names.forget(name)
            try:
                await self._number(drafted, name, create=False)
            except (QueueNotFound, WorkflowNotFound) as missing:
                if not create:
                    raise missing from error
                gone = True
        if not gone:
            raise error

    async def _number(self, drafted: Drafted, name: str, *, create: bool) -> int:
        of = self._db.workflow_id if drafted.kind is TaskKind.RUN else self._db.queue_id
        return await of(name, create=create)


def _spans(tasks: Iterable[NewTask]) -> Iterator[int]:
    """After how long upkeep has to look at these: they are due, or not worth beginning any more."""
    for task in tasks:
        yield task.delay
        if task.conditions is not None:
            yield task.conditions.expires_after or 0


def _isolation() -> Script[str]:
    """How much of what others commit the user's transaction sees."""
    [row] = yield Call("isolation")
    level: str = row["level"]
    return level
