"""Whose turn the calling code is: a transaction that a body begins is committed only while its turns stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Final, Protocol, TypeVar

from stepwell.errors import LeaseLost
from stepwell.records import Claimed
from stepwell.store.driver import Call, Script

T = TypeVar("T")


class Holder(Protocol):
    """A worker's session."""

    id: int
    lost: bool
    lease: float

    @property
    def held(self) -> Mapping[int, int]:
        """The turn of each task that it has."""


class Turns:
    """The turns of the tasks whose body is executed: of one task, or of a batch."""

    __slots__ = ("_session", "_tasks")

    def __init__(self, session: Holder, tasks: Sequence[Claimed]) -> None:
        self._session = session
        self._tasks = tasks

    @property
    def are_lost(self) -> bool:
        """Whether the session is known to be dead: others have its tasks."""
        return self._session.lost

    @property
    def lease(self) -> float:
        """Seconds that the session may be silent before others take them."""
        return self._session.lease

    @property
    def are_held(self) -> bool:
        """Whether the session still has them all: none was closed."""
        held = self._session.held
        return all(held.get(task.id) == task.turn for task in self._tasks)

    def kept(self) -> Script[None]:
        """Keep the turns from everybody else until the transaction ends; its last statement before the commit."""
        yield from self._standing("keep_turns")

    def before(self, talk: Script[T]) -> Script[T]:
        """The same script, if the turns stand when it begins; else nothing is written."""
        yield from self._standing("check_turns")
        return (yield from talk)

    def lost(self) -> LeaseLost:
        """What whoever goes on after the turns are lost is told."""
        return LeaseLost(self._session.id, self._tasks[0].id)

    def _standing(self, statement: str) -> Script[None]:
        rows = [(task.id, self._session.id, task.turn) for task in self._tasks]
        if len((yield Call(statement, {}, rows))) < len(rows):
            raise self.lost()


executing: Final[ContextVar[Turns | None]] = ContextVar("stepwell_executing", default=None)


def turns_here() -> Turns | None:
    """The turns for which the calling code speaks; None outside of bodies.

    Nor for a task that a body left behind, and that goes on after its end was written: nobody else executes that turn.
    Raises `LeaseLost` in a body whose session is known to be dead.
    """
    turns = executing.get()
    if turns is None:
        return None
    if turns.are_lost:
        raise turns.lost()
    return turns if turns.are_held else None
