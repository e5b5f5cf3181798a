"""Postgres through asyncpg: the only file that knows it.

A flush is one statement, its parts composed as CTEs, so it is one round trip and one commit. Each flush slot and the
claim have a connection of their own; scripts and reads share a small pool; the heartbeat has its own in its own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

import asyncpg

from stepwell.errors import (
    InvalidOption,
    Refused,
    StepwellError,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
    StoreUnusable,
    UnknownStore,
)
from stepwell.store.driver import (
    AsyncJoin,
    Call,
    Ddl,
    NoGuards,
    Row,
    Script,
    SessionGuards,
    SyncJoin,
    Value,
    play_async,
)
from stepwell.store.sql import Column, Parameter, RowSet, Statement, Statements

T = TypeVar("T")
FLUSH_SLOTS = 2  # a third flush connection gained nothing when measured


class Postgres:
    """A driver for one Postgres database."""

    name = "postgres"
    flush_slots = FLUSH_SLOTS
    claims_many_queues = True
    flush_beats = False

    def __init__(self, url: str, statements: Statements, *, pool: int, timeout: float) -> None:
        self._url = url
        self._composer = Composer(statements)
        self._timeout = timeout
        self._slots = [Link(url, timeout) for _ in range(FLUSH_SLOTS + 1)]  # the last one claims
        self._spare = [Link(url, timeout) for _ in range(max(1, pool - len(self._slots)))]
        self._free: asyncio.LifoQueue[Link] = asyncio.LifoQueue()
        self.guards: SessionGuards = NoGuards()

    async def open(self) -> None:
        """Connect once, so that a wrong address is known now and not at the first call."""
        for link in self._spare:
            self._free.put_nowait(link)
        async with self._spare[-1].using():
            pass

    async def close(self) -> None:
        """Close every connection."""
        for link in (*self._slots, *self._spare):
            await link.close()

    async def run(self, slot: int, calls: Sequence[Call]) -> list[list[Row]]:
        """Run the calls as one statement: one round trip, one commit."""
        text, values = self._composer.compose(calls)
        async with self._slots[slot].using() as connection:
            rows = await connection.fetch(text, *values)
        return self._composer.split(rows, len(calls))

    async def read(self, call: Call) -> list[Row]:
        """Run one statement on a connection of the pool."""
        text, values = self._composer.compose([call])
        async with self._spare_link() as link, link.using() as connection:
            return list(await connection.fetch(text, *values))

    async def transact(self, script: Callable[[], Script[T]], *, timeout: float | None = None) -> T:
        """Play a script between BEGIN and COMMIT on a connection of the pool."""
        async with self._spare_link() as link, link.using(timeout) as connection, connection.transaction():
            return await play_async(script(), partial(self._answer, connection))

    def join(self, tx: object) -> SyncJoin | AsyncJoin:
        """Answer calls through the user's own asyncpg connection, which must be in a transaction."""
        if not isinstance(tx, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
            raise InvalidOption("tx", tx, "pass the asyncpg connection whose transaction the call is to join")
        if not tx.is_in_transaction():
            raise InvalidOption("tx", tx, "begin a transaction on it first: `async with connection.transaction():`")
        return AsyncJoin(partial(self._answer, tx))

    async def _answer(self, connection: Any, call: Call | Ddl) -> list[Row]:
        try:
            if isinstance(call, Ddl):
                await connection.execute(call.text)
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
        return PostgresPulse(self._url, self._composer)


class PostgresPulse:
    """A connection used from the heartbeat's thread: neither a blocked loop nor a busy pool delays it."""

    def __init__(self, url: str, composer: Composer) -> None:
        self._link = Link(url, timeout=10)
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
        self._loop.run_until_complete(self._link.close())
        self._loop.close()


class Link:
    """One connection that is opened when needed, has a deadline for every use, and is dropped after a failure."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._connection: Any = None
        self._closed = False
        self._lock: asyncio.Lock | None = None

    @contextlib.asynccontextmanager
    async def using(self, timeout: float | None = None) -> AsyncIterator[Any]:
        """Lend the connection for one use; whatever goes wrong comes out as one of the driver's three errors."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            try:
                async with asyncio.timeout(timeout or self._timeout):
                    yield await self.connected()
            except asyncpg.PostgresError as error:
                translated = translate(error)
                if isinstance(translated, StoreUnavailable):
                    self._abort()
                raise translated from error
            except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
                # TimeoutError is an OSError. The socket is aborted, not closed politely: a peer that hangs would
                # make the closing hang too.
                self._abort()
                why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
                raise StoreUnavailable(why) from error
            except StepwellError as error:
                if isinstance(error, StoreUnavailable):
                    self._abort()
                raise
            except BaseException:
                self._abort()  # cancelled in the middle of an exchange: nobody knows what the connection is in
                raise

    async def connected(self) -> Any:
        """The open connection; opens it if need be."""
        if self._closed:
            raise StoreClosed
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._url, self._timeout)
        return self._connection

    async def close(self) -> None:
        """Close the connection for good, politely if it answers."""
        self._closed = True
        if self._connection is not None and not self._connection.is_closed():
            with contextlib.suppress(Exception):
                await self._connection.close(timeout=1)
            self._abort()

    def _abort(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


async def connect(url: str, timeout: float) -> Any:
    """Open one connection as every statement here wants it."""
    try:
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
                "lock_timeout": f"{int(timeout * 500)}ms",
                "statement_timeout": f"{int(timeout * 1000)}ms",
                "idle_in_transaction_session_timeout": f"{int(timeout * 3000)}ms",
                "tcp_keepalives_idle": "15",
                "tcp_user_timeout": f"{int(timeout * 1000)}",
            },
        )
    except asyncpg.PostgresError as error:
        raise translate(error) from error
    except ValueError:
        raise UnknownStore(url) from None  # asyncpg quotes what it could not read, part of a password perhaps


def translate(error: asyncpg.PostgresError) -> StepwellError:
    """Say which of the driver's errors a Postgres error is."""
    state = error.sqlstate or ""
    why = f"{error} [{state}]"
    if state in {"40001", "40P01", "55P03", "57014"}:  # serialization, deadlock, lock or statement timeout
        return StoreBusy(why)
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return StoreBusy(why)  # the tables were changed under a prepared statement; it is prepared anew
    if state[:2] in {"22", "23"}:
        return Refused(why)
    if state[:2] in {"0A", "28", "3D", "3F", "42"}:  # feature, login, database, schema; a right, a table, our own SQL
        return StoreUnusable(why)
    # Whatever else it is (a fail-over makes the server read-only, a restart refuses logins) may pass.
    return StoreUnavailable(why)


class Composer:
    """Turns calls into one statement text and the list of its values."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._text = lru_cache(maxsize=1024)(self._compose_text)

    def compose(self, calls: Sequence[Call]) -> tuple[str, list[Any]]:
        """One text for all the calls; the same combination of calls always gives the same text."""
        text, places = self._text(tuple((call.statement, call.fed_by) for call in calls))
        columns: dict[int, list[Any]] = {}
        values: list[Any] = []
        for index, place in places:
            call = calls[index]
            if isinstance(place, str):
                values.append(call.params.get(place))
                continue
            if index not in columns:
                columns[index] = _columns_of(self._statements[call.statement].columns, call.rows or ())
            values.append(columns[index][place])
        return text, values

    def split(self, rows: Sequence[Row], count: int) -> list[list[Row]]:
        """Give each call of a composed statement the rows it returned."""
        if count == 1:
            return [list(rows)]
        parts: list[list[Row]] = [[] for _ in range(count)]
        for row in rows:
            parts[row["part"]].append(row)
        return parts

    def _compose_text(self, shape: tuple[tuple[str, int | None], ...]) -> tuple[str, tuple[tuple[int, str | int], ...]]:
        places: list[tuple[int, str | int]] = []
        parts = [
            self._render(self._statements[name], index, fed_by, places) for index, (name, fed_by) in enumerate(shape)
        ]
        if len(parts) == 1:
            return parts[0], tuple(places)
        heads = ",\n".join(f"part{index} as (\n{part}\n)" for index, part in enumerate(parts))
        tails = "\nunion all ".join(
            f"select {index} as part, id, answer from part{index}" for index in range(len(parts))
        )
        return f"with {heads}\n{tails}", tuple(places)

    def _render(self, statement: Statement, index: int, fed_by: int | None, places: list[tuple[int, str | int]]) -> str:
        seen: dict[str, int] = {}
        text = []
        for token in statement.tokens:
            match token:
                case Parameter(name):
                    if name not in seen:
                        places.append((index, name))
                        seen[name] = len(places)
                    text.append(f"${seen[name]}")
                case RowSet(columns) if fed_by is not None:
                    names = ", ".join(column.name for column in columns)
                    text.append(f"select {names} from part{fed_by}")
                case RowSet(columns):
                    text.append(_unnest(columns, len(places)))
                    places.extend((index, place) for place in range(len(columns)))
                case str():
                    text.append(token)
        return "".join(text)


# How a column of a row set travels: one joined string is a quarter of the client's cost of an array. Numbers are
# joined by commas; JSON text and checked names cannot hold the separator (JSON escapes control characters) and are
# never empty, so an empty element is null. Text that users may fill with anything goes as a real array.
_SEPARATOR = "\x1f"
_POSTGRES_TYPES = {"bigint": "bigint", "json": "json", "name": "text", "text": "text"}


def _unnest(columns: Sequence[Column], taken: int) -> str:
    sources = []
    for place, column in enumerate(columns, taken + 1):
        match column.type:
            case "bigint":
                sources.append(f"cast(string_to_array(${place}, ',', '') as bigint[])")
            case "json" | "name":
                sources.append(f"cast(string_to_array(${place}, chr(31), '') as {_POSTGRES_TYPES[column.type]}[])")
            case _:
                sources.append(f"cast(${place} as text[])")
    names = ", ".join(column.name for column in columns)
    return f"select * from unnest({', '.join(sources)}) as given({names})"


def _columns_of(columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> list[Any]:
    values: list[Any] = []
    cells_of: Sequence[Sequence[Value]] = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    for column, cells in zip(columns, cells_of, strict=True):
        match column.type:
            case "bigint":
                values.append(",".join(["" if cell is None else str(cell) for cell in cells]))
            case "json" | "name":
                values.append(_SEPARATOR.join(["" if cell is None else str(cell) for cell in cells]))
            case _:
                values.append(list(cells))
    return values
