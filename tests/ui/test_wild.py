"""A dashboard among clients that mean harm, are gone, or act at once: the store and its workers take no notice."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from stepwell import Context, Store, Worker, step, workflow
from stepwell.records import RunStatus
from stepwell.ui import server
from stepwell.ui.app import Hints
from tests.ground.scale import Scale
from tests.ground.waiting import until
from tests.ui import flows
from tests.ui.kit import dashboard, opened

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
DONE: list[tuple[str, str]] = []


@step
async def take(name: str, what: str) -> str:
    DONE.append((name, what))
    await asyncio.sleep(0)
    return what


@workflow
async def order(ctx: Context, name: str) -> str:
    await take(name, "stock")
    said = await ctx.wait("accepted", str)
    return await take(name, said)


@pytest.mark.proves("dashboard-05")
@pytest.mark.backends("sqlite", reason="connections are the server's, whatever is behind it")
async def test_slow_and_dead_clients_harm_neither_workers_nor_the_next_client(
    live_store: Store, scale: Scale, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = scale.of(150, 1_000)
    monkeypatch.setattr(server, "HEAD", 1.0)
    monkeypatch.setattr(server, "MOST_CONNECTIONS", number)
    monkeypatch.setattr(Hints, "MOST", 5)
    monkeypatch.setattr(Hints, "EVERY", 0.02)
    async with opened(live_store, flows.ALL) as address, Worker(live_store, flows.ALL):
        slow = [await connected(address, b"GET / HTTP/1.1\r\nHost: loc") for _ in range(number)]
        dribbling = asyncio.create_task(dribble(slow[0][1]))
        runs = [await live_store.trigger(flows.buy.trigger("lamp")) for _ in range(20)]
        for run in runs:
            await live_store.result(run, timeout="20s")
        await until(lambda: status_of(address), 20, message="it answers again")
        for reader, writer in slow:
            async with asyncio.timeout(20):
                with contextlib.suppress(OSError):
                    await reader.read()  # it ends: the server has closed it
            writer.close()
        dribbling.cancel()
        for _ in range(3):
            dead = [await connected(address, b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(5)]
            for reader, writer in dead:
                await reader.readuntil(b"event: look")
                writer.transport.abort()
            await until(lambda: status_of(address, "/live"), 20, message="there is room for a stream again")


@pytest.mark.proves("dashboard-05")
@pytest.mark.backends("sqlite", reason="connections are the server's, whatever is behind it")
async def test_a_server_that_stops_ends_its_streams_and_reports_nothing(
    live_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(live_store) as address:
        reader, writer = await connected(address, b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"retry")
    async with asyncio.timeout(10):
        await reader.read()
    writer.close()
    assert "Exception" not in caplog.text


async def connected(address: str, first: bytes) -> Streams:
    """A connection that has said this much."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
    writer.write(first)
    return reader, writer


async def dribble(writer: asyncio.StreamWriter) -> None:
    """Say a header that never ends."""
    while not writer.transport.is_closing():
        writer.write(b"a")
        await asyncio.sleep(0.05)


async def status_of(address: str, path: str = "/") -> bool:
    """True if the dashboard answers."""
    async with httpx.AsyncClient(base_url=address.replace("127.0.0.1", "localhost")) as client:
        try:
            async with client.stream("GET", path) as answer:
                return answer.status_code == 200
        except httpx.TransportError:
            return False


@pytest.mark.proves("dashboard-06")
@pytest.mark.backends("sqlite", "postgres", reason="operators race as transactions do; Turso has SQLite's statements")
async def test_two_operators_and_a_worker_act_at_once_and_nothing_is_done_twice(live_store: Store) -> None:
    store = live_store
    DONE.clear()
    async with dashboard(store, [order]) as ann, dashboard(store, [order]) as bob, Worker(store, [order]):
        runs = {name: int(await store.trigger(order.trigger(name))) for name in map(str, range(12))}
        said: dict[str, list[str]] = {}
        for name, run in runs.items():
            if int(name) % 2:
                await until(partial(waits, store, run))
            acts = ACTS[int(name) % len(ACTS)]
            said[name] = await asyncio.gather(
                *(act(desk, run) for act, desk in zip(acts, (ann, bob), strict=True)),
            )
        for name, run in runs.items():
            if (await store.get_run(run)).status is not RunStatus.CANCELLED:
                await store.signal(run, "accepted", "late")
            await until(partial(ended, store, run))
            await judge(store, name, run, said[name])


async def waits(store: Store, run: int) -> bool:
    return (await store.get_run(run)).status is RunStatus.PAUSED


async def ended(store: Store, run: int) -> bool:
    return (await store.get_run(run)).status.finished


async def cancel(desk: Any, run: int) -> str:
    return str(await desk.done(f"/runs/{run}/cancel"))


async def signal(desk: Any, run: int) -> str:
    return str(await desk.done(f"/runs/{run}/signal", name="accepted", data='"now"'))


async def pause(desk: Any, run: int) -> str:
    first = await desk.done(f"/runs/{run}/pause")
    await desk.done(f"/runs/{run}/unpause")
    return str(first)


ACTS = ((cancel, cancel), (cancel, signal), (signal, signal), (pause, cancel), (pause, signal), (pause, pause))


async def judge(store: Store, name: str, run: int, said: list[str]) -> None:
    """What each was told is what became of the run, and no step was executed twice."""
    found = await store.get_run(run)
    done = [what for each, what in DONE if each == name]
    assert len(done) == len(set(done)) <= 2, (name, done)
    cancelled = [one for one in said if "is cancelled" in one]
    asked = [one for one in said if "asked to stop" in one]  # by whom the worker did not hear of it in time, or did
    assert len(cancelled) <= 1, said
    if found.status is RunStatus.CANCELLED:
        assert cancelled or asked, (name, said)
    else:
        assert not cancelled, (name, said)
    if found.status is RunStatus.SUCCESS:
        assert done == ["stock", found.output(str)], (name, done, said)
