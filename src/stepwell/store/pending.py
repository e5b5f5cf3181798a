"""What waits to be written: operations, the lanes in which they wait for a connection, and how much there may be."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from stepwell.errors import StepwellError, StoreUnavailable
from stepwell.store.audit import Note
from stepwell.store.driver import Row, Value
from stepwell.store.rows import Wish

MOST_OPERATIONS: Final = 500
MOST_BYTES: Final = 8 * 1024 * 1024
MOST_PENDING_BYTES: Final = 8 * MOST_BYTES
MOST_ASIDE_BYTES: Final = MOST_BYTES  # of what waits for somebody else's transaction, so that it takes nobody's room


@dataclass(frozen=True, slots=True)
class Answer:
    """What the database said of one operation: its answer, None if the row did not come back.

    `repeated` is True if an earlier try may have been written without our hearing of it.
    """

    value: str | None
    repeated: bool
    number: int | None = None  # of a task that was handed over: when it was claimed


Heard = Callable[[Answer | BaseException], None]
RowId = int | tuple[int, str]  # a task, or a step of one
Key = tuple[int, str]  # of a queue
Need = int | Key  # the row of a task, or a key


class Operation(msgspec.Struct, eq=False):
    """One row of the next flush, and the caller waiting for it."""

    statement: str
    row: tuple[Value, ...]
    row_id: RowId  # at most one operation per row and flush: a statement cannot change a row twice
    size: int
    within: float | None = None  # seconds until its caller is told that nobody knows; None: however long it takes
    worker: int | None = None  # the session that writes it
    lane: int | None = None  # the task it concerns, if that exists: all such are written in the order they came in
    # Rows are written in this order, so that two flushes never wait for each other; one that begins with its task may
    # be its own.
    order: tuple[Value, ...] = ()
    parent: int | None = None  # another task whose row it changes too, together with others that do
    key: Key | None = None  # that it takes, or finds taken: it waits until whoever is taking it has committed
    adds_to: int | None = None  # the queue that has something to claim when it is written
    restarts: bool = False  # its task: what earlier generations of it recorded is removed
    ends_run: bool = False  # its task, perhaps before its steps: those that are being executed are closed
    steps: Sequence[tuple[Value, ...]] = ()  # of its task, written if it is: one operation, so nothing takes them apart
    notes: Sequence[Note] = ()  # what the audit is to say of it, if it is written
    row_again: tuple[Value, ...] | None = None  # in place of `row`, if it has to be repeated by another statement
    repeated: bool = False
    trouble: StepwellError | None = None  # why it was last repeated
    taken: bool = False  # into a flush: from then on it may have been written
    answered: bool = False
    aside: bool = False  # in no lane: it waits for somebody else's transaction, or behind one that does
    heard: Heard | None = None  # who is told the answer, or why there is none ...
    future: asyncio.Future[Answer] | None = None  # ... or who waits for it

    @property
    def needs(self) -> frozenset[Need]:
        """The rows and the key for which it may have to wait: its task's, its parent's, its own key."""
        return frozenset([need for need in (self.lane, self.parent, self.key) if need is not None])


class Lane:
    """The operations waiting for one connection."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.pending: collections.deque[Operation] = collections.deque()
        self.under_way: list[Operation] = []
        self.tasks: dict[int, int] = {}  # how many operations of each task wait here, or are under way
        self.task: asyncio.Task[None] | None = None
        self.lost_since: float | None = None
        self.trouble: StepwellError | None = None  # why its last flush was not written, if it was not

    def append(self, operation: Operation) -> None:
        """Have the operation wait behind the others."""
        self.pending.append(operation)
        if (task := operation.lane) is not None:
            self.tasks[task] = self.tasks.get(task, 0) + 1

    def left(self, operations: Iterable[Operation]) -> None:
        """These are not here any more."""
        for operation in operations:
            if (task := operation.lane) is None:
                continue
            if (count := self.tasks[task]) == 1:
                del self.tasks[task]
            else:
                self.tasks[task] = count - 1

    def take(self) -> list[Operation]:
        """The next batch: in order, within the limits, no row twice. A second operation on a row, and whatever
        follows it on that row, stays for the next flush; but several of one statement may change the row of one
        parent, if nobody else does: they are counted and change it once.
        """
        batch: list[Operation] = []
        postponed: list[Operation] = []
        rows: set[RowId] = set()
        parents: dict[RowId, str] = {}
        size = 0
        while self.pending and len(batch) < MOST_OPERATIONS:
            operation = self.pending[0]
            if batch and size + operation.size > MOST_BYTES:
                break
            self.pending.popleft()
            if operation.answered:
                self.left((operation,))
                continue
            parent = operation.parent
            in_use = parent is not None and (
                parent in rows or parents.get(parent, operation.statement) != operation.statement
            )
            if in_use or operation.row_id in rows or operation.row_id in parents:
                rows.add(operation.row_id)
                postponed.append(operation)
                continue
            rows.add(operation.row_id)
            if parent is not None:
                parents[parent] = operation.statement
            operation.taken = True
            batch.append(operation)
            size += operation.size
        self.pending.extendleft(reversed(postponed))
        return batch


class Room:
    """A bound on the bytes that wait to be written; whoever wants more than is free waits its turn."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = size
        self._waiting: collections.deque[tuple[int, asyncio.Future[None]]] = collections.deque()

    def takes(self, size: int) -> bool:
        """Take the room if it is free and nobody waits for it."""
        size = min(size, self._size)
        if self._waiting or size > self._free:
            return False
        self._free -= size
        return True

    def overdraw(self, size: int) -> None:
        """Take the room whether or not it is free."""
        self._free -= min(size, self._size)

    async def take(self, size: int, within: float | None) -> None:
        """Wait until there is room, first come first served; what is larger than all the room takes it all."""
        size = min(size, self._size)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            async with asyncio.timeout(within):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(size)
            turn.cancel()
            if isinstance(error, TimeoutError):
                raise StoreUnavailable(f"too much was waiting to be written for {within:g} s") from error
            raise

    def give_back(self, size: int) -> None:
        """Free the room and let in who fits."""
        self._free += min(size, self._size)
        while self._waiting:
            wanted, turn = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
            elif wanted <= self._free:
                self._waiting.popleft()
                self._free -= wanted
                turn.set_result(None)
            else:
                return


REQUESTS: Final = "control_requests"  # the statement that reads what is asked of the turns of some sessions
# Told what is asked of which turns, by task.
Requested = Callable[[Wish, Mapping[int, int]], object]


def tell_requests(rows: Iterable[Row], told: Requested) -> None:
    """Tell what was read: first what is to be cancelled, since that need not be paused."""
    asked: dict[Wish, dict[int, int]] = {Wish.CANCEL: {}, Wish.PAUSE: {}}
    for row in rows:
        turns = asked[Wish(row["answer"])]
        turns[row["id"]] = max(row["number"], turns.get(row["id"], 0))  # of two turns, the one that may be under way
    for wish, turns in asked.items():
        if turns:
            told(wish, turns)


def nobody(wish: Wish, turns: Mapping[int, int]) -> None:
    """Nobody has to be told."""
