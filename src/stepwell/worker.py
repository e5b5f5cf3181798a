"""Worker: a process's session that claims tasks and executes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from stepwell._version import __version__
from stepwell.durations import Duration, seconds_of
from stepwell.engine.runtime import Runtime
from stepwell.engine.served import Served
from stepwell.errors import InvalidOption, StepwellError
from stepwell.names import check_key, check_whole
from stepwell.queue import Handler
from stepwell.store.sessions import Identity
from stepwell.store.store import Store

Serves = Handler[Any]
MOST_PLACES: Final = 10_000


class Worker:
    """Claims the tasks of what it serves and executes them, until it is stopped.

    `async with Worker(store, [handler]):` works in the background of your program and stops at the end of the block;
    `await Worker(...).run(signals=True)` is a whole process's work. It claims only what it has a free place for,
    beats from a thread of its own, and begins a new session by itself if it was taken for dead.
    """

    def __init__(
        self,
        store: Store,
        serves: Iterable[Serves],
        *,
        name: str | None = None,
        port: int | None = None,
        concurrency: int = 10,
        limits: Mapping[str, int] | None = None,
        grace: Duration = 25,
    ) -> None:
        if not isinstance(store, Store):
            raise InvalidOption("store", store, "it is no async store; a sync one is served by `stepwell.sync.Worker`")
        check_whole("concurrency", concurrency, 1, MOST_PLACES)
        served = _served(serves, limits or {})
        self._store = store
        self._runtime = Runtime(
            store,
            served,
            Identity(
                name=check_key(name or f"{socket.gethostname()}-{os.getpid()}", "worker"),
                host=socket.gethostname(),
                pid=os.getpid(),
                port=None if port is None else check_whole("port", port, 0, 65_535),
                version=__version__,
                handlers=[one.queue for one in served],
            ),
            concurrency=concurrency,
            grace=seconds_of(grace, "grace"),
        )
        self._stop = asyncio.Event()
        self._started = self._draining = False

    @property
    def id(self) -> int:
        """The number of its session; a new one after every start and every lost lease."""
        session = self._runtime.session
        if session is None:
            raise StepwellError("a worker has an id only while it is started")
        return session.id

    async def __aenter__(self) -> Self:
        self._store.check()
        if self._started:
            raise InvalidOption("worker", "start", "it is started already")
        self._started = True
        try:
            await self._runtime.start()
        except BaseException:
            self._started = False
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started = False
        await self._runtime.stop()

    async def run(self, shutdown: Awaitable[object] | None = None, *, signals: bool = False) -> None:
        """Work until `stop()`, until `shutdown` is done, or with `signals=True` until SIGTERM or SIGINT.

        A second signal does not wait for the grace: what is under way is given back at once.
        """
        self._store.check()
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._stop.clear)  # when all is over: it may run again
            if signals:  # first, so that they are heard to the end: the second one comes while the first is obeyed
                stack.enter_context(caught_signals(partial(loop.call_soon_threadsafe, self.stop)))
            await stack.enter_async_context(self)
            waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._stop.wait())]
            if shutdown is not None:
                waiting.append(asyncio.ensure_future(shutdown))
            try:
                ended, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in ended:
                    one.result()  # a shutdown that failed is not to be taken for a wish
            finally:
                for one in waiting:
                    one.cancel()

    async def poll_forever(self) -> None:
        """Work until `stop()`."""
        await self.run()

    async def drain(self) -> int:
        """Return when all that is due now, and what that leads to, is done; says how many attempts that was.

        A worker that is not started works for as long as that takes and no longer.
        """
        self._store.check()
        if self._started:
            return await self._runtime.drain()
        if self._draining:
            raise InvalidOption("worker", "drain", "it is being drained already; wait for that")
        self._draining = True
        try:
            await self._runtime.start(loops=False)
            return await self._runtime.drain()
        finally:
            await self._runtime.stop()
            self._draining = False

    def stop(self) -> None:
        """Let `run` or `poll_forever` end, gracefully; the second time at once."""
        if self._stop.is_set():
            self._runtime.hurry()
        self._stop.set()


def _served(serves: Iterable[Serves], limits: Mapping[str, int]) -> list[Served]:
    found: dict[str, Served] = {}
    if isinstance(serves, Handler) or not isinstance(serves, Iterable):
        raise InvalidOption("serves", serves, "pass a list of handlers")
    for one in serves:
        if not isinstance(one, Handler):
            raise InvalidOption("serves", one, "a worker serves handlers: functions decorated with @handler(queue)")
        if one.queue in found:
            raise InvalidOption("serves", one, f"two handlers for the queue {one.queue}; give each its own")
        if (limit := limits.get(one.queue)) is not None:
            check_whole(f"limits of {one.queue}", limit, 1, MOST_PLACES)
        found[one.queue] = one.served(limit)
    if unknown := set(limits) - set(found):
        raise InvalidOption("limits", sorted(unknown), "these queues are not served")
    return list(found.values())


@contextlib.contextmanager
def caught_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Have SIGTERM and SIGINT call `stop`, and put back what was there before; Python tells the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        raise InvalidOption("signals", True, "signals reach only the main thread; run there, or call `stop()` yourself")
    # Not through the loop's own registry: it forgets what was there before instead of putting it back.
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
