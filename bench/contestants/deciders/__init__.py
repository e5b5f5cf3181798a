"""The contestants' deciders, and their read models: a row with the sum of each instance.

One file for each; what is said here must be known without importing any of them.
"""

from collections.abc import Mapping
from typing import Any, Protocol


class Deciders(Protocol):
    """A contestant's deciders as the workloads use them: an input adds one, as an event, to an instance's sum."""

    api: Mapping[str, str]  # for `decide`, `decide_in_turn`, `replay`: the call that is measured, its settings
    events: str  # SQL: how many events are recorded

    async def install(self) -> None:
        """Make tables; raises `NotDurable` if its commits would not survive."""

    async def begin(self, instances: int) -> None:
        """Have so many instances, each with one event."""

    async def decide(self, count: int) -> None:
        """Send `count` inputs to the instances in turn, from as many callers as is best; each event is committed."""

    async def decide_in_turn(self, count: int) -> None:
        """The same from one caller, who sends the next when the one before is committed."""

    async def record(self, instances: int, each: int) -> None:
        """Have so many instances with so many events each, all of version 1 of their class, and no snapshot."""

    async def replay(self) -> list[int]:
        """The sum of each instance, read from all of its events by code that has version 1 of their class."""

    async def replay_old(self) -> list[int]:
        """The same by code that has version 3, and two upcasters that lead there: each adds a field."""

    async def sums(self) -> list[int]:
        """The sum of each instance, read from its events by somebody who knows nothing of it."""

    async def modelled(self) -> list[int]:
        """The sum of each instance, as its row of the read model says."""

    async def close(self) -> None:
        """Let go of everything."""


def with_unit(old: dict[str, Any]) -> dict[str, Any]:
    """From version 1 of an event to version 2, by hand."""
    return {**old, "unit": "one"}


def with_by(old: dict[str, Any]) -> dict[str, Any]:
    """From version 2 to version 3."""
    return {**old, "by": "nobody"}
