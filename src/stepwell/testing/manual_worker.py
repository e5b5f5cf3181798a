"""A worker that a test controls: it works when the test says so, and can vanish as a killed process does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final, Self

from stepwell.base.clock import TestClock
from stepwell.errors import Timeout
from stepwell.store.driver import Call
from stepwell.store.store import Store
from stepwell.testing.crash_driver import Doomed
from stepwell.worker import Worker

MOST_STOPS: Final = 1000  # limit for a run that would never end
STUCK: Final = 60.0  # seconds of real time that a body may take before the test fails
LAST_THREAD: Final = 10.0  # seconds; how long a body in a thread may take to notice that its worker is gone


class HandWorker(Worker):
    """A worker without upkeep: due tasks are woken when the test says so."""

    async def __aenter__(self) -> Self:
        self._store.database.check()
        await self._runtime.start(upkeep=False)
        self._started = True
        return self

    @property
    def executed(self) -> int:
        """How many attempts it has settled."""
        return self._runtime.executed

    async def vanish(self, doomed: Doomed) -> None:
        """End as a killed process does: nothing more is written, and its bodies are stopped."""
        sessions, places = list(self._runtime.leases), self._runtime.claims.demand  # taken while a thread works
        for session in sessions:
            session.lost = True  # so that user code in a thread can record nothing more
        self._runtime.hurry()
        doomed.over()
        self._started = False
        await self._runtime.stop()
        for _ in range(int(LAST_THREAD / 0.001)):
            if not places.busy:
                return
            await asyncio.sleep(0.001)
        raise Timeout(f"a body of {sessions[0].id} was still in its thread {LAST_THREAD:g} s after its worker had gone")


async def drained(worker: Worker) -> None:
    """Execute what is due; raises `Timeout`, with what is under way, if a body does not end while the clock stands."""
    ticks = worker._store.database.ticks  # noqa: SLF001 - a world belongs to stepwell
    try:
        await ticks.fire()
        await asyncio.wait_for(worker.drain(), STUCK)
        while await ticks.fire():  # what has waited for the run before it
            await asyncio.wait_for(worker.drain(), STUCK)
    except TimeoutError:
        under_way = worker._runtime.claims.executions  # noqa: SLF001 - what the test waits for
        names = ", ".join(sorted({one._served.queue for one in under_way})) or "nothing"  # noqa: SLF001
        worker._runtime._hurried = True  # noqa: SLF001 - it stood for long enough: the world's end does not wait for it
        raise Timeout(
            f"after {STUCK:g} s of real time {names} is still under way, and the clock stands until it waits or ends; "
            "a run that waits for a lock, an event or a future is seen to wait if that is a local variable of the "
            "workflow, not in an attribute or a global",
            seconds=STUCK,
        ) from None


async def live(worker: Worker, store: Store, clock: TestClock, until: int | None = None) -> None:
    """Execute what is due, moving from one due moment to the next, up to `until` or until nothing waits.

    When it returns, nothing is under way.
    """
    await drained(worker)
    stops = 0
    while (wait := await _next_due(store)) is not None and (until is None or clock.now() + wait <= until):
        clock.advance(timedelta(microseconds=max(0, wait)))
        await drained(worker)
        stops += 1
        if until is None and stops == MOST_STOPS:
            raise AssertionError(f"after {MOST_STOPS} moments at which something was due, there is no end of it")


async def _next_due(store: Store) -> int | None:
    database = store.database
    [row] = await database.driver.read(Call("next_due", database.params()))
    waits = [row[name] for name in ("wait", "tick", "expires") if row[name] is not None]
    if (at := database.limited.next_begin()) is not None:  # when a rate allows more
        waits.append(at - (database.clock.now() or at))
    return min(waits, default=None)
