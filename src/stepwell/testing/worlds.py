"""World: a store, a worker and a clock for one test."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, Unpack

from stepwell.clock import TestClock
from stepwell.connecting import ConnectOptions, connect
from stepwell.durations import Duration, datetime_of, microseconds_of
from stepwell.errors import InvalidOption
from stepwell.step import Step
from stepwell.store.store import Store
from stepwell.telemetry import Telemetry
from stepwell.testing.crashing import Crashes, CrashReport
from stepwell.testing.doomed import Doomed
from stepwell.testing.fakes import UNSAID, Fakes
from stepwell.testing.hands import HandWorker, drained, live
from stepwell.testing.instances import InputCrashes
from stepwell.trigger import Trigger
from stepwell.worker import Serves

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def world(
    *serves: Serves, url: str = "memory:", start: datetime = BEGINNING, **options: Unpack[ConnectOptions]
) -> AsyncIterator[World]:
    """A store with a clock of its own, and a worker that serves these workflows, handlers and modules.

    The worker works in the background, as in production, but time stands still until the test moves it. `start` is
    what the clock says at first; `url` and the options are those of `connect`, for a test on another database.
    """
    clock = options.setdefault("clock", TestClock(start))
    if not isinstance(clock, TestClock):
        raise InvalidOption("clock", clock, "a world's clock is a `TestClock`")
    options.setdefault("listen", False)
    async with connect(url, **options) as store, HandWorker(store, serves) as worker:
        fakes = Fakes()
        fakes.clocks.add(clock)
        try:
            yield World(store, clock, worker, fakes, serves=serves, url=url, options=options)
        finally:
            fakes.undo()


class World:
    """One test's store, worker and clock. Made by `world`."""

    def __init__(
        self,
        store: Store,
        clock: TestClock,
        worker: HandWorker,
        fakes: Fakes,
        *,
        serves: Sequence[Serves],
        url: str,
        options: ConnectOptions,
    ) -> None:
        self.store = store
        self.clock = clock
        self._worker = worker
        self._serves = serves
        self._fakes = fakes
        self._url = url
        self._options = options

    async def drain(self) -> int:
        """Return when all that is due now, and what that leads to, is done; says how many attempts that was."""
        return await drained(self._worker)

    async def advance(self, by: Duration) -> None:
        """Move the clock, stopping wherever something is due; when it returns all of it is done, each at its time."""
        until = self.clock.now() + microseconds_of(by, "by")
        await live(self._worker, self.store, self.clock, until)
        self.clock.advance((until - self.clock.now()) / 1_000_000)

    def fake(self, step: Step[..., Any], returns: object = UNSAID, raises: object = UNSAID) -> None:
        """Have a step return or raise this, in this world only, instead of calling its function.

        What comes of it is recorded, and retried, like anything the function would have returned or raised.
        """
        self._fakes.put(step, returns, raises)

    async def crash_everywhere(self, trigger: Trigger[Any] | object) -> CrashReport:
        """Show that a run of this trigger survives the loss of its worker at any moment.

        It is run once as it is. Then again for every database call that its worker made: the worker is cut off before
        that call reaches the database, and another time after the database did it and before the worker heard. Each
        time another worker takes the run over. Raises `AssertionError`, with the crash and the calls, unless every
        run ends with the same result or error and has recorded the same steps. A crash costs the run an attempt.

        In memory every run has a database of its own; elsewhere they are runs of the world's database, and nothing
        else should wait there. Bodies are executed many times: fake those that must not be.

        With an input in place of the trigger it is sent to its decider, which the world serves, and what has to be the
        same are the events of every instance, and how its effects and timers ended.
        """
        async with self.crashes(trigger) as crashes:
            return await crashes.everywhere()

    @asynccontextmanager
    async def crashes(self, trigger: Trigger[Any] | object) -> AsyncIterator[Crashes]:
        """The crashes of runs of this trigger, for a test that chooses among them; the world's worker rests meanwhile.

        It would take the runs whose workers are to be lost.
        """
        await self._worker.__aexit__(None, None, None)
        try:
            if not isinstance(trigger, Trigger):
                ground = self._fresh if self._url.startswith("memory:") else self._shared
                yield InputCrashes(self._serves, trigger, ground)
            elif self._url.startswith("memory:"):
                yield Crashes(self._serves, trigger, self._fresh)
            else:
                yield Crashes(self._serves, trigger.options(key=None), self._shared)
        finally:
            await self._worker.__aenter__()

    @asynccontextmanager
    async def _fresh(self, telemetry: Telemetry) -> AsyncIterator[Store]:
        options: ConnectOptions = {**self._options, "clock": self._clock(), "telemetry": telemetry}
        async with connect(self._url, **options) as store:
            yield store

    @asynccontextmanager
    async def _shared(self, telemetry: Telemetry) -> AsyncIterator[Store]:
        options = dataclasses.replace(self.store.options, listen=False)
        driver = Doomed(self.store.driver)  # which never is: it only leaves the other open when it is closed
        async with Store(driver, self.store.statements, options, self._clock(), telemetry) as store:
            yield store

    def _clock(self) -> TestClock:
        clock = TestClock(datetime_of(self.clock.now()))
        self._fakes.clocks.add(clock)
        return clock
