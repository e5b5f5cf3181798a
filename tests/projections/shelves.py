"""Projections for tests that fold the events of accounts into rows of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

from stepwell import At, Indexed, Key, projection
from tests.projections.books import Opened, Paid


@dataclass(frozen=True)
class AccountRow:
    """An account with its sum."""

    account: Annotated[str, Key]
    state: Annotated[Literal["open", "paid"], Indexed]
    cents: int
    last: int | None = None


@projection("accounts", rows=AccountRow, batch=10, attempts=3)
def accounts(row: AccountRow | None, event: Opened | Paid, at: At) -> AccountRow | None:
    """Delete the row when 99 cents are paid."""
    now = row or AccountRow(event.account, "open", 0)
    if isinstance(event, Opened):
        return now
    if event.cents == 99:
        return None
    return replace(now, state="paid", cents=now.cents + event.cents, last=at.position)


@dataclass(frozen=True)
class CentsRow:
    """How many payments were of this many cents, with a column of every kind."""

    cents: Annotated[int, Key]
    count: int
    half: float
    even: bool
    at: datetime
    accounts: list[str]
    id: UUID
    note: str | None = None


@projection("by_cents", rows=CentsRow, key=lambda event: event.cents or None)
def by_cents(row: CentsRow | None, event: Paid) -> CentsRow:
    """One row for an amount, whichever account it went to."""
    cents = event.cents
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=cents)
    now = row or CentsRow(cents, 0, cents / 2, cents % 2 == 0, at, [], UUID(int=cents))
    note = None if cents % 3 else f"by three: '{cents}'"
    return replace(now, count=now.count + 1, accounts=[*now.accounts, event.account], note=note)
