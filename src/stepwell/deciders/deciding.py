"""One transaction of decisions: look at the instances under their locks, decide, write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from stepwell.deciders.proposing import (
    Budget,
    Item,
    Outcome,
    Proposal,
    concluded,
    effects_queue,
    inputs_queue,
    schema_of,
    stored_key,
)
from stepwell.deciders.waiting import Held, Memory, Pending, Place
from stepwell.family import Family
from stepwell.store.decisions import Standing, Supply, Wanted
from stepwell.store.driver import Script, Value
from stepwell.store.store import Store


@dataclass(frozen=True, slots=True)
class Decided:
    """What a transaction came to, to be told once it is committed."""

    outcomes: Sequence[Outcome]
    queues: Mapping[str, int]  # of effects and timers
    asked: set[str] = field(default_factory=set)  # queues and workflows that got messages and runs

    @property
    def items(self) -> list[Item]:
        """Every input of it."""
        return [item for outcome in self.outcomes for item in outcome.items]


class Deciding:
    """How the inputs of a store's deciders are decided."""

    def __init__(self, store: Store, memory: Memory, snapshot_every: Mapping[str, int]) -> None:
        self._store = store
        self._memory = memory
        self._snapshot_every = snapshot_every

    def script(
        self, batch: Sequence[Pending], supply: Supply, queues: Mapping[str, int] | None = None
    ) -> Script[Decided]:
        """Decide the inputs, of one instance or several, in their order; without `queues` they are found, or made."""
        decisions, limit = self._store.decisions, self._store.options.payload_limit
        shares = shares_of(batch)
        held = {place: self._memory.get(place) for place in shares}
        wanted = [_wanted(share, held[place]) for place, share in shares.items()]
        standings = yield from decisions.stand(wanted, supply)
        if queues is None:
            queues = yield from self._queues({pending.family.type for pending in batch})
        budget = Budget()
        proposals = [self._proposal(standing, shares, held, budget) for standing in standings]
        asked = [(one, key, stored_key(one.standing.id, key)) for one in proposals for key in one.timer_keys]
        rows: list[tuple[Value, ...]] = [(queues[inputs_queue(one.family.type)], key) for one, _, key in asked]
        pending = {row["key"]: row["id"] for row in (yield from decisions.pending_timers(rows))}
        outcomes = []
        for one in proposals:
            timers = {key: pending[stored] for of, key, stored in asked if of is one and stored in pending}
            every = self._snapshot_every[one.family.type]
            outcomes.append(concluded(one, timers, queues, snapshot_every=every, limit=limit))
        yield from decisions.write([one.change for one in outcomes], supply)
        decided = Decided(outcomes, queues)
        yield from self._ask(decided)
        return decided

    def _proposal(
        self,
        standing: Standing,
        shares: Mapping[Place, list[Pending]],
        held: Mapping[Place, Held | None],
        budget: Budget,
    ) -> Proposal:
        place = (standing.type, standing.name)
        share = shares[place]
        proposal = Proposal(share[0].family, standing, held[place])
        for pending in share:
            proposal.decide(pending, self._store, budget, self._store.options.payload_limit)
        return proposal

    def _ask(self, decided: Decided) -> Script[None]:
        """Write the messages and runs that the decisions ask for."""
        for item in decided.items:
            for drafted in item.drafted:
                yield from self._store.joining(drafted if item.pending.turn is None else drafted.led_to())
                decided.asked.update(drafted.queues)

    def _queues(self, types: set[str]) -> Script[dict[str, int]]:
        queues: dict[str, int] = {}
        for type_ in sorted(types):
            for name in (effects_queue(type_), inputs_queue(type_)):
                queues[name] = yield from self._store.decisions.queue(name)
        return queues


def shares_of(batch: Sequence[Pending]) -> dict[Place, list[Pending]]:
    """The inputs of each instance, in their order."""
    shares: dict[Place, list[Pending]] = {}
    for place, some in groupby(batch, key=lambda one: one.place):
        shares.setdefault(place, []).extend(some)
    return shares


def _wanted(share: Sequence[Pending], held: Held | None) -> Wanted:
    family: Family = share[0].family
    return Wanted(
        type=family.type,
        name=share[0].id,
        schema=schema_of(family),
        known=None if held is None else held.version,
        keys=tuple(one.key for one in share if one.key is not None),
        lost=tuple((one.cause, one.base) for one in share if one.base is not None),
        turns=tuple((one.turn.task_id, one.turn.worker, one.turn.number) for one in share if one.turn is not None),
    )
