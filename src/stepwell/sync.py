"""The sync face: the same store and worker for programs without an event loop.

Nothing is written twice: a call drives the async store's own coroutine in the store's background thread and waits for
it. Where waiting could only hang or block others (in that thread, in another event loop, after a fork) it raises.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import ModuleType, TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from stepwell import connect as connect_
from stepwell import engine as engine_
from stepwell import worker
from stepwell.base.backoff import Retry
from stepwell.base.durations import Duration, seconds_of
from stepwell.connect import Config, ConnectOptions
from stepwell.decider import Decider, Receipt
from stepwell.deciders.history import EventInfo, InstanceInfo, OutstandingInfo
from stepwell.deciders.service import SNAPSHOT_EVERY
from stepwell.decision import Decision
from stepwell.errors import InvalidOption
from stepwell.records import Page, RunId, TaskId
from stepwell.runs.cleanup import Shield
from stepwell.runs.context import SyncContext, current_run
from stepwell.runs.wait import NOTHING
from stepwell.store import by_hand
from stepwell.store import store as store_
from stepwell.store.draft import Asked
from stepwell.store.poll import LONGEST_POLL
from stepwell.store.runs import run_ids
from stepwell.sync_adapters import LoopThread, Tx, check_open, entered, joinable, listed, signal_joinable, verb
from stepwell.worker import OnMissing, Serves

Context = SyncContext
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")
S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - as in Decider
E = TypeVar("E")
X = TypeVar("X")
F = TypeVar("F", bound=Callable[..., Any])


def connect(url: str | None = None, /, **options: Unpack[ConnectOptions]) -> Store:
    """Open a store, which `with` closes at the end; takes what `stepwell.connect` takes."""
    return Store(connect_.configured(url, options))


def current() -> Context:
    """The context of the run that executes the calling code: a sync workflow, or a step's body."""
    return Context(current_run())


def sleep(until: Duration | datetime) -> None:
    """Let the current run wait for a span, or until a moment; it holds nothing meanwhile and survives every restart."""
    current().sleep(until)


def shield() -> Shield:
    """A block inside of which a run goes on although it was cancelled, for the code of sync workflows."""
    return Shield()


@overload
def wait(name: str, type: type[T], *, timeout: None = None) -> T: ...
@overload
def wait(name: str, type: type[T], *, timeout: Duration, default: D) -> T | D: ...
@overload
def wait(name: str, type: type[T], *, timeout: Duration) -> T | None: ...
@overload
def wait(name: str, *, timeout: Duration | None = None, default: Any = NOTHING) -> Any: ...
def wait(name: str, type: Any = Any, *, timeout: Any = None, default: Any = NOTHING) -> Any:
    """Let the current run wait for a signal of this name, and return its data; it holds nothing meanwhile."""
    return current().wait(name, type, timeout=timeout, default=default)


class Store:
    """An open store whose verbs return when they are done. Any thread may call them, at the same time too."""

    create_queue = verb(store_.Store.create_queue)
    enqueue = joinable(verb(store_.Store.enqueue))
    enqueue_many = joinable(listed(verb(store_.Store.enqueue_many)))
    get = verb(store_.Store.get)
    result = verb(store_.Store.result)
    signal = signal_joinable(verb(store_.Store.signal))
    resume = verb(store_.Store.resume)
    cancel = verb(store_.Store.cancel)
    cancel_runs = verb(store_.Store.cancel_runs)
    pause = verb(store_.Store.pause)
    unpause = verb(store_.Store.unpause)
    accept = verb(store_.Store.accept)
    fork = verb(store_.Store.fork)
    why = verb(store_.Store.why)
    queues = verb(store_.Store.queues)
    counts = verb(store_.Store.counts)
    workers = verb(store_.Store.workers)
    queue_stats = verb(store_.Store.queue_stats)
    set_aside = verb(store_.Store.set_aside)
    health = verb(store_.Store.health)
    metrics = verb(store_.Store.metrics)
    metrics_by_workflow = verb(store_.Store.metrics_by_workflow)
    queue_metrics = verb(store_.Store.queue_metrics)
    dead_letter_counts = verb(store_.Store.dead_letter_counts)
    prometheus = verb(store_.Store.prometheus)
    dead_letters = verb(store_.Store.dead_letters)
    requeue = verb(store_.Store.requeue)
    drop = verb(store_.Store.drop)
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
    retry = verb(store_.Store.retry)
    retry_runs = verb(store_.Store.retry_runs)
    delete_runs = verb(store_.Store.delete_runs)

    def __init__(self, config: Config) -> None:
        self.background = LoopThread()
        try:
            self.async_store = self.wait_for(lambda: connect_.open_store(config))
        except BaseException:
            self.background.close()
            raise
        self.started: set[Worker] = set()
        _open.add(self)

    def trigger(self, trigger: Asked[R], *, tx: object = None) -> RunId[R]:
        """Write a run; when this returns it is durable and will be executed. The same as `trigger.execute(store)`."""
        [run_id] = self.trigger_many([trigger], tx=tx)
        return run_id

    def trigger_many(self, triggers: Iterable[Asked[R]], *, tx: object = None) -> list[RunId[R]]:
        """Write all the runs or none, of one workflow or several, in one transaction (yours, with `tx`)."""
        asked = list(triggers)  # in the caller's thread: what they come from may belong to it
        if tx is None or isinstance(tx, Tx):
            joined = None if tx is None else tx.async_tx
            return self.wait_for(lambda: self.async_store.trigger_many(asked, tx=joined))
        check_open(self)
        new_tasks = self.async_store.new_tasks
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

        def messages(source: AsyncIterator[by_hand.Message[Any]]) -> Iterator[Message[Any]]:
            while True:
                yield Message(self, self.wait_for(lambda: _next(source)))

        with entered(self, self.async_store.consume(queue, limit=limit, visibility=visibility)) as source:
            yield messages(source)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Tx]:
        """Begin a transaction for verbs that take `tx=` and rows of your own: all of it is committed, or none."""
        with entered(self, self.async_store.transaction()) as tx:
            yield Tx(self, tx)

    def fence(self, tx: object) -> None:
        """Let a transaction on your own connection commit only if the turn of the body that calls still stands.

        Call it last, right before your commit. Raises `LeaseLost` if somebody else has the task; then roll back.
        """
        if isinstance(tx, Tx):
            self.wait_for(lambda: self.async_store.fence(tx.async_tx))
            return
        check_open(self)
        self.async_store.transactions.fence_here(tx)

    def registered(self, serves: Sequence[Serves], *, name: str, port: int, concurrency: int) -> Worker:
        """A worker that others see and that claims nothing yet; `stepwell.consumer(...).create(store)` makes it so."""
        return Worker(self, serves, name=name, port=port, concurrency=concurrency).register()

    def close(self) -> None:
        """Stop its workers, write what is pending and let go of the database; twice, or in a forked child, harmless."""
        self._close(hurry=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Drive a coroutine on the store's loop and wait for what comes of it."""
        return self.background.wait_for(work)

    def _close(self, *, hurry: bool) -> None:
        if self.background.is_open and not self.background.is_inherited:
            self.background.refuse_dead_ends()
            workers = tuple(self.started)
            for one in workers * (2 if hurry else 1):
                one.stop()
            for one in workers:
                one.retire(patience=self.async_store.options.timeout)
            self.background.close(self.async_store.close, patience=2 * self.async_store.options.timeout)
        _open.discard(self)


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


class Message(Generic[T]):
    """A message taken by hand, with verbs that return when they are done; see `stepwell.Message`."""

    def __init__(self, store: Store, message: by_hand.Message[T]) -> None:
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
        """Done: never delivered again, kept as SUCCESS."""
        return self._store.wait_for(self._message.archive)

    def delete(self) -> bool:
        """Done: removed."""
        return self._store.wait_for(self._message.delete)

    def extend(self, by: Duration) -> bool:
        """Keep it for this long from now."""
        return self._store.wait_for(lambda: self._message.extend(by))

    def release(self, *, delay: Duration = 0) -> bool:
        """Give it back, its attempt too; others may have it after `delay`."""
        return self._store.wait_for(lambda: self._message.release(delay=delay))


class Worker:
    """Claims the tasks of what it serves and executes them, until it is stopped.

    `with Worker(store, [handler]):` works in the background of your program and stops at the end of the block;
    `Worker(...).run(signals=True)` is a whole process's work. Sync handlers run in threads and may use the store; async
    ones run on the store's loop and may not, since waiting there would never end.
    """

    def __init__(
        self,
        store: Store,
        serves: Iterable[Serves | Engine],
        *,
        name: str | None = None,
        port: int | None = None,
        concurrency: int = 10,
        limits: Mapping[str, int] | None = None,
        grace: Duration = 25,
        poll: Duration = LONGEST_POLL,
        prefixes: Iterable[str] | None = None,
        on_missing_handler: OnMissing = "fail",
    ) -> None:
        if not isinstance(store, Store):
            raise InvalidOption("store", store, "it is not a sync store; an async one is served by `stepwell.Worker`")
        self._store = store
        self._worker = worker.Worker(
            store.async_store,
            list(_async_ones(serves, store)) if isinstance(serves, Iterable) else serves,
            name=name,
            port=port,
            concurrency=concurrency,
            limits=limits,
            grace=grace,
            poll=poll,
            prefixes=prefixes,
            on_missing_handler=on_missing_handler,
        )
        self._grace = seconds_of(grace, "grace")
        self._entered = False
        self._ended = threading.Event()

    @property
    def id(self) -> int:
        """The number of its session; a new one after every start and every lost lease."""
        return self._worker.id

    def __enter__(self) -> Self:
        self._store.wait_for(self._worker.__aenter__)
        self._entered = True
        self._store.started.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered and not self._store.background.is_inherited:
            self._entered = False
            self._store.started.discard(self)
            self._store.wait_for(lambda: self._worker.__aexit__(None, None, None))

    def run(self, *, signals: bool = False) -> None:
        """Work until `stop()`, or with `signals=True`, in the main thread, until SIGTERM or SIGINT.

        A second signal does not wait for the grace: what is under way is given back at once.
        """
        with worker.caught_signals(self.stop) if signals else contextlib.nullcontext():
            self._until_ended(self._worker.run)

    def poll_forever(self) -> None:
        """Work until `stop()`."""
        self.run()

    def register(self) -> Self:
        """Let others see the worker before it claims anything; `run` goes on from there, `close` ends it."""
        self._store.wait_for(self._worker.register)
        return self

    def close(self) -> None:
        """End a worker that was registered and never ran; nothing to do for any other."""
        self._store.wait_for(self._worker.close)

    def set_handler(self, fn: Callable[..., Any]) -> None:
        """Have another function execute what comes next; nothing about it is written anywhere."""
        self._worker.set_handler(fn)

    def dequeue(self, limit: int = 1, *, until: Duration | None = 0) -> list[Message[Any]]:
        """Take up to `limit` tasks of the worker's queues by hand, as `store.dequeue` does."""
        taken = self._store.wait_for(lambda: self._worker.dequeue(limit, until=until))
        return [Message(self._store, message) for message in taken]

    def drain(self) -> int:
        """Return when all that is due now, and what that leads to, is done; says how many attempts that was."""
        return self._until_ended(self._worker.drain)

    def stop(self) -> None:
        """Let `run` or `poll_forever` end, gracefully; the second time at once. Any thread may call it."""
        self._store.background.call(self._worker.stop)

    def retire(self, *, patience: float) -> None:
        """Having been told to stop, end, however it was started; for a store that closes."""
        if self._entered:
            self.__exit__(None, None, None)
        else:
            self._ended.wait(self._grace + patience)

    def _until_ended(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        self._ended.clear()
        self._store.started.add(self)
        try:
            return self._store.wait_for(work)
        finally:
            if not self._entered:
                self._store.started.discard(self)
            self._ended.set()


def _async_ones(serves: Iterable[Serves | Engine], store: Store) -> Iterator[Serves]:
    """What an async worker serves for it: of an engine the one behind it, of a module its engines as well."""
    for one in serves:
        if isinstance(one, Engine):
            yield one.async_engine
            continue
        yield one
        if isinstance(one, ModuleType):
            engines = [each for each in vars(one).values() if isinstance(each, Engine)]
            yield from (each.async_engine for each in engines if each.async_engine.store is store.async_store)


class Engine:
    """Deciders in a sync store, whose verbs return when they are done; see `stepwell.Engine`."""

    def __init__(self, store: Store) -> None:
        if not isinstance(store, Store):
            raise InvalidOption("store", store, "it is not a sync store; an async one is for `stepwell.Engine`")
        self._store = store
        self.async_engine = engine_.Engine(store.async_store)

    def register(
        self,
        decider: Decider[Any, Any, Any, Any],
        *,
        workers: int = 10,
        snapshot_every: int = SNAPSHOT_EVERY,
        retry: int | Retry | None = None,
        timeout: Duration | None = None,
    ) -> Self:
        """Know a decider from now on."""
        self.async_engine.register(
            decider, workers=workers, snapshot_every=snapshot_every, retry=retry, timeout=timeout
        )
        return self

    def execute(self, input: object, *, key: str | None = None, tx: object = None) -> Receipt:
        """Decide an input; when this returns its events are committed, or join your transaction."""
        if tx is None or isinstance(tx, Tx):
            joined = None if tx is None else tx.async_tx
            return self._store.wait_for(lambda: self.async_engine.execute(input, key=key, tx=joined))
        check_open(self._store)
        return self.async_engine.execute_in_this_thread(input, key, tx)

    def execute_dynamic(self, type: str, payload: Any, *, key: str | None = None, tx: object = None) -> Receipt:
        """As `execute`, for an input that comes as JSON."""
        return self.execute(self.async_engine.registry.of_type(type).inputs.read_named(payload), key=key, tx=tx)

    def submit(
        self, input: object, *, key: str | None = None, delay: Duration | None = None, tx: object = None
    ) -> TaskId:
        """Store an input that a worker decides soon, or after `delay`; with `tx` it joins your transaction."""
        if tx is None or isinstance(tx, Tx):
            joined = None if tx is None else tx.async_tx
            return self._store.wait_for(lambda: self.async_engine.submit(input, key=key, delay=delay, tx=joined))
        check_open(self._store)
        return self.async_engine.submit_in_this_thread(input, key, delay, tx)

    def dry_run(self, input: object) -> Decision[Any, Any, Any]:
        """What the input would lead to now; nothing is written."""
        return self._store.wait_for(lambda: self.async_engine.dry_run(input))

    @overload
    def state(self, decider: str, id: str, *, at: int | None = None) -> Any: ...
    @overload
    def state(self, decider: type[Decider[S, I, E, X]], id: str, *, at: int | None = None) -> S: ...
    def state(self, decider: Any, id: str, *, at: int | None = None) -> Any:
        """The state of an instance, now or after its first `at` events; by the decider's type as JSON."""
        return self._store.wait_for(lambda: self.async_engine.state(decider, id, at=at))

    def events(self, type: str, id: str, *, after: int = 0) -> Sequence[EventInfo]:
        """The events of an instance after this version, in their order."""
        return self._store.wait_for(lambda: self.async_engine.events(type, id, after=after))

    def instances(self, type: str | None = None, *, limit: int = 100, after: str | None = None) -> Page[InstanceInfo]:
        """Instances of a type, or of all, by type and id."""
        return self._store.wait_for(lambda: self.async_engine.instances(type, limit=limit, after=after))

    def outstanding(self, type: str, id: str) -> Sequence[OutstandingInfo]:
        """What an instance still waits for: its effects and timers that are not finished."""
        return self._store.wait_for(lambda: self.async_engine.outstanding(type, id))

    def run(self, *, signals: bool = False) -> None:
        """Carry out effects and deliver timers and inputs, until the process is told to end."""
        Worker(self._store, [self]).run(signals=signals)


_open: set[Store] = set()  # held until closed, so that none is forgotten at the end of the program


@atexit.register
def _close_all() -> None:
    for one in tuple(_open):
        with contextlib.suppress(Exception):  # the process ends either way; the lease and the database clean up
            one._close(hurry=True)  # noqa: SLF001
