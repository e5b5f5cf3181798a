"""Observations: what is recorded of the inputs of observed deciders, and how what is recorded is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from stepwell.base.durations import datetime_of
from stepwell.base.names import check_key
from stepwell.deciders.diagram import status_of
from stepwell.deciders.proposal import Item, Proposal
from stepwell.errors import InvalidOption, LeaseLost
from stepwell.records import Page
from stepwell.store.database import Database
from stepwell.store.instances import NewObservation
from stepwell.values.named_codecs import shown_value
from stepwell.values.versions import version_of

Answer = Literal["applied", "duplicate", "completed", "refused"]
LONGEST: Final = 1000  # characters of an error


@dataclass(frozen=True, slots=True)
class Observation:
    """An input of an instance, and how it was answered; `input` is the name of its class, `payload` its JSON.

    `to_status` is set if it was applied, and both statuses are None if its decider has no view of its states.
    """

    id: int
    outcome: Answer
    input: str
    version: int  # of the input's class
    payload: Any
    from_status: str | None
    to_status: str | None
    first: int | None  # its events, as in its receipt
    last: int | None
    error: str | None  # why it was refused; or why its payload or a status is missing
    key: str | None
    cause: str | None  # what its events have as their cause; that of an effect's answer is `effect:` and its number
    recorded_at: datetime


def observations_of(proposal: Proposal, limit: int) -> Iterator[NewObservation]:
    """What is recorded of the inputs that were answered or refused here, in their order."""
    for item in proposal.items:
        if (outcome := _outcome(item)) is not None:
            yield _observation(proposal, item, outcome, limit)


def _outcome(item: Item) -> Answer | None:
    """None if it is not answered here: it waits, another worker has it, or an earlier try has recorded it."""
    if item.error is not None:
        return None if isinstance(item.error, LeaseLost) else "refused"
    if item.receipt is None or (item.receipt.outcome == "applied" and item.decision is None):
        return None
    return item.receipt.outcome


def _observation(proposal: Proposal, item: Item, outcome: Answer, limit: int) -> NewObservation:
    family, pending, receipt = proposal.family, item.pending, item.receipt
    failures = [] if item.error is None else [f"{type(item.error).__name__}: {item.error}"]

    def tried(what: str, work: Callable[[], str | None]) -> str | None:
        """What observes must not fail what it observes: it says why it does not know."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - it is the user's code
            failures.append(f"{what}: {type(error).__name__}: {error}")
            return None

    return NewObservation(
        type=family.type,
        name=pending.id,
        input=family.inputs.name(pending.input),
        input_version=version_of(type(pending.input)),
        data=tried("payload", lambda: family.inputs.write(pending.input, limit=limit).text),
        outcome=outcome,
        from_status=tried("state_info", lambda: status_of(family.decider, item.found)),
        to_status=tried("state_info", lambda: status_of(family.decider, item.left)) if outcome == "applied" else None,
        first_version=None if receipt is None else receipt.first,
        last_version=None if receipt is None else receipt.last,
        error="; ".join(failures)[:LONGEST].replace("\0", "") or None,
        key=pending.key,
        cause=pending.cause,
    )


async def observations(database: Database, type: str, id: str, limit: int, after: str | None) -> Page[Observation]:
    """What was recorded of the inputs of an instance, after the page before, in the order of time."""
    if after is not None and not after.isdigit():
        raise InvalidOption("after", after, "pass the `next` of the page before, as it is")
    rows = await database.decisions.observations(type, check_key(id, "instance"), int(after or 0), limit + 1)
    page = [_observation_info(row) for row in rows[:limit]]
    return Page(page, next=str(page[-1].id) if len(rows) > limit else None)


def _observation_info(row: Mapping[str, Any]) -> Observation:
    return Observation(
        id=row["id"],
        outcome=row["outcome"],
        input=row["input"],
        version=row["input_version"],
        payload=shown_value(row["data"]),
        from_status=row["from_status"],
        to_status=row["to_status"],
        first=row["first_version"],
        last=row["last_version"],
        error=row["error"],
        key=row["key"],
        cause=row["cause"],
        recorded_at=datetime_of(row["recorded_at"]),
    )
