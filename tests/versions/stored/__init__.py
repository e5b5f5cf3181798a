"""A store that version 1 of a shop has left in the middle of everything, one SQL text for each database.

`python -m tests.versions.stored` has written the texts. They never change: what is there was written before version 2.
"""

import asyncio
import tempfile
from pathlib import Path

from stepwell import Engine, Worker, connect
from stepwell.base.clock import TestClock
from tests.ground.postgres import PostgresServer
from tests.store.stored import WRITTEN, dumped
from tests.versions import shop_1

FOLDER = Path(__file__).parent


async def furnish(url: str) -> None:
    """Leave messages that wait, runs that have not begun, wait and sleep, and an account with work under way."""
    clock = TestClock(WRITTEN)
    async with connect(url, clock=clock) as store:
        engine = Engine(store).register(shop_1.Account(), snapshot_every=2)
        await store.enqueue(shop_1.letters, shop_1.Letter(to="ann", euros=0.5))
        for key in ("waits", "sleeps"):
            trigger = shop_1.sale.trigger(shop_1.Order(key, 2.5), note="!")
            await trigger.options(key=key, require_worker="ignore").execute(store)
        await shop_1.basket.trigger(shop_1.Order("child", 4.0)).options(require_worker="ignore").execute(store)
        await engine.execute(shop_1.Open("a", 100.0))
        for by in ("bike", "boat"):
            await engine.execute(shop_1.Buy("a", 10.25, by))
        worker = Worker(store, [shop_1.letters, shop_1.sale, shop_1.basket, engine], name="w")
        await worker.drain()
        [sleeps] = await store.runs("sale", key="sleeps")
        await store.signal(sleeps.id, "approved", shop_1.Approval("bob"))
        await worker.drain()
        # What follows was asked for, and no worker has seen it.
        [waits] = await store.runs("sale", key="waits")
        await store.signal(waits.id, "approved", shop_1.Approval("eve"))
        await store.enqueue(shop_1.letters, shop_1.Letter(to="eve", euros=1.25), key="eve")
        await store.enqueue(shop_1.letters, shop_1.Letter(to="later", euros=2.0), delay="3d")
        await shop_1.sale.trigger(shop_1.Order("new", 3.0)).options(key="new", require_worker="ignore").execute(store)
        await engine.execute(shop_1.Buy("a", 1.0, "foot"))
        await engine.submit(shop_1.Buy("a", 2.0, "car"))


def text_of(backend: str) -> str:
    """What is stored for a database."""
    return (FOLDER / f"shop_1.{backend}.sql").read_text()


async def _store(backend: str, url: str) -> None:
    await furnish(url)
    (FOLDER / f"shop_1.{backend}.sql").write_text(dumped(url))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server:
        urls = {"sqlite": f"sqlite:///{folder}/a.db", "turso": f"turso:///{folder}/b.db", "postgres": server.url()}
        for backend, url in urls.items():
            asyncio.run(_store(backend, url))
