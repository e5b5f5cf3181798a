"""Optimistic decisions: decide on the states in memory, and write the result in one statement.

Used where round trips dominate the cost of a decision, and where this process knows everything about the instances. If
that turns out to be wrong, the input is decided under locks (`decide.py`), which is always right: the state in memory
was old, a key was used before, a timer has to be replaced, a run has to be triggered.

It earns its place on Postgres with one caller at a time: 1.7 times as many decisions a second, with half the CPU of the
client and 0.6 of the server's (`make compare ARGS="--without optimistic --only decider.turn"`, 7 alternating rounds).
With many callers it makes no difference beyond noise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from stepwell.deciders.decide import Decided, shares_of
from stepwell.deciders.mailbox import KnownInstance, Memory, Pending, Place
from stepwell.deciders.proposal import Budget, Outcome, Proposal, concluded
from stepwell.deciders.registry import WrittenDecision
from stepwell.store.database import Database
from stepwell.store.decision_statement import is_plain
from stepwell.store.instances import Instance

FRESH: Final = 60.0  # seconds for which the database's clock is computed from its last answer


class DatabaseTime:
    """The database's clock, computed from its last answer: never early, and late by a round trip at most."""

    def __init__(self, database: Database) -> None:
        self._clock = database.clock
        self._said = 0
        self._asked_at = float("-inf")

    def heard(self, said: int, asked_at: float) -> None:
        """Take the time that the database has answered to a question that was sent at this moment."""
        self._said, self._asked_at = said, asked_at

    def now(self) -> int | None:
        """The time, None if it is not known well enough."""
        if (given := self._clock.now()) is not None:
            return given
        since = time.monotonic() - self._asked_at
        return self._said + int(since * 1_000_000) if since < FRESH else None


class OptimisticDecisions:
    """Decisions on the states in memory."""

    def __init__(self, database: Database, memory: Memory, snapshot_every: Mapping[str, int]) -> None:
        self._db = database
        self._memory = memory
        self._snapshot_every = snapshot_every
        self._slow: set[type] = set()  # classes of inputs whose decisions the statement cannot write
        self.time = DatabaseTime(database)

    async def decide(self, batch: Sequence[Pending], queues: Mapping[str, int]) -> tuple[Decided, list[Pending]]:
        """Decide the inputs for which this is possible; returns the others, in their order, for the way with locks."""
        shares, budget = shares_of(batch), Budget()
        instances = await self._instances(shares)
        outcomes: list[Outcome] = []
        rest: list[Pending] = []
        for place, share in shares.items():
            outcome = self._outcome(share, instances[place], queues, budget) if place in instances else None
            if outcome is None:
                rest += share
            else:
                outcomes.append(outcome)
        moved = await self._written(outcomes)
        for outcome in outcomes:
            if outcome.change.after > outcome.change.before and outcome.change.id not in moved:
                rest += [item.pending for item in outcome.items]
        done = [one for one in outcomes if one.change.id in moved or one.change.after == one.change.before]
        return Decided(done, queues, [one.change for one in done]), rest

    async def _instances(self, shares: Mapping[Place, Sequence[Pending]]) -> dict[Place, Instance]:
        """The instances that are known here, and the receipts of keys that were used before."""
        now = self.time.now()
        found: dict[Place, Instance] = {}
        for place, share in shares.items() if now is not None else ():
            known = self._memory.get(place)
            if known is not None and not known.is_completed and all(map(self._is_simple, share)):
                found[place] = _instance(share[0], known, now or 0)
        keys = [(one.id, pending.key) for place, one in found.items() for pending in shares[place] if pending.key]
        if keys:
            by_id = {one.id: one for one in found.values()}
            for instance_id, key, receipt in await self._db.decisions.receipts(keys):
                by_id[instance_id].receipts[key] = receipt
        return found

    def _outcome(
        self, share: Sequence[Pending], instance: Instance, queues: Mapping[str, int], budget: Budget
    ) -> Outcome | None:
        """The decisions on the inputs of one instance; None if the statement cannot write them."""
        family, limit = share[0].family, self._db.options.payload_limit
        proposal = Proposal(family, instance, self._memory.get(share[0].place))
        for pending in share:
            item = proposal.decide(pending, self._db.new_tasks, budget, limit)
            if item.error is not None and pending.expected is not None:
                return None  # what is at hand may be old: only the database says which version there is
            if item.decision is not None and (item.drafted or item.emissions or _touches_timers(item.decision)):
                self._slow.add(type(pending.input))
                return None
        every = self._snapshot_every[family.type]
        outcome = concluded(proposal, {}, queues, snapshot_every=every, limit=limit)
        return outcome if is_plain(outcome.change) else None

    def _is_simple(self, pending: Pending) -> bool:
        family = pending.family
        if family.observe or family.inline or family.dedupe_last is not None:  # the statement does none of the three
            return False
        return pending.delivery is None and pending.base is None and type(pending.input) not in self._slow

    async def _written(self, outcomes: Sequence[Outcome]) -> frozenset[int]:
        moved = await self._db.decisions.decide_at_once([one.change for one in outcomes if one.change.events])
        if moved.now is not None:
            self.time.heard(moved.now, moved.asked_at)
        return moved.ids


def _touches_timers(decision: WrittenDecision) -> bool:
    return bool(decision.cancelled) or any(timer.key is not None for timer in decision.timers)


def _instance(pending: Pending, known: KnownInstance, now: int) -> Instance:
    return Instance(
        id=known.instance_id,
        type=pending.family.type,
        name=pending.id,
        version=known.version,
        now=now,
        is_completed=False,
        is_made=False,
        base=known.version,
        snapshot=None,
        snapshot_version=known.snapshot_version,
    )
