"""A transaction in which a body writes and its result is recorded: both are committed, or neither.

It is the store's own, or one that a source of the user's opens. The record is its last statement, and its fence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from stepwell.errors import InvalidOption, Refused, StepwellError, StoreUnavailable, StoreUnusable
from stepwell.store.driver import SAVEPOINT, AsyncJoin, Call, Ddl, Row, Script, SyncJoin, play, play_async
from stepwell.store.emission import Emission
from stepwell.store.joins.source import begun, begun_here, flush, flush_here
from stepwell.store.rows import Claimed, StepRow
from stepwell.store.steps import InTurn
from stepwell.store.transaction import RELEASE, EndedInside, Tx, ended_inside

if TYPE_CHECKING:
    from stepwell.store.database import Database

End = Callable[[Any], tuple[StepRow, Sequence[Emission]]]  # what a body returned, as it is recorded


class ResultTransaction:
    """One of these, from its beginning to its end; an error means that nothing is written, unless `row` is set."""

    def __init__(self, database: Database, task: Claimed, end: End) -> None:
        self._db = database
        self._task = task
        self._end = end
        self.row: StepRow | None = None  # the result, once it may have been committed
        self.written: InTurn | None = None  # what came with it
        self.ended: EndedInside | None = None  # the body has ended the transaction by itself

    async def own(self, lease: float, body: Callable[[Tx], Awaitable[Any]]) -> None:
        """In a transaction of the store, which a server ends when it was idle for as long as a lease."""
        async with self._db.transactions.of_step(lease) as tx:
            await tx.answer(SAVEPOINT)
            await self._finish(await body(tx), tx, tx.answer)

    async def opened(self, source: object, body: Callable[[Any], Awaitable[Any]]) -> None:
        """In a transaction that the source opens, on this loop."""
        async with begun(source) as tx:
            match self._db.driver.join(tx):
                case AsyncJoin(answer):
                    await answer(SAVEPOINT)
                    returned = await body(tx)
                    await flush(tx)
                    await self._finish(returned, tx, answer)
                case SyncJoin():
                    raise InvalidOption("tx", tx, "it would block the loop: make the step a `def`")

    def opened_here(self, source: object, body: Callable[[Any], Any]) -> None:
        """In a transaction that the source opens, in the calling thread from its beginning to its end."""
        with begun_here(source) as tx:
            match self._db.driver.join(tx):
                case SyncJoin(answer):
                    answer(SAVEPOINT)
                    returned = body(tx)
                    flush_here(tx)
                    row, emissions = self._end(returned)
                    with self._still_open(tx):
                        answer(RELEASE)
                    self._note(row, play(self._recording(row, emissions), answer))
                case AsyncJoin():
                    raise InvalidOption("tx", tx, "it belongs to a loop: make the step an `async def`")

    async def _finish(self, returned: Any, tx: object, answer: Callable[[Call | Ddl], Awaitable[list[Row]]]) -> None:
        row, emissions = self._end(returned)
        with self._still_open(tx):
            await answer(RELEASE)
        self._note(row, await play_async(self._recording(row, emissions), answer))

    def _recording(self, row: StepRow, emissions: Sequence[Emission]) -> Script[InTurn | None]:
        return self._db.steps.in_turn(row, self._task, emissions)

    def _note(self, row: StepRow, written: InTurn | None) -> None:
        self.row = row
        if written is None:
            raise NotRecorded
        self.written = written

    @contextlib.contextmanager
    def _still_open(self, tx: object) -> Iterator[None]:
        """The savepoint is there, or the body has ended the transaction itself: then trying again doubles its rows."""
        try:
            yield
        except (Refused, StoreUnusable, StoreUnavailable) as error:
            self.ended = ended_inside(tx, error, is_served=self._db.driver.notifies)
            raise


class NotRecorded(StepwellError):  # noqa: N818 - a word of ours, never seen by users
    """The turn does not stand any more, or the step has a result."""
