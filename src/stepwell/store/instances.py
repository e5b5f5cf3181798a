"""Instances of deciders in the store: what a query asks for, how an instance stands, what a decision changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from stepwell.store.draft import Drafted
from stepwell.store.emission import Emission
from stepwell.store.inline import InlineFold
from stepwell.store.pending import GroupKey
from stepwell.store.rows import Settlement

TimerKey = tuple[str, str]  # a queue's name, and the key of a timer in it


class EventRow(NamedTuple):
    """An event as it stands in an instance's stream."""

    version: int
    type: str
    type_version: int
    data: str
    cause: str | None
    position: int = 0
    recorded_at: int = 0


class ReceiptRow(NamedTuple):
    """The answer to an input: `applied` or `completed`, and the numbers of its events."""

    outcome: str
    first: int | None
    last: int | None
    at: int = 0


class Delivery(NamedTuple):
    """The turn of a task that delivered an input: the task is settled in the transaction of the decision."""

    task_id: int
    worker: int
    turn: int
    settlement: Settlement
    timer_key: str | None = None  # if it is a timer with a key: the decider's name for it
    group: GroupKey | None = None  # the ordered group of the task, if it has one ...
    takes_along: bool = False  # ... and whether tasks behind it are decided with it


class Follower(NamedTuple):
    """A task that stood behind one that was delivered, taken in the transaction of the decision."""

    task_id: int
    worker: int
    turn: int
    group: GroupKey
    input: str
    headers: str | None = None


class InstanceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """An instance to read, and what to read about the inputs that wait for it."""

    type: str
    name: str
    schema: int  # of the snapshots that this code can read
    known: int | None = None  # the version whose state is known
    until: int | None = None  # the last version to read; None for the latest
    keys: tuple[str, ...] = ()
    lost: tuple[tuple[str, int], ...] = ()  # inputs that may have been decided: their cause, and after which version
    deliveries: tuple[Delivery, ...] = ()


class Instance(msgspec.Struct, kw_only=True):
    """An instance as it stands, with its events from the known version, or from its snapshot, up to its version."""

    id: int
    type: str
    name: str
    version: int
    now: int
    is_completed: bool
    is_made: bool  # just now: it has no events yet
    base: int  # the version of the state that the events apply to ...
    snapshot: str | None  # ... and that state; None if it is the known one, or the initial one
    snapshot_version: int
    tail: list[EventRow] = msgspec.field(default_factory=list)
    receipts: dict[str, ReceiptRow] = msgspec.field(default_factory=dict)  # by key
    applied: dict[str, ReceiptRow] = msgspec.field(default_factory=dict)  # by cause, of the lost inputs
    open_tasks: set[int] = msgspec.field(default_factory=set)  # of the deliveries: those that their turn still holds
    followers: list[Follower] = msgspec.field(default_factory=list)  # the tasks behind them, in their order


class NewEvent(NamedTuple):
    """An event to be appended: the row set of `append_events`."""

    instance_id: int
    version: int
    type: str
    type_version: int
    data: str
    cause: str


class NewReceipt(NamedTuple):
    """A receipt to be kept: the row set of `add_receipts`."""

    instance_id: int
    key: str
    outcome: str
    first_version: int | None
    last_version: int | None


class NewObservation(NamedTuple):
    """What is recorded of an observed input: the row set of `add_observations`."""

    type: str
    name: str
    input: str
    input_version: int
    data: str | None
    outcome: str
    from_status: str | None
    to_status: str | None
    first_version: int | None
    last_version: int | None
    error: str | None
    key: str | None
    cause: str


class NewInstanceTask(NamedTuple):
    """An effect or a timer to be added: the row set of `add_of_instances`, but for its id."""

    kind: str
    queue_id: int
    run_at: int | None
    max_attempts: int
    key: str | None
    input: str
    instance_id: int
    inside: int  # 1 if a delivered task led to it: a queue that is being drained accepts it
    headers: str | None = None


class Change(msgspec.Struct, kw_only=True):
    """The rows that a decision writes about one instance."""

    id: int
    now: int  # when it was decided, by the database's clock
    before: int
    after: int
    is_made: bool = False
    snapshot: str | None = None
    snapshot_schema: int | None = None
    completed: bool = False
    events: list[NewEvent] = msgspec.field(default_factory=list)
    receipts: list[NewReceipt] = msgspec.field(default_factory=list)
    remembered: int | None = None  # of receipts that stand for contents, keep so many, the last ones; None: all
    cancelled: list[int] = msgspec.field(default_factory=list)  # timers
    tasks: list[NewInstanceTask] = msgspec.field(default_factory=list)
    settled: list[Delivery] = msgspec.field(default_factory=list)
    observed: list[NewObservation] = msgspec.field(default_factory=list)


class Ruling(Protocol):
    """The result of a decision: changes of the instances, and the messages and runs that it adds."""

    @property
    def changes(self) -> Sequence[Change]:
        """One for each instance."""

    @property
    def drafted(self) -> Sequence[Drafted]:
        """Messages and runs, checked and encoded."""

    @property
    def emissions(self) -> Sequence[Emission]:
        """Events for the outside world."""

    @property
    def inline(self) -> Sequence[InlineFold]:
        """The projections whose rows the events change, in the same transaction."""


R_co = TypeVar("R_co", bound=Ruling, covariant=True)


class Proposed(Protocol[R_co]):
    """A decision before it is known which of its timers exist."""

    @property
    def timers(self) -> Sequence[TimerKey]:
        """The timers to replace or cancel, if they exist."""

    def conclude(self, pending: Mapping[str, int], queues: Mapping[str, int]) -> R_co:
        """The rows to write: `pending` are the tasks of the timers by key, `queues` the numbers of queues by name."""


class Deliberation(Protocol[R_co]):
    """What is decided between reading instances and writing them; if it is called again, it decides again."""

    @property
    def queries(self) -> Sequence[InstanceQuery]:
        """The instances."""

    @property
    def queues(self) -> Sequence[str]:
        """The queues of their effects and timers."""

    def take_along(self, instances: Sequence[Instance]) -> Sequence[tuple[int, str]]:
        """Add the inputs of the followers to those that are decided; the keys of these, each with its instance."""

    def propose(self, instances: Sequence[Instance]) -> Proposed[R_co]:
        """Decide on the instances as they stand."""
