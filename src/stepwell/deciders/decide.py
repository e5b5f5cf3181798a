"""One transaction of decisions, as the store executes it: what is read, what is decided, and what is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from stepwell.deciders.mailbox import KnownInstance, Memory, Pending, Place
from stepwell.deciders.observation import observations_of
from stepwell.deciders.proposal import (
    Budget,
    Envelope,
    Outcome,
    Proposal,
    concluded,
    effects_queue,
    inputs_queue,
    schema_of,
    stored_key,
)
from stepwell.deciders.registry import Family
from stepwell.records import RunStatus
from stepwell.store.database import Database
from stepwell.store.draft import Drafted
from stepwell.store.emission import Emission
from stepwell.store.inline import InlineFold
from stepwell.store.instances import Change, Delivery, Follower, Instance, InstanceQuery, TimerKey
from stepwell.store.rows import Settlement

DECIDED: Final = Settlement(RunStatus.SUCCESS)


@dataclass(frozen=True, slots=True)
class Decided:
    """The result of a transaction: what is written, and what callers are told after the commit."""

    outcomes: Sequence[Outcome]
    queues: Mapping[str, int]  # of effects and timers
    changes: Sequence[Change]
    drafted: Sequence[Drafted] = ()  # messages and runs that the decisions ask for
    emissions: Sequence[Emission] = ()  # events that they emit
    inline: Sequence[InlineFold] = ()  # projections whose rows they change


class DecisionCase:
    """Inputs of one instance or several, to be decided in their order in one transaction.

    If it `raises`, an input that cannot be decided rolls all of it back.
    """

    def __init__(
        self,
        database: Database,
        memory: Memory,
        snapshot_every: Mapping[str, int],
        batch: Sequence[Pending],
        *,
        raises: bool = False,
    ) -> None:
        self._db = database
        self._snapshot_every = snapshot_every
        self._raises = raises
        self._shares = shares_of(batch)
        self._along: dict[Place, list[Pending]] = {}
        self._known = {place: memory.get(place) for place in self._shares}
        self.queries = [_query(share, self._known[place]) for place, share in self._shares.items()]
        types = sorted({pending.family.type for pending in batch})
        self.queues = [queue(type_) for type_ in types for queue in (effects_queue, inputs_queue)]

    def take_along(self, instances: Sequence[Instance]) -> list[tuple[int, str]]:
        """Add the inputs that stood behind those that were delivered; return their keys."""
        keys = []
        for instance in instances:
            place = (instance.type, instance.name)
            self._along[place] = taken_along(self._shares[place][0].family, instance)
            keys += keys_of(self._along[place], instance)
        return keys

    def propose(self, instances: Sequence[Instance]) -> Proposals:
        """Decide the inputs, given the current rows of their instances."""
        budget, limit = Budget(), self._db.options.payload_limit
        proposals = []
        for instance in instances:
            place = (instance.type, instance.name)
            share = self._shares[place]
            proposal = Proposal(share[0].family, instance, self._known[place])
            for pending in [*share, *self._along.get(place, ())]:
                item = proposal.decide(pending, self._db.new_tasks, budget, limit)
                if self._raises and item.error is not None:
                    raise item.error
            proposals.append(proposal)
        timers = [
            (inputs_queue(one.family.type), stored_key(one.instance.id, key))
            for one in proposals
            for key in one.timer_keys
        ]
        return Proposals(proposals, timers, self._snapshot_every, limit)


@dataclass(frozen=True, slots=True)
class Proposals:
    """The decisions on the inputs of some instances, before it is known which of their timers exist."""

    proposals: Sequence[Proposal]
    timers: Sequence[TimerKey]  # those that are replaced or cancelled, if they exist
    snapshot_every: Mapping[str, int]
    limit: int

    def conclude(self, pending: Mapping[str, int], queues: Mapping[str, int]) -> Decided:
        """The rows to be written; what a delivered task adds is accepted by queues that are being drained."""
        outcomes, drafted = [], []
        for proposal in self.proposals:
            stored = {key: stored_key(proposal.instance.id, key) for key in proposal.timer_keys}
            timers = {key: pending[text] for key, text in stored.items() if text in pending}
            every = self.snapshot_every[proposal.family.type]
            outcome = concluded(proposal, timers, queues, snapshot_every=every, limit=self.limit)
            if proposal.family.observe:
                outcome.change.observed = list(observations_of(proposal, self.limit))
            outcomes.append(outcome)
            for item in proposal.items:
                inside = item.pending.delivery is not None
                drafted += [one.led_to() if inside else one for one in item.drafted]
        emissions = [each for proposal in self.proposals for item in proposal.items for each in item.emissions]
        changes = [outcome.change for outcome in outcomes]
        inline = {
            fold.name: fold
            for proposal, change in zip(self.proposals, changes, strict=True)
            if proposal.family.inline and change.events
            for fold in proposal.family.inline
        }
        return Decided(outcomes, queues, changes, drafted, emissions, [inline[name] for name in sorted(inline)])


def shares_of(batch: Sequence[Pending]) -> dict[Place, list[Pending]]:
    """The inputs of each instance, in their order."""
    shares: dict[Place, list[Pending]] = {}
    for place, some in groupby(batch, key=lambda one: one.place):
        shares.setdefault(place, []).extend(some)
    return shares


def _query(share: Sequence[Pending], known: KnownInstance | None) -> InstanceQuery:
    family = share[0].family
    return InstanceQuery(
        type=family.type,
        name=share[0].id,
        schema=schema_of(family),
        known=None if known is None else known.version,
        keys=tuple(one.key for one in share if one.key is not None),
        lost=tuple((one.cause, one.base) for one in share if one.base is not None),
        deliveries=tuple(one.delivery for one in share if one.delivery is not None),
    )


def taken_along(family: Family, instance: Instance) -> list[Pending]:
    """The inputs behind the one that was delivered, up to the first that this code cannot read.

    That one is left to its own turn, which finds out what is to become of it; and so are those behind it.
    """
    pending: list[Pending] = []
    for follower in instance.followers:
        if (one := _read(family, instance, follower)) is None:
            break
        pending.append(one)
    return pending


def delivery_of(follower: Follower) -> Delivery:
    """The turn of a task that was taken along, which ends with the decision on its input."""
    return Delivery(follower.task_id, follower.worker, follower.turn, DECIDED, group=follower.group)


def keys_of(inputs: Sequence[Pending], instance: Instance) -> list[tuple[int, str]]:
    """The keys by which these inputs may have been decided before."""
    return [(instance.id, one.key) for one in inputs if one.key is not None]


def _read(family: Family, instance: Instance, follower: Follower) -> Pending | None:
    try:
        envelope = Envelope.read(follower.input)
        values = list(family.inputs.read(envelope.type, envelope.version, bytes(envelope.data).decode()))
        if not values or family.identify(values[0]) != instance.name:
            return None
        key = envelope.key or family.key_of(values[0])
    except Exception:  # noqa: BLE001 - an upcaster may raise anything, and its own turn tells people what
        return None
    cause, delivery = f"input:{follower.task_id}", delivery_of(follower)
    pending = Pending(
        family,
        instance.name,
        values[0],
        cause,
        key=key,
        delivery=delivery,
        is_along=True,
        headers=follower.headers,
    )
    return pending.sent_from_outside()
