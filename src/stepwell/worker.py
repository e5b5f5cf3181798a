"""Worker: a process's session that claims tasks and executes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self

from stepwell._version import __version__
from stepwell.base.durations import Duration, seconds_of
from stepwell.base.names import check_key, check_prefix, check_whole
from stepwell.base.signals import caught_signals
from stepwell.errors import InvalidOption, StepwellError
from stepwell.queue import Handler
from stepwell.store.poll import LONGEST_POLL, SHORTEST_POLL
from stepwell.store.schedules import zones_mark
from stepwell.store.sessions import Identity
from stepwell.store.store import Store
from stepwell.store.taken_messages import Message
from stepwell.work.body import Served
from stepwell.work.garbage import GARBAGE
from stepwell.work.loop import Runtime
from stepwell.workflow import Workflow
from stepwell.workload import MOST_PLACES, Serves, all_served

OnMissing = Literal["fail", "release"]
PREFIXES_VARIABLE: Final = "WORKER_TYPE_PREFIXES"
DEFAULT_PREFIX: Final = "default."


class Worker:
    """Claims the tasks of what it serves and executes them, until it is stopped.

    `async with Worker(store, [handler]):` works in the background of your program and stops at the end of the block;
    `await Worker(...).run(signals=True)` is a whole process's work. It claims only what it has a free place for,
    beats from a thread of its own, and begins a new session by itself if it was taken for dead.

    It serves handlers, workflows, the deciders of an engine (or one by itself), and of a module all of these that are
    defined in it, and claims from their queues. With `prefixes` (or `WORKER_TYPE_PREFIXES=media.,email.` in the
    environment) it claims from the queues whose names begin so, and from no other. What it then has no handler for ends
    in ERROR with reason `no_handler_registered`; with `on_missing_handler="release"` it is left to other workers. A
    worker with neither handlers nor prefixes takes `default.`.

    With `tune_gc` Python's garbage collector runs less often while it works, in the whole process. That saves a fifth
    of the CPU of a process that does little else; it is off because the rest of a program may rely on the collector.
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
        poll: Duration = LONGEST_POLL,
        prefixes: Iterable[str] | None = None,
        on_missing_handler: OnMissing = "fail",
        tune_gc: bool = False,
    ) -> None:
        if not isinstance(store, Store):
            why = "pass an open store: `async with connect(...) as store`; a sync one is for `stepwell.sync.Worker`"
            raise InvalidOption("store", store, why)
        check_whole("concurrency", concurrency, 1, MOST_PLACES)
        routing, (found, beside) = Routing.of(prefixes, on_missing_handler), all_served(serves, limits or {}, store)
        self._store, served = store, routing.chosen(found)
        self._db = store.database
        self._queues = [one.queue for one in served]
        self._runtime = Runtime(
            self._db,
            served,
            Identity(
                name=check_key(name or f"{socket.gethostname()}-{os.getpid()}", "worker"),
                host=socket.gethostname(),
                pid=os.getpid(),
                port=None if port is None else check_whole("port", port, 0, 65_535),
                version=__version__,
                handlers=[
                    *(one.queue for one in served),
                    *(f"{prefix}*" for prefix in routing.claimed(served)),
                    *(each.mark for one in served for each in one.schedules),
                    *zones_mark(),
                ],
            ),
            prefixes=routing.claimed(served),
            concurrency=concurrency,
            grace=seconds_of(grace, "grace"),
            poll=_poll(poll),
            beside=[one for one in beside if one.name.startswith(routing.prefixes or "")],
        )
        self._stop = asyncio.Event()
        self._started = self._draining = False
        self._garbage, self._tunes_gc = contextlib.ExitStack(), tune_gc

    @property
    def id(self) -> int:
        """The number of its session; a new one after every start and every lost lease.

        What it serves under another lease than the store's has a session of its own: this is the first.
        """
        session = self._runtime.session
        if session is None:
            raise StepwellError("a worker has an id only while it is started")
        return session.id

    @property
    def is_serving(self) -> bool:
        """True while it claims: its session has begun, and its queues and workflows are made."""
        return self._runtime.is_serving

    async def __aenter__(self) -> Self:
        self._db.check()
        if self._started:
            raise InvalidOption("worker", "start", "it is started already")
        self._started = True
        try:
            await self._runtime.start()
        except BaseException:
            self._started = False
            raise
        self._garbage.enter_context(self._tuned())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started = False
        with self._garbage:
            await self._runtime.stop()

    async def run(self, shutdown: Awaitable[object] | None = None, *, signals: bool = False) -> None:
        """Work until `stop()`, until `shutdown` is done, or with `signals=True` until SIGTERM or SIGINT.

        A second signal ends the grace period: tasks that are being executed are given back at once.
        """
        self._db.check()
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._stop.clear)  # when all has ended: it may run again
            if signals:  # first, so that they are handled to the end: the second comes while the worker stops
                stack.enter_context(caught_signals(partial(loop.call_soon_threadsafe, self._end)))
            waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._stop.wait())]
            if shutdown is not None:
                waiting.append(asyncio.ensure_future(shutdown))
            try:
                if not await self._begun(stack, waiting):
                    return
                ended, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in ended:
                    one.result()  # a shutdown that failed must not count as a request to stop
            finally:
                for one in waiting:
                    one.cancel()

    async def _begun(self, stack: contextlib.AsyncExitStack, waiting: Sequence[asyncio.Future[Any]]) -> bool:
        """Start, which waits while the database is away; False if it has to stop before it has started."""
        starting = asyncio.ensure_future(self.__aenter__())
        try:
            await asyncio.wait([starting, *waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not starting.done():
                starting.cancel()
                await asyncio.wait([starting])
        if starting.cancelled():
            return False
        starting.result()
        stack.push_async_exit(self.__aexit__)
        return True

    async def poll_forever(self) -> None:
        """Work until `stop()`."""
        await self.run()

    async def register(self) -> Self:
        """Let others see the worker before it claims anything; `run` goes on from there, `close` ends it."""
        self._db.check()
        await self._runtime.register()
        return self

    async def close(self) -> None:
        """End a worker that was registered and never ran; does nothing for any other."""
        if not self._started:
            await self._runtime.stop()

    def set_handler(self, fn: Callable[..., Any]) -> None:
        """Have another function execute what comes next; nothing about it is written anywhere.

        A workflow or a handler takes the place of the one with its name, a plain function that of the only one.
        """
        self._runtime.replace(_replacement(fn, self._queues).served(self._db.options.retry))

    async def dequeue(self, limit: int = 1, *, until: Duration | None = 0) -> list[Message[Any]]:
        """Take up to `limit` tasks of the worker's queues by hand, as `store.dequeue` does."""
        return await self._store.dequeue(self._queues, limit, until=until)

    async def drain(self) -> int:
        """Return when all that is due now, and what that leads to, is done; returns the number of attempts.

        A worker that is not started works for as long as that takes and no longer.
        """
        self._db.check()
        if self._started:
            return await self._runtime.drain()
        if self._draining:
            raise InvalidOption("worker", "drain", "it is being drained already; wait for that")
        self._draining = True
        try:
            with self._tuned():
                await self._runtime.start(upkeep=False)
                return await self._runtime.drain()
        finally:
            await self._runtime.stop()
            self._draining = False

    def stop(self) -> None:
        """Let `run` or `poll_forever` end, gracefully; the second time at once. Any thread may call it."""
        loop = self._db.loop
        if is_running_here(loop):
            self._end()
        else:
            with contextlib.suppress(RuntimeError):  # closed: nothing runs any more
                loop.call_soon_threadsafe(self._end)

    def _tuned(self) -> contextlib.AbstractContextManager[None]:
        return GARBAGE.collected_rarely() if self._tunes_gc else contextlib.nullcontext()

    def _end(self) -> None:
        if self._stop.is_set():
            self._runtime.hurry()
        self._stop.set()


def is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    """True on the thread of this loop, while it runs."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def poll_all(workers: Iterable[Worker]) -> None:
    """Work with all of these until each is stopped; if one fails, all are stopped and its error is raised."""
    running = {asyncio.ensure_future(worker.run()): worker for worker in workers}
    if not running:
        return
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for run, worker in running.items():
            if not run.done():
                worker.stop()
        ended = await asyncio.gather(*running, return_exceptions=True)
    for error in ended:
        if isinstance(error, BaseException):
            raise error


@dataclass(frozen=True, slots=True)
class Routing:
    """Which queues a worker claims from, besides those of its handlers or instead of them."""

    prefixes: tuple[str, ...]
    on_missing: OnMissing

    @classmethod
    def of(cls, prefixes: Iterable[str] | None, on_missing: OnMissing) -> Routing:
        """The given options, or else those of the environment."""
        if on_missing not in ("fail", "release"):
            raise InvalidOption("on_missing_handler", on_missing, "it is 'fail' or 'release'")
        if isinstance(prefixes, str):
            raise InvalidOption("prefixes", prefixes, "prefixes are several texts: pass a list")
        if prefixes is None:
            said = os.environ.get(PREFIXES_VARIABLE, "").split(",")
            prefixes = [prefix.strip() for prefix in said if prefix.strip()]
        return cls(tuple(dict.fromkeys(check_prefix(prefix) for prefix in prefixes)), on_missing)

    def chosen(self, served: list[Served]) -> list[Served]:
        """Those of the handlers that this worker is for."""
        if not self.prefixes:
            return served
        chosen = [one for one in served if one.queue.startswith(self.prefixes)]
        if not chosen and self.on_missing == "release":
            raise InvalidOption("prefixes", self.prefixes, "no handler's queue begins so; this worker would do nothing")
        return chosen

    def claimed(self, served: list[Served]) -> tuple[str, ...]:
        """The prefixes whose queues it claims from, even if it has no handler for some of them."""
        if self.prefixes:
            return self.prefixes if self.on_missing == "fail" else ()
        return () if served else (DEFAULT_PREFIX,)


def _replacement(fn: Callable[..., Any], queues: Sequence[str]) -> Handler[Any] | Workflow[..., Any]:
    if isinstance(fn, Handler | Workflow):
        name = fn.name if isinstance(fn, Workflow) else fn.queue
        if name not in queues:
            raise InvalidOption(
                "handler", fn, f"this worker does not serve {name}; it was made for {', '.join(queues)}"
            )
        return fn
    if len(queues) != 1:
        raise InvalidOption("handler", fn, "this worker serves several; pass a function decorated with the name of one")
    return Workflow(queues[0], fn)


def _poll(poll: Duration) -> float:
    seconds = seconds_of(poll, "poll")
    if seconds < SHORTEST_POLL:
        raise InvalidOption("poll", poll, f"it is at least {SHORTEST_POLL:g} s; what is added here is heard at once")
    return seconds
