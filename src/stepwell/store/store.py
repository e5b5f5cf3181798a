"""Store: an open database with verbs. Here are the verbs that applications call; `SteerVerbs`,
`TalkVerbs`, `ScheduleVerbs`, `OperatorVerbs`, `ProjectionVerbs`, `AuditVerbs` and `KeyVerbs` have the others.

Each verb is a line or a few over the service that does the work, so that the whole API can be read in a few files.
Everything else, such as a worker, takes the handle, `store.database`, and calls the services themselves.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from stepwell.base.clock import Clock
from stepwell.base.durations import Duration
from stepwell.base.names import check_id
from stepwell.base.telemetry import Telemetry
from stepwell.records import Page, Run, RunId, RunStatus, StepInfo, Task, TaskId
from stepwell.store.audit_verbs import AuditVerbs
from stepwell.store.database import Database, Options
from stepwell.store.draft import Addressed, Asked
from stepwell.store.driver import Driver
from stepwell.store.emission import EventOptions
from stepwell.store.key_verbs import KeyVerbs
from stepwell.store.limiters import Limiters
from stepwell.store.new_tasks import MessageOptions
from stepwell.store.operator_verbs import OperatorVerbs
from stepwell.store.projection_verbs import ProjectionVerbs
from stepwell.store.queues import MessageState
from stepwell.store.run_filter import RunFilter
from stepwell.store.run_key import RunKey, WhichRun
from stepwell.store.schedule_verbs import ScheduleVerbs
from stepwell.store.sql import Statements
from stepwell.store.steer_verbs import SteerVerbs
from stepwell.store.taken_messages import Message
from stepwell.store.talk_verbs import TalkVerbs
from stepwell.store.transaction import Tx

In = TypeVar("In")
R = TypeVar("R")
T = TypeVar("T")


class Store(SteerVerbs, TalkVerbs, ScheduleVerbs, OperatorVerbs, ProjectionVerbs, AuditVerbs, KeyVerbs):
    """An open store. It belongs to the event loop and the process that opened it; elsewhere its verbs raise."""

    def __init__(
        self, driver: Driver, statements: Statements, options: Options, clock: Clock, telemetry: Telemetry
    ) -> None:
        self.database = Database(driver, statements, options, clock, telemetry)

    @property
    def limits(self) -> Limiters:
        """How many tasks of a queue run at once over all workers: what is in force, and the verbs that change it."""
        return self.database.limiters

    async def create_queue(self, name: str) -> None:
        """Create a queue; does nothing if it exists."""
        await self.database.queue_id(name, create=True)

    @overload
    async def enqueue(
        self,
        queue: Addressed[In],
        payload: In,
        *,
        key: str | None = None,
        tx: object = None,
        **options: Unpack[MessageOptions],
    ) -> TaskId: ...
    @overload
    async def enqueue(
        self, queue: str, payload: Any, *, key: str | None = None, tx: object = None, **options: Unpack[MessageOptions]
    ) -> TaskId: ...
    async def enqueue(
        self, queue: Any, payload: Any, *, key: str | None = None, tx: object = None, **options: Unpack[MessageOptions]
    ) -> TaskId:
        """Write a message; when this returns it is durable and will be handled.

        With `key`, a message of the queue that has it already is returned instead (`created` is False); another
        payload under the same key raises `IdempotencyConflict`. With `tx`, your own connection in a transaction, the
        message is there if that commits and never was if it does not. Bad input is refused before anything is written.
        It is tried as often as `max_attempts` says, else the handler, else the store's own policy (three times).
        For how long its key is taken, and what is done if it is, say `unique`, `on_conflict`, `debounce`, `once_per`
        and `newest`; with `expires`, a message that has not begun by then is CANCELLED.
        """
        drafted = self.database.new_tasks.draft(queue, **options).one(payload, key)
        [task_id] = await self.database.new_tasks.add(drafted, tx)
        return task_id

    @overload
    async def enqueue_many(
        self,
        queue: Addressed[In],
        payloads: Iterable[In],
        *,
        keys: Sequence[str] | None = None,
        tx: object = None,
        **options: Unpack[MessageOptions],
    ) -> list[TaskId]: ...
    @overload
    async def enqueue_many(
        self,
        queue: str,
        payloads: Iterable[Any],
        *,
        keys: Sequence[str] | None = None,
        tx: object = None,
        **options: Unpack[MessageOptions],
    ) -> list[TaskId]: ...
    async def enqueue_many(
        self,
        queue: Any,
        payloads: Iterable[Any],
        *,
        keys: Sequence[str] | None = None,
        tx: object = None,
        **options: Unpack[MessageOptions],
    ) -> list[TaskId]:
        """Write all the messages or none, in one transaction (yours, with `tx`); their ids come in the same order."""
        return await self.database.new_tasks.add(
            self.database.new_tasks.draft(queue, **options).each(payloads, keys), tx
        )

    @overload
    async def dequeue(
        self,
        queue: str | Sequence[str],
        limit: int = 1,
        *,
        type: type[T],
        until: Duration | None = 0,
        visibility: Duration | None = None,
    ) -> list[Message[T]]: ...
    @overload
    async def dequeue(
        self,
        queue: str | Sequence[str],
        limit: int = 1,
        *,
        until: Duration | None = 0,
        visibility: Duration | None = None,
    ) -> list[Message[Any]]: ...
    async def dequeue(
        self,
        queue: str | Sequence[str],
        limit: int = 1,
        *,
        type: Any = Any,
        until: Duration | None = 0,
        visibility: Duration | None = None,
    ) -> list[Message[Any]]:
        """Take up to `limit` messages by hand: each is yours alone for `visibility`, and comes back if not closed.

        Without `visibility` it is the store's, 30 s unless `connect` said otherwise. Waits up to `until` for the first;
        None waits for as long as it takes. Several queues take turns being first.
        """
        return await self.database.messages.take(queue, limit, type, until, visibility)

    async def taken(self, task_id: int, turn: int, *, type: Any = Any) -> Message[Any] | None:
        """A message that was taken elsewhere, by its id and turn, to be closed here; None if it is not held now.

        The turn is that of the `Message` that `dequeue` returned; a later consumer has a higher one.
        """
        return await self.database.messages.taken(task_id, turn, type)

    def consume(
        self, queue: str | Sequence[str], *, limit: int = 1, visibility: Duration | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Message[Any]]]:
        """Iterate over messages as they come, taking up to `limit` at once; those not closed are given back.

        At the end of the block, with their attempts; but if it ends with an error, those that it has seen come back
        when their visibility timeouts are over, and that delivery counts: one of them may be what it failed of. Those
        that have waited here for half of `visibility` are given back too, and taken anew: a consumer that comes to one
        late would find that another has it.
        """
        return self.database.messages.consume(queue, limit, visibility)

    async def get(self, task_id: int, *, deleted: bool = False) -> Task | None:
        """One message (or other task) as it stands; None if it is not there, or deleted, unless `deleted` is True."""
        self.database.check()
        return await self.database.queues.task(check_id(task_id), deleted=deleted)

    async def messages(
        self, queue: str, state: MessageState = "ready", *, limit: int = 100, after: str | None = None
    ) -> Page[Task]:
        """The messages of a queue that are `ready`, in the order in which they are claimed; that are `waiting` for
        their moment or taken by hand, the first first; `running` in workers; or `finished`, the newest first.

        `after` is the `next` of the page before. `dead_letters(queue=)` lists those that failed.
        """
        return await self.database.queues.messages(queue, state, limit, after)

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """Begin a transaction for verbs that take `tx=` and rows of your own: all of it is committed, or none.

        It commits at the end of the block, and an exception rolls it back. Keep it short, and use nothing else of the
        store in it: on SQLite and Turso no other transaction writes meanwhile.

        Begun in a body (of a step, a handler, an effect) it commits only if the body's turn still stands: a body that
        was frozen beyond its lease, and that another worker executes, raises `LeaseLost` and writes nothing. On
        Postgres the server ends such a transaction when it is idle for longer than the lease.
        """
        return self.database.transactions.begin()

    async def fence(self, tx: object) -> None:
        """Let a transaction on your own connection commit only if the turn of the body that calls still stands.

        Call it last, right before your commit: until then no other worker takes the task. Raises `LeaseLost` if another
        worker has it; then roll back. Outside of bodies there is no turn, and nothing is checked.
        """
        await self.database.transactions.fence(tx)

    async def create_workflow(self, name: str) -> None:
        """Create a workflow and its queue, both or neither; does nothing if they exist."""
        await self.database.workflow_id(name, create=True)

    async def trigger(self, trigger: Asked[R], *, tx: object = None) -> RunId[R]:
        """Write a run; when this returns it is durable and will be executed. The same as `trigger.execute(store)`."""
        [run_id] = await self.database.runs.trigger([trigger], tx)
        return run_id

    async def trigger_many(self, triggers: Iterable[Asked[R]], *, tx: object = None) -> list[RunId[R]]:
        """Write all the runs or none, of one workflow or several, in one transaction (yours, with `tx`).

        Their ids come in the same order. A run that its key had already named comes back with `created` False.
        """
        return await self.database.runs.trigger(triggers, tx)

    @overload
    async def result(self, run: RunId[R] | RunKey[R], *, timeout: Duration | None = None) -> R: ...
    @overload
    async def result(self, run: WhichRun, as_: type[T], *, timeout: Duration | None = None) -> T: ...
    @overload
    async def result(self, run: WhichRun, *, timeout: Duration | None = None) -> object: ...
    async def result(self, run: WhichRun, as_: Any = None, *, timeout: Duration | None = None) -> Any:
        """What a run returned, as soon as it is finished: as `as_`, else as the workflow says it, else as plain JSON.

        Raises `ExecutionFailed` with the run's error if it failed, `RunCancelled` if it was cancelled, `RunNotFound` if
        there is no such run, and `Timeout` if it is not finished in time (0 looks once); the run itself goes on. Takes
        the id of a message, too, that was enqueued with `result=True`: then it is what its handler returned.
        """
        return await self.database.runs.result(await self.database.run_id(run), as_, timeout)

    @overload
    async def get_run(self, run: RunId[R] | RunKey[R], *, deleted: bool = False) -> Run[R]: ...
    @overload
    async def get_run(self, run: WhichRun, *, deleted: bool = False) -> Run[Any]: ...
    async def get_run(self, run: WhichRun, *, deleted: bool = False) -> Run[Any]:
        """One run as it stands; `RunNotFound` if it is not there, or deleted, unless `deleted` is True."""
        return await self.database.runs.get(await self.database.run_id(run), deleted=deleted)

    get_workflow_run = get_run

    async def runs(
        self,
        workflow: str | None = None,
        *,
        status: RunStatus | str | Iterable[RunStatus | str] | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
        tag: str | Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        parent: WhichRun | None = None,
        deleted: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Run[Any]]:
        """Runs, newest first: of one workflow, one or several statuses, key, tags or parent, or triggered in a span of
        time, if given. Of several statuses a run has one, of several tags all.

        `after` is the `next` of the page before. Workflow, status and time are found by an index. A key is too, and so
        is `key_prefix`, the beginning of one: these runs come in the order of their keys. For tags the runs that fit
        the rest and have any tag are looked through, so give that as well where there are many.
        """
        which = RunFilter(
            workflow=workflow, status=status, key=key, key_prefix=key_prefix, tag=tag, since=since, until=until
        )
        parent_id = None if parent is None else await self.database.run_id(parent)
        return await self.database.runs.page(which, parent=parent_id, deleted=deleted, limit=limit, after=after)

    async def find_run(self, workflow: str, key: str) -> Run[Any] | None:
        """The run of a workflow that has this key now, None if none has.

        With `unique="unfinished"` that is one that is not finished, with `unique="ever"` whatever became of it.
        """
        return await self.database.runs.find(workflow, key)

    async def steps(self, run: WhichRun) -> Sequence[StepInfo]:
        """What a run has recorded, in the order in which it asked for it: in its generation, if it has restarted."""
        return await self.database.runs.steps(await self.database.run_id(run))

    async def emit(self, type: str, data: Any = None, *, tx: object = None, **options: Unpack[EventOptions]) -> str:
        """Write an event for the outside world; when this returns it is durable, and each `Outbox` that takes its type
        publishes it, as a CloudEvent with the id that this returns.

        With `tx`, your own connection in a transaction, it is there if that commits and never was if it does not.
        `subject` says what it is about; with `ordered=True` it is published after those of its subject that were
        committed before it. What no outbox takes is kept until one does.
        """
        return await self.database.outboxes.emit(type, data, tx, **options)

    async def close(self) -> None:
        """Write what is pending and close the connections; a second call does nothing."""
        await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.database.close()
