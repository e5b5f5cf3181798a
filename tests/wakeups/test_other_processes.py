"""What another process adds is heard of at once; whatever becomes of the hearing, polling finds it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from stepwell import Store, connect
from stepwell.base.events import InternalTaskFailed, ListenerBack, ListenerLost
from stepwell.store.hints import listener as ears
from tests.ground.faultproxy import FaultProxy
from tests.ground.processes import Crew
from tests.ground.waiting import until
from tests.wakeups.ways import Mail, hearing, listeners, overhearing

TWO_PROCESSES = pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process at a time")
POSTGRES = pytest.mark.backends("postgres", reason="only Postgres is told; SQLite's file is watched")


@pytest.fixture
async def other(store_url: str) -> AsyncIterator[Store]:
    """A second store in this process: to the first it is another process."""
    async with connect(store_url) as opened:
        await opened.create_queue("mail")
        yield opened


@TWO_PROCESSES
@pytest.mark.usefixtures("no_polls")
@pytest.mark.proves("rule-17", "rule-18")
async def test_a_message_of_another_process_begins_without_a_poll(
    store_url: str, backend: str, mail: Mail, tmp_path: Path
) -> None:
    async with connect(store_url) as store, mail.worker_that_never_polls(store):
        await hearing(store)
        claims: list[int] = []
        claim = store.database.tasks.claim

        async def counted(*args: Any, **options: Any) -> Any:
            claims.append(1)
            return await claim(*args, **options)

        store.database.tasks.claim = counted  # type: ignore[method-assign]
        with Crew("tests.wakeups.sender", store_url, "5", size=1, folder=tmp_path) as crew:
            await until(lambda: len(mail.done) == 5, 20, message=f"five messages\n{crew.complaints()}")
        # Each message is told of at most once, and whoever claims something looks once more for what came meanwhile.
        assert len(claims) <= 2 * 5 + 2


@TWO_PROCESSES
@pytest.mark.usefixtures("no_polls")
@pytest.mark.proves("rule-17")
async def test_whoever_waits_in_a_dequeue_is_woken_by_another_process(
    store_url: str, backend: str, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ears, "CLOSE_AFTER", 0.05)
    async with connect(store_url) as store:
        inside = store.database.wakeups._hearing
        assert inside is not None
        await other.enqueue("mail", 1)
        with monkeypatch.context() as patient:  # a busy machine may take longer for it than one usually waits
            patient.setattr(ears, "OPEN_AFTER", 60)
            [message] = await store.dequeue("mail", until=60)
        assert inside._job is None  # it had not to wait, so nothing was opened
        waiting = asyncio.create_task(store.dequeue("mail", until=60))
        await hearing(store)
        await other.enqueue("mail", 2)
        [message] = await asyncio.wait_for(waiting, 20)
        assert message.payload == 2
        await until(lambda: inside._job is None, message="an ear that is closed when nobody waits")
        if backend == "postgres":
            await until(lambda: _nobody_listens(store_url))
        else:
            await until(lambda: not _watching())


@TWO_PROCESSES
@pytest.mark.proves("rule-18", "CF-06")
async def test_listening_can_be_switched_off(store_url: str, backend: str, other: Store, mail: Mail) -> None:
    async with connect(store_url, listen=False) as store, mail.worker(store):
        assert store.database.wakeups._hearing is None
        assert store.database.wakeups._teller is None
        if backend == "postgres":
            async with overhearing(store_url) as words:
                await store.enqueue(mail.send, 1)
                await until(lambda: mail.done == [1])
                await other.enqueue(mail.send, 2)
                await until(lambda: mail.done == [1, 2])  # by polling
                await until(lambda: words)
                assert {word.partition(":")[0] for word in words} == {_sender(other)}
            assert await listeners(store_url) == 0
        else:
            await other.enqueue(mail.send, 2)
            await until(lambda: mail.done == [2])
            assert not _watching()


@POSTGRES
@pytest.mark.usefixtures("backend", "quick")
@pytest.mark.proves("rule-17", "rule-19")
@pytest.mark.parametrize("fault", ["terminate", "reset", "stall"])
async def test_a_lost_listener_costs_time_only_and_comes_back(
    fault: str, store_url: str, proxy: FaultProxy, other: Store, mail: Mail
) -> None:
    listen = proxy.url(store_url)
    async with connect(store_url, listen=listen, telemetry=mail.telemetry) as store, mail.worker(store):
        await hearing(store)
        mail.events.clear()
        await _hurt(fault, proxy, store_url)
        await other.enqueue(mail.send, 1)
        await until(lambda: mail.done == [1], message="found by polling, if it was not heard")
        await until(lambda: mail.told(ListenerLost), message="noticed")
        proxy.heal()
        await until(lambda: mail.told(ListenerBack), message="heard again")
        assert [type(event) for event in mail.events] == [ListenerLost, ListenerBack]
        await other.enqueue(mail.send, 2)
        await until(lambda: mail.done == [1, 2])
    await until(lambda: proxy.open_connections == 0, message="no connection is left behind")


@POSTGRES
@pytest.mark.usefixtures("backend", "no_polls", "quick")
@pytest.mark.proves("rule-17")
async def test_what_was_added_while_nobody_listened_is_found_when_listening_begins_again(
    store_url: str, proxy: FaultProxy, other: Store, mail: Mail
) -> None:
    async with (
        connect(store_url, listen=proxy.url(store_url), telemetry=mail.telemetry) as store,
        mail.worker_that_never_polls(store),
    ):
        await hearing(store)
        proxy.refuse()
        proxy.reset()
        await until(lambda: mail.told(ListenerLost))
        async with overhearing(store_url) as words:
            await other.enqueue(mail.send, 1)
            await until(lambda: words)
        assert mail.done == []
        proxy.heal()
        await until(lambda: mail.done == [1])


@TWO_PROCESSES
@pytest.mark.proves("rule-34")
@pytest.mark.usefixtures("quick")
async def test_a_listener_that_breaks_is_told_of_and_begins_again(store_url: str, backend: str, mail: Mail) -> None:
    async with connect(store_url, telemetry=mail.telemetry) as store:
        driver: Any = store.database.driver
        listen, broken = driver.listen, [RuntimeError("a bug")]

        async def breaks_once(*args: Any) -> Any:
            if broken:
                raise broken.pop()
            return await listen(*args)

        driver.listen = breaks_once
        async with mail.worker(store):
            await hearing(store)
        failed = mail.told(InternalTaskFailed)
        assert [event.name for event in failed] == ["listener"]
        assert "a bug" in failed[0].error


@TWO_PROCESSES
@pytest.mark.usefixtures("backend")
async def test_a_closed_store_opens_no_ear_whoever_comes_late(store_url: str, mail: Mail) -> None:
    store = await connect(store_url)
    inside = store.database.wakeups._hearing
    assert inside is not None
    store.database.tasks.on_added(mail.events.append)
    await store.close()
    store.database.tasks.on_added(mail.events.append)
    assert (inside._timer, inside._job) == (None, None)


async def _hurt(fault: str, proxy: FaultProxy, url: str) -> None:
    match fault:
        case "stall":
            proxy.stall()
        case "reset":
            assert proxy.reset() == 1
        case "terminate":
            connection = await asyncpg.connect(url)
            try:
                ended = await connection.fetchval(
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                    " where datname = current_database() and query like 'LISTEN%'"
                )
            finally:
                await connection.close()
            assert ended == 1


async def _nobody_listens(url: str) -> bool:
    return await listeners(url) == 0


def _watching() -> bool:
    return any(thread.name == "stepwell-sqlite-watch" for thread in threading.enumerate())


def _sender(store: Store) -> str:
    assert store.database.wakeups._teller is not None
    return store.database.wakeups._teller._sender
