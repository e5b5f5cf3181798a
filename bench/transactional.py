"""`python -m bench.transactional [URL]`: what a step costs whose rows and result are one commit, beside raw SQL.

Raw SQL is a transaction on an open connection that inserts one row and one like a step's record. A plain step records
its result alone; the same with `store.transaction()` in its body commits its row first, and may commit it twice. Each
is measured in turns, one after the other, and the median of the rounds counts.
"""

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg

from stepwell import Store, Tx, Worker, connect, step, workflow

ROUNDS: Final = 7
STEPS: Final = 100
TABLES: Final = (
    "create table if not exists bench_row (n bigint not null)",
    "create table if not exists bench_step (run bigint, key text, output text, primary key (run, key))",
)


async def measured(url: str) -> dict[str, list[float]]:
    """Milliseconds a step, by case and round."""
    async with connect(url) as store:
        async with store.transaction() as tx:
            for table in TABLES:
                await tx.execute(table)
        flows = flows_of(store)
        cases: dict[str, Callable[[], Awaitable[object]]] = {"raw SQL": raw_of(url)}
        async with Worker(store, list(flows.values())):
            for name, flow in flows.items():
                cases[name] = lambda flow=flow: flow.trigger().wait(timeout=300).execute(store)  # type: ignore[misc]
            found: dict[str, list[float]] = {name: [] for name in cases}
            for _ in range(ROUNDS):
                for name, case in cases.items():
                    begun = time.perf_counter()
                    await case()
                    found[name].append((time.perf_counter() - begun) / STEPS * 1000)
    return found


def flows_of(store: Store) -> dict[str, Any]:
    """Workflows of that many steps one after the other."""
    mark = "$1" if store.database.driver.name == "postgres" else "?"
    insert = f"insert into bench_row (n) values ({mark})"

    @step
    async def plain(n: int) -> int:
        return n

    @step
    async def apart(n: int) -> int:
        async with store.transaction() as tx:
            await tx.execute(insert, n)
        return n

    @step(tx=True)
    async def together(tx: Tx, n: int) -> int:
        await tx.execute(insert, n)
        return n

    def flow_of(name: str, one: Any) -> Any:
        @workflow(name=name)
        async def flow() -> None:
            for n in range(STEPS):
                await one(n)

        return flow

    return {
        "step without rows": flow_of("plain", plain),
        "step with rows, two commits": flow_of("apart", apart),
        "step with rows, one commit": flow_of("together", together),
    }


def raw_of(url: str) -> Callable[[], Awaitable[object]]:
    """The least that can be said to a database for the same."""
    runs = iter(range(10**9))
    if urlsplit(url).scheme == "sqlite":
        path = url.partition("///")[2]

        async def on_sqlite() -> None:
            connection = sqlite3.connect(path, isolation_level=None)
            connection.execute("pragma synchronous = full")
            run = next(runs)
            for n in range(STEPS):
                connection.execute("begin immediate")
                connection.execute("insert into bench_row (n) values (?)", (n,))
                connection.execute("insert into bench_step values (?, ?, ?)", (run, f"a#{n}", str(n)))
                connection.execute("commit")
            connection.close()

        return on_sqlite

    async def on_postgres() -> None:
        connection = await asyncpg.connect(url)
        run = next(runs)
        for n in range(STEPS):
            async with connection.transaction():
                await connection.execute("insert into bench_row (n) values ($1)", n)
                await connection.execute("insert into bench_step values ($1, $2, $3)", run, f"a#{n}", str(n))
        await connection.close()

    return on_postgres


def main() -> None:
    """Print the median of each case."""
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(folder) / 'bench.db'}"
        for name, rounds in asyncio.run(measured(url)).items():
            print(f"{name:30} {statistics.median(rounds):7.2f} ms  (from {min(rounds):.2f} to {max(rounds):.2f})")


if __name__ == "__main__":
    main()
