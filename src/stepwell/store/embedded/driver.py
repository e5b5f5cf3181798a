"""A database in a file of this host, or in memory: what SQLite and Turso have in common.

One thread owns the only connection that writes; whatever is pending goes through it one transaction at a time. A
second thread reads beside it. The heartbeat goes to the front of the writer's queue. Processes that share the file
queue for it on a file lock, because the database's own busy handler is unfair and would let a beat wait for seconds.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from stepwell.base.deadlines import Deadlines
from stepwell.base.futures import LoopAnswer, ended, resolve
from stepwell.errors import StoreBusy, StoreClosed, StoreUnavailable
from stepwell.store.driver import (
    SAVEPOINT,
    AsyncJoin,
    Call,
    Ddl,
    Ear,
    Heard,
    Hint,
    Lost,
    Outside,
    Own,
    Row,
    Script,
    SessionGuards,
    SyncJoin,
    only_reads,
    play,
    refused_write,
)
from stepwell.store.embedded.database import EmbeddedDatabase
from stepwell.store.embedded.listener import FileEar, Watched
from stepwell.store.embedded.render import Rendered
from stepwell.store.embedded.transaction import Tenure
from stepwell.store.joins.connection import AwaitedCursor, join_through
from stepwell.store.sql import Statements, fed_rows

T = TypeVar("T")
Answer = concurrent.futures.Future[Any] | LoopAnswer[Any]
BEGIN_WRITING: Final = Call("begin_writing")


class Embedded:
    """A driver for one embedded database."""

    flush_slots, claim_slot = 1, 0
    key_slot: int | None = None
    claims_many_queues = False
    flush_beats = True
    pooled = False
    notifies = False

    def __init__(
        self,
        engine: EmbeddedDatabase,
        statements: Statements,
        guards: SessionGuards,
        *,
        timeout: float,
        separate_reader: bool,
        watched: Watched | None = None,
    ) -> None:
        self.name = engine.name
        self.guards = guards
        self._engine = engine
        self._statements = Rendered(statements, many_rows=engine.many_rows)
        self._timeout = timeout
        self._writing = Writing()
        self._deadlines: Deadlines[tuple[asyncio.Future[Any], float]] = Deadlines(self._late)
        self._watched = watched  # the file, if other processes may have it open
        self._ear: FileEar | None = None
        self.hears_others = watched is not None
        self._writer = ConnectionThread(f"stepwell-{engine.name}-writer", lambda: engine.connect(reading=False))
        self._reader = (
            ConnectionThread(f"stepwell-{engine.name}-reader", lambda: engine.connect(reading=True))
            if separate_reader
            else self._writer
        )

    async def open(self) -> None:
        """Open the file; it is made if it is missing."""
        await self._asked(self._writer, lambda _: None, self._timeout)

    async def close(self) -> None:
        """Close both connections after what is under way."""
        for thread in {self._writer, self._reader}:
            await thread.close()
        self._deadlines.close()
        self._engine.close()

    async def run(self, slot: int, calls: Sequence[Call]) -> list[list[Row]]:
        """Run the calls as statements of one transaction in the writer's thread."""
        return await self._asked(self._writer, lambda connection: self._flush(connection, calls), self._timeout)

    async def transact(
        self, script: Callable[[], Script[T]], *, timeout: float | None = None, patience: float | None = None
    ) -> T:
        """Play a script in the writer's thread."""
        if only_reads.get() is not None:
            raise refused_write()

        def work(connection: Any) -> T:
            return self._in_transaction(connection, lambda: play(script(), partial(self._answer, connection)))

        return await self._asked(self._writer, work, timeout or self._timeout)

    async def write(self, call: Call) -> list[Row]:
        """Run one statement in a transaction of the writer."""
        [rows] = await self.run(0, [call])
        return rows

    async def read(self, call: Call) -> list[Row]:
        """Run one statement in the reader's thread."""
        return await self._asked(self._reader, partial(self._read, call), self._timeout)

    def _read(self, call: Call, connection: Any) -> list[Row]:
        self._engine.check_file()
        return self._answer(connection, call)

    async def snapshot(self, script: Callable[[], Script[T]]) -> T:
        """Play a script in the reader's thread: in a transaction it sees nothing that is committed meanwhile."""
        return await self._asked(self._reader, partial(self._seen_at_once, script), self._timeout)

    def _seen_at_once(self, script: Callable[[], Script[T]], connection: Any) -> T:
        self._engine.check_file()
        connection.execute("begin")
        try:
            return play(script(), partial(self._answer, connection))
        finally:
            connection.execute("rollback")

    @contextlib.asynccontextmanager
    async def transaction(self, idle: float | None = None) -> AsyncIterator[Own]:
        """Hold the writer: no other connection writes until the block ends, so it should be short.

        No other process can end it for one that is frozen in it, whatever `idle` says: the others wait.
        """
        async with Tenure(self._writer, self._in_transaction, patience=3 * self._timeout) as tenure:
            self._writing.began("a transaction of this store, begun with `store.transaction()`,")
            answer = lambda call: tenure.do(lambda connection: self._answer(connection, call))  # noqa: E731
            yield Own(tenure, answer, tenure.execute)

    @contextlib.asynccontextmanager
    async def transactions(
        self, idle: float
    ) -> AsyncIterator[Callable[[], contextlib.AbstractAsyncContextManager[Own]]]:
        """The writer's connection is kept anyway."""
        yield partial(self.transaction, idle)

    def meaning(self, error: Exception) -> Exception:
        """As for our own statements."""
        return self._engine.translate(error)

    def join(self, tx: object) -> SyncJoin | AsyncJoin:
        """Answer calls through the user's own connection, as it is."""
        return join_through(tx, self._joined) if self._engine.joins else self._joined(tx)

    def _joined(self, tx: object) -> SyncJoin | AsyncJoin:
        cursor = self._engine.joined(tx)
        if isinstance(cursor, AwaitedCursor):
            return AsyncJoin(partial(self._answer_first_awaited, cursor))
        return SyncJoin(partial(self._answer_first, cursor))

    def _answer_first(self, cursor: Any, call: Call | Ddl) -> list[Row]:
        if call == SAVEPOINT:  # outside of a transaction it would be one, and its release a commit
            self._answer(cursor, BEGIN_WRITING)
        return self._answer(cursor, call)

    async def _answer_first_awaited(self, cursor: AwaitedCursor, call: Call | Ddl) -> list[Row]:
        if call == SAVEPOINT:
            await self._answer_awaited(cursor, BEGIN_WRITING)
        return await self._answer_awaited(cursor, call)

    def pulse(self) -> EmbeddedPulse:
        """The front of the writer's queue."""
        return EmbeddedPulse(self._writer, self._flush)

    def outside(self, calls: Sequence[Call], hint: Hint) -> Outside | None:
        """Each call as statements of one transaction; nothing is to be told."""
        if (file := self._engine.file()) is None:
            return None
        said = [[(text, dict(values)) for text, values in self._statements.each(call, call.rows)] for call in calls]
        return Outside(self.name, *file, said, [])

    async def listen(self, heard: Heard, lost: Lost) -> Ear:
        """Watch the file in a thread of its own."""
        assert self._watched is not None
        self._ear = FileEar(
            name=f"stepwell-{self.name}-watch",
            connect=lambda: self._engine.connect(reading=True),
            watched=self._watched,
            ready=lambda connection: frozenset(row["id"] for row in self._answer(connection, Call("ready_queues"))),
            heard=heard,
            lost=lost,
        )
        return self._ear

    async def notify(self, hint: Hint) -> None:
        """Nothing to do: who watches the file sees the commit."""

    def _flush(self, connection: Any, calls: Sequence[Call]) -> list[list[Row]]:
        def body() -> list[list[Row]]:
            answers: list[list[Row]] = []
            for call in calls:
                rows = call.rows if call.fed_by is None else fed_rows(call, answers[call.fed_by])
                answers.append(self._statements.execute(connection, call, rows))
            return answers

        return self._in_transaction(connection, body)

    def _in_transaction(self, connection: Any, body: Callable[[], T]) -> T:
        ear = self._ear
        self._writing.waits_for("another process")
        with self._engine.write_turn():
            self._writing.waits_for("another connection")
            try:
                # IMMEDIATE: a transaction that reads first and writes later could not wait for another writer.
                connection.execute("begin immediate")
                if ear is not None:
                    ear.begin_writing()
                self._writing.began("this process")
                self._engine.check_file()
                value = body()
                connection.execute("commit")
            except Exception as error:
                # After a full disk the database may have rolled back by itself: ask, do not assume.
                if connection.in_transaction:
                    connection.execute("rollback")
                if (translated := self._engine.translate(error)) is error:
                    raise  # ours already; raised `from` itself it would be its own cause
                if type(translated) is StoreBusy:
                    translated = StoreBusy(f"{self._writing}: {translated}")
                raise translated from error
            finally:
                if ear is not None:
                    ear.end_writing()
            self._engine.after_commit(connection)
            return value

    def _answer(self, connection: Any, call: Call | Ddl) -> list[Row]:
        try:
            if isinstance(call, Ddl):
                connection.execute(call.text)
                return []
            return self._statements.execute(connection, call, call.rows)
        except Exception as error:
            if (translated := self._engine.translate(error)) is error:
                raise
            raise translated from error

    async def _answer_awaited(self, cursor: AwaitedCursor, call: Call | Ddl) -> list[Row]:
        assert isinstance(call, Call)
        found: list[Row] = []
        try:
            for text, values in self._statements.each(call, call.rows):
                found.extend(await cursor.fetch(text, values))
        except Exception as error:
            if (translated := self._engine.translate(error)) is error:
                raise
            raise translated from error
        return found

    async def _asked(self, thread: ConnectionThread, work: Callable[[Any], T], timeout: float) -> T:
        """Have the work done by a thread; what has not begun when the time is over is not done."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        thread.put(LoopAnswer(loop, answer), work)
        waiting = (answer, timeout)
        self._deadlines.add(waiting, timeout)
        try:
            return await answer
        finally:
            self._deadlines.remove(waiting)

    def _late(self, waiting: tuple[asyncio.Future[Any], float]) -> None:
        answer, timeout = waiting
        why = f"{self.name}: no answer in {timeout:g} s, {self._writing}; if that is a transaction of this program, "
        resolve(answer, StoreUnavailable(why + "end it, or pass its connection as `tx=`"))


class Writing:
    """Who writes the file, and since when, as far as this process can tell: it has one writer."""

    def __init__(self) -> None:
        self._who = "this process"
        self._since = time.monotonic()
        self._waits = False

    def __str__(self) -> str:
        return f"{self._who} has been writing this file for {time.monotonic() - self._since:.0f} s"

    def waits_for(self, who: str) -> None:
        """Another connection may write the file; an earlier wait that has not ended goes on."""
        if not self._waits:
            self._since = time.monotonic()
        self._who, self._waits = who, True

    def began(self, who: str) -> None:
        """It is our turn."""
        self._who, self._since, self._waits = who, time.monotonic(), False


class EmbeddedPulse:
    """The heartbeat's way: ahead of everything else that waits for the writer."""

    def __init__(self, writer: ConnectionThread, flush: Callable[[Any, Sequence[Call]], list[list[Row]]]) -> None:
        self._writer = writer
        self._flush = flush

    def run(self, calls: Sequence[Call], timeout: float) -> list[list[Row]]:
        """Run the calls in one transaction of the writer."""
        work = self._writer.submit(lambda connection: self._flush(connection, calls), first=True)
        try:
            return work.result(timeout)
        except concurrent.futures.TimeoutError as error:
            work.cancel()
            raise StoreUnavailable(f"no answer in {timeout:g} s") from error

    def close(self) -> None:
        """The writer is the store's; nothing to close."""


class ConnectionThread:
    """A thread that owns one connection and does what is submitted, one thing after the other."""

    def __init__(self, name: str, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._pending: collections.deque[tuple[Answer, Callable[[Any], Any]]] = collections.deque()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # half the price of a semaphore
        self._closing = False
        # A daemon: a process may end while another one holds the file.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._started = threading.Lock()

    def submit(self, work: Callable[[Any], T], *, first: bool = False) -> concurrent.futures.Future[T]:
        """Have the work done with the connection; cancelling the answer before its turn means it is not done."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.put(future, work, first=first)
        return future

    def put(self, answer: Answer, work: Callable[[Any], T], *, first: bool = False) -> None:
        """Have the work done, and its result told, unless nothing waits for it any more when its turn comes."""
        if self._closing:
            answer.set_exception(StoreClosed())
            return
        (self._pending.appendleft if first else self._pending.append)((answer, work))
        self._wake.put(None)
        with self._started:
            if self._thread.ident is None:
                self._thread.start()

    async def close(self) -> None:
        """Finish what is pending and close the connection."""
        with self._started:
            self._closing = True
        self._wake.put(None)
        await ended(self._thread, 10)

    def _work(self) -> None:
        connection: Any = None
        while True:
            self._wake.get()
            if not self._pending:
                if self._closing:
                    break
                continue
            answer, work = self._pending.popleft()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                if connection is None:
                    connection = self._connect()
                answer.set_result(work(connection))
            except BaseException as error:  # noqa: BLE001 - every failure belongs to the caller, not to this thread
                answer.set_exception(error)
            del answer, work  # or a connection without work would keep what it read last
        if connection is not None:
            connection.close()
