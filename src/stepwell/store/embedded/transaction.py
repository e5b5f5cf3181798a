"""Having the thread that writes an embedded database to oneself, for a transaction that its user holds open."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from stepwell.errors import InvalidOption, StoreUnavailable
from stepwell.store.driver import Row

T = TypeVar("T")
Work = tuple[Callable[[Any], Any], concurrent.futures.Future[Any]]


class Thread(Protocol):
    """A thread that owns one connection and does what is submitted."""

    def submit(self, work: Callable[[Any], T]) -> concurrent.futures.Future[T]:
        """Have the work done with the connection."""


class Undone(Exception):  # noqa: N818 - a word of ours, never seen by users
    """The transaction is to be rolled back."""


class Tenure:
    """One transaction of the writer, which does what it is told until it is told to end."""

    def __init__(
        self, thread: Thread, in_transaction: Callable[[Any, Callable[[], None]], None], *, patience: float
    ) -> None:
        self._thread = thread
        self._in_transaction = in_transaction
        self._patience = patience
        self._orders: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._begun: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: asyncio.Future[None] | None = None
        self._undone = False

    async def __aenter__(self) -> Self:
        self._ended = _heard(self._thread.submit(self._serve))
        try:
            await self._first(self._begun)
        except BaseException:
            await self._end(undone=True)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(undone=error is not None)

    async def do(self, work: Callable[[Any], T]) -> T:
        """Do the work with the connection, in the transaction."""
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._orders.put((work, answer))
        return await self._first(answer)

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement of the user's, with `?` for its parameters, and return its rows."""
        return await self.do(lambda connection: list(connection.execute(sql, tuple(parameters)).fetchall()))

    async def _first(self, answer: concurrent.futures.Future[T]) -> T:
        """Wait for an answer; raises if the transaction has ended instead."""
        assert self._ended is not None
        answered = _heard(answer)
        both: list[asyncio.Future[Any]] = [answered, self._ended]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            self._ended.result()
            raise InvalidOption("tx", self, "its transaction has ended; begin another with `store.transaction()`")
        return answered.result()

    async def _end(self, *, undone: bool) -> None:
        assert self._ended is not None
        self._undone = undone
        self._orders.put(None)
        with contextlib.suppress(Undone):
            await asyncio.shield(self._ended)

    def _serve(self, connection: Any) -> None:
        self._in_transaction(connection, lambda: self._obey(connection))

    def _obey(self, connection: Any) -> None:
        """Do what is ordered, in the writer's thread, until the end is; silence undoes the transaction."""
        self._begun.set_result(None)
        while True:
            try:
                order = self._orders.get(timeout=self._patience)
            except queue.Empty:
                raise StoreUnavailable(f"its transaction did nothing for {self._patience:g} s and was undone") from None
            if order is None:
                if self._undone:
                    raise Undone
                return
            work, answer = order
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(work(connection))
            except Exception as error:
                answer.set_exception(error)
                if not connection.in_transaction:  # undone by the database: what followed would be committed by itself
                    raise StoreUnavailable(f"its transaction was undone by the database ({error})") from error


def _heard(answer: concurrent.futures.Future[T]) -> asyncio.Future[T]:
    """The answer on this loop; if it is an error and its caller has gone, the error is not reported."""
    future = asyncio.wrap_future(answer)
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future
