"""The verbs by which a program talks with a run that goes on: ask it, read its values, follow its streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar, overload

from stepwell.base.durations import Duration
from stepwell.records import Page, TaskId
from stepwell.store.database import Database
from stepwell.store.reports import Chunk, ValueInfo
from stepwell.store.run_key import WhichRun
from stepwell.store.run_log import LogLine, lines
from stepwell.store.signal_list import SignalInfo, SignalState

T = TypeVar("T")


class TalkVerbs:
    """What a store does for those who talk with its runs."""

    database: Database

    async def broadcast(self, name: str, data: Any = None, *, key: str | None = None, tx: object = None) -> TaskId:
        """Tell an event to every run that waits for it (`ctx.wait_event`) and every workflow that it triggers.

        What is written is one task; workers publish the event and tell each of them once, in one order for all. With
        `tx`, your own connection in a transaction, it is published if that commits and never if it does not. With
        `key`, a second event of this name and key is not published: its first task is returned; other data under the
        same key raises `IdempotencyConflict`.
        """
        return await self.database.broadcasts.send(name, data, key, tx)

    @overload
    async def ask(
        self,
        run: WhichRun,
        name: str,
        data: Any,
        as_: type[T],
        *,
        timeout: Duration | None = None,
        key: str | None = None,
        check: bool = True,
        actor: str | None = None,
    ) -> T: ...
    @overload
    async def ask(
        self,
        run: WhichRun,
        name: str,
        data: Any = None,
        *,
        timeout: Duration | None = None,
        key: str | None = None,
        check: bool = True,
        actor: str | None = None,
    ) -> Any: ...
    async def ask(
        self,
        run: WhichRun,
        name: str,
        data: Any = None,
        as_: Any = Any,
        *,
        timeout: Duration | None = None,
        key: str | None = None,
        check: bool = True,
        actor: str | None = None,
    ) -> Any:
        """Make a request of a run and return its reply, as `as_`, else as plain JSON.

        The run takes requests with `ctx.request(name)`, each once, in their order; one that it does not wait for yet is
        kept. Raises `SerializationError` if the run waits for another type (`check=False` sends it, for code to come),
        `RequestRefused` with the run's reason, `RequestUnanswered` if the run has ended without an answer, and
        `Timeout` if there is none in time: the request stays, and who asks again with the same `key` waits for the
        same answer.
        """
        return await self.database.asks.ask(
            run, name, data, as_, self.database.by(actor), timeout=timeout, key=key, check=check
        )

    @overload
    async def value(self, run: WhichRun, name: str, as_: type[T], *, timeout: Duration | None = None) -> T: ...
    @overload
    async def value(self, run: WhichRun, name: str, *, timeout: Duration | None = None) -> Any: ...
    async def value(self, run: WhichRun, name: str, as_: Any = Any, *, timeout: Duration | None = None) -> Any:
        """The last value that a run has set under this name, as soon as it has set one; as `as_`, else as plain JSON.

        It stays when the run restarts, waits or ends. Raises `ValueNotSet` if the run has ended without setting it,
        `Timeout` if it has set none in time (0 looks once), and `RunNotFound` if there is no such run. The name
        `progress` is that of `ctx.progress`.
        """
        return await self.database.reports.value(run, name, as_, timeout)

    async def values(self, run: WhichRun) -> Sequence[ValueInfo]:
        """The last value under each name that a run has set, by name, for people."""
        return await self.database.reports.values(run)

    async def signals(
        self,
        run: WhichRun,
        name: str | None = None,
        *,
        state: SignalState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[SignalInfo]:
        """The signals that a run has, those of one name in the order in which they came: all, or those that are
        `waiting` for a wait to take them, or `taken`.

        `after` is the `next` of the page before. A run forgets what it took longer ago than `connect(keep=)`, 7 days
        unless said otherwise, so that one that lives for years does not grow.
        """
        return await self.database.signal_list.page(run, name, state, limit, after)

    @overload
    def stream(self, run: WhichRun, name: str, as_: type[T], *, after: int = 0) -> AsyncIterator[Chunk[T]]: ...
    @overload
    def stream(self, run: WhichRun, name: str, *, after: int = 0) -> AsyncIterator[Chunk[Any]]: ...
    def stream(self, run: WhichRun, name: str, as_: Any = Any, *, after: int = 0) -> AsyncIterator[Chunk[Any]]:
        """The chunks that a run has written to a stream and will write, in order, each with its offset, from 1.

        It ends when the run has ended and every chunk was read. To go on after a break, pass the last offset that you
        have as `after`; `ChunksRemoved` says that the next ones are not kept any more. A reader that begins anew gets
        what is kept. Many readers of a process share one read.
        """
        return self.database.reports.stream(run, name, as_, after)

    def logs(
        self,
        run: WhichRun,
        *,
        step: str | None = None,
        attempt: int | None = None,
        after: int = 0,
        follow: bool = False,
    ) -> AsyncIterator[LogLine]:
        """What code has logged inside a run with Python's `logging`, in order: all of it, or of a step or an attempt.

        `step` is the step's key, as `store.steps` has it. With `follow` it goes on, and ends with the run.
        Lines are kept as long as the run: the first 1,000 and the last 100 of each attempt, the last 10,000 of the run.
        """
        return lines(self.database, run, step=step, attempt=attempt, after=after, follow=follow)
