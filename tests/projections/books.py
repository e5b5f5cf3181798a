"""A decider and projections for tests: accounts that are opened, paid into and closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Never

from stepwell import At, Decider, Decision, Engine, Store, Tx, projection


@dataclass(frozen=True)
class Open:
    account: str


@dataclass(frozen=True)
class Pay:
    account: str
    cents: int


@dataclass(frozen=True)
class Opened:
    account: str


@dataclass(frozen=True)
class Paid:
    account: str
    cents: int


@dataclass(frozen=True)
class Noise:
    """An event that no projection here wants."""


class Accounts(Decider[int, Open | Pay, Opened | Paid | Noise, Never]):
    """The state is the sum."""

    type = "account"
    route = "account"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Opened | Paid | Noise) -> int:
        return state + event.cents if isinstance(event, Paid) else state

    def decide(self, state: int, input: Open | Pay, now: datetime) -> Decision[Opened | Paid | Noise, Never, Open]:
        if isinstance(input, Open):
            return Decision.event(Opened(input.account))
        if input.cents == 0:
            return Decision.event(Noise())
        return Decision.event(Paid(input.account, input.cents))


Check = Callable[[Any, At], Awaitable[None]]


@projection("balances", events=[Opened, Paid], batch=10, attempts=3)
class Balances:
    """Accounts with their sums, and a row for each event that was handled."""

    def __init__(self, check: Check | None = None, table: str = "balances", before: Check | None = None) -> None:
        self.check = check
        self.before = before
        self.table = table
        self.seen: list[tuple[int, Any]] = []

    async def begin(self, tx: Tx) -> None:
        for table, columns in ((self.table, "account text primary key, cents bigint"), (f"{self.table}_log", LOG)):
            await tx.execute(f"create table if not exists {table} ({columns})")
            await tx.execute(f"delete from {table}")

    async def handle(self, event: Opened | Paid, at: At, tx: Tx) -> None:
        self.seen.append((at.position, event))
        if self.before is not None:
            await self.before(event, at)
        cents = event.cents if isinstance(event, Paid) else 0
        await tx.execute(
            f"insert into {self.table} (account, cents) values ('{event.account}', {cents})"
            f" on conflict (account) do update set cents = {self.table}.cents + {cents}"
        )
        await tx.execute(
            f"insert into {self.table}_log (position, account, version) values ({at.position}, '{at.id}', {at.version})"
        )
        if self.check is not None:
            await self.check(event, at)


LOG = "position bigint primary key, account text, version bigint"


def engine_of(store: Store, *projections: Any) -> Engine:
    engine = Engine(store).register(Accounts())
    for one in projections:
        engine.register(one)
    return engine


async def balances(store: Store, table: str = "balances") -> dict[str, int]:
    """What the read model says."""
    async with store.transaction() as tx:
        return {row[0]: row[1] for row in await tx.execute(f"select account, cents from {table} order by account")}


async def handled(store: Store, table: str = "balances") -> list[tuple[int, str, int]]:
    """The events that were handled: position, account and version."""
    async with store.transaction() as tx:
        rows = await tx.execute(f"select position, account, version from {table}_log order by position")
        return [(row[0], row[1], row[2]) for row in rows]
