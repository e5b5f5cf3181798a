"""A store as the pictures show it: orders that wait, fail and go on after a worker was killed; subscriptions."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import stepwell
from stepwell import Cron, Engine, Every, Store, Worker
from stepwell.base.clock import TestClock
from stepwell.records import RunStatus
from tests.ui import shop

APP = "tests.ui.shop"
ROOT = Path(__file__).parents[2]
ITEMS = ["lamp", "desk mat", "ink"]


@asynccontextmanager
async def worker(url: str, marks: Path | None = None, pace: float = 0.02) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A worker process of the shop, which has ended at the end."""
    extra = {"STEPWELL_URL": url, "SHOP_PACE": str(pace)} | ({"SHOP_MARKS": str(marks)} if marks else {})
    command = [sys.executable, "-m", "stepwell", "worker", APP, "--grace", "1s"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(  # noqa: ASYNC220 - it takes no time
        command, cwd=ROOT, env={**os.environ, **extra}, stdout=quiet, stderr=quiet
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 30)


async def until(store: Store, run_id: int, *statuses: RunStatus) -> Any:
    """The run as soon as it has one of these statuses."""
    async with asyncio.timeout(60):
        while (run := await store.get_run(run_id)).status not in statuses:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return run


def order(number: int, email: str = "ada@example.com") -> Any:
    """An order with its key."""
    asked = shop.fulfil_order.trigger(f"order-{number}", ITEMS, email=email)
    return asked.options(key=f"order-{number}", tags=["eu", "vip"], require_worker="ignore")


async def kill_worker_in(store: Store, run_id: int, process: subprocess.Popen[bytes], step: str) -> None:
    """Kill the worker, and the process above it, while it executes this step of the run."""
    async with asyncio.timeout(60):
        begun = (step, RunStatus.RUNNING)
        while not any((one.name, one.status) == begun for one in await store.steps(run_id)):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    pids = [one.pid for one in await store.workers() if one.stopped_at is None]
    process.kill()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


async def fill(url: str, *, minutes: int = 0) -> dict[str, int]:
    """Fill the store, with what went before in these minutes; returns runs by name."""
    quiet: dict[str, Any] = {"require_worker": "ignore"}
    if minutes:
        await _history(url, minutes)
    async with stepwell.connect(url, lease=3) as store:
        with tempfile.TemporaryDirectory() as folder:
            marks = Path(folder)
            failed, recovered = await _killed(store, url, marks)
            async with worker(url, marks, pace=0.05):
                for day in range(1, 8):
                    await store.trigger(shop.nightly_report.trigger(f"2026-11-{day:02}").options(**quiet))
                waiting = await store.trigger(order(1044))
                await store.trigger(shop.sync_crm.trigger(77).options(**quiet))
                parent = await store.trigger(shop.campaign.trigger([1, 2, 3]).options(**quiet))
                for to in ("ada@example.com", "bob@example.com", "nowhere", "lost and found"):
                    await store.enqueue("emails", {"to": to, "subject": "Your order"})
                await _subscriptions(store)
                await until(store, waiting, RunStatus.PAUSED)
                done = await store.trigger(order(1041))
                await until(store, done, RunStatus.PAUSED)
                await store.signal(done, "courier_accepted", {"courier": "DHL", "parcels": 3})
                await until(store, done, RunStatus.SUCCESS)
                gone = await store.trigger(order(1039))
                await until(store, gone, RunStatus.PAUSED)
                await store.cancel(gone, reason="the customer called")
                await until(store, parent, RunStatus.SUCCESS)
        await store.schedule("nightly", shop.nightly_report.trigger("today"), Cron("30 2 * * *", tz="Europe/Riga"))
        await store.schedule("crm", shop.sync_crm.trigger(78), Every("15m"))
        await store.run_schedule("nightly")
        for number in range(3):
            await store.trigger(shop.nightly_report.trigger(f"later {number}").options(delay="2h", **quiet))
        return {"failed": failed, "waiting": waiting, "done": done, "recovered": recovered}


async def _killed(store: Store, url: str, marks: Path) -> tuple[int, int]:
    """An order whose worker was killed, that waited, and failed in the end; and one that went on well."""
    async with worker(url, marks, pace=0.2) as process:
        failed = await store.trigger(order(1042, "ada@down.example"))
        await kill_worker_in(store, failed, process, "pack")
    async with worker(url, marks, pace=0.12):
        await until(store, failed, RunStatus.PAUSED)
        recovered = await store.trigger(order(1043))
        await until(store, recovered, RunStatus.PAUSED)
        await asyncio.sleep(6)
        for run in (failed, recovered):
            await store.signal(run, "courier_accepted", {"courier": "DHL", "parcels": 3})
        await until(store, failed, RunStatus.ERROR)
        await until(store, recovered, RunStatus.SUCCESS)
    return failed, recovered


async def _history(url: str, minutes: int) -> None:
    """Some reports in each of the minutes before now; the clock of this store says that it is then."""
    clock = TestClock(datetime.now(UTC) - timedelta(minutes=minutes))
    async with (
        stepwell.connect(url, clock=clock) as store,
        Worker(store, [shop.nightly_report], name="vm-09") as worker,
    ):
        for minute in range(minutes):
            count = round(11 + 8 * math.sin(minute / 7)) if minute % 25 < 20 else minute % 3
            days = ["2026-10-31" if minute in (7, 33) and not one else f"part {one}" for one in range(count)]
            quiet: Any = {"require_worker": "ignore"}
            await store.trigger_many(shop.nightly_report.trigger(day).options(**quiet) for day in days)
            clock.advance(timedelta(seconds=0.02 + 0.01 * (minute % 5)))
            await worker.drain()
            clock.advance(timedelta(minutes=1))


async def _subscriptions(store: Store) -> None:
    engine = Engine(store).register(shop.Subscriptions(), observe=True)
    name = "sub-2207"
    inputs: list[Any] = [shop.Start(name), shop.AddCard(name, "4242"), shop.RecordCharge(name, paid=True)]
    inputs += [shop.RecordCharge(name, False, "card_declined"), shop.RecordCharge(name, paid=True)]
    inputs += [shop.RecordCharge(name, False, "insufficient_funds")]
    for one in inputs:
        await engine.execute(one)
    for number in range(2208, 2214):
        await engine.execute(shop.Start(f"sub-{number}", "solo"))
        if number % 2:
            await engine.execute(shop.AddCard(f"sub-{number}", "1111"))
    await engine.execute(shop.Cancel("sub-2209", "too dear"))
