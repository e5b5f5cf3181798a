"""A database that stepwell has never heard of: whoever writes a driver for it has all of the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import Context, Engine, Retry, Store, StoreUnavailable, handler, step, workflow
from stepwell.base.clock import TestClock
from stepwell.base.telemetry import Telemetry
from stepwell.store import schema
from stepwell.store.database import Options
from stepwell.store.driver import Driver
from stepwell.store.sql import Statements
from tests.deciders.workbench import Bench, Do, labels
from tests.store.elsewhere import Elsewhere
from tests.workflows.kit import begun, die, drained


@pytest.fixture
async def elsewhere(clock: TestClock) -> AsyncIterator[Store]:
    statements = Statements("sqlite", "stepwell")
    driver: Driver = Elsewhere(statements)
    await schema.install(driver, statements)
    async with Store(driver, statements, Options(listen=False), clock, Telemetry()) as store:
        yield store


@handler("mail", retry=Retry(2, base="1s", jitter=0))
async def fail(payload: int) -> None:
    raise ValueError(payload)


@step
async def twice(number: int) -> int:
    return 2 * number


@workflow
async def adds(ctx: Context, number: int) -> int:
    first = await twice(number)
    await ctx.sleep("1h")
    return first + await ctx.wait("more", int)


@pytest.mark.proves("B-02")
async def test_messages_runs_and_deciders_work_on_a_driver_from_elsewhere(elsewhere: Store, clock: TestClock) -> None:
    store, engine = elsewhere, Engine(elsewhere).register(Bench())
    await schema.verify(store.database.driver, store.database.statements)
    assert [(await store.enqueue(fail, 7, key="k")).created for _ in range(2)] == [True, False]
    run_id = await begun(store, adds, 4)
    await engine.execute(Do("a", ask="mail", after=3600))
    serves: list[Any] = [fail, adds, engine]
    for _ in range(2):
        await drained(store, *serves)
        clock.advance(3601)
    assert await store.signal(run_id, "more", 1)
    await drained(store, *serves)
    assert (await store.get_run(run_id)).output() == 9
    assert await labels(engine) == ["x", "mail answered", "tick"]
    [letter] = await store.dead_letters()
    assert (letter.attempt, letter.last_error) == (2, "ValueError: 7")
    health = await store.health()
    assert health.backend == "elsewhere"


@pytest.mark.proves("B-02")
async def test_a_lost_worker_and_a_lost_reply_are_survived_there_too(
    elsewhere: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, calls, replies = elsewhere, [], iter([StoreUnavailable("it was done, and nobody heard")])
    run = Elsewhere.run

    async def lossy(self: Elsewhere, slot: int, calls: Any) -> Any:
        answer = await run(self, slot, calls)
        if (lost := next(replies, None)) is not None:
            raise lost
        return answer

    @step
    async def once() -> int:
        calls.append(1)
        if len(calls) == 1:
            await die(store.database)
        return len(calls)

    @workflow
    async def unlucky() -> int:
        return await once()

    monkeypatch.setattr(Elsewhere, "run", lossy)
    run_id = await begun(store, unlucky)
    for _ in range(2):
        await drained(store, unlucky)
    assert (await store.get_run(run_id)).output() == 2
    assert next(replies, None) is None, "no reply was lost: void"
