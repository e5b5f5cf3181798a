"""One commit for everything: a transaction of the store in which its verbs and the user's rows take part."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from stepwell.errors import (
    InvalidOption,
    LeaseLost,
    PermanentError,
    Refused,
    StepwellError,
    StoreUnavailable,
    StoreUnusable,
)
from stepwell.store.driver import (
    SAVEPOINT,
    AsyncJoin,
    Call,
    Own,
    Row,
    Script,
    SyncJoin,
    only_reads,
    play,
    play_async,
    refused_write,
)
from stepwell.store.pending import LateWrite
from stepwell.store.rows import Claimed
from stepwell.values.headers import headers_text

if TYPE_CHECKING:
    from stepwell.store.database import Database

T = TypeVar("T")


class Tx:
    """An open transaction: pass it as `tx=`, and execute statements of your own in it. Made by `store.transaction()`.

    `connection` is asyncpg's on Postgres; elsewhere it has `execute(sql, parameters)` and nothing else.
    """

    def __init__(self, database: Database, own: Own) -> None:
        self.database = database
        self.connection: Any = own.connection
        self.answer = own.answer
        self.tables: Mapping[str, str] = {}  # of the projection whose transaction it is: their names in this build
        self.touched: set[str] = set()  # queues that have tasks to claim if it commits
        self.refuses: str | None = None  # why no verb may take part in it
        self.is_over = False
        self._execute = own.execute

    async def execute(self, sql: str, *parameters: Any) -> list[Row]:
        """Execute a statement of your own, with `$1` (Postgres) or `?` for its parameters, and return its rows."""
        if self.is_over:
            raise InvalidOption("tx", self, OVER)
        return await self._execute(sql, parameters)

    def table(self, name: str) -> str:
        """The name that a table of a projection has in the build that is being made: `orders`, or `orders__2`.

        The tables are those that the projection declares, `@projection(..., tables=[...])`.
        """
        if name not in self.tables:
            declared = ", ".join(self.tables) or "none"
            raise InvalidOption(
                "table", name, f"the projection of this transaction declares {declared} as its `tables`"
            )
        return self.tables[name]


class SyncTx:
    """An open transaction of a sync store, or of a sync step; see `Tx`."""

    def __init__(self, async_tx: Tx, wait_for: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]) -> None:
        self.async_tx = async_tx
        self._wait_for = wait_for

    def execute(self, sql: str, *parameters: Any) -> list[Any]:
        """Execute a statement of your own, with `$1` (Postgres) or `?` for its parameters, and return its rows."""
        rows: list[Any] = self._wait_for(lambda: self.async_tx.execute(sql, *parameters))
        return rows


Begin = Callable[[Callable[[], Script[None]], str], contextlib.AbstractAsyncContextManager[Tx]]
RELEASE: Final = Call("release_savepoint")
OVER: Final = "its transaction has ended; begin another with `store.transaction()`"


@dataclass(eq=False)
class Transactions:
    """Transactions in which several verbs take part: the store's own, and those on connections of the user's."""

    _db: Database

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator[Tx]:
        """Begin a transaction of the store; in a body it commits only if the body's turn still stands."""
        self._db.check()
        if only_reads.get() is not None:
            raise refused_write()
        turns = turns_here()
        await _acknowledged(turns)
        async with self._db.driver.transaction(None if turns is None else turns.lease) as own:
            tx = Tx(self._db, own)
            try:
                yield tx
            finally:
                tx.is_over = True
            if turns is not None:
                await play_async(turns.kept(), own.answer)
        with contextlib.suppress(StepwellError):  # a hint: other processes also poll
            self._db.wakeups.hint({await self._db.queue_id(name) for name in sorted(tx.touched)})

    @contextlib.asynccontextmanager
    async def of_step(self, lease: float) -> AsyncIterator[Tx]:
        """Begin a transaction of the store for a step, whose record is its fence and its last statement."""
        self._db.check()
        async with self._db.driver.transaction(lease) as own:
            tx = Tx(self._db, own)
            try:
                yield tx
            finally:
                tx.is_over = True
        with contextlib.suppress(StepwellError):
            self._db.wakeups.hint({await self._db.queue_id(name) for name in sorted(tx.touched)})

    @contextlib.asynccontextmanager
    async def kept(self, idle: float) -> AsyncIterator[Begin]:
        """Begin transactions one after the other, each of which ends with statements of its own, its fence.

        The block gets a function that begins one: `begin(last, refuses)`. In it only statements of the user's are
        executed; one that commits or rolls back by itself fails it. After the block `last` is said, and it commits.
        """
        async with self._db.driver.transactions(idle) as begin:

            @contextlib.asynccontextmanager
            async def begun(last: Callable[[], Script[None]], refuses: str) -> AsyncIterator[Tx]:
                ended: EndedInside | None = None
                try:
                    async with begin() as own:
                        tx = Tx(self._db, own)
                        tx.refuses = refuses
                        await own.answer(SAVEPOINT)
                        try:
                            yield tx
                        finally:
                            tx.is_over = True
                        if (ended := await _ended_inside(tx)) is not None:
                            raise ended
                        await play_async(last(), own.answer)
                except StepwellError as error:  # a database that has one writer says only that there is no transaction
                    raise error if ended is None else ended from error

            yield begun

    async def play(self, talk: Script[T], tx: object, face: str = "connect(...)") -> T:
        """Run a script in a transaction on the user's loop, or in the store's own; an error rolls back only that."""
        return await self._play(_in_turn(talk, tx), tx, face)

    async def _play(self, talk: Script[T], tx: object, face: str) -> T:
        self._db.check()
        await _acknowledged(executing.get())
        match self._join(tx):
            case AsyncJoin(answer):
                await answer(SAVEPOINT)
                try:
                    value = await play_async(talk, answer)
                    await answer(RELEASE)
                except BaseException:
                    with contextlib.suppress(Exception):  # then the transaction has failed, and commits nothing
                        async with asyncio.timeout(self._db.options.timeout):  # a cancelled caller does not hang here
                            await play_async(_undone(), answer)
                    raise
                return value
            case SyncJoin():
                raise InvalidOption("tx", tx, f"it belongs to its thread: join it through `stepwell.sync.{face}`")

    def play_here(self, talk: Script[T], tx: object, face: str = "connect(...)") -> T:
        """Run a script in a transaction of the user's thread, which is this one; an error rolls back only that."""
        return self._play_here(_in_turn(talk, tx), tx, face)

    def _play_here(self, talk: Script[T], tx: object, face: str) -> T:
        match self._join(tx):
            case SyncJoin(answer):
                answer(SAVEPOINT)
                try:
                    value = play(talk, answer)
                    answer(RELEASE)
                except BaseException:
                    with contextlib.suppress(Exception):  # then the transaction has failed, and commits nothing
                        play(_undone(), answer)
                    raise
                return value
            case AsyncJoin():
                raise InvalidOption("tx", tx, f"it belongs to an event loop: join it through `stepwell.{face}`")

    async def fence(self, tx: object) -> None:
        """Raise if the turn of the calling body no longer stands; does nothing outside of bodies."""
        if (turns := turns_here()) is not None:
            await self._play(turns.kept(), tx, "connect(...)")

    def fence_here(self, tx: object) -> None:
        """As `fence`, for a connection that belongs to this thread."""
        if (turns := turns_here()) is not None:
            self._play_here(turns.kept(), tx, "connect(...)")

    def _join(self, tx: object) -> SyncJoin | AsyncJoin:
        """Join a transaction, the store's own or one on the user's connection."""
        if not isinstance(tx, Tx):
            if only_reads.get() is not None:
                raise refused_write()
            return self._db.driver.join(tx)
        if tx.database is not self._db:
            raise InvalidOption("tx", tx, "it is a transaction of another store")
        if tx.is_over:
            raise InvalidOption("tx", tx, OVER)
        if tx.refuses is not None:
            raise InvalidOption("tx", tx, tx.refuses)
        return AsyncJoin(tx.answer)


async def _ended_inside(tx: Tx) -> EndedInside | None:
    """Release the first savepoint: there is none if the transaction is not the one that was begun."""
    try:
        await tx.answer(RELEASE)
    except (Refused, StoreUnusable, StoreUnavailable) as error:
        return EndedInside(tx, error)
    return None


class EndedInside(InvalidOption, PermanentError):  # noqa: N818 - as its first base
    """The code in a block has ended its transaction by itself: what it wrote is committed, or gone."""

    def __init__(self, tx: object, error: BaseException) -> None:
        super().__init__("tx", tx, f"it was committed or rolled back by the code that was given it: {error}")


def ended_inside(tx: object, error: Exception, *, is_served: bool) -> EndedInside | None:
    """The error if the savepoint is gone; None if the database, which a server may serve, has not said that."""
    cause = error.__cause__ or error
    is_gone = getattr(cause, "sqlstate", None) in {"3B001", "25P01"} if is_served else True
    return EndedInside(tx, cause) if is_gone else None


def _in_turn(talk: Script[T], tx: object) -> Script[T]:
    """The script for a transaction of the user: in a body, only if its turn stands. Ours checks at the end."""
    turns = None if isinstance(tx, Tx) else turns_here()
    return talk if turns is None else turns.before(talk)


async def _acknowledged(turns: Turns | None) -> None:
    """Wait until all is written that the calling body was told: what it does now may act on that."""
    if turns is not None and turns.place is not None and (late := turns.place.late) is not None:
        await late.written()


def _undone() -> Script[None]:
    """Roll back to the savepoint; the transaction is as it was before the call, and goes on."""
    yield Call("rollback_to_savepoint")
    yield RELEASE


class Holder(Protocol):
    """A worker's session."""

    id: int
    lost: bool
    lease: float

    @property
    def held(self) -> Mapping[int, int]:
        """The turn of each task that it holds."""


class Renewing(Holder, Protocol):
    """A worker's session whose lease can be renewed."""

    async def renew(self, within: float) -> bool:
        """Renew the lease if its last renewal is longer ago; False if the session is over."""


class Executing(Protocol):
    """What executes a body: a place of a worker."""

    database: Database

    @property
    def late(self) -> LateWrite | None:
        """A write of which the body was told before it was in the database."""

    @property
    def session(self) -> Renewing:
        """The session of its worker."""

    def is_over(self, task_id: int) -> bool:
        """True if the body of this task is to stop, or was left behind."""


class Turns:
    """The turns of the tasks whose body is executed: of one task, or of a batch.

    A transaction that the body begins is committed only while these turns stand. `progress` is what the body reports,
    from its first report on.
    """

    __slots__ = ("_session", "place", "progress", "tasks")

    def __init__(self, session: Holder, tasks: Sequence[Claimed], place: Executing | None = None) -> None:
        self._session = session
        self.tasks = tasks
        self.place = place
        self.progress: Any = None

    @property
    def are_lost(self) -> bool:
        """Whether the session is known to be dead: other sessions have its tasks."""
        return self._session.lost

    @property
    def lease(self) -> float:
        """Seconds that the session may be silent before others take its tasks."""
        return self._session.lease

    @property
    def are_held(self) -> bool:
        """Whether the session still holds them all: none was settled."""
        held = self._session.held
        return all(held.get(task.id) == task.turn for task in self.tasks)

    def kept(self) -> Script[None]:
        """Lock the turns until the transaction ends; its last statement before the commit."""
        yield from self._standing("keep_turns")

    def before(self, talk: Script[T]) -> Script[T]:
        """The same script, if the turns stand when it begins; else nothing is written."""
        yield from self._standing("check_turns")
        return (yield from talk)

    def lost(self) -> LeaseLost:
        """The error for code that goes on after its turns are lost."""
        return LeaseLost(self._session.id, self.tasks[0].id)

    def _standing(self, statement: str) -> Script[None]:
        rows = [(task.id, self._session.id, task.turn) for task in self.tasks]
        if len((yield Call(statement, {}, rows))) < len(rows):
            raise self.lost()


executing: Final[ContextVar[Turns | None]] = ContextVar("stepwell_executing", default=None)


def turns_here() -> Turns | None:
    """The turns in whose name the calling code writes; None outside of bodies.

    Also None in an asyncio task that a body left behind and that goes on after the turn was settled: no other session
    executes that turn.
    Raises `LeaseLost` in a body whose session is known to be dead.
    """
    turns = executing.get()
    if turns is None:
        return None
    if turns.are_lost:
        raise turns.lost()
    return turns if turns.are_held else None


# The headers of a block that code has begun, with the turns in whose body that was: in another body they do not count.
said: Final[ContextVar[tuple[Turns | None, str | None] | None]] = ContextVar("stepwell_headers", default=None)


def headers_here() -> str | None:
    """The headers of what is written here, as JSON: those of the block, or of the work whose body calls this.

    None outside of both, and in the body of a batch whose messages have different ones.
    """
    turns, block = executing.get(), said.get()
    if block is not None and block[0] is turns:
        return block[1]
    if turns is None:
        return None
    first = turns.tasks[0].headers
    return first if all(task.headers == first for task in turns.tasks) else None


@contextlib.contextmanager
def headers(given: Mapping[str, str]) -> Iterator[None]:
    """A block in which all that is enqueued, triggered, signalled and decided gets these headers, over those it has."""
    token = said.set((executing.get(), headers_text(given, headers_here())))
    try:
        yield
    finally:
        said.reset(token)
