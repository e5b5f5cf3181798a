"""Postgres through asyncpg: the only file that knows it.

A flush is one statement, its parts composed as CTEs, so it is one round trip and one commit. Each flush slot, the claim
and what may wait for a key have a connection of their own; scripts and reads share a small pool; the heartbeat has its
own in its own thread.
Notifying and listening have one each, opened when there is something to tell and while a call waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import asyncpg

from stepwell.base.backoff import waits
from stepwell.errors import (
    InvalidOption,
    StepwellError,
    StoreLocked,
    StoreUnavailable,
)
from stepwell.store.driver import (
    LOCKS,
    AsyncJoin,
    Call,
    Columns,
    Ddl,
    Ear,
    Heard,
    Hint,
    Lost,
    NoGuards,
    Outside,
    Own,
    Row,
    Script,
    SessionGuards,
    SyncJoin,
    only_reads,
    play_async,
    refused_write,
)
from stepwell.store.joins.connection import is_a, join_through
from stepwell.store.postgres.compose import Composer, copied
from stepwell.store.postgres.connection import Dialer, Lender, Link, milliseconds, refused_transaction, translate
from stepwell.store.postgres.listener import PostgresEar, written
from stepwell.store.sql import Statements

T = TypeVar("T")
FLUSH_SLOTS = 2  # a third flush connection gained nothing when measured
KEY_LOCKS = 0.02  # seconds to wait for a key: longer than another flush takes, and nothing to those who wait behind it
LOCKS_AGAIN = 0.02  # seconds to wait for a lock that was not let go in time before
LONGEST_PAUSE = 0.25  # seconds between two tries for a lock


class Postgres:
    """A driver for one Postgres database."""

    name = "postgres"
    flush_slots = FLUSH_SLOTS
    claim_slot = FLUSH_SLOTS
    key_slot: int | None = FLUSH_SLOTS + 1
    claims_many_queues = True
    flush_beats = False
    hears_others = True
    notifies = True

    def __init__(
        self, url: str, statements: Statements, *, pool: int, timeout: float, listen_url: str | None = None
    ) -> None:
        self._composer = Composer(statements)
        asking_for_mark, _ = self._composer.compose([Call("mark")])
        self._dialer = Dialer(url, asking_for_mark)
        self._listen_dialer = Dialer(listen_url, asking_for_mark) if listen_url else self._dialer
        self._channel = f"stepwell.{statements.schema}"
        self._url = url
        self._timeout = timeout
        self._slots = [Link(self._dialer, timeout) for _ in range(FLUSH_SLOTS + 1)]
        self._slots.append(Link(self._dialer, timeout, KEY_LOCKS))
        self._spare = [Link(self._dialer, timeout) for _ in range(max(1, pool - len(self._slots)))]
        self._notifier = Link(self._dialer, timeout)
        self._free: asyncio.LifoQueue[Link] = asyncio.LifoQueue()
        self._lender = Lender(self._dialer, timeout)
        self._again = asyncio.Semaphore(max(1, len(self._spare) // 2))  # scripts that try for a lock once more
        self.guards: SessionGuards = NoGuards()

    @property
    def pooled(self) -> bool:
        """Whether a pooler was found, so that nothing is kept from one transaction to the next."""
        return self._dialer.pooled

    async def open(self) -> None:
        """Connect once, so that a wrong address is known now and not at the first call."""
        for link in self._spare:
            self._free.put_nowait(link)
        async with self._spare[-1].using():
            pass

    async def close(self) -> None:
        """Close every connection."""
        self._lender.close()
        links = (*self._slots, *self._spare, self._notifier)
        try:
            for link in links:
                await link.close()
        finally:  # also if the closing is cut off
            for link in links:
                link.drop()

    async def run(self, slot: int, calls: Sequence[Call]) -> list[list[Row]]:
        """Run the calls as one statement: one round trip, one commit."""
        locks = (KEY_LOCKS if slot == self.key_slot else LOCKS) if self.pooled else None
        text, values = self._composer.compose(calls, locks)
        return self._composer.split(await self._slots[slot].fetch(text, values), len(calls))

    async def read(self, call: Call) -> list[Row]:
        """Run one statement on a connection of the pool."""
        text, values = self._composer.compose([call])
        async with self._spare_link() as link:
            return await link.fetch(text, values)

    async def snapshot(self, script: Callable[[], Script[T]]) -> T:
        """Play a script in a transaction whose statements all see what was committed before the first."""
        async with self._spare_link() as link, link.using() as connection, _reading(connection):
            return await play_async(script(), partial(self._answer, connection))

    async def write(self, call: Call) -> list[Row]:
        """Run one statement on a connection of the pool; it commits by itself."""
        if self.pooled:  # whose connections wait for a lock as long as it takes
            return await self._played(lambda: _said(call), None, LOCKS)
        return await self.read(call)

    async def transact(
        self, script: Callable[[], Script[T]], *, timeout: float | None = None, patience: float | None = None
    ) -> T:
        """Play a script between BEGIN and COMMIT on a connection of the pool; again if it waited in vain for a lock."""
        if only_reads.get() is not None:
            raise refused_write()
        if patience is not None:
            return await self._played(script, timeout, patience)
        loop, pauses = asyncio.get_running_loop(), waits(LONGEST_PAUSE, random.random)
        until = loop.time() + (timeout or self._timeout) / 2
        turn: contextlib.AbstractAsyncContextManager[object] = contextlib.nullcontext()
        locks = LOCKS
        while True:
            try:
                async with turn:
                    return await self._played(script, timeout, locks)
            except StoreLocked:
                if loop.time() >= until:
                    raise
            await asyncio.sleep(next(pauses))  # nothing is held meanwhile, and no call waits behind it
            turn, locks = self._again, LOCKS_AGAIN  # however many wait for locks, others find a connection

    async def _played(self, script: Callable[[], Script[T]], timeout: float | None, patience: float) -> T:
        async with (
            self._spare_link() as link,
            link.using(timeout) as connection,
            connection.transaction(isolation="read_committed"),  # whatever the database's default is
        ):
            answer = partial(self._answer, connection)
            if patience != LOCKS or self.pooled:  # a pooler's connections do not know our settings
                await answer(Call("patience", {"locks": f"{int(patience * 1000)}ms"}))
            return await play_async(script(), answer)

    @contextlib.asynccontextmanager
    async def transaction(self, idle: float | None = None) -> AsyncIterator[Own]:
        """Begin a transaction on a connection of its own, which plans the user's statements as usual."""
        connection = await self._lender.lend(idle)
        try:
            async with self._begun(connection, idle) as own:
                yield own
        except BaseException:
            connection.terminate()  # whatever it was, the next transaction begins on a connection without a past
            raise
        await self._lender.take_back(connection, idle)

    @contextlib.asynccontextmanager
    async def _begun(self, connection: Any, idle: float | None, isolation: str | None = None) -> AsyncIterator[Own]:
        begun = connection.transaction(isolation=isolation)
        await _started(begun)
        try:
            if idle is not None and self._dialer.pooled:
                await self._answer_joined(connection, Call("end_if_idle", {"longest": milliseconds(idle)}))
            yield Own(connection, partial(self._answer_joined, connection), partial(_fetched, connection))
        except BaseException:
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await begun.rollback()
            raise
        await _committed(begun)

    @contextlib.asynccontextmanager
    async def transactions(
        self, idle: float
    ) -> AsyncIterator[Callable[[], contextlib.AbstractAsyncContextManager[Own]]]:
        """Keep a connection that plans the user's statements as usual; it is opened anew after it was lost."""
        kept: list[Any] = []

        @contextlib.asynccontextmanager
        async def begin() -> AsyncIterator[Own]:
            if not kept or kept[0].is_closed():
                kept[:] = [await self._dialer.plain(self._timeout, idle, locks=idle)]
            [connection] = kept
            try:
                async with self._begun(connection, idle, isolation="read_committed") as own:
                    yield own
            except BaseException:
                connection.terminate()  # whatever it was, the next transaction begins on a connection without a past
                raise

        try:
            yield begin
        finally:
            for connection in kept:
                connection.terminate()

    def meaning(self, error: Exception) -> Exception:
        """Postgres says it by the SQLSTATE; what else asyncpg raises means that the connection is gone."""
        if isinstance(error, asyncpg.PostgresError):
            return translate(error)
        if isinstance(error, OSError | asyncpg.InterfaceError):
            return StoreUnavailable(error)
        return error

    def join(self, tx: object) -> SyncJoin | AsyncJoin:
        """Answer calls through the user's own connection, which must be in a transaction or begin one by itself."""
        return join_through(tx, self._joined)

    def _joined(self, connection: object) -> SyncJoin | AsyncJoin:
        if isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
            check_begun(connection)
            return AsyncJoin(partial(self._answer_joined, connection))
        if is_a(connection, "psycopg", "Connection", "AsyncConnection"):
            from stepwell.store.joins import psycopg  # noqa: PLC0415 - only for those who have it

            brought: Any = connection
            return psycopg.join(brought, lambda call: self._composer.compose([call]))
        raise InvalidOption("tx", type(connection), JOINABLE)

    async def _answer_joined(self, connection: Any, call: Call | Ddl) -> list[Row]:
        try:
            return await self._answer(connection, call)
        except StepwellError as error:
            state = getattr(error.__cause__, "sqlstate", None) or ""
            raise refused_transaction(connection, state) or error from error.__cause__
        except (OSError, asyncpg.InterfaceError) as error:
            raise StoreUnavailable(error) from error

    async def _answer(self, connection: Any, call: Call | Ddl) -> list[Row]:
        try:
            if isinstance(call, Ddl):
                await connection.execute(call.text)
                return []
            if call.bulk:
                assert isinstance(call.rows, Columns)
                place = self._composer.place(call)
                await connection.copy_to_table(source=copied(call.rows), encoding="utf8", **place)
                return []
            text, values = self._composer.compose([call])
            return list(await connection.fetch(text, *values))
        except asyncpg.PostgresError as error:
            raise translate(error) from error

    @contextlib.asynccontextmanager
    async def _spare_link(self) -> AsyncIterator[Link]:
        try:
            async with asyncio.timeout(self._timeout):
                link = await self._free.get()
        except TimeoutError as error:
            raise StoreUnavailable(f"all connections of the pool were busy for {self._timeout:g} s") from error
        try:
            yield link
        finally:
            self._free.put_nowait(link)

    def pulse(self) -> PostgresPulse:
        """Open the heartbeat's own connection, in its own loop."""
        return PostgresPulse(self._dialer, self._composer)

    def outside(self, calls: Sequence[Call], hint: Hint) -> Outside:
        """Each of them as one statement."""
        told = self._composer.compose([self._notification(hint)])
        return Outside("postgres", self._url, None, [[self._composer.compose([call])] for call in calls], [told])

    async def listen(self, heard: Heard, lost: Lost) -> Ear:
        """Hear, on a connection of its own, what is told on this schema's channel."""
        link = Link(self._listen_dialer, self._timeout)
        ear = PostgresEar(link, self._channel, heard, lost)
        try:
            await ear.open()
        except BaseException:
            await ear.close()
            raise
        return ear

    async def notify(self, hint: Hint) -> None:
        """Tell it on a connection that no other call waits for."""
        text, values = self._composer.compose([self._notification(hint)])
        await self._notifier.fetch(text, values)

    def _notification(self, hint: Hint) -> Call:
        return Call("notify", {"channel": self._channel, "word": written(hint)})


def _said(call: Call) -> Script[list[Row]]:
    return (yield call)


async def _fetched(connection: Any, text: str, values: Sequence[Any]) -> list[Row]:
    return list(await connection.fetch(text, *values))


def _reading(connection: Any) -> contextlib.AbstractAsyncContextManager[object]:
    reading: contextlib.AbstractAsyncContextManager[object] = connection.transaction(
        isolation="repeatable_read", readonly=True
    )
    return reading


async def _started(begun: Any) -> None:
    try:
        await begun.start()
    except asyncpg.PostgresError as error:
        raise translate(error) from error
    except (OSError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable(error) from error


async def _committed(begun: Any) -> None:
    try:
        await begun.commit()
    except asyncpg.PostgresError as error:
        raise translate(error) from error
    except (OSError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable(error) from error


class PostgresPulse:
    """A connection used from the heartbeat's thread: neither a blocked loop nor a busy pool delays it."""

    def __init__(self, dialer: Dialer, composer: Composer) -> None:
        self._link = Link(dialer, timeout=10, locks=5)  # it waits for a transaction that declares it dead
        self._composer = composer
        self._loop = asyncio.new_event_loop()

    def run(self, calls: Sequence[Call], timeout: float) -> list[list[Row]]:
        """Run the calls one after the other, waiting for each at most this long."""
        return self._loop.run_until_complete(self._run(calls, timeout))

    async def _run(self, calls: Sequence[Call], timeout: float) -> list[list[Row]]:
        answers = []
        for call in calls:
            text, values = self._composer.compose([call])
            async with self._link.using(timeout) as connection:
                answers.append(list(await connection.fetch(text, *values)))
        return answers

    def close(self) -> None:
        """Close the connection and its loop."""
        try:
            self._loop.run_until_complete(self._closed())
        finally:
            self._loop.close()

    async def _closed(self) -> None:
        await self._link.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}  # of asyncpg, after a statement that was not answered
        for one in left:
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)


JOINABLE = (
    "pass the connection whose transaction the call is to join: asyncpg's, psycopg 3's, "
    "SQLAlchemy's (or its session) on one of these, or Django's on psycopg 3"
)


def check_begun(connection: Any) -> None:
    """Refuse an asyncpg connection that is not in a transaction: it would commit every statement by itself."""
    try:
        closed, begun = connection.is_closed(), connection.is_in_transaction()
    except asyncpg.InterfaceError as error:  # given back to its pool
        raise InvalidOption("tx", type(connection), f"pass an open connection in a transaction ({error})") from error
    if closed:
        raise InvalidOption("tx", connection, "it is closed; pass an open connection in a transaction")
    if not begun:
        how = "async with connection.transaction():"
        raise InvalidOption("tx", connection, f"it is in autocommit mode; begin a transaction on it first: `{how}`")
