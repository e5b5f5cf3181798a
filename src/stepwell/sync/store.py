"""A store whose verbs return when they are done, and the messages that are taken from it by hand."""

from __future__ import annotations

import atexit
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from stepwell.base.durations import Duration
from stepwell.connect import Config, ConnectOptions, configured, open_store
from stepwell.records import RunId
from stepwell.store import limiters, taken_messages
from stepwell.store import store as store_
from stepwell.store.draft import Asked
from stepwell.store.reports import Chunk
from stepwell.store.run_key import WhichRun
from stepwell.store.run_log import LogLine
from stepwell.store.runs import run_ids
from stepwell.store.transaction import SyncTx
from stepwell.sync.adapters import (
    Noun,
    broadcast_joinable,
    check_open,
    emit_joinable,
    entered,
    joinable,
    listed,
    signal_joinable,
    signals_joinable,
    verb,
)
from stepwell.sync.loop_thread import LoopThread
from stepwell.workload import Serves

if TYPE_CHECKING:
    from stepwell.sync.worker import Worker

R = TypeVar("R")
T = TypeVar("T")


def connect(url: str | None = None, /, **options: Unpack[ConnectOptions]) -> Store:
    """Open a store, which `with` closes at the end; takes what `stepwell.connect` takes."""
    return Store(configured(url, options))


class LimitVerbs(Noun[limiters.Limiters]):
    """How many tasks of a queue run at once over all workers, and the verbs that change it."""

    of = verb(limiters.Limiters.of)
    all = verb(limiters.Limiters.all)
    set = verb(limiters.Limiters.set)
    reset = verb(limiters.Limiters.reset)
    set_key = verb(limiters.Limiters.set_key)
    pause = verb(limiters.Limiters.pause)
    resume = verb(limiters.Limiters.resume)
    keys = verb(limiters.Limiters.keys)


class Store:
    """An open store whose verbs return when they are done. Any thread may call them, at the same time too."""

    create_queue = verb(store_.Store.create_queue)
    enqueue = joinable(verb(store_.Store.enqueue))
    enqueue_many = joinable(listed(verb(store_.Store.enqueue_many)))
    get = verb(store_.Store.get)
    result = verb(store_.Store.result)
    signal = signal_joinable(verb(store_.Store.signal))
    signal_many = signals_joinable(verb(store_.Store.signal_many))
    reschedule = verb(store_.Store.reschedule)
    emit = emit_joinable(verb(store_.Store.emit))
    broadcast = broadcast_joinable(verb(store_.Store.broadcast))
    ask = verb(store_.Store.ask)
    value = verb(store_.Store.value)
    values = verb(store_.Store.values)
    signals = verb(store_.Store.signals)
    resume = verb(store_.Store.resume)
    cancel = verb(store_.Store.cancel)
    cancel_runs = verb(store_.Store.cancel_runs)
    pause = verb(store_.Store.pause)
    unpause = verb(store_.Store.unpause)
    accept = verb(store_.Store.accept)
    fork = verb(store_.Store.fork)
    resolve = verb(store_.Store.resolve)
    why = verb(store_.Store.why)
    queues = verb(store_.Store.queues)
    counts = verb(store_.Store.counts)
    messages = verb(store_.Store.messages)
    workers = verb(store_.Store.workers)
    queue_stats = verb(store_.Store.queue_stats)
    set_aside = verb(store_.Store.set_aside)
    schedule = verb(store_.Store.schedule)
    schedules = verb(store_.Store.schedules)
    get_schedule = verb(store_.Store.get_schedule)
    update_schedule = verb(store_.Store.update_schedule)
    reset_schedule = verb(store_.Store.reset_schedule)
    delete_schedule = verb(store_.Store.delete_schedule)
    backfill_schedule = verb(store_.Store.backfill_schedule)
    pause_schedule = verb(store_.Store.pause_schedule)
    resume_schedule = verb(store_.Store.resume_schedule)
    run_schedule = verb(store_.Store.run_schedule)
    next_ticks = verb(store_.Store.next_ticks)
    ticks = verb(store_.Store.ticks)
    appenders = verb(store_.Store.appenders)
    projections = verb(store_.Store.projections)
    parked = verb(store_.Store.parked)
    pause_projection = verb(store_.Store.pause_projection)
    resume_projection = verb(store_.Store.resume_projection)
    reset_projection = verb(store_.Store.reset_projection)
    inline_projection = verb(store_.Store.inline_projection)
    rebuild_projection = verb(store_.Store.rebuild_projection)
    swap_projection = verb(store_.Store.swap_projection)
    retry_projection = verb(store_.Store.retry_projection)
    skip_in_projection = verb(store_.Store.skip_in_projection)
    stored_versions = verb(store_.Store.stored_versions)
    health = verb(store_.Store.health)
    metrics = verb(store_.Store.metrics)
    metrics_by_workflow = verb(store_.Store.metrics_by_workflow)
    queue_metrics = verb(store_.Store.queue_metrics)
    dead_letter_counts = verb(store_.Store.dead_letter_counts)
    prometheus = verb(store_.Store.prometheus)
    dead_letters = verb(store_.Store.dead_letters)
    requeue = verb(store_.Store.requeue)
    drop = verb(store_.Store.drop)
    ordered_groups = verb(store_.Store.ordered_groups)
    pause_queue = verb(store_.Store.pause_queue)
    resume_queue = verb(store_.Store.resume_queue)
    purge = verb(store_.Store.purge)
    delete_queue = verb(store_.Store.delete_queue)
    drain_queue = verb(store_.Store.drain_queue)
    reopen_queue = verb(store_.Store.reopen_queue)
    begin_maintenance = verb(store_.Store.begin_maintenance)
    end_maintenance = verb(store_.Store.end_maintenance)
    maintenance = verb(store_.Store.maintenance)
    unserved = verb(store_.Store.unserved)
    delete = verb(store_.Store.delete)
    restore = verb(store_.Store.restore)
    release = verb(store_.Store.release)
    archive = verb(store_.Store.archive)
    prune = verb(store_.Store.prune)
    create_workflow = verb(store_.Store.create_workflow)
    workflows = verb(store_.Store.workflows)
    get_workflow = verb(store_.Store.get_workflow)
    delete_workflow = verb(store_.Store.delete_workflow)
    get_run = verb(store_.Store.get_run)
    get_workflow_run = verb(store_.Store.get_workflow_run)
    runs = verb(store_.Store.runs)
    find_run = verb(store_.Store.find_run)
    steps = verb(store_.Store.steps)
    history = verb(store_.Store.history)
    audit = verb(store_.Store.audit)
    rotate_keys = verb(store_.Store.rotate_keys)
    forget_subject = verb(store_.Store.forget_subject)
    seal_audit = verb(store_.Store.seal_audit)
    verify_audit = verb(store_.Store.verify_audit)
    retry = verb(store_.Store.retry)
    retry_runs = verb(store_.Store.retry_runs)
    delete_runs = verb(store_.Store.delete_runs)

    def __init__(self, config: Config) -> None:
        self.background = LoopThread()
        try:
            self.async_store = self.wait_for(lambda: open_store(config))
        except BaseException:
            self.background.close()
            raise
        self.limits = LimitVerbs(self, self.async_store.limits)
        self.started: set[Worker] = set()
        _open.add(self)

    def trigger(self, trigger: Asked[R], *, tx: object = None) -> RunId[R]:
        """Write a run; when this returns it is durable and will be executed. The same as `trigger.execute(store)`."""
        [run_id] = self.trigger_many([trigger], tx=tx)
        return run_id

    def trigger_many(self, triggers: Iterable[Asked[R]], *, tx: object = None) -> list[RunId[R]]:
        """Write all the runs or none, of one workflow or several, in one transaction (yours, with `tx`)."""
        asked = list(triggers)  # in the caller's thread: their source may belong to it
        if tx is None or isinstance(tx, SyncTx):
            joined = None if tx is None else tx.async_tx
            return self.wait_for(lambda: self.async_store.trigger_many(asked, tx=joined))
        check_open(self)
        new_tasks = self.async_store.database.new_tasks
        return run_ids(asked, new_tasks.add_here(new_tasks.drafted_runs(asked), tx))

    def dequeue(
        self,
        queue: str | Sequence[str],
        limit: int = 1,
        *,
        type: Any = Any,
        until: Duration | None = 0,
        visibility: Duration | None = None,
    ) -> list[Message[Any]]:
        """Take up to `limit` messages by hand: each is yours alone for `visibility`, and comes back if not closed."""
        work = functools.partial(self.async_store.dequeue, queue, limit, type=type, until=until, visibility=visibility)
        return [Message(self, message) for message in self.wait_for(work)]

    def taken(self, task_id: int, turn: int, *, type: Any = Any) -> Message[Any] | None:
        """A message that was taken elsewhere, by its id and turn, to be closed here; None if it is not held now."""
        found = self.wait_for(lambda: self.async_store.taken(task_id, turn, type=type))
        return None if found is None else Message(self, found)

    @contextlib.contextmanager
    def consume(
        self, queue: str | Sequence[str], *, limit: int = 1, visibility: Duration | None = None
    ) -> Iterator[Iterator[Message[Any]]]:
        """Iterate over messages as they come, taking up to `limit` at once; those not closed are given back."""

        def messages(source: AsyncIterator[taken_messages.Message[Any]]) -> Iterator[Message[Any]]:
            while True:
                yield Message(self, self.wait_for(lambda: _next(source)))

        with entered(self, self.async_store.consume(queue, limit=limit, visibility=visibility)) as source:
            yield messages(source)

    def stream(self, run: WhichRun, name: str, as_: Any = Any, *, after: int = 0) -> Iterator[Chunk[Any]]:
        """The chunks of a stream of a run, in order, as they come, behind the offset `after`; it ends with the run."""
        source = self.async_store.stream(run, name, as_, after=after)
        while (chunk := self.wait_for(lambda: _next_or_none(source))) is not None:
            yield chunk

    def logs(
        self,
        run: WhichRun,
        *,
        step: str | None = None,
        attempt: int | None = None,
        after: int = 0,
        follow: bool = False,
    ) -> Iterator[LogLine]:
        """What code has logged inside a run, in order; with `follow` it goes on, and ends with the run."""
        source = self.async_store.logs(run, step=step, attempt=attempt, after=after, follow=follow)
        while (line := self.wait_for(lambda: _next_or_none(source))) is not None:
            yield line

    @contextlib.contextmanager
    def transaction(self) -> Iterator[SyncTx]:
        """Begin a transaction for verbs that take `tx=` and rows of your own: all of it is committed, or none."""
        with entered(self, self.async_store.transaction()) as tx:
            yield SyncTx(tx, self.wait_for)

    def fence(self, tx: object) -> None:
        """Let a transaction on your own connection commit only if the turn of the body that calls still stands.

        Call it last, right before your commit. Raises `LeaseLost` if another worker has the task; then roll back.
        """
        if isinstance(tx, SyncTx):
            self.wait_for(lambda: self.async_store.fence(tx.async_tx))
            return
        check_open(self)
        self.async_store.database.transactions.fence_here(tx)

    def registered(self, serves: Sequence[Serves], *, name: str, port: int, concurrency: int) -> Worker:
        """A worker that others see and that claims nothing yet; `stepwell.consumer(...).create(store)` makes it so."""
        from stepwell.sync.worker import Worker  # noqa: PLC0415 - which is made of a store

        return Worker(self, serves, name=name, port=port, concurrency=concurrency).register()

    def close(self) -> None:
        """Stop its workers, write what is pending and close the connections; twice, or in a forked child, harmless."""
        self._close(hurry=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine on the store's loop and wait for its result."""
        return self.background.wait_for(work)

    def _close(self, *, hurry: bool) -> None:
        if self.background.is_open and not self.background.is_inherited:
            self.background.refuse_dead_ends()
            workers = tuple(self.started)
            for one in workers * (2 if hurry else 1):
                one.stop()
            for one in workers:
                one.retire(patience=self.async_store.database.options.timeout)
            self.background.close(self.async_store.close, patience=2 * self.async_store.database.options.timeout)
        _open.discard(self)


async def _next_or_none(source: AsyncIterator[T]) -> T | None:
    return await anext(source, None)


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


class Message(Generic[T]):
    """A message taken by hand, with verbs that return when they are done; see `stepwell.Message`."""

    def __init__(self, store: Store, message: taken_messages.Message[T]) -> None:
        self._store = store
        self._message = message
        self.id = message.id
        self.queue = message.queue
        self.attempt = message.attempt
        self.key = message.key
        self.created_at = message.created_at
        self.turn = message.turn

    @property
    def payload(self) -> T:
        """What was enqueued, as the type asked for."""
        return self._message.payload

    def archive(self) -> bool:
        """Done: the message is never delivered again, and kept as SUCCESS."""
        return self._store.wait_for(self._message.archive)

    def delete(self) -> bool:
        """Done: the message is removed."""
        return self._store.wait_for(self._message.delete)

    def extend(self, by: Duration) -> bool:
        """Keep the message for this long from now."""
        return self._store.wait_for(lambda: self._message.extend(by))

    def release(self, *, delay: Duration = 0) -> bool:
        """Give the message back, with its attempt; others may take it after `delay`."""
        return self._store.wait_for(lambda: self._message.release(delay=delay))


_open: set[Store] = set()  # held until closed, so that none is forgotten at the end of the program


@atexit.register
def _close_all() -> None:
    for one in tuple(_open):
        with contextlib.suppress(Exception):  # the process ends either way; the lease and the database clean up
            one._close(hurry=True)  # noqa: SLF001
