"""Worker: a process's session that claims tasks and executes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from stepwell._version import __version__
from stepwell.durations import Duration, seconds_of
from stepwell.engine.runtime import Runtime
from stepwell.engine.served import Served
from stepwell.errors import InvalidOption
from stepwell.queue import Handler
from stepwell.store.sessions import Identity
from stepwell.store.store import Store

Serves = Handler[Any]


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
        if concurrency < 1:
            raise InvalidOption("concurrency", concurrency, "it is at least 1")
        served = _served(serves, limits or {})
        self._store = store
        self._runtime = Runtime(
            store,
            served,
            Identity(
                name=name or f"{socket.gethostname()}-{os.getpid()}",
                host=socket.gethostname(),
                pid=os.getpid(),
                port=port,
                version=__version__,
                handlers=[one.queue for one in served],
            ),
            concurrency=concurrency,
            grace=seconds_of(grace, "grace"),
        )
        self._stop = asyncio.Event()
        self._started = False

    @property
    def id(self) -> int:
        """The number of its session; a new one after every start and every lost lease."""
        session = self._runtime.session
        if session is None:
            raise InvalidOption("worker", "id", "a worker has a session only while it is started")
        return session.id

    async def __aenter__(self) -> Self:
        self._store.check()
        await self._runtime.start()
        self._started = True
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
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self)
            if signals:
                stack.enter_context(_signals(self))
            waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._stop.wait())]
            if shutdown is not None:
                waiting.append(asyncio.ensure_future(shutdown))
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waiting:
                    one.cancel()

    async def poll_forever(self) -> None:
        """Work until `stop()`."""
        await self.run()

    async def drain(self) -> int:
        """Execute all that is due now, and what that leads to; returns how many attempts that was."""
        self._store.check()
        if self._started:
            raise InvalidOption("worker", "drain", "a started worker drains by itself; wait for what you need instead")
        await self._runtime.start(loops=False)
        try:
            return await self._runtime.drain()
        finally:
            await self._runtime.stop()

    def stop(self) -> None:
        """Let `run` or `poll_forever` end, gracefully; the second time at once."""
        if self._stop.is_set():
            self._runtime.hurry()
        self._stop.set()


def _served(serves: Iterable[Serves], limits: Mapping[str, int]) -> list[Served]:
    found: dict[str, Served] = {}
    for one in serves:
        if not isinstance(one, Handler):
            raise InvalidOption("serves", one, "a worker serves handlers: functions decorated with @handler(queue)")
        if one.queue in found:
            raise InvalidOption("serves", one, f"two handlers for the queue {one.queue}; give each its own")
        found[one.queue] = one.served(limits.get(one.queue))
    if unknown := set(limits) - set(found):
        raise InvalidOption("limits", sorted(unknown), "these queues are not served")
    return list(found.values())


@contextlib.contextmanager
def _signals(worker: Worker) -> Any:
    loop = asyncio.get_running_loop()
    caught = (signal.SIGTERM, signal.SIGINT)
    for number in caught:
        loop.add_signal_handler(number, worker.stop)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
