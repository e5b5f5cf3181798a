"""What an input of a decider led to in the store of a world, to be asserted: its events, effects and timers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Self

from stepwell.base.durations import Duration, microseconds_of
from stepwell.decider import Receipt
from stepwell.deciders.effects import read_envelope
from stepwell.deciders.proposal import Envelope
from stepwell.deciders.registry import Family
from stepwell.engine import Engine
from stepwell.store.store import Store
from stepwell.testing.specs import PendingTimer


@dataclass(frozen=True)
class Consequences:
    """What is in the store of one input: how it was answered, its events, its effects, and the timers that are pending.

    Made by `World.when`; each `then` raises `AssertionError` with both sides unless they are the same.
    """

    input: object
    receipt: Receipt
    events: tuple[Any, ...]
    effects: tuple[Any, ...]
    timers: tuple[PendingTimer, ...]

    def then(self, *events: Any) -> Self:
        """Exactly these events of the input are stored, in this order."""
        return self._compare("events", events, self.events)

    def then_effects(self, *effects: Any) -> Self:
        """Exactly these effects of the input are stored, in this order."""
        return self._compare("effects", effects, self.effects)

    def then_timers(self, *spans: Duration, **timers: Duration) -> Self:
        """Exactly these timers of its instance are pending, by key or without, each due after this span from now."""
        keyed = [*((None, span) for span in spans), *timers.items()]
        expected = [PendingTimer(key, timedelta(microseconds=microseconds_of(span))) for key, span in keyed]
        return self._compare("pending timers", _sorted(expected), _sorted(self.timers))

    def _compare(self, what: str, expected: Sequence[Any], found: Sequence[Any]) -> Self:
        if list(expected) == list(found):
            return self
        lines = [
            f"after {self.input!r}, answered {self.receipt.outcome}, the {what} in the store are not those expected",
            *(f"    expected {one!r}" for one in expected),
            *(f"    stored   {one!r}" for one in found),
        ]
        raise AssertionError("\n".join(lines))


async def consequences(store: Store, engine: Engine, input: object, key: str | None) -> Consequences:
    """Execute an input while no worker works, and read what it has led to."""
    family = engine.registry.of_input(input)
    id = family.identify(input)  # noqa: A001 - the word for it everywhere
    tasks_of = partial(store.database.decisions.tasks_of, family.type, id)
    before = {row["id"] for row in await tasks_of()}
    receipt = await engine.execute(input, key=key)
    is_new, first, last = receipt.outcome == "applied", receipt.first or 0, receipt.last or 0
    events = await engine.events(family.type, id, after=first - 1) if is_new else ()
    tasks = await tasks_of()
    now = await store.database.decisions.now()
    return Consequences(
        input,
        receipt,
        tuple(one.event for one in events if one.version <= last),
        tuple(_effect(family, row) for row in tasks if row["kind"] == "EFFECT" and row["id"] not in before),
        tuple(
            PendingTimer(_timer_key(row), timedelta(microseconds=row["run_at"] - now))
            for row in tasks
            if row["kind"] == "TIMER" and row["finished_at"] is None
        ),
    )


def _effect(family: Family, row: Mapping[str, Any]) -> Any:
    return read_envelope(family.effects, Envelope.read(row["input"]))


def _timer_key(row: Mapping[str, Any]) -> str | None:
    return None if row["key"] is None else str(row["key"]).partition(":")[2]  # stored as `stored_key` makes it


def _sorted(timers: Sequence[PendingTimer]) -> list[PendingTimer]:
    return sorted(timers, key=lambda timer: (timer.key or "", timer.after))
