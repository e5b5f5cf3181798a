"""Inputs that wait for their decision, and what a process knows of the instances they are for."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import Any, Final, NamedTuple, Self

import msgspec

from stepwell.decider import Receipt
from stepwell.family import Family
from stepwell.records import Settlement

Place = tuple[str, str]  # an instance, by its type and id
REMEMBERED: Final = 10_000


class Turn(NamedTuple):
    """A task that an input came with: it is settled together with what was decided."""

    task_id: int
    worker: int
    number: int
    settlement: Settlement
    timer_key: str | None = None  # if it is a timer with a key: as the decider named it


class Pending(msgspec.Struct, eq=False):
    """An input, and who waits for what becomes of it."""

    family: Family
    id: str  # of its instance
    input: Any
    cause: str  # given before its first try: its events carry it, so that a repeat finds them
    key: str | None = None
    window: int | None = None  # microseconds for which the key counts; None: for as long as it is kept
    turn: Turn | None = None
    answer: asyncio.Future[Receipt] | None = None
    within: float | None = None  # seconds until its caller is told that nobody knows; None: however long it takes
    since: float = 0.0  # by the loop's clock
    base: int | None = None  # the version that its instance had when it was first tried, if it may have been decided

    @property
    def place(self) -> Place:
        """Its instance."""
        return self.family.type, self.id

    def sent_from_outside(self) -> Self:
        """The input, with the key that equal ones share if it has none and its decider wants them to count once."""
        if self.key is None and self.family.dedupe is not None:
            self.key, self.window = self.family.fingerprint(self.input), self.family.dedupe
        return self

    @property
    def is_waited_for(self) -> bool:
        """False if its caller has gone, or was answered."""
        return self.answer is None or not self.answer.done()


class Held(NamedTuple):
    """What is known of an instance: its state after so many events, which stays true whatever happens later."""

    instance_id: int
    version: int
    state: Any
    is_completed: bool
    snapshot_version: int


class Memory:
    """The states of the instances that were used lately."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._held: collections.OrderedDict[Place, Held] = collections.OrderedDict()

    def get(self, place: Place) -> Held | None:
        """What is known of an instance, None if nothing."""
        if (held := self._held.get(place)) is not None:
            with contextlib.suppress(KeyError):  # forgotten just now: another thread may decide
                self._held.move_to_end(place)
        return held

    def put(self, place: Place, held: Held) -> None:
        """Know this from now on, unless more is known already."""
        if (known := self._held.get(place)) is None or known.version <= held.version:
            self._held[place] = held
            self._held.move_to_end(place)
            if len(self._held) > self._most:
                self._held.popitem(last=False)
