"""Connections to Postgres: opened when needed, a deadline on every use, dropped after a failure."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import asyncpg

from stepwell.base.futures import begin_apart
from stepwell.errors import (
    InvalidOption,
    Refused,
    StepwellError,
    StoreBusy,
    StoreClosed,
    StoreLocked,
    StoreUnavailable,
    StoreUnusable,
    UnknownStore,
)
from stepwell.store.driver import LOCKS

KEPT: Final = 2  # connections for users' transactions: to open one takes several times as long as a short transaction
FORGET: Final = "discard temp; reset session authorization; reset role"  # what asyncpg's reset of a connection leaves
MARK: Final = "stepwell.mark"  # a setting of our own: the server session that has it is the one that got it


class Link:
    """One connection that is opened when needed, has a deadline for every use, and is dropped after a failure."""

    def __init__(self, dialer: Dialer, timeout: float, locks: float = LOCKS) -> None:
        self._dialer = dialer
        self._timeout = timeout
        self._locks = locks
        self._connection: Any = None
        self._closed = False
        self._lock: asyncio.Lock | None = None
        self._due: float | None = None  # when the statement under way has to be answered, by the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._late = False

    @contextlib.asynccontextmanager
    async def using(self, timeout: float | None = None) -> AsyncIterator[Any]:
        """Lend the connection for one use; whatever goes wrong comes out as one of the driver's three errors."""
        async with self._turn():
            try:
                async with asyncio.timeout(timeout or self._timeout):
                    yield await self.connected()
            except BaseException as error:
                if (told := self._told(error)) is None:
                    raise
                raise told from error

    async def fetch(self, text: str, values: Sequence[Any]) -> list[Any]:
        """Use it for one statement; as `using`, but with fewer layers and without a timer of its own."""
        async with self._turn():
            try:
                connection = self._connection
                if self._closed or connection is None or connection.is_closed():
                    # In a task of its own, which a timeout needs: a flush is in none.
                    connection = await begin_apart(self._connected_in_time(), "stepwell-connect")
                self._watch()
                rows: list[Any] = await connection.fetch(text, *values)
            except BaseException as error:
                if (told := self._told(error)) is None:
                    raise
                raise told from error
            else:
                return rows
            finally:
                self._due, self._late = None, False

    async def _connected_in_time(self) -> Any:
        async with asyncio.timeout(self._timeout):
            return await self.connected()

    def _watch(self) -> None:
        """Have the connection dropped if its statement is not answered in time: one timer serves many statements.

        It is set again only when it goes off, and finds that the statement under way began later than the one for which
        it was set. A timer for each is a tenth of what a statement costs this process.
        """
        loop = asyncio.get_running_loop()
        self._due, self._late = loop.time() + self._timeout, False
        if self._timer is None:
            self._timer = loop.call_at(self._due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._due is None:
            return
        if self._due <= loop.time():
            self._late = True
            self.drop()  # the caller that waits for the answer is told at once
        else:
            self._timer = loop.call_at(self._due, self._look, loop)

    def _turn(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    def _told(self, error: BaseException) -> StepwellError | None:
        """What an error means, None if it says so itself; the connection is dropped unless it can be used again."""
        told: StepwellError | None = None
        late, self._late = self._late, False
        if late and isinstance(error, Exception):  # asyncpg may also stumble over what is not there any more
            told = StoreUnavailable("no answer in time")
        elif isinstance(error, asyncpg.PostgresError):
            told = translate(error)
        elif isinstance(error, OSError | asyncpg.InterfaceError | asyncpg.InternalClientError):
            # TimeoutError is an OSError. The socket is aborted, not closed politely: a peer that hangs would make the
            # closing hang too.
            why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            told = StoreUnavailable(why)
        # Cancelled in the middle of an exchange, the state of the connection is unknown.
        means = error if told is None else told
        if isinstance(means, StoreUnavailable) or not isinstance(means, StepwellError):
            self.drop()
        return told

    async def connected(self) -> Any:
        """The open connection; opens it if need be."""
        if self._closed:
            raise StoreClosed
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._dialer.connect(self._timeout, self._locks)
            if self._closed:  # meanwhile: `close` could not close this
                self.drop()
                raise StoreClosed
        return self._connection

    async def close(self) -> None:
        """Close the connection for good, politely if it answers."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None and not self._connection.is_closed():
            try:
                with contextlib.suppress(Exception):
                    await self._connection.close(timeout=1)
            finally:  # also if the closing is cut off
                self.drop()

    def drop(self) -> None:
        """Close the connection at once, without a word to the server; the next use opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


class Dialer:
    """Opens connections to one address, and finds out whether a pooler stands there.

    A transaction pooler lends a server's connection for one transaction, so nothing may be kept on it: no settings,
    no prepared statements. It refuses a session's settings when it is dialled, or drops them without a word; then
    `pooled` becomes true, and every connection is opened without them from then on.
    """

    def __init__(self, url: str, asking_for_mark: str) -> None:
        self._url = url
        self._asking_for_mark = asking_for_mark
        self._direct = False
        self.pooled = False

    async def connect(self, timeout: float, locks: float) -> Any:
        """Open one connection that waits so long for an answer, and so long for a lock."""
        try:
            return await self._connect(timeout, locks)
        except asyncpg.PostgresError as error:
            raise translate(error) from error
        except ValueError:
            raise UnknownStore(self._url) from None  # asyncpg quotes what it could not read, part of a password perhaps

    async def plain(self, timeout: float, idle: float | None = None, *, locks: float | None = None) -> Any:
        """Open a connection without our settings, for statements of the user's; not to be idle in a transaction."""
        given = {"idle_in_transaction_session_timeout": idle, "lock_timeout": locks}
        settings = {name: milliseconds(at_most) for name, at_most in given.items() if at_most and not self.pooled}
        try:
            return await connect_pooled(self._url, timeout, settings)
        except asyncpg.PostgresError as error:
            raise translate(error) from error
        except OSError as error:  # a TimeoutError is one
            raise StoreUnavailable(str(error) or "no answer in time") from error

    async def _connect(self, timeout: float, locks: float) -> Any:
        if not self.pooled:
            mark = secrets.token_hex(8)
            try:
                connection = await connect(self._url, timeout, mark, locks)
            except (asyncpg.ProtocolViolationError, asyncpg.FeatureNotSupportedError):
                pooled = await connect_pooled(self._url, timeout)
                self.pooled = True  # only now: what was refused were the settings and nothing else
                return pooled
            if self._direct or await self._remembers(connection, mark):
                self._direct = True
                return connection
            self.pooled = True
        return await connect_pooled(self._url, timeout)

    async def _remembers(self, connection: Any, mark: str) -> bool:
        """True if the session has the settings it was opened with; else it is closed, being of no use."""
        remembers = False
        try:
            # Unnamed: behind a pooler a name would stay on a connection that others use.
            asking = await connection.prepare(self._asking_for_mark, name="")
            remembers = bool(await asking.fetchval() == mark)
        finally:
            if not remembers:
                connection.terminate()
        return remembers


class Lender:
    """Lends connections without our settings, each for one transaction of the user's."""

    def __init__(self, dialer: Dialer, timeout: float) -> None:
        self._dialer = dialer
        self._timeout = timeout
        self._kept: dict[float | None, list[Any]] = {}  # by how long they may be idle in a transaction
        self._is_closed = False

    async def lend(self, idle: float | None) -> Any:
        """A connection without a past: the last that came back, as good as new, or a new one."""
        while kept := self._kept.get(idle):
            connection = kept.pop()
            try:
                await connection.reset(timeout=self._timeout)
                await connection.execute(FORGET, timeout=self._timeout)
            except BaseException as error:
                connection.terminate()
                if not isinstance(error, OSError | asyncpg.PostgresError | asyncpg.InterfaceError):
                    raise
            else:
                return connection
        return await self._dialer.plain(self._timeout, idle)

    async def take_back(self, connection: Any, idle: float | None) -> None:
        """Keep the connection of a transaction that was committed, or close it if there are enough."""
        is_full = sum(map(len, self._kept.values())) >= KEPT
        if is_full or self._is_closed or self._dialer.pooled or connection.is_closed():
            try:
                with contextlib.suppress(Exception):
                    await connection.close(timeout=1)
            finally:  # also if the closing is cut off
                connection.terminate()
        else:
            self._kept.setdefault(idle, []).append(connection)

    def close(self) -> None:
        """Close what is kept, and keep nothing more."""
        self._is_closed = True
        for connection in itertools.chain.from_iterable(self._kept.values()):
            connection.terminate()


async def connect(url: str, timeout: float, mark: str = "", locks: float = LOCKS) -> Any:
    """Open a session as every statement here wants it."""
    return await asyncpg.connect(
        url,
        timeout=timeout,
        # Composed flushes are many different long texts; each is prepared once for the life of the connection.
        statement_cache_size=1024,
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
        server_settings={
            "application_name": "stepwell",
            # A plan made while a table was empty must still be right when it is full, and is made once.
            "plan_cache_mode": "force_generic_plan",
            "jit": "off",
            "enable_seqscan": "off",
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            # It reads and sorts all that an index has of a kind, where a walk of the index ends with the limit.
            "enable_bitmapscan": "off",
            "lock_timeout": f"{int(locks * 1000)}ms",
            "statement_timeout": f"{int(timeout * 1000)}ms",
            "idle_in_transaction_session_timeout": f"{int(timeout * 3000)}ms",
            "tcp_keepalives_idle": "15",
            "tcp_user_timeout": f"{int(timeout * 1000)}",
            MARK: mark,
        },
    )


def milliseconds(seconds: float) -> str:
    """A time as a setting of Postgres."""
    return f"{max(1, int(seconds * 1000))}ms"


async def connect_pooled(url: str, timeout: float, more: Mapping[str, str] | None = None) -> Any:
    """Open a connection that keeps nothing from one transaction to the next: each statement is planned as it comes."""
    settings = {"application_name": "stepwell", **(more or {})}
    return await asyncpg.connect(url, timeout=timeout, statement_cache_size=0, server_settings=settings)


def translate(error: asyncpg.PostgresError) -> StepwellError:
    """Say which of the driver's errors a Postgres error is."""
    state = error.sqlstate or ""
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return StoreBusy(f"{error} [{state}]")  # the tables were changed under a prepared statement; prepared anew
    return meaning(state, error)


def meaning(state: str, error: object) -> StepwellError:
    """What an error of Postgres means, by its SQLSTATE, whichever driver reports it."""
    why = f"{error} [{state}]"
    if state == "55P03":  # lock timeout, or `nowait`
        return StoreLocked(why)
    if state in {"40001", "40P01", "57014"}:  # serialization, deadlock, statement timeout
        return StoreBusy(why)
    if state[:2] in {"22", "23"}:
        return Refused(why)
    if state[:2] in {"0A", "28", "3D", "3F", "42"}:  # feature, login, database, schema; a right, a table, our own SQL
        return StoreUnusable(why)
    # Whatever else it is (a fail-over makes the server read-only, a restart refuses logins) may pass.
    return StoreUnavailable(why)


def refused_transaction(tx: object, state: str) -> InvalidOption | None:
    """The error if it is the user's own transaction that takes no more; None if it is something else."""
    match state:
        case "25P02":
            return InvalidOption("tx", tx, "its transaction has failed: roll it back and begin another")
        case "25006":
            return InvalidOption("tx", tx, "its transaction is read-only: join one that may write")
        case _:
            return None
