"""A driver that goes silent at a chosen call, as a database does for a process that is killed at that moment."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NoReturn, TypeVar

from stepwell.base.futures import begin_apart
from stepwell.errors import StoreClosed
from stepwell.store.driver import (
    AsyncJoin,
    Call,
    Ddl,
    Driver,
    Ear,
    Heard,
    Hint,
    Lost,
    Outside,
    Own,
    Pulse,
    Row,
    Script,
    SyncJoin,
)

T = TypeVar("T")
NEVER: Final = 0  # the number of no call


class Doomed:
    """A driver that forwards to another one, until call number `at` since `arm`.

    That call is not made, or, with `after`, made and not answered; later calls get no answer. Calls that are under way
    at that moment still reach the database.
    """

    hears_others = False
    notifies = False

    def __init__(self, driver: Driver, at: int = NEVER, *, after: bool = False) -> None:
        self.name = driver.name
        self.flush_slots = driver.flush_slots
        self.claim_slot = driver.claim_slot
        self.key_slot = driver.key_slot
        self.claims_many_queues = driver.claims_many_queues
        self.flush_beats = driver.flush_beats
        self.guards = driver.guards
        self.calls: list[str] = []
        self.is_silent = False
        self.died = asyncio.Event()  # silent, with no call under way
        self._driver = driver
        self._at = at
        self._after = after
        self._is_armed = self._is_over = False
        self._under_way: set[asyncio.Task[Any]] = set()
        self._unanswered: set[asyncio.Future[None]] = set()
        self._dying: asyncio.Task[None] | None = None  # a reference, or the task could be collected

    def arm(self) -> None:
        """Count the calls from now on."""
        self._is_armed = True

    def disarm(self) -> None:
        """Count no further."""
        self._is_armed = False

    def over(self) -> None:
        """Cancel the calls that wait for an answer, and refuse later ones."""
        self._is_over = True
        for waiting in tuple(self._unanswered):
            waiting.cancel()

    @property
    def pooled(self) -> bool:
        """Whether a pooler is in front of the database."""
        return self._driver.pooled

    async def open(self) -> None:
        """Nothing to do: the other driver is open."""

    async def close(self) -> None:
        """Nothing to do: the other driver stays open."""

    async def run(self, slot: int, calls: Sequence[Call]) -> list[list[Row]]:
        """Run the calls in one transaction."""
        label = "+".join(call.statement for call in calls)
        return await self._call(label, lambda: self._driver.run(slot, calls))

    async def transact(
        self, script: Callable[[], Script[T]], *, timeout: float | None = None, patience: float | None = None
    ) -> T:
        """Play a script in one transaction."""
        return await self._call(
            _label(script), lambda: self._driver.transact(script, timeout=timeout, patience=patience)
        )

    async def read(self, call: Call) -> list[Row]:
        """Run a statement that writes nothing."""
        return await self._call(call.statement, lambda: self._driver.read(call))

    async def snapshot(self, script: Callable[[], Script[T]]) -> T:
        """Run a script that writes nothing."""
        return await self._call(_label(script), lambda: self._driver.snapshot(script))

    async def write(self, call: Call) -> list[Row]:
        """Run one statement in a transaction of its own."""
        return await self._call(call.statement, lambda: self._driver.write(call))

    @contextlib.asynccontextmanager
    async def transaction(self, idle: float | None = None) -> AsyncIterator[Own]:
        """Begin a transaction; each of its calls counts."""
        async with self._driver.transaction(idle) as own:

            async def answer(call: Call | Ddl) -> list[Row]:
                label = call.statement if isinstance(call, Call) else "ddl"
                return await self._call(label, lambda: _awaited(own.answer(call)))

            yield Own(own.connection, answer, own.execute)

    @contextlib.asynccontextmanager
    async def transactions(
        self, idle: float
    ) -> AsyncIterator[Callable[[], contextlib.AbstractAsyncContextManager[Own]]]:
        """Begin one transaction after the other; each of their calls counts."""
        yield functools.partial(self.transaction, idle)

    def meaning(self, error: Exception) -> Exception:
        """As the other driver says."""
        return self._driver.meaning(error)

    def pulse(self) -> DoomedPulse:
        """The connection of the heartbeat, which falls silent with the others; its beats are not counted."""
        return DoomedPulse(self, self._driver.pulse())

    async def listen(self, heard: Heard, lost: Lost) -> Ear:
        """Not to be called: this driver does not hear other processes."""
        raise NotImplementedError

    async def notify(self, hint: Hint) -> None:
        """Nothing to do: other processes are not told."""

    def outside(self, calls: Sequence[Call], hint: Hint) -> Outside | None:
        """None: no other process may act for this driver when it is silent."""
        return None

    def join(self, tx: object) -> SyncJoin | AsyncJoin:
        """Take part in a transaction on the user's own connection."""
        return self._driver.join(tx)

    async def _call(self, label: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self.is_silent:
            await self._never()
        if self._is_armed:
            self.calls.append(label)
            if len(self.calls) == self._at:
                self.is_silent = True
                self._dying = begin_apart(self._die(make), "stepwell-dying")
                await self._never()
        work = begin_apart(make(), label)
        self._under_way.add(work)
        work.add_done_callback(self._under_way.discard)
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            if not self.is_silent:
                work.cancel()
            raise
        if self.is_silent:
            await self._never()
        return work.result()

    async def _die(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        last = [begin_apart(make(), "stepwell-last-call")] if self._after else []
        await asyncio.gather(*last, *self._under_way, return_exceptions=True)
        self.died.set()

    async def _never(self) -> NoReturn:
        if self._is_over:
            raise StoreClosed
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unanswered.add(waiting)
        try:
            await waiting
        finally:
            self._unanswered.discard(waiting)
        raise StoreClosed


class DoomedPulse:
    """Beats until the driver is silent."""

    def __init__(self, doomed: Doomed, pulse: Pulse) -> None:
        self._doomed = doomed
        self._pulse = pulse

    def run(self, calls: Sequence[Call], timeout: float) -> list[list[Row]]:
        """Run the calls in one transaction."""
        if self._doomed.is_silent:
            raise StoreClosed
        return self._pulse.run(calls, timeout)

    def close(self) -> None:
        """Release the connection."""
        self._pulse.close()


async def _awaited(answer: Awaitable[T]) -> T:
    return await answer


def _label(script: Callable[[], Script[Any]]) -> str:
    """The name of the function that made the script."""
    made = script.func if isinstance(script, functools.partial) else script
    return str(getattr(made, "__qualname__", type(made).__name__)).partition(".<locals>")[0]
