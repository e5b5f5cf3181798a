"""The worker and the engine of a sync store."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar, overload

from stepwell import engine as engine_
from stepwell import worker
from stepwell.base.backoff import Retry
from stepwell.base.durations import Duration, seconds_of
from stepwell.base.signals import caught_signals
from stepwell.decider import Decider, Receipt
from stepwell.deciders.drift import ObservedMachine
from stepwell.deciders.global_order import Feed
from stepwell.deciders.history import DryRun, EventInfo, Inspection, InstanceInfo, OutstandingInfo
from stepwell.deciders.observation import Observation
from stepwell.deciders.service import SNAPSHOT_EVERY
from stepwell.errors import InvalidOption
from stepwell.projections.projection import ReadModel, ReadModelElsewhere, RowFunction
from stepwell.projections.row_query import OrderBy
from stepwell.records import Page, TaskId
from stepwell.store.poll import LONGEST_POLL
from stepwell.store.projections import ProjectionInfo
from stepwell.store.transaction import SyncTx
from stepwell.sync.adapters import check_open
from stepwell.sync.store import Message, Store
from stepwell.worker import OnMissing
from stepwell.workload import Serves

R = TypeVar("R")
S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - as in Decider
E = TypeVar("E")
X = TypeVar("X")


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
        tune_gc: bool = False,
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
            tune_gc=tune_gc,
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

        A second signal ends the grace period: tasks that are being executed are given back at once.
        """
        with caught_signals(self.stop) if signals else contextlib.nullcontext():
            self._until_ended(self._worker.run)

    def poll_forever(self) -> None:
        """Work until `stop()`."""
        self.run()

    def register(self) -> Self:
        """Let others see the worker before it claims anything; `run` goes on from there, `close` ends it."""
        self._store.wait_for(self._worker.register)
        return self

    def close(self) -> None:
        """End a worker that was registered and never ran; does nothing for any other."""
        self._store.wait_for(self._worker.close)

    def set_handler(self, fn: Callable[..., Any]) -> None:
        """Have another function execute what comes next; nothing about it is written anywhere."""
        self._worker.set_handler(fn)

    def dequeue(self, limit: int = 1, *, until: Duration | None = 0) -> list[Message[Any]]:
        """Take up to `limit` tasks of the worker's queues by hand, as `store.dequeue` does."""
        taken = self._store.wait_for(lambda: self._worker.dequeue(limit, until=until))
        return [Message(self._store, message) for message in taken]

    def drain(self) -> int:
        """Return when all that is due now, and what that leads to, is done; returns the number of attempts."""
        return self._until_ended(self._worker.drain)

    def stop(self) -> None:
        """Let `run` or `poll_forever` end, gracefully; the second time at once. Any thread may call it."""
        self._store.background.call(self._worker.stop)

    def retire(self, *, patience: float) -> None:
        """End after `stop`, however it was started; for a store that closes."""
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
    """What an async worker serves for it: the async engine of an engine, and the engines of a module as well."""
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
        decider: Decider[Any, Any, Any, Any] | ReadModel | ReadModelElsewhere | RowFunction,
        *,
        workers: int = 10,
        snapshot_every: int = SNAPSHOT_EVERY,
        retry: int | Retry | None = None,
        timeout: Duration | None = None,
        observe: bool | None = None,
        inline: bool = False,
    ) -> Self:
        """Know a decider, or a projection, from now on."""
        self.async_engine.register(
            decider,
            workers=workers,
            snapshot_every=snapshot_every,
            retry=retry,
            timeout=timeout,
            observe=observe,
            inline=inline,
        )
        return self

    def execute(
        self, input: object, *, key: str | None = None, expected_version: int | None = None, tx: object = None
    ) -> Receipt:
        """Decide an input; when this returns its events are committed, or join your transaction."""
        if tx is None or isinstance(tx, SyncTx):
            joined = None if tx is None else tx.async_tx
            return self._store.wait_for(
                lambda: self.async_engine.execute(input, key=key, expected_version=expected_version, tx=joined)
            )
        check_open(self._store)
        return self.async_engine.execute_in_this_thread(input, key, expected_version, tx)

    def execute_dynamic(
        self,
        type: str,
        payload: Any,
        *,
        key: str | None = None,
        expected_version: int | None = None,
        tx: object = None,
    ) -> Receipt:
        """As `execute`, for an input that comes as JSON."""
        read = self.async_engine.registry.of_type(type).inputs.read_named(payload)
        return self.execute(read, key=key, expected_version=expected_version, tx=tx)

    def submit(
        self, input: object, *, key: str | None = None, delay: Duration | None = None, tx: object = None
    ) -> TaskId:
        """Store an input that a worker decides soon, or after `delay`; with `tx` it joins your transaction."""
        if tx is None or isinstance(tx, SyncTx):
            joined = None if tx is None else tx.async_tx
            return self._store.wait_for(lambda: self.async_engine.submit(input, key=key, delay=delay, tx=joined))
        check_open(self._store)
        return self.async_engine.submit_in_this_thread(input, key, delay, tx)

    def dry_run(self, input: object) -> DryRun[Any]:
        """The decision that the input would lead to now, and the state after it; nothing is written."""
        return self._store.wait_for(lambda: self.async_engine.dry_run(input))

    @overload
    def state(self, decider: str, id: str, *, at: int | None = None) -> Any: ...
    @overload
    def state(self, decider: type[Decider[S, I, E, X]], id: str, *, at: int | None = None) -> S: ...
    def state(self, decider: Any, id: str, *, at: int | None = None) -> Any:
        """The state of an instance, now or after its first `at` events; by the decider's type as JSON."""
        return self._store.wait_for(lambda: self.async_engine.state(decider, id, at=at))

    @overload
    def inspect(self, decider: str, id: str, *, at: int | None = None, limit: int = 100) -> Inspection[Any]: ...
    @overload
    def inspect(
        self, decider: type[Decider[S, I, E, X]], id: str, *, at: int | None = None, limit: int = 100
    ) -> Inspection[S]: ...
    def inspect(self, decider: Any, id: str, *, at: int | None = None, limit: int = 100) -> Inspection[Any]:
        """An instance with everything that belongs to it, as it was at one moment."""
        return self._store.wait_for(lambda: self.async_engine.inspect(decider, id, at=at, limit=limit))

    def events(self, type: str, id: str, *, after: int = 0) -> Sequence[EventInfo]:
        """The events of an instance after this version, in their order."""
        return self._store.wait_for(lambda: self.async_engine.events(type, id, after=after))

    def events_since(self, position: int, limit: int = 100) -> Feed:
        """The events of all instances after this position, in one order that never changes."""
        return self._store.wait_for(lambda: self.async_engine.events_since(position, limit))

    def instances(self, type: str | None = None, *, limit: int = 100, after: str | None = None) -> Page[InstanceInfo]:
        """Instances of a type, or of all, by type and id."""
        return self._store.wait_for(lambda: self.async_engine.instances(type, limit=limit, after=after))

    def observations(self, type: str, id: str, *, limit: int = 100, after: str | None = None) -> Page[Observation]:
        """The inputs of an instance and how each was answered, in the order of time."""
        return self._store.wait_for(lambda: self.async_engine.observations(type, id, limit=limit, after=after))

    def observed(self, type: str, *, since: datetime | None = None) -> ObservedMachine:
        """The transitions that inputs of this type have made, with counts, beside those that the decider declares."""
        return self._store.wait_for(lambda: self.async_engine.observed(type, since=since))

    def projections(self) -> Sequence[ProjectionInfo]:
        """How every projection of the store stands, by name."""
        return self._store.projections()

    def query(
        self, rows: type[R], /, *, order_by: OrderBy = None, limit: int = 100, after: str | None = None, **where: Any
    ) -> Page[R]:
        """Rows of a projection with `rows=`, that meet these conditions, in this order."""
        return self._store.wait_for(
            lambda: self.async_engine.query(rows, order_by=order_by, limit=limit, after=after, **where)
        )

    def outstanding(self, type: str, id: str) -> Sequence[OutstandingInfo]:
        """What an instance still waits for: its effects and timers that are not finished."""
        return self._store.wait_for(lambda: self.async_engine.outstanding(type, id))

    def run(self, *, signals: bool = False) -> None:
        """Carry out effects and deliver timers and inputs, until the process is told to end."""
        Worker(self._store, [self]).run(signals=signals)
