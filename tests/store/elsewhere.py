"""A driver as a stranger would write one: it knows the seam (`driver.py`), the statements, and its own database."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from stepwell.errors import InvalidOption, Refused, StoreUnavailable
from stepwell.store.driver import (
    Call,
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
    play,
)
from stepwell.store.embedded.render import Rendered
from stepwell.store.sql import Statements, fed_rows

T = TypeVar("T")


class Elsewhere:
    """One connection that everybody uses in turn, each call in a thread: slow, simple, and all that is asked for."""

    name = "elsewhere"
    flush_slots = 1
    claim_slot = 0
    key_slot: int | None = None
    claims_many_queues = False
    flush_beats = False
    guards: SessionGuards = NoGuards()
    hears_others = False
    notifies = False
    pooled = False

    def __init__(self, statements: Statements) -> None:
        self._statements = Rendered(statements, many_rows=False)
        self._turn = threading.RLock()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row

    async def open(self) -> None:
        """It is there as soon as it is made."""

    async def close(self) -> None:
        """Forget everything."""
        self._connection.close()

    async def run(self, slot: int, calls: Sequence[Call]) -> list[list[Row]]:
        """Run the calls one after the other, in one transaction."""
        return await asyncio.to_thread(self.flush, calls)

    async def transact(
        self, script: Callable[[], Script[T]], *, timeout: float | None = None, patience: float | None = None
    ) -> T:
        """Play a script in one transaction."""
        return await asyncio.to_thread(self._in_transaction, lambda: play(script(), self._answer))

    async def read(self, call: Call) -> list[Row]:
        """Run one statement."""
        return await asyncio.to_thread(self._in_transaction, partial(self._answer, call))

    async def snapshot(self, script: Callable[[], Script[T]]) -> T:
        """Run a script; there is one connection."""
        return await self.transact(script)

    async def write(self, call: Call) -> list[Row]:
        """Run one statement."""
        return await self.read(call)

    @contextlib.asynccontextmanager
    async def transactions(
        self, idle: float
    ) -> AsyncIterator[Callable[[], contextlib.AbstractAsyncContextManager[Own]]]:
        """There is one connection anyway."""
        yield partial(self.transaction, idle)

    def meaning(self, error: Exception) -> Exception:
        """Whatever it is."""
        return error

    @contextlib.asynccontextmanager
    async def transaction(self, idle: float | None = None) -> AsyncIterator[Own]:
        """Not offered: nobody has to."""
        raise NotImplementedError
        yield

    def pulse(self) -> BesidePulse:
        """The heartbeat takes its turn like everybody else."""
        return BesidePulse(self)

    async def listen(self, heard: Heard, lost: Lost) -> Ear:
        """Nobody else is there."""
        raise NotImplementedError

    async def notify(self, hint: Hint) -> None:
        """Nobody else is there."""

    def outside(self, calls: Sequence[Call], hint: Hint) -> Outside | None:
        """Nobody else is there."""
        return None

    def join(self, tx: object) -> SyncJoin:
        """Nobody has another connection to it."""
        raise InvalidOption("tx", tx, "this database has no transactions of others")

    def flush(self, calls: Sequence[Call]) -> list[list[Row]]:
        """Run calls, some of them on what others of them have returned, in one transaction."""

        def body() -> list[list[Row]]:
            answers: list[list[Row]] = []
            for call in calls:
                rows = call.rows if call.fed_by is None else fed_rows(call, answers[call.fed_by])
                answers.append(self._statements.execute(self._connection, call, rows))
            return answers

        return self._in_transaction(body)

    def _answer(self, call: Call | Ddl) -> list[Row]:
        with _told_in_our_words():
            if isinstance(call, Call):
                return self._statements.execute(self._connection, call, call.rows)
            return self._connection.execute(call.text).fetchall()

    def _in_transaction(self, body: Callable[[], T]) -> T:
        with self._turn, _told_in_our_words():
            self._connection.execute("begin")
            try:
                value = body()
            except BaseException:
                self._connection.execute("rollback")
                raise
            self._connection.execute("commit")
            return value


class BesidePulse:
    """The heartbeat's way."""

    def __init__(self, driver: Elsewhere) -> None:
        self._driver = driver

    def run(self, calls: Sequence[Call], timeout: float) -> list[list[Row]]:
        """Run the calls in one transaction."""
        return self._driver.flush(calls)

    def close(self) -> None:
        """Nothing to let go of."""


@contextlib.contextmanager
def _told_in_our_words() -> Any:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise Refused(str(error)) from error
    except sqlite3.Error as error:
        raise StoreUnavailable(str(error)) from error
