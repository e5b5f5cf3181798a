"""World: a store, a worker and a clock for one test, in which steps can be faked."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import time
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, Unpack, cast

from stepwell.base.clock import TestClock
from stepwell.base.durations import Duration, datetime_of, microseconds_of
from stepwell.base.telemetry import Telemetry
from stepwell.connect import ConnectOptions, connect
from stepwell.decider import Decider
from stepwell.engine import Engine
from stepwell.errors import InvalidOption
from stepwell.projections.projection import ReadModel, ReadModelElsewhere, RowFunction, is_projection
from stepwell.runs.context import current_run
from stepwell.step import Step
from stepwell.store.store import Store
from stepwell.testing.consequences import Consequences, consequences
from stepwell.testing.crash_driver import Doomed
from stepwell.testing.crashes import Crashes, CrashReport, InputCrashes
from stepwell.testing.manual_worker import HandWorker, drained, live
from stepwell.trigger import Trigger
from stepwell.workload import Serves

UNSAID: Final = object()
AnyProjection = ReadModel | ReadModelElsewhere | RowFunction
Body = Callable[[], Any]
BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def world(
    *serves: Serves | AnyProjection,
    url: str = "memory:",
    start: datetime = BEGINNING,
    **options: Unpack[ConnectOptions],
) -> AsyncIterator[World]:
    """A store with its own clock, and a worker for these workflows, handlers, deciders, projections and modules.

    The worker works in the background, as in production, but time stands still until the test moves it. `start` is
    what the clock says at first; `url` and the options are those of `connect`, for a test on another database.
    `engine` has the deciders and projections that are named here.
    """
    clock = options.setdefault("clock", TestClock(start))
    if not isinstance(clock, TestClock):
        raise InvalidOption("clock", clock, "a world's clock is a `TestClock`")
    options.setdefault("listen", False)
    work = cast("list[Serves]", [one for one in serves if not is_projection(one)])  # what a crash may cut off
    async with connect(url, **options) as store:
        engine = _engine_of(store, serves)
        async with HandWorker(store, [*(one for one in work if not isinstance(one, Decider)), engine]) as worker:
            fakes = Fakes()
            fakes.clocks.add(clock)
            try:
                yield World(store, clock, worker, fakes, engine=engine, serves=work, url=url, options=options)
            finally:
                fakes.undo()


def _engine_of(store: Store, serves: Sequence[Serves | AnyProjection]) -> Engine:
    """The deciders and projections among these, in that order."""
    engine = Engine(store)
    for one in sorted(serves, key=is_projection):
        if is_projection(one) or isinstance(one, Decider):
            engine.register(cast("Decider[Any, Any, Any, Any]", one))
    return engine


class World:
    """One test's store, worker and clock. Made by `world`."""

    def __init__(
        self,
        store: Store,
        clock: TestClock,
        worker: HandWorker,
        fakes: Fakes,
        *,
        engine: Engine,
        serves: Sequence[Serves],
        url: str,
        options: ConnectOptions,
    ) -> None:
        self.store = store
        self.clock = clock
        self.engine = engine
        self._worker = worker
        self._serves = serves
        self._fakes = fakes
        self._url = url
        self._options = options
        self._told = 0  # attempts that a call of `drain` or `advance` has answered for

    async def drain(self) -> int:
        """Return when all that is due now, and what that leads to, is done; says how many attempts that was.

        Those count too that the worker has begun by itself since the last `drain` or `advance`.
        """
        await drained(self._worker)
        return self._newly_told()

    async def advance(self, by: Duration) -> None:
        """Move the clock, and stop at each due moment; when this returns, each task was executed at its time."""
        until = self.clock.now() + microseconds_of(by, "by")
        await live(self._worker, self.store, self.clock, until)
        self.clock.advance((until - self.clock.now()) / 1_000_000)
        self._newly_told()

    def _newly_told(self) -> int:
        before, self._told = self._told, self._worker.executed
        return self._told - before

    async def flush(self) -> None:
        """Return when all that was submitted until now is in the database: progress, values, what was not awaited."""
        await asyncio.sleep(0)  # what a task of the loop has begun is submitted first
        await self.store.database.flusher.settled()

    async def wait_until(self, fact: Callable[[], Any], timeout: Duration = 10) -> Any:
        """Wait until a function, async or not, returns something true, and return that; the clock stands still.

        For what happens beside the worker: in a thread, another process, or an outside service. Raises `AssertionError`
        with the last answer after `timeout`, in real time.
        """
        until = time.monotonic() + microseconds_of(timeout, "timeout") / 1_000_000
        while True:
            answer = fact()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            if time.monotonic() >= until:
                raise AssertionError(f"{fact!r} still says {answer!r} after {timeout}")
            await asyncio.sleep(0.005)

    def fake(self, step: Step[..., Any], returns: object = UNSAID, raises: object = UNSAID) -> None:
        """Let a step return or raise this, in this world only, instead of calling its function.

        The result is recorded, and an error retried, as if the function had returned or raised it.
        """
        self._fakes.put(step, returns, raises)

    async def when(self, input: object, *, key: str | None = None) -> Consequences:
        """Execute an input of a decider of this world, and read what it has led to from the store, to be asserted.

        `(await w.when(Pay("7"))).then(Paid()).then_effects(Ship("7")).then_timers(expiry="1h")`. The world's worker
        stands still meanwhile, so that its effects are as they were stored; `drain` executes them.
        """
        async with self._stopped():
            return await consequences(self.store, self.engine, input, key)

    async def crash_everywhere(self, trigger: Trigger[Any] | object) -> CrashReport:
        """Show that a run of this trigger survives the loss of its worker at any moment.

        It is run once without a crash. Then twice for every database call of its worker: the worker is cut off before
        that call reaches the database, and after the database has executed it but before the worker gets the answer.
        Each time another worker takes over the run. Raises `AssertionError`, with the crash and the calls, unless every
        run ends with the same result or error and has recorded the same steps. A crash costs the run an attempt.

        In memory every run has its own database; elsewhere all runs are in the world's database, and nothing else
        should wait there. Bodies are executed many times: fake those that must not be.

        With an input in place of the trigger, it is sent to its decider, which the world serves; then the events of
        every instance, and the ends of its effects and timers, have to be the same.
        """
        async with self.crashes(trigger) as crashes:
            return await crashes.everywhere()

    @asynccontextmanager
    async def crashes(self, trigger: Trigger[Any] | object) -> AsyncIterator[Crashes]:
        """The crashes of runs of this trigger, for a test that selects some; the world's worker is stopped meanwhile.

        Otherwise it would take the runs of the crashing workers.
        """
        async with self._stopped():
            if not isinstance(trigger, Trigger):
                ground = self._fresh if self._url.startswith("memory:") else self._shared
                yield InputCrashes(self._serves, trigger, ground)
            elif self._url.startswith("memory:"):
                yield Crashes(self._serves, trigger, self._fresh)
            else:
                yield Crashes(self._serves, trigger.options(key=None), self._shared)

    @asynccontextmanager
    async def _stopped(self) -> AsyncIterator[None]:
        await self._worker.__aexit__(None, None, None)
        try:
            yield
        finally:
            await self._worker.__aenter__()

    @asynccontextmanager
    async def _fresh(self, telemetry: Telemetry) -> AsyncIterator[Store]:
        options: ConnectOptions = {**self._options, "clock": self._clock(), "telemetry": telemetry}
        async with connect(self._url, **options) as store:
            yield store

    @asynccontextmanager
    async def _shared(self, telemetry: Telemetry) -> AsyncIterator[Store]:
        options = dataclasses.replace(self.store.database.options, listen=False)
        driver = Doomed(self.store.database.driver)  # it never falls silent; it only leaves the other driver open
        async with Store(driver, self.store.database.statements, options, self._clock(), telemetry) as store:
            yield store

    def _clock(self) -> TestClock:
        clock = TestClock(datetime_of(self.clock.now()))
        self._fakes.clocks.add(clock)
        return clock


class Fakes:
    """Replaces the bodies of steps in one world: for the runs of all stores with one of its clocks."""

    def __init__(self) -> None:
        self.clocks: weakref.WeakSet[TestClock] = weakref.WeakSet()
        self._steps: set[Step[..., Any]] = set()

    def put(self, step: Step[..., Any], returns: object = UNSAID, raises: object = UNSAID) -> None:
        """Let the step return or raise this instead of calling its function; the last call counts."""
        if not isinstance(step, Step):
            raise InvalidOption("step", step, "pass a function decorated with @step")
        if (returns is UNSAID) == (raises is UNSAID):
            raise InvalidOption("fake", step.id, "give either `returns` or `raises`")
        if raises is not UNSAID and not _is_exception(raises):
            raise InvalidOption("raises", raises, "it is an exception, or a class of them")
        faked = _faked.setdefault(step, Faked(step))
        faked.bodies[self] = (lambda: returns) if raises is UNSAID else _raising(raises)
        self._steps.add(step)

    def undo(self) -> None:
        """Restore every function."""
        for step in self._steps:
            faked = _faked[step]
            del faked.bodies[self]
            if not faked.bodies:
                step.definition = faked.definition
                del _faked[step]
        self._steps.clear()


class Faked:
    """A step whose body checks, at every call, to which world the calling run belongs."""

    def __init__(self, step: Step[..., Any]) -> None:
        self.definition = step.definition
        self.bodies: dict[Fakes, Body] = {}
        fn = self._async if self.definition.is_async else self._sync
        step.definition = dataclasses.replace(self.definition, fn=fn, in_process=False)

    async def _async(self, *args: Any, **kwargs: Any) -> Any:
        body = self._body()
        return await self.definition.fn(*args, **kwargs) if body is None else body()

    def _sync(self, *args: Any, **kwargs: Any) -> Any:
        body = self._body()
        return self.definition.fn(*args, **kwargs) if body is None else body()

    def _body(self) -> Body | None:
        clock = current_run().slot.database.clock
        return next((body for fakes, body in self.bodies.items() if clock in fakes.clocks), None)


_faked: Final[dict[Step[..., Any], Faked]] = {}


def _is_exception(raises: object) -> bool:
    return isinstance(raises, BaseException) or (isinstance(raises, type) and issubclass(raises, BaseException))


def _raising(raises: Any) -> Body:
    def body() -> Any:
        raise raises

    return body
