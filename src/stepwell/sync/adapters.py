"""How a verb of the async store becomes one that returns when it is done."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

from stepwell.errors import StoreClosed
from stepwell.store import store as store_
from stepwell.store.transaction import SyncTx
from stepwell.sync.loop_thread import LoopThread

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N")


class Face(Protocol):
    """A store whose verbs return when they are done."""

    async_store: store_.Store
    background: LoopThread

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work on the loop of the async store."""


class Noun(Generic[N]):
    """A noun of a store, such as its schedules, whose verbs return when they are done."""

    def __init__(self, store: Face, noun: N) -> None:
        self.async_store = noun
        self.wait_for = store.wait_for


def verb(verb: Callable[Concatenate[N, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """The verb of the async store, or of a noun of it, as a blocking call."""

    @functools.wraps(verb)
    def call(store: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        answer: R = store.wait_for(lambda: verb(store.async_store, *args, **kwargs))
        return answer

    return call


@contextlib.contextmanager
def entered(store: Face, block: contextlib.AbstractAsyncContextManager[T, Any]) -> Iterator[T]:
    """A block of the async store, entered and left on its loop; an exception in the block is passed on to it."""
    value = store.wait_for(lambda: _enter(block))
    try:
        yield value
    except BaseException as error:
        raised = error
        store.wait_for(lambda: _leave(block, raised))
        raise
    store.wait_for(lambda: _leave(block, None))


async def _enter(block: contextlib.AbstractAsyncContextManager[T, Any]) -> T:
    return await block.__aenter__()


async def _leave(block: contextlib.AbstractAsyncContextManager[Any, Any], error: BaseException | None) -> None:
    trace = None if error is None else error.__traceback__
    await block.__aexit__(None if error is None else type(error), error, trace)


def listed(verb: F) -> F:
    """The verb, with its payloads listed first, in the caller's thread: their source may belong to that thread."""

    @functools.wraps(verb)
    def call(store: Face, /, queue: Any, payloads: Iterable[Any], **options: Any) -> Any:
        return verb(store, queue, list(payloads), **options)

    return cast("F", call)


def joinable(verb: F) -> F:
    """The verb; with `tx`, a connection that only its own thread may use, it runs in the caller's thread."""

    @functools.wraps(verb)
    def call(store: Face, /, *args: Any, **options: Any) -> Any:
        if options.get("tx") is None:
            return verb(store, *args, **options)
        if isinstance(options["tx"], SyncTx):
            return verb(store, *args, **{**options, "tx": options["tx"].async_tx})
        given = inspect.signature(verb).bind(store, *args, **options)
        (_, queue, payload), options = given.args, given.kwargs
        check_open(store)
        tx, one = options.pop("tx"), verb.__name__ == "enqueue"
        key = options.pop("key" if one else "keys", None)
        new_tasks = store.async_store.database.new_tasks
        draft = new_tasks.draft(queue, **options)
        ids = new_tasks.add_here(draft.one(payload, key) if one else draft.each(payload, key), tx)
        return ids[0] if one else ids

    return cast("F", call)


def signal_joinable(verb: F) -> F:
    """The verb; with `tx` it runs in the caller's thread."""

    @functools.wraps(verb)
    def call(store: Face, /, *args: Any, tx: object = None, **options: Any) -> Any:
        if tx is None or isinstance(tx, SyncTx):
            return verb(store, *args, tx=None if tx is None else tx.async_tx, **options)
        check_open(store)
        return store.async_store.database.signals.send_here(*args, tx=tx, **options)

    return cast("F", call)


def signals_joinable(verb: F) -> F:
    """The verb; with `tx` it runs in the caller's thread, and so does its source of signals in any case."""

    @functools.wraps(verb)
    def call(store: Face, /, signals: Iterable[Any], *, tx: object = None, **options: Any) -> Any:
        given = list(signals)
        if tx is None or isinstance(tx, SyncTx):
            return verb(store, given, tx=None if tx is None else tx.async_tx, **options)
        check_open(store)
        return store.async_store.database.signals.send_many_here(given, tx=tx, **options)

    return cast("F", call)


def emit_joinable(verb: F) -> F:
    """The verb; with `tx` it runs in the caller's thread."""

    @functools.wraps(verb)
    def call(store: Face, /, type: str, data: Any = None, *, tx: object = None, **options: Any) -> Any:
        if tx is None or isinstance(tx, SyncTx):
            return verb(store, type, data, tx=None if tx is None else tx.async_tx, **options)
        check_open(store)
        return store.async_store.database.outboxes.emit_here(type, data, tx, **options)

    return cast("F", call)


def broadcast_joinable(verb: F) -> F:
    """The verb; with `tx` it runs in the caller's thread."""

    @functools.wraps(verb)
    def call(store: Face, /, name: str, data: Any = None, *, key: str | None = None, tx: object = None) -> Any:
        if tx is None or isinstance(tx, SyncTx):
            return verb(store, name, data, key=key, tx=None if tx is None else tx.async_tx)
        check_open(store)
        return store.async_store.database.broadcasts.send_here(name, data, key, tx)

    return cast("F", call)


def check_open(store: Face) -> None:
    """Refuse to join a transaction if the store is closed, or if the calling thread may not wait."""
    store.background.refuse_dead_ends()
    if not store.background.is_open:
        raise StoreClosed
