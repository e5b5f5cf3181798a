"""Stores as earlier schemas left them, one SQL text for each database, and the code that goes on with what is in them.

`python -m tests.store.stored` writes the texts of the newest schema. Run it once for each migration, when it is added;
what is stored of an earlier schema never changes.
"""

import asyncio
import re
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from stepwell import (
    Context,
    Decider,
    Decision,
    EffectContext,
    Engine,
    PermanentError,
    Worker,
    connect,
    handler,
    step,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.store import schema
from tests.ground.postgres import PostgresServer, find_binaries

FOLDER = Path(__file__).parent
WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)


@handler("mail", retry=1)
async def send(to: str) -> None:
    if to == "nobody":
        raise PermanentError("no such address")


@dataclass(frozen=True)
class Approval:
    """What an order waits for."""

    by: str


@step
async def charge(amount: int) -> int:
    return amount


@workflow
async def order(ctx: Context, amount: int) -> str:
    """Charge, and wait for an approval; an order of nothing fails."""
    if amount == 0:
        raise PermanentError("nothing is ordered")
    charged = await charge(amount)
    return f"{charged} approved by {(await ctx.wait('approved', Approval)).by}"


@workflow
async def basket(ctx: Context, amount: int) -> str:
    """Wait for an order of its own."""
    return await order.trigger(amount).wait().execute(ctx)


@dataclass(frozen=True)
class Add:
    id: str
    amount: int


@dataclass(frozen=True)
class Added:
    amount: int


@dataclass(frozen=True)
class Tell:
    amount: int


class Account(Decider[int, Add, Added, Tell]):
    """A sum; of what is added it tells, and adds one after a day."""

    type = "account"
    route = "id"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Added) -> int:
        return state + event.amount

    def decide(self, state: int, input: Add, now: datetime) -> Decision[Added, Tell, Add]:
        decision: Decision[Added, Tell, Add] = Decision.event(Added(input.amount)).with_effect(Tell(input.amount))
        return decision.with_timer_after("1d", Add(input.id, 1), key="daily")

    async def handle(self, effect: Tell, ctx: EffectContext) -> Add | None:
        """Nobody is told."""
        return None


async def furnish(url: str) -> None:
    """Install the newest schema, and leave in it what a deploy may find: finished, failed, waiting and due."""
    clock = TestClock(WRITTEN)
    async with connect(url, clock=clock) as store:
        for to in ("ann", "nobody"):
            await store.enqueue(send, to)
        for amount in (0, 5):
            await order.trigger(amount).options(key=f"order-{amount}", require_worker="ignore").execute(store)
        await basket.trigger(7).options(key="basket", require_worker="ignore").execute(store)
        await Worker(store, [send, order, basket], name="w").drain()
        await store.enqueue(send, "bob", key="bob")
        await store.enqueue(send, "later", delay="1h")
        await store.signal((await store.runs("order", key="order-5"))[0].id, "unheard", 1)
        await Engine(store).register(Account()).execute(Add("a", 3))


def texts(backend: str) -> list[Path]:
    """What is stored for a database, one text for each schema."""
    return sorted(FOLDER.glob(f"*.{backend}.sql"))


async def load(text: str, url: str) -> None:
    """Make the store that the text is of, in an empty database."""
    if url.startswith("postgresql"):
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(text)
        finally:
            await connection.close()
        return
    with closing(sqlite3.connect(urlsplit(url).path)) as file:  # Turso's files are those of SQLite
        file.executescript(text)
        file.execute("pragma journal_mode = wal")


def dumped(url: str) -> str:
    """The store as SQL text."""
    if not url.startswith("postgresql"):
        with closing(sqlite3.connect(urlsplit(url).path)) as file:
            return "\n".join(file.iterdump()) + "\n"
    options = ["--no-owner", "--no-privileges", "--inserts", "--schema=stepwell"]
    done = subprocess.run([find_binaries() / "pg_dump", *options, url], capture_output=True, text=True, check=True)
    # Without what only this version of the server or its shell understands.
    lines = [
        line for line in done.stdout.splitlines() if not re.match(r"--|SET |SELECT pg_catalog.set_config|\\|$", line)
    ]
    return "\n".join(lines) + "\n"


async def _store(backend: str, url: str) -> None:
    await furnish(url)
    async with connect(url) as store:
        number = await schema.version(store.database.driver)
    # Tracebacks that are stored name no folder of the machine that wrote them.
    (FOLDER / f"{number:04}.{backend}.sql").write_text(dumped(url).replace(str(FOLDER.parents[2]), "/app"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server:
        urls = {"sqlite": f"sqlite:///{folder}/a.db", "turso": f"turso:///{folder}/b.db", "postgres": server.url()}
        for backend, url in urls.items():
            asyncio.run(_store(backend, url))
