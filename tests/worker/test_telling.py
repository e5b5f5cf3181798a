"""What a worker tells: events, and a log that an outage cannot flood."""

import asyncio
import logging
import time
from typing import Any

import pytest

from stepwell import Store, StoreUnavailable, Worker, handler
from stepwell.base import telemetry
from stepwell.base.events import InternalTaskFailed, SessionStarted, StoreLost, TaskDied
from stepwell.base.telemetry import LogBudget
from tests.ground.waiting import until


@pytest.fixture(autouse=True)
def budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log budget that no other test has spent."""
    monkeypatch.setattr(telemetry, "_budget", LogBudget())


async def test_a_failing_database_costs_at_most_a_line_a_second(
    live_store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Any] = []
    live_store.database.telemetry.subscribe(events.append)
    away = asyncio.Event()
    done: list[int] = []

    def failing(verb: str) -> Any:
        real = getattr(live_store.database.driver, verb)

        async def call(*args: Any, **options: Any) -> Any:
            if away.is_set():
                raise StoreUnavailable("connection refused")
            return await real(*args, **options)

        return call

    for verb in ("run", "read", "transact"):
        monkeypatch.setattr(live_store.database.driver, verb, failing(verb))

    @handler("mail")
    async def send(number: int) -> None:
        done.append(number)

    caplog.set_level(logging.INFO, "stepwell")
    async with Worker(live_store, [send]) as worker:
        session = worker.id
        await live_store.enqueue(send, 1)
        await until(lambda: done == [1])
        caplog.clear()
        began = time.monotonic()
        away.set()
        late = asyncio.create_task(live_store.enqueue(send, 2))
        await until(lambda: sum(isinstance(event, StoreLost) for event in events) > 15, timeout=30)
        lines = [record.getMessage() for record in caplog.records]
        assert 1 <= len(lines) <= time.monotonic() - began + 1
        assert all("the database does not answer (" in line and "connection refused" in line for line in lines)
        away.clear()
        await late
        await until(lambda: done == [1, 2])
        assert worker.id == session
    assert not any(isinstance(event, InternalTaskFailed) for event in events)


async def test_a_session_is_announced_and_payloads_stay_out_of_the_log(
    live_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Any] = []
    live_store.database.telemetry.subscribe(events.append)
    caplog.set_level(logging.DEBUG, "stepwell")

    @handler("mail", retry=1)
    async def fail(payload: dict[str, str]) -> None:
        raise ValueError("no")

    async with Worker(live_store, [fail]) as worker:
        message = await live_store.enqueue(fail, {"card": "4111-payload"})
        await until(lambda: TaskDied(message, "mail", "ValueError: no") in events)
        assert SessionStarted(worker.id) in events
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "failed for good: ValueError: no" in text
    assert "4111-payload" not in text


async def test_a_listener_that_raises_disturbs_nothing(live_store: Store) -> None:
    done: list[int] = []

    def shout(event: object) -> None:
        raise RuntimeError("shout")

    live_store.database.telemetry.subscribe(shout)

    @handler("mail", retry=1)
    async def send(number: int) -> None:
        done.append(number)
        raise ValueError

    async with Worker(live_store, [send]):
        await live_store.enqueue_many(send, [1, 2, 3])
        await until(lambda: sorted(done) == [1, 2, 3])


async def test_an_internal_loop_that_breaks_is_told_and_started_again(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    live_store.database.telemetry.subscribe(events.append)
    done: list[int] = []
    real = live_store.database.tasks.claim
    broken = [True]

    async def claim(*args: Any, **options: Any) -> Any:
        if broken:
            broken.clear()
            raise ZeroDivisionError("a defect of ours")
        return await real(*args, **options)

    monkeypatch.setattr(live_store.database.tasks, "claim", claim)

    @handler("mail")
    async def send(number: int) -> None:
        done.append(number)

    async with Worker(live_store, [send]):
        await live_store.enqueue(send, 1)
        await until(lambda: done == [1])
    assert [event.name for event in events if isinstance(event, InternalTaskFailed)] == ["claim"]
