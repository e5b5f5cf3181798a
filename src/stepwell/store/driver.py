"""The seam between the store and a database.

A driver knows how to run named statements on its database, in one transaction, and which of three things an error
means. It holds no policy: what to repeat, what to isolate and what to report is decided above it, once for all drivers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from stepwell.errors import Refused, StoreLocked

T = TypeVar("T")
LOCKS: Final = 0.1  # seconds to wait for a lock: what is not free by then is held by a transaction that stays open
Value = str | int | float | bool | None
Statement = tuple[str, Any]  # its text, and its values as the database's own driver takes them
Row = Any  # indexed by column name or place; every driver has its own class for it
# Parts of a flush return `id` and `answer`; these return a number beside that, as `number`.
NUMBERED: Final = frozenset(("hand_over", "control_requests"))


@dataclass(frozen=True, slots=True)
class Call:
    """A named statement with its values; `fed_by` takes the rows that an earlier call of the flush returned.

    With both `rows` and `fed_by` it takes those of its own rows that the earlier call answered: each begins with a task
    and the answer it needs, or null for any.
    With `bulk`, which only a script may say, many rows, given as `Columns`, are written by the fastest way there is;
    nothing comes back.
    """

    statement: str
    params: Mapping[str, Value] = field(default_factory=dict)
    rows: Sequence[Sequence[Value]] | None = None
    fed_by: int | None = None
    bulk: bool = False


@dataclass(frozen=True, slots=True)
class Ddl:
    """A schema statement, run as it is."""

    text: str


# A transaction written as a conversation: it yields calls and is sent their rows; that a statement was refused, or
# waited too long for a lock, is thrown in.
# So the same script is driven on a loop (Postgres) and inside the writer thread (SQLite), where no slow or blocked
# event loop can hold the file's only write lock.
Script = Generator[Call | Ddl, list[Row], T]


def play(talk: Script[T], answer: Callable[[Call | Ddl], list[Row]]) -> T:
    """Hold a script's conversation to its end, answering each call in this thread."""
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
    """Hold a script's conversation to its end, awaiting the answer to each call."""
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


SAVEPOINT: Final = Call("savepoint")  # the first call that a join is to answer


@dataclass(frozen=True, slots=True)
class SyncJoin:
    """The user's own connection, to be used in the user's thread: how it answers a call."""

    answer: Callable[[Call | Ddl], list[Row]]


@dataclass(frozen=True, slots=True)
class AsyncJoin:
    """The user's own connection, to be used on the user's loop: how it answers a call."""

    answer: Callable[[Call | Ddl], Awaitable[list[Row]]]


@dataclass(frozen=True, slots=True)
class Own:
    """A transaction that the driver has begun for whoever asked: how it answers calls, and statements of the user's."""

    connection: Any
    answer: Callable[[Call | Ddl], Awaitable[list[Row]]]
    execute: Callable[[str, Sequence[Any]], Awaitable[list[Row]]]


class Pulse(Protocol):
    """The heartbeat's own way to the database, used from its own thread."""

    def run(self, calls: Sequence[Call], timeout: float) -> list[list[Row]]:
        """Run the calls in one transaction, waiting for the answer at most this long."""

    def close(self) -> None:
        """Let go of the connection."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Word that these queues may have something to claim and these runs may be finished; `sender` is who says so.

    None is all of them. With a `probe` it says nothing of either: it is the sender asking whether it can hear itself.
    With `gone` it is word that a worker's process has ended: there may be something to recover.
    """

    sender: str
    queues: frozenset[int] | None = None
    probe: int | None = None
    finished: frozenset[int] | None = frozenset()
    gone: bool = False


class Ear(Protocol):
    """An open way by which hints of other processes come in."""

    async def close(self) -> None:
        """Hear nothing more; never raises, and does not wait for long."""


Heard = Callable[[Hint], None]
Lost = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outside:
    """How a process that knows nothing of stepwell reaches the database and says these calls to it."""

    kind: str  # which driver it takes
    address: str = field(repr=False)  # it may have a password
    lock: str | None  # a file on which the writers queue
    calls: Sequence[Sequence[Statement]]
    hint: Sequence[Statement]  # none where who listens hears of every commit


class Driver(Protocol):
    """One database, open. Raises only the errors below, each from the original one.

    `Refused`: the database will not have this row; nothing of the transaction was written.
    `StoreBusy`: it lost a race for a lock; nothing was written and the same may succeed at once.
    `StoreLocked`, one of these: it waited too long for a lock that somebody else's transaction holds.
    `StoreUnavailable`: the connection or its deadline was lost; whether it was written is unknown.
    `StoreUnusable`: nothing was written and nothing ever will be; a person has to look.
    """

    name: str
    flush_slots: int  # how many flushes may be under way at once; slot n of a session's fence belongs to flush n
    key_slot: int | None  # the flush of what may wait for a key until somebody else's transaction ends; None: as others
    claims_many_queues: bool  # one claim statement serves several queues
    flush_beats: bool  # every flush is also a heartbeat: the beat would have to wait for the same writer
    guards: SessionGuards
    hears_others: bool  # other processes may have the database open, and `listen` tells what they add
    notifies: bool  # they hear only what they are told with `notify`, and one can listen to oneself

    @property
    def pooled(self) -> bool:
        """Whether a pooler stands between, so that nothing can be kept from one transaction to the next."""

    async def open(self) -> None:
        """Connect; the database is reachable when this returns."""

    async def close(self) -> None:
        """Let go of every connection."""

    async def run(self, slot: int, calls: Sequence[Call]) -> list[list[Row]]:
        """Run the calls in one transaction and, where the database allows, one round trip.

        Several calls see one snapshot: none sees what another of them wrote, except through `fed_by`.
        """

    async def transact(
        self, script: Callable[[], Script[T]], *, timeout: float | None = None, patience: float | None = None
    ) -> T:
        """Play a script in one transaction, each call in a snapshot of its own; an exception rolls it back.

        It waits for a lock for `patience` seconds, then `StoreLocked` is thrown in. Without `patience` a script that
        lets that out is played again, having held nothing meanwhile, until half of its time is over.
        """

    async def read(self, call: Call) -> list[Row]:
        """Run a statement that writes nothing, beside whatever is being written."""

    async def write(self, call: Call) -> list[Row]:
        """Run one statement in a transaction of its own, and where the database allows in one round trip."""

    def transaction(self, idle: float | None = None) -> AbstractAsyncContextManager[Own]:
        """Begin a transaction of its own, which is committed at the end of the block, or undone by an exception.

        With `idle`, the server ends it when nothing was said in it for so many seconds, where there is a server.
        """

    def pulse(self) -> Pulse:
        """Open the heartbeat's own way to the database."""

    async def listen(self, heard: Heard, lost: Lost) -> Ear:
        """Hear the hints of other processes, on the loop of this call, until `lost` is told why it ended.

        Where `notifies` holds, one's own are heard too. Not to be called where `hears_others` is false.
        """

    async def notify(self, hint: Hint) -> None:
        """Tell a hint to whoever listens, in a transaction of its own; nothing to do unless `notifies`."""

    def outside(self, calls: Sequence[Call], hint: Hint) -> Outside | None:
        """The calls and the hint as another process can say them; None where none can open the database."""

    def join(self, tx: object) -> SyncJoin | AsyncJoin:
        """Take part in a transaction on the user's own connection; nothing is begun, committed or changed on it."""


class SessionGuards(Protocol):
    """Proof, where the database lives in a file on this host, that a session's process is gone."""

    def hold(self, worker_id: int) -> None:
        """Show others that this session's process lives."""

    def release(self, worker_id: int) -> None:
        """Stop showing it."""

    def proves_dead(self, worker_id: int) -> bool:
        """True only if the session's process is certainly gone; False proves nothing."""


class NoGuards:
    """For a database that other hosts share: only the lease tells."""

    def hold(self, worker_id: int) -> None:
        """Nothing to show."""

    def release(self, worker_id: int) -> None:
        """Nothing was shown."""

    def proves_dead(self, worker_id: int) -> bool:
        """Nothing is proved."""
        return False
