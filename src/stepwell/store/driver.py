"""The interface between the store and a database.

A driver runs named statements on its database, in one transaction, and translates errors. It holds no policy: the
code above it, the same for all drivers, decides what to repeat, what to isolate and what to report.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, Protocol, TypeVar, overload

from stepwell.errors import InvalidOption, Refused, StoreLocked

T = TypeVar("T")
LOCKS: Final = 0.1  # seconds to wait for a lock: one that is not free by then belongs to a transaction that stays open
Value = str | int | float | bool | None
Statement = tuple[str, Any]  # its text, and its values as the database's own driver takes them
Row = Any  # indexed by column name or position; every driver has its own class for it
# Parts of a flush return `id` and `answer`; these also return a number, as `number`.
NUMBERED: Final = frozenset(("hand_over", "control_requests", "add_reports"))


@dataclass(frozen=True, slots=True)
class Call:
    """A named statement with its values; `fed_by` names an earlier call of the flush whose rows it takes.

    With both `rows` and `fed_by` it takes those of its own rows that the earlier call answered: each begins with a task
    and the answer it needs, or null for any.
    With `bulk`, which only a script may set, it writes many rows, given as `Columns`, in the fastest way; it returns no
    rows.
    """

    statement: str
    params: Mapping[str, Value] = field(default_factory=dict)
    rows: Sequence[Sequence[Value]] | None = None
    fed_by: int | None = None
    bulk: bool = False


@dataclass(frozen=True, slots=True)
class Same:
    """A column with one value for all rows."""

    value: Value


class Columns(Sequence[tuple[Value, ...]]):
    """Rows as columns, for rows that are equal in most of them; a row is made when it is read.

    At least the first column has a value for each row.
    """

    def __init__(self, columns: Sequence[Same | Sequence[Value]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        first = self.columns[0]
        assert not isinstance(first, Same)
        return len(first)

    def __iter__(self) -> Iterator[tuple[Value, ...]]:
        # Zipped without Python code for each row: a tenth of a microsecond for each row, not a half.
        endless = (repeat(column.value) if isinstance(column, Same) else column for column in self.columns)
        return zip(*endless)  # noqa: B905 - what is repeated has no end

    @overload
    def __getitem__(self, place: int) -> tuple[Value, ...]: ...
    @overload
    def __getitem__(self, place: slice) -> list[tuple[Value, ...]]: ...
    def __getitem__(self, place: int | slice) -> tuple[Value, ...] | list[tuple[Value, ...]]:
        return list(self)[place]


@dataclass(frozen=True, slots=True)
class Ddl:
    """A schema statement, run as it is."""

    text: str


# A transaction written as a generator: it yields calls and receives their rows. An error is thrown into it if a
# statement was refused, or waited too long for a lock.
# So the same script runs on a loop (Postgres) and in the writer thread (SQLite), where no slow or blocked event loop
# can hold the file's only write lock.
Script = Generator[Call | Ddl, list[Row], T]


def play(talk: Script[T], answer: Callable[[Call | Ddl], list[Row]]) -> T:
    """Run a script to its end, and answer each call in this thread."""
    try:
        call = next(talk)
        while True:
            try:
                rows = answer(call)
            except (Refused, StoreLocked) as refusal:
                call = talk.throw(refusal)
            else:
                call = talk.send(rows)
    except StopIteration as end:
        value: T = end.value
        return value


async def play_async(talk: Script[T], answer: Callable[[Call | Ddl], Awaitable[list[Row]]]) -> T:
    """Run a script to its end, and await the answer to each call."""
    try:
        call = next(talk)
        while True:
            try:
                rows = await answer(call)
            except (Refused, StoreLocked) as refusal:
                call = talk.throw(refusal)
            else:
                call = talk.send(rows)
    except StopIteration as end:
        value: T = end.value
        return value


# Why the code that runs here must not write through a store: a projection only reads. None anywhere else.
only_reads: Final[ContextVar[str | None]] = ContextVar("stepwell_only_reads", default=None)


def refused_write() -> InvalidOption:
    """The error for code that only reads, and would write."""
    return InvalidOption("tx", None, only_reads.get() or "")


SAVEPOINT: Final = Call("savepoint")  # the first call that a join has to answer


@dataclass(frozen=True, slots=True)
class SyncJoin:
    """The user's own connection, used in the user's thread: how it answers a call."""

    answer: Callable[[Call | Ddl], list[Row]]


@dataclass(frozen=True, slots=True)
class AsyncJoin:
    """The user's own connection, used on the user's loop: how it answers a call."""

    answer: Callable[[Call | Ddl], Awaitable[list[Row]]]


@dataclass(frozen=True, slots=True)
class Own:
    """A transaction that the driver has begun for a caller: how it answers calls and the user's own statements."""

    connection: Any
    answer: Callable[[Call | Ddl], Awaitable[list[Row]]]
    execute: Callable[[str, Sequence[Any]], Awaitable[list[Row]]]


class Pulse(Protocol):
    """The heartbeat's own connection, used from its own thread."""

    def run(self, calls: Sequence[Call], timeout: float) -> list[list[Row]]:
        """Run the calls in one transaction, and wait for the answer at most this long."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Says that these queues may have tasks to claim and these runs may be finished; `sender` is who says so.

    None means all of them. With a `probe` it says nothing of either: the sender tests whether it hears itself.
    With `gone` it says that the process of a worker has ended: there may be tasks to recover. `reported` are runs that
    may have set a value, written to a stream or answered a request.
    """

    sender: str
    queues: frozenset[int] | None = None
    probe: int | None = None
    finished: frozenset[int] | None = frozenset()
    gone: bool = False
    reported: frozenset[int] | None = frozenset()


class Ear(Protocol):
    """A subscription to the hints of other processes."""

    async def close(self) -> None:
        """Stop listening; never raises, and does not wait for long."""


Heard = Callable[[Hint], None]
Lost = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outside:
    """How a process that does not import stepwell connects to the database and runs these calls."""

    kind: str  # which database driver it uses
    address: str = field(repr=False)  # it may hold a password
    lock: str | None  # a file on which the writers queue
    calls: Sequence[Sequence[Statement]]
    hint: Sequence[Statement]  # none if listeners hear of every commit


class Driver(Protocol):
    """One database, open. Raises only the errors below, each from the original one.

    `Refused`: the database will not have this row; nothing of the transaction was written.
    `StoreBusy`: it lost a race for a lock; nothing was written and the same may succeed at once.
    `StoreLocked`, a kind of `StoreBusy`: it waited too long for a lock that another transaction holds.
    `StoreUnavailable`: the connection or its deadline was lost; whether it was written is unknown.
    `StoreUnusable`: nothing was written and repeating will not help; a person has to look.
    """

    name: str
    flush_slots: int  # how many flushes may run at once; slot n of a session's fence belongs to flush n
    claim_slot: int  # of claims, and of transactions that are no flush
    key_slot: int | None  # the flush of rows that may wait for a key until another transaction ends; None: any flush
    claims_many_queues: bool  # one claim statement serves several queues
    flush_beats: bool  # every flush is also a heartbeat: the beat would have to wait for the same writer
    guards: SessionGuards
    hears_others: bool  # other processes may have the database open, and `listen` reports what they add
    notifies: bool  # they hear only what `notify` sends, and a process can listen to itself

    @property
    def pooled(self) -> bool:
        """Whether a pooler is in between, so that nothing can be kept from one transaction to the next."""

    async def open(self) -> None:
        """Connect; the database is reachable when this returns."""

    async def close(self) -> None:
        """Close every connection."""

    async def run(self, slot: int, calls: Sequence[Call]) -> list[list[Row]]:
        """Run the calls in one transaction and, if the database allows it, in one round trip.

        All calls see one snapshot: none sees what another of them wrote, except through `fed_by`. It is awaited in no
        task: what needs one of its own, as `asyncio.timeout` does, it starts and awaits.
        """

    async def transact(
        self, script: Callable[[], Script[T]], *, timeout: float | None = None, patience: float | None = None
    ) -> T:
        """Run a script in one transaction, each call with a snapshot of its own; an exception rolls it back.

        It waits for a lock for `patience` seconds, then `StoreLocked` is thrown into the script. Without `patience`, a
        script that does not catch it is run again, and holds no lock in between, until half of its time is over.
        """

    async def read(self, call: Call) -> list[Row]:
        """Run a statement that writes nothing, without waiting for writers."""

    async def snapshot(self, script: Callable[[], Script[T]]) -> T:
        """Run a script that writes nothing, without waiting for writers; all of its calls see one snapshot."""

    async def write(self, call: Call) -> list[Row]:
        """Run one statement in a transaction of its own and, if the database allows it, in one round trip."""

    def transaction(self, idle: float | None = None) -> AbstractAsyncContextManager[Own]:
        """Begin a transaction of its own. It commits at the end of the block; an exception rolls it back.

        With `idle`, a server ends it when it was idle for this many seconds.
        """

    def transactions(self, idle: float) -> AbstractAsyncContextManager[Callable[[], AbstractAsyncContextManager[Own]]]:
        """Begin one transaction after the other, as `transaction` does, on a connection that is kept in between.

        Each sees what was committed before each of its statements, and waits for no lock longer than `idle`.
        """

    def meaning(self, error: Exception) -> Exception:
        """Which of the errors above an error of the user's own statement is; any other comes back as it is."""

    def pulse(self) -> Pulse:
        """Open the heartbeat's own connection."""

    async def listen(self, heard: Heard, lost: Lost) -> Ear:
        """Hear the hints of other processes, on the loop of this call, until `lost` is called with the reason.

        With `notifies`, a process also hears its own hints. It must not be called if `hears_others` is false.
        """

    async def notify(self, hint: Hint) -> None:
        """Send a hint to all listeners, in a transaction of its own; does nothing unless `notifies`."""

    def outside(self, calls: Sequence[Call], hint: Hint) -> Outside | None:
        """The calls and the hint for another process to run; None if no other process can open the database."""

    def join(self, tx: object) -> SyncJoin | AsyncJoin:
        """Join a transaction on the user's own connection; nothing is begun, committed or changed on it."""


class SessionGuards(Protocol):
    """Proof, if the database is a file on this host, that a session's process is gone."""

    def hold(self, worker_id: int) -> None:
        """Show other processes that this session's process lives."""

    def release(self, worker_id: int) -> None:
        """Stop showing it."""

    def proves_dead(self, worker_id: int) -> bool:
        """True only if the session's process is certainly gone; False proves nothing."""


class NoGuards:
    """For a database that several hosts share: only the lease tells whether a session lives."""

    def hold(self, worker_id: int) -> None:
        """Nothing to show."""

    def release(self, worker_id: int) -> None:
        """Nothing was shown."""

    def proves_dead(self, worker_id: int) -> bool:
        """Nothing is proved."""
        return False
