"""Projections that are killed, and unruly writers: `python -m tests.crash.reader --url ... --ledger ... --role ...`.

`project` drives two projections of a decider that counts. `write` has many writers at once: plain, slow, rolled back,
with a savepoint that is rolled back, prepared, and some that stay open long. `both` does the first two in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Never

import asyncpg

from stepwell import At, Decider, Decision, Engine, Key, Store, Tx, Worker, connect, projection
from stepwell.base.telemetry import Telemetry
from tests.crash.workload import gate_path, tell
from tests.ground.ledger import Ledger

WRITERS = 20
EACH = 5  # instances of a writer
FREEZE = "freeze"  # the gate: the worker that finds it open stops itself inside its transaction
KINDS = {"plain": 60, "slow": 15, "rolled back": 10, "savepoint": 8, "prepared": 5, "open": 2}


@dataclass(frozen=True)
class Add:
    counter: str
    n: int


@dataclass(frozen=True)
class Added:
    n: int


class Counters(Decider[int, Add, Added, Never]):
    type = "counter"
    route = "counter"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Added) -> int:
        return state + event.n

    def decide(self, state: int, input: Add, now: datetime) -> Decision[Added, Never, Add]:
        return Decision.event(Added(input.n))


@dataclass(frozen=True)
class TotalRow:
    counter: Annotated[str, Key]
    total: int
    count: int
    last: int


@projection("totals", rows=TotalRow, batch=50)
def totals(row: TotalRow | None, event: Added, at: At) -> TotalRow:
    now = row or TotalRow(at.id, 0, 0, 0)
    return TotalRow(at.id, now.total + event.n, now.count + 1, at.position)


@projection("applied", tables=["applied"], batch=50)
class Applied:
    """Each event as a row; nothing but the projection keeps one from being there twice."""

    def __init__(self, ledger: Ledger | None = None, pause: float = 0.0) -> None:
        self.ledger = ledger
        self.pause = pause

    async def begin(self, tx: Tx) -> None:
        columns = "place integer primary key autoincrement"
        if isinstance(tx.connection, asyncpg.Connection):
            columns = "place bigint generated always as identity primary key"
        await tx.execute(f"create table if not exists {tx.table('applied')} ({columns}, position bigint, counter text)")
        await tx.execute(f"delete from {tx.table('applied')}")

    async def handle(self, event: Added, at: At, tx: Tx) -> None:
        if self.ledger is not None:
            self.ledger.write(phase="handled", position=at.position, table=tx.table("applied"))
        await tx.execute(f"insert into {tx.table('applied')} (position, counter) values ({at.position}, '{at.id}')")
        if self.ledger is not None and tx.table("applied") == "applied":
            freeze_if_asked(self.ledger)
            await asyncio.sleep(self.pause)


def freeze_if_asked(ledger: Ledger) -> None:
    try:
        gate_path(ledger.path, FREEZE).unlink()
    except FileNotFoundError:
        return
    ledger.write(phase="frozen")
    os.kill(os.getpid(), signal.SIGSTOP)
    ledger.write(phase="continued")


def engine_of(store: Store, ledger: Ledger | None = None, pause: float = 0.0) -> Engine:
    return Engine(store).register(Counters()).register(Applied(ledger, pause)).register(totals)


class Writer:
    """One writer with counters of its own; it goes on until it has committed so many inputs."""

    def __init__(self, number: int, engine: Engine, url: str, ledger: Ledger) -> None:
        self.engine = engine
        self.url = url
        self.ledger = ledger
        self.number = number
        self.chance = random.Random(number)
        self.connection: Any = None

    async def write(self, count: int, rest: float) -> None:
        kinds = {"plain": 1}
        if self.url.startswith("postgresql"):
            self.connection = await asyncpg.connect(self.url)
            kinds = dict(KINDS)
            if await self.connection.fetchval("show max_prepared_transactions") == "0":
                del kinds["prepared"]
        done = 0
        while done < count:
            [kind] = self.chance.choices(list(kinds), list(kinds.values()))
            done += await self._one(kind, done)
            await asyncio.sleep(self.chance.uniform(0, 2 * rest))
        if self.connection is not None:
            await self.connection.close()

    async def _one(self, kind: str, n: int) -> int:
        add = Add(f"c{self.number}-{self.chance.randrange(EACH)}", n)
        match kind:
            case "plain":
                await self.engine.execute(add)
            case "prepared":
                await self._prepared(add)
            case _:
                await self._joined(kind, add)
        self.ledger.write(phase="wrote", kind=kind)
        return 0 if kind == "rolled back" else 1

    async def _joined(self, kind: str, add: Add) -> None:
        transaction = self.connection.transaction()
        await transaction.start()
        if kind == "savepoint":
            inner = self.connection.transaction()
            await inner.start()
            await self.engine.execute(add, tx=self.connection)
            await inner.rollback()
        await self.engine.execute(add, tx=self.connection)
        await asyncio.sleep({"slow": 0.02, "open": 0.5}.get(kind, 0))
        await (transaction.rollback() if kind == "rolled back" else transaction.commit())

    async def _prepared(self, add: Add) -> None:
        name = f"w{self.number}_{self.chance.random()}"
        await self.connection.execute("begin")
        await self.engine.execute(add, tx=self.connection)
        await self.connection.execute(f"prepare transaction '{name}'")
        await asyncio.sleep(0.05)
        await self.connection.execute(f"commit prepared '{name}'")


async def write(store: Store, options: argparse.Namespace, ledger: Ledger) -> None:
    engine = engine_of(store)
    writers = [Writer(number, engine, options.url, ledger) for number in range(WRITERS)]
    await asyncio.gather(*(one.write(options.count // WRITERS, options.rest) for one in writers))
    ledger.write(phase="written")


async def both(store: Store, options: argparse.Namespace, ledger: Ledger) -> None:
    """Write the inputs that no earlier life has written, and project meanwhile."""
    engine = engine_of(store, ledger, options.pause)
    async with Worker(store, [engine]):
        for n in range(options.count):
            await engine.execute(Add(f"c{n % WRITERS}", n), key=f"n{n}")
        ledger.write(phase="written")
        await asyncio.Event().wait()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--role", required=True, choices=["project", "write", "both"])
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rest", type=float, default=0.0)
    parser.add_argument("--pause", type=float, default=0.0)
    options = parser.parse_args()
    telemetry = Telemetry()
    with Ledger(options.ledger) as ledger:
        telemetry.subscribe(lambda event: tell(ledger, event))
        async with connect(options.url, lease=options.lease, telemetry=telemetry) as store:
            match options.role:
                case "project":
                    await Worker(store, [engine_of(store, ledger, options.pause)]).run(signals=True)
                case "write":
                    await write(store, options, ledger)
                case _:
                    await both(store, options, ledger)


if __name__ == "__main__":
    asyncio.run(main())
