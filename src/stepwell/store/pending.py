"""Operations that wait to be written, the lanes in which they wait for a connection, and the limit on their size."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from stepwell.errors import StepwellError, StoreUnavailable
from stepwell.store.audit import Note
from stepwell.store.driver import Row, Value
from stepwell.store.rows import StepRow, Wish

MOST_OPERATIONS: Final = 500
MOST_BYTES: Final = 8 * 1024 * 1024
MOST_PENDING_BYTES: Final = 8 * MOST_BYTES
MOST_ASIDE_BYTES: Final = MOST_BYTES  # of operations that wait for another transaction; the others keep their room


@dataclass(frozen=True, slots=True)
class Answer:
    """The database's answer to one operation; None if the row did not come back.

    `repeated` is True if an earlier try whose reply was lost may have been written.
    """

    value: str | None
    repeated: bool
    number: int | None = None  # of a task that was handed over: when it was claimed


@lru_cache(maxsize=64)  # statuses are few; but that a task was handed over is told with a moment of its own
def answer_of(value: str | None, number: int | None, repeated: bool) -> Answer:
    """An answer, mostly one that was given before."""
    return Answer(value, repeated, number)


Heard = Callable[[Answer | BaseException], None]
RowId = int | tuple[int, str]  # a task, or a step of one
Key = tuple[int, str]  # of a queue
GroupKey = tuple[int, str]  # of an ordered group: its queue, and its key there
Group = tuple[int, str, str]  # of a queue: an ordered group, marked as one
Need = int | Key | Group  # the row of a task, a key, or an ordered group


class Operation(msgspec.Struct, eq=False):
    """One row of the next flush, and the caller waiting for it."""

    statement: str
    row: tuple[Value, ...]
    row_id: RowId  # at most one operation per row and flush: a statement cannot change a row twice
    size: int
    within: float | None = None  # seconds until its caller is told that the outcome is unknown; None: no limit
    worker: int | None = None  # the session that writes it
    lane: int | None = None  # the task it concerns, if that exists: such operations are written in their order
    # Rows are written in this order, so that two flushes never deadlock; an operation whose order begins with its task
    # may have an order of its own.
    order: tuple[Value, ...] = ()
    parent: int | None = None  # another task whose row it changes too, together with other operations
    key: Key | None = None  # that it takes, or finds taken: it waits until the transaction that takes the key has ended
    group: GroupKey | None = None  # the ordered group that it adds to or takes from: it waits for others who do so
    adds_to: int | None = None  # the queue that has a task to claim when it is written
    restarts: bool = False  # its task: the records of earlier generations are removed
    ends_run: bool = False  # its task, perhaps before its steps: those that are being executed are closed
    steps: Sequence[tuple[Value, ...]] = ()  # of its task, written with it: one operation, so no bisection splits them
    notes: Sequence[Note] = ()  # for the audit, if it is written
    row_again: tuple[Value, ...] | None = None  # in place of `row`, if it has to be repeated by another statement
    repeated: bool = False
    trouble: StepwellError | None = None  # why it was last repeated
    taken: bool = False  # by a flush: from then on it may have been written
    answered: bool = False
    aside: bool = False  # in no lane: it waits for another transaction, or behind an operation that does
    heard: Heard | None = None  # called with the answer, or with the error ...
    future: asyncio.Future[Answer] | None = None  # ... or the future that a caller awaits

    @property
    def needs(self) -> frozenset[Need]:
        """The rows and the key for which it may have to wait: its task, its parent, its own key and group."""
        own = self.own
        return own if self.parent is None else own | {self.parent}

    @property
    def own(self) -> frozenset[Need]:
        """What no later operation may lock before it: its task or its key, and its group."""
        group = None if self.group is None else (*self.group, "group")
        first = self.key if self.lane is None else self.lane
        return frozenset([need for need in (first, group) if need is not None])


class LateWrite(Protocol):
    """The write of a step of which its run was told before it is in the database: nothing may act on it until then."""

    async def written(self) -> None:
        """Return when it is there; raises if it is not."""

    def taken_in(self) -> StepRow | None:
        """The row, to be written with the end of its run; None if a flush may have it already."""


class Lane:
    """The operations waiting for one connection, and whether they are being written."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.rests = asyncio.Event()  # nothing waits, and nothing is being written
        self.rests.set()
        self.pending: collections.deque[Operation] = collections.deque()
        self.under_way: list[Operation] = []
        self.tasks: dict[int, int] = {}  # how many operations of each task wait here, or are under way
        self.lost_since: float | None = None
        self.trouble: StepwellError | None = None  # why its last flush was not written, if it was not

    def append(self, operation: Operation) -> None:
        """Let the operation wait behind the others."""
        self.pending.append(operation)
        if (task := operation.lane) is not None:
            self.tasks[task] = self.tasks.get(task, 0) + 1

    def left(self, operations: Iterable[Operation]) -> None:
        """Remove these operations."""
        for operation in operations:
            if (task := operation.lane) is None:
                continue
            if (count := self.tasks[task]) == 1:
                del self.tasks[task]
            else:
                self.tasks[task] = count - 1

    def take(self) -> list[Operation]:
        """The next batch: in order, within the limits, no row twice. A second operation on a row, and all later ones on
        that row, stay for the next flush. But several operations of one statement may change the row of one parent, if
        no other operation does: the statement counts them and changes the row once.
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
    """A limit on the bytes that wait to be written; an operation that needs more than is free waits its turn."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = size
        self._waiting: collections.deque[tuple[int, asyncio.Future[None]]] = collections.deque()

    def takes(self, size: int) -> bool:
        """Take the room if it is free and no operation waits for it."""
        size = min(size, self._size)
        if self._waiting or size > self._free:
            return False
        self._free -= size
        return True

    def overdraw(self, size: int) -> None:
        """Take the room whether or not it is free."""
        self._free -= min(size, self._size)

    async def take(self, size: int, within: float | None) -> None:
        """Wait until there is room, first come first served; an operation larger than the whole room takes it all."""
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
        """Free the room and admit the operations that fit."""
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


REQUESTS: Final = "control_requests"  # the statement that reads the requests for the turns of some sessions
# Called with a request and the turns it is for, by task.
Requested = Callable[[Wish, Mapping[int, int]], object]


def tell_requests(rows: Iterable[Row], told: Requested) -> None:
    """Tell what was read: first the cancels, since a cancelled task need not be paused."""
    asked: dict[Wish, dict[int, int]] = {Wish.CANCEL: {}, Wish.PAUSE: {}}
    for row in rows:
        turns = asked[Wish(row["answer"])]
        turns[row["id"]] = max(row["number"], turns.get(row["id"], 0))  # of two turns, the one that may be executed now
    for wish, turns in asked.items():
        if turns:
            told(wish, turns)


def no_listener(wish: Wish, turns: Mapping[int, int]) -> None:
    """A listener that does nothing."""
