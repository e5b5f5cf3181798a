"""The shop at work: an order, a deploy with a renamed step, a change of mind.

Run it:    cd examples && python -m shop.story          (README.md says what it needs)

On Postgres with STEPWELL_URL=postgresql://..., else on a temporary SQLite file. The web process is this one, asked
without a network; the workers are processes of their own, as `stepwell worker` starts them.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from httpx import ASGITransport, AsyncClient
from sqlalchemy import func, select

from shop.tables import Payment
from shop.web import app

FOLDER = Path(__file__).parents[1]


async def main() -> None:
    lamp, desk = f"lamp {uuid4()}", f"desk {uuid4()}"
    async with (
        app.router.lifespan_context(app),
        AsyncClient(transport=ASGITransport(app), base_url="http://shop") as web,
    ):
        with worker("shop.flows"):
            for _ in range(2):
                placed = await web.post("/orders", json={"number": lamp, "item": "lamp", "cents": 1900})
                print("placed, new:", placed.json()["new"])
            await web.post("/orders", json={"number": desk, "item": "desk", "cents": 9900})
            for number in (lamp, desk):
                await until(web, number, status="PAUSED", order="reserved")
            print("a customer changes their mind:", (await web.delete(f"/orders/{desk}")).json()["answer"])
            print("the desk is", (await until(web, desk, status="CANCELLED"))["order"])
        print("a deploy renames the step that pays")
        with worker("shop.releases.renamed"):
            await web.post(f"/orders/{lamp}/packed?by=ann")
            held = await until(web, lamp, status="PAUSED", why="charge_card")
            print("the order is held:", held["status"])
        print("the next one keeps the old name")
        with worker("shop.releases.kept"):
            print("the lamp is", (await until(web, lamp, status="SUCCESS"))["order"])
        print("the bank was asked", await payments(app.state.database, lamp), "time")


@contextmanager
def worker(module: str) -> Iterator[None]:
    """A worker process with the code of one deploy; it is asked to end as a deploy asks it."""
    command = [sys.executable, "-m", "stepwell", "worker", module]
    process = subprocess.Popen(command, cwd=FOLDER, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def until(web: Any, number: str, **wanted: str) -> dict[str, Any]:
    """Ask for the order until it is as it is wanted."""
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = (await web.get(f"/orders/{number}")).json()
            if all(words in str(found[name]) for name, words in wanted.items()):
                return found
            await asyncio.sleep(0.1)


async def payments(database: Any, number: str) -> int:
    async with database.connect() as connection:
        asked = await connection.scalar(select(func.count()).where(Payment.number == number))
    return int(asked or 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("STEPWELL_URL", f"sqlite:///{scratch}/shop.db")
        asyncio.run(main())
