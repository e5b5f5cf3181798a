"""The inbox of an instance: inputs that were submitted wait in an ordered group, and are decided in its order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stepwell.deciders.mailbox import Pending
from stepwell.deciders.proposal import Envelope
from stepwell.deciders.registry import Family
from stepwell.records import RunStatus
from stepwell.store.instances import Delivery, Follower, Instance
from stepwell.store.rows import Settlement

DECIDED: Final = Settlement(RunStatus.SUCCESS)


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
