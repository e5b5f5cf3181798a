"""Hearing what other processes add, for as long as a call in this process waits for it.

An ear that hears nothing looks like a quiet day: a half-open connection, a pooler and a dead thread are all silent. So
it has to prove now and then that it hears, and is dropped and opened again when it does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from stepwell.base.backoff import waits
from stepwell.base.clock import Clock
from stepwell.base.events import InternalTaskFailed, ListenerBack, ListenerLost
from stepwell.base.futures import begin_apart, resolve
from stepwell.base.telemetry import Telemetry
from stepwell.errors import StepwellError, StoreClosed
from stepwell.store.driver import Driver, Hint

OPEN_AFTER: Final = 0.05  # who finds something at once has not waited, and needs no ear
CLOSE_AFTER: Final = 5.0  # who takes one message after the other keeps it
HEAR_EVERY: Final = 0.01  # however many tell us, those who wait here are woken at most this often
PROBE_EVERY: Final = 15.0
PROBE_WITHIN: Final = 3.0
PROBES: Final = 2  # one may be late because the loop was blocked
LONGEST_PAUSE: Final = 30.0
DEAF_PAUSE: Final = 60.0  # listening where nothing was ever heard leaves its traces in a pooler, and rarely helps


class Hearing:
    """Hears other processes for as long as a call here waits, and notices when it hears nothing any more."""

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        telemetry: Telemetry,
        sender: str,
        *,
        wake: Callable[[set[int]], object],
        finished: Callable[[frozenset[int] | None], object],
        reported: Callable[[frozenset[int] | None], object],
        gone: Callable[[], object],
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._telemetry = telemetry
        self._sender = sender
        self._wake = wake
        self._finished = finished
        self._reported = reported
        self._gone = gone
        self._heard = Gathered(wake)
        self._timer: asyncio.TimerHandle | None = None
        self._job: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._echo: asyncio.Future[None] | None = None
        self._probe = 0
        self._closed = False
        self._is_well = False
        self._lost_at: float | None = None

    def wanted(self, *, soon: bool = False) -> None:
        """A call waits: begin to hear if the wait lasts for a moment; `soon` for a caller whose waits are all short."""
        if self._job is not None:
            self._stop_timer()  # it was about to end
        elif self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(0 if soon else OPEN_AFTER, self._begin)

    def unwanted(self) -> None:
        """No call waits any more: listen for a while longer, because another may come."""
        self._stop_timer()
        if self._job is not None:
            self._timer = asyncio.get_running_loop().call_later(CLOSE_AFTER, self._end)

    async def close(self) -> None:
        """Hear nothing more, now."""
        self._closed = True
        self._end()
        # Not cancelled once more: that would cut off the closing of its connection.
        await asyncio.gather(*self._closing, return_exceptions=True)
        self._heard.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        self._job = begin_apart(self._forever(), "stepwell-listener")

    def _end(self) -> None:
        self._stop_timer()
        job, self._job = self._job, None
        if job is not None:
            self._closing.add(job)
            job.add_done_callback(self._closing.discard)
            job.cancel()

    async def _forever(self) -> None:
        pauses = waits(LONGEST_PAUSE, self._clock.random)
        while True:
            self._is_well = False
            try:
                await self._listen()
            except StoreClosed:
                return
            except Deaf as error:
                self._lost(str(error))
                if not self._is_well:
                    await asyncio.sleep(DEAF_PAUSE)
            except StepwellError as error:
                self._lost(str(error))
            except Exception as error:  # noqa: BLE001 - one that died unseen would be like one that hears nothing
                self._telemetry.emit(InternalTaskFailed("listener", repr(error)))
                self._lost(repr(error))
            if self._is_well:
                pauses = waits(LONGEST_PAUSE, self._clock.random)
            await asyncio.sleep(next(pauses))

    async def _listen(self) -> None:
        """Hear until it ends; raises why."""
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        ear = await self._driver.listen(self._hear, partial(resolve, lost))
        try:
            self._wake(EveryQueue())  # to find by a poll what was added while none listened, ...
            self._finished(None)  # ... and what was finished
            while True:
                if self._driver.notifies:
                    await self._hear_oneself(lost)
                self._well()
                await _unless(lost, [], PROBE_EVERY)
        finally:
            await ear.close()

    async def _hear_oneself(self, lost: asyncio.Future[str]) -> None:
        """Prove that a word sent the way of all hints comes in: a half-open connection or a pooler looks alive too."""
        for _ in range(PROBES):
            self._probe += 1
            self._echo = asyncio.get_running_loop().create_future()
            await self._driver.notify(Hint(self._sender, probe=self._probe))
            await _unless(lost, [self._echo], PROBE_WITHIN)
            if self._echo.done():
                return
        raise Deaf("its own notifications do not come in; behind a pooler, give `listen` the database's own address")

    def _hear(self, hint: Hint) -> None:
        own = hint.sender == self._sender
        if hint.probe is None and not own:
            if hint.gone:
                self._gone()
            self._heard.add(hint.queues)
            if hint.finished != frozenset():
                self._finished(hint.finished)
            if hint.reported != frozenset():
                self._reported(hint.reported)
        elif own and hint.probe == self._probe and self._echo is not None:
            resolve(self._echo, None)

    def _well(self) -> None:
        self._is_well = True
        if self._lost_at is not None:
            self._telemetry.emit(ListenerBack(self._clock.monotonic() - self._lost_at))
            self._lost_at = None

    def _lost(self, why: str) -> None:
        if self._lost_at is None:
            self._lost_at = self._clock.monotonic()
            self._telemetry.emit(ListenerLost(why))


class Gathered:
    """What came in: the first is passed on at once, then what has gathered, so that a storm is a breeze in here."""

    def __init__(self, wake: Callable[[set[int]], object]) -> None:
        self._wake = wake
        self._pending: set[int] = set()
        self._rest: asyncio.TimerHandle | None = None

    def add(self, queues: frozenset[int] | None) -> None:
        """Pass it on, now or together with the next; None is all queues."""
        if queues is None:
            self._pending = EveryQueue()
        elif not isinstance(self._pending, EveryQueue):
            self._pending.update(queues)
        if self._rest is None:
            self._pass_on()

    def close(self) -> None:
        """Pass nothing on any more."""
        if self._rest is not None:
            self._rest.cancel()

    def _pass_on(self) -> None:
        self._rest = None
        pending, self._pending = self._pending, set()
        if pending or isinstance(pending, EveryQueue):
            self._rest = asyncio.get_running_loop().call_later(HEAR_EVERY, self._pass_on)
            self._wake(pending)


class EveryQueue(set[int]):
    """All queues there are: it has something in common with any set."""

    def isdisjoint(self, _: object) -> bool:
        """False, whatever it is compared with."""
        return False


class Deaf(StepwellError):  # noqa: N818 - like the store's errors
    """The ear is open and hears nothing."""


class EarLost(StepwellError):  # noqa: N818 - like the store's errors
    """The ear was closed from outside."""


async def _unless(lost: asyncio.Future[str], wanted: list[asyncio.Future[Any]], timeout: float) -> None:
    """Wait for what is wanted, at most this long; raises if the ear is lost meanwhile."""
    await asyncio.wait([lost, *wanted], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    if lost.done():
        raise EarLost(lost.result())
