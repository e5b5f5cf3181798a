"""What a run that is being executed may ask under its own lock, and what it is answered: plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from stepwell.records import Claimed, RunStatus, StepRow
from stepwell.store.draft import Drafted


class Stake(msgspec.Struct, eq=False):
    """What the waits of one race have in common: as soon as one of them is answered the race is over for the others."""

    row: StepRow  # of the race; what it returned is the winner's place
    waits: dict[int, StepRow]  # those that have asked, by their place
    winner: int | None = None


class TakeSignal(msgspec.Struct, frozen=True, eq=False):
    """Has a signal of this name come? If so it is taken, and recorded as what the call returned.

    One that `misfit` cannot read is set aside, and the next is asked for; what it says is added to `misfits`.
    Else, if `due` has passed, it is recorded that none came in time; else `row` is, unless it is there already.
    In a race, an answer also records that this `place` has won; once another has, nothing is taken.
    """

    task: Claimed
    row: StepRow
    name: str
    due: int | None
    is_new: bool
    stake: Stake | None = None
    place: int = 0
    misfit: Callable[[str], str | None] = lambda _: None  # why the data of a signal cannot be read
    misfits: list[str] = msgspec.field(default_factory=list)


class EndRace(msgspec.Struct, frozen=True, eq=False):
    """The contender at `place` is over: record that it has won, unless a wait had won before."""

    task: Claimed
    row: StepRow
    stake: Stake
    place: int


class AddChildren(msgspec.Struct, frozen=True, eq=False):
    """Add these runs as children, and record what `recorded` makes of their ids."""

    task: Claimed
    row: StepRow
    drafted: Drafted
    ids: Sequence[int]
    queues: frozenset[int]
    recorded: Callable[[Sequence[int]], StepRow]


class LookAtChildren(msgspec.Struct, frozen=True, eq=False):
    """Have these runs ended? If so, record what `recorded` makes of that, or of `due` having passed before."""

    task: Claimed
    row: StepRow
    ids: Sequence[int]
    due: int | None
    is_new: bool
    recorded: Callable[[Sequence[End] | None], StepRow]


class CancelRequested(Exception):  # noqa: N818 - a word of ours, never seen by users
    """The question was not asked: somebody has cancelled the run, which is to clean up and has not heard of it."""


Question = TakeSignal | EndRace | AddChildren | LookAtChildren


class End(msgspec.Struct, frozen=True):
    """How a run that was waited for ended; CANCELLED also if it was deleted, or is gone."""

    id: int
    status: RunStatus
    output: str | None = None
    error: str | None = None


class Recorded(msgspec.Struct, frozen=True):
    """The call is answered, and this is recorded of it."""

    row: StepRow
    needed: int | None = None  # as in `Waits`, for the children that were added; None if they may have ended since


class Waits(msgspec.Struct, frozen=True):
    """Not yet: the run may pause, and says what it had seen when it does."""

    wakes: int | None = None
    needed: int | None = None
    foreign: bool = False  # some of them are nobody's children: nobody will be told, so it has to look again


Answered = Recorded | Waits
