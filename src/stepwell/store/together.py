"""One commit for everything: a transaction of the store's own, in which its verbs and the user's rows take part."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

from stepwell.errors import InvalidOption, StepwellError
from stepwell.store.driver import SAVEPOINT, AsyncJoin, Call, Own, Row, Script, SyncJoin, play, play_async
from stepwell.store.opened import Opened
from stepwell.store.turns import turns_here

T = TypeVar("T")


class Tx:
    """An open transaction: pass it as `tx=`, and execute statements of your own in it. Made by `store.transaction()`.

    `connection` is asyncpg's on Postgres; elsewhere it has `execute(sql, parameters)` and nothing else.
    """

    def __init__(self, store: Opened, own: Own) -> None:
        self.store = store
        self.connection: Any = own.connection
        self.answer = own.answer
        self.touched: set[str] = set()  # queues that got something to claim, if it commits
        self.is_over = False
        self._execute = own.execute

    async def execute(self, sql: str, *parameters: Any) -> list[Row]:
        """Execute a statement of your own, with `$1` (Postgres) or `?` for its parameters, and return its rows."""
        if self.is_over:
            raise InvalidOption("tx", self, OVER)
        return await self._execute(sql, parameters)


RELEASE: Final = Call("release_savepoint")
OVER: Final = "its transaction has ended; begin another with `store.transaction()`"


class Together(Opened):
    """Transactions in which several verbs take part."""

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """Begin a transaction for verbs that take `tx=` and rows of your own: all of it is committed, or none.

        It commits at the end of the block, and an exception undoes it. Keep it short, and use nothing else of the
        store in it: on SQLite and Turso nobody else writes meanwhile.

        Begun in a body (of a step, a handler, an effect) it commits only if the body's turn still stands: what was
        frozen beyond its lease, and is executed by another worker, raises `LeaseLost` and writes nothing. On Postgres
        the server ends such a transaction when it is idle for longer than the lease.
        """
        self.check()
        turns = turns_here()
        async with self.driver.transaction(None if turns is None else turns.lease) as own:
            tx = Tx(self, own)
            try:
                yield tx
            finally:
                tx.is_over = True
            if turns is not None:
                await play_async(turns.kept(), own.answer)
        with contextlib.suppress(StepwellError):  # a hint: who polls finds it
            self.tasks.hint({await self.queue_id(name) for name in sorted(tx.touched)})

    async def play_joined(self, talk: Script[T], tx: object, face: str = "connect(...)") -> T:
        """Play a script in a transaction on the user's loop, or in one of the store's own; an error undoes it alone."""
        return await self._play(_in_turn(talk, tx), tx, face)

    async def _play(self, talk: Script[T], tx: object, face: str) -> T:
        self.check()
        match self._join(tx):
            case AsyncJoin(answer):
                await answer(SAVEPOINT)
                try:
                    value = await play_async(talk, answer)
                    await answer(RELEASE)
                except BaseException:
                    with contextlib.suppress(Exception):  # then the transaction has failed, and commits nothing
                        async with asyncio.timeout(self.options.timeout):  # whoever is cancelled does not hang here
                            await play_async(_undone(), answer)
                    raise
                return value
            case SyncJoin():
                raise InvalidOption("tx", tx, f"it belongs to its thread: join it through `stepwell.sync.{face}`")

    def play_joined_here(self, talk: Script[T], tx: object, face: str = "connect(...)") -> T:
        """Play a script in a transaction of the user's thread, which is this one; an error undoes it alone."""
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
        """Let a transaction on your own connection commit only if the turn of the body that calls still stands.

        Call it last, right before your commit: until then nobody takes the task from its worker. Raises `LeaseLost` if
        somebody has; then roll back. Outside of bodies there is no turn, and nothing is asked.
        """
        if (turns := turns_here()) is not None:
            await self._play(turns.kept(), tx, "connect(...)")

    def fence_in_this_thread(self, tx: object) -> None:
        """As `fence`, for a connection that belongs to this thread."""
        if (turns := turns_here()) is not None:
            self._play_here(turns.kept(), tx, "connect(...)")

    def _join(self, tx: object) -> SyncJoin | AsyncJoin:
        """Take part in a transaction, the store's own or one on the user's connection."""
        if not isinstance(tx, Tx):
            return self.driver.join(tx)
        if tx.store is not self:
            raise InvalidOption("tx", tx, "it is a transaction of another store")
        if tx.is_over:
            raise InvalidOption("tx", tx, OVER)
        return AsyncJoin(tx.answer)


def _in_turn(talk: Script[T], tx: object) -> Script[T]:
    """What is to be done in a transaction of the user's: in a body, only if its turn stands. Ours asks at the end."""
    turns = None if isinstance(tx, Tx) else turns_here()
    return talk if turns is None else turns.before(talk)


def _undone() -> Script[None]:
    """Undo what came after the savepoint; the transaction is as it was before the call, and goes on."""
    yield Call("rollback_to_savepoint")
    yield RELEASE
