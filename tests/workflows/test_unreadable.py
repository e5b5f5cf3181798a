"""A run that the code of its worker cannot read: left to other code, and held in the end; it never dies of that."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from stepwell import (
    Context,
    PermanentError,
    Reason,
    SerializationError,
    Step,
    Store,
    StoreUnavailable,
    Workflow,
    handler,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.base.events import Event, TaskUnreadable
from stepwell.base.program import program
from stepwell.work import upkeep
from stepwell.work.session import MOST_WARNED
from stepwell.work.upkeep import Holds
from tests.store.seam import row_of
from tests.workflows.kit import begun, drained, steps_of, task_of


class Old(msgspec.Struct):
    id: int


class New(msgspec.Struct):
    id: int
    cents: int


class Placed(msgspec.Struct, tag=True):
    order: int


class Paid(msgspec.Struct, tag=True):
    order: int


Deploy = Callable[[Store], Awaitable[tuple[int, Workflow[..., Any], str]]]


async def result(store: Store) -> tuple[int, Workflow[..., Any], str]:
    """A recorded result has fields that the class has not any more, or lacks those that it has."""
    return await _deployed(store, _asks), _asks(New), "result of price#1"


async def sync_result(store: Store) -> tuple[int, Workflow[..., Any], str]:
    return await _deployed(store, _asks_in_a_thread), _asks_in_a_thread(New), "result of price#1"


async def signal(store: Store) -> tuple[int, Workflow[..., Any], str]:
    """A signal was taken, and its type has changed since."""

    def waits(type_: Any) -> Workflow[..., Any]:
        @workflow(name="buy")
        async def buy(ctx: Context) -> None:
            with_all_caught = None
            try:
                with_all_caught = await ctx.wait("approved", type_)
            except Exception:  # noqa: BLE001 - whatever the workflow catches
                await ctx.step("refund", lambda: None)
            await ctx.wait("shipped")
            assert with_all_caught

        return buy

    run_id = await begun(store, waits(Old))
    await store.signal(run_id, "approved", {"id": 1})
    await drained(store, waits(Old))
    return run_id, waits(New), "signal approved"


async def child(store: Store) -> tuple[int, Workflow[..., Any], str]:
    """A child has returned what the parent could read then."""

    def asks(type_: Any) -> Workflow[..., Any]:
        @workflow(name="buy")
        async def buy(ctx: Context) -> None:
            await _priced(type_).trigger().wait().execute(ctx)
            await ctx.wait("shipped")

        return buy

    run_id = await begun(store, asks(Old))
    await drained(store, asks(Old), _priced(Old))
    await drained(store, asks(Old))
    return run_id, asks(New), "result of price()#1"


async def children(store: Store) -> tuple[int, Workflow[..., Any], str]:
    def asks(type_: Any) -> Workflow[..., Any]:
        @workflow(name="buy")
        async def buy(ctx: Context) -> None:
            one = await _priced(type_).trigger().execute(ctx)
            await ctx.results([one])
            await ctx.wait("shipped")

        return buy

    run_id = await begun(store, asks(Old))
    await drained(store, asks(Old), _priced(Old))
    await drained(store, asks(Old))
    return run_id, asks(New), "result of results()#1"


async def input_(store: Store) -> tuple[int, Workflow[..., Any], str]:
    """A run that has begun, and whose parameter has changed since."""

    def takes(type_: Any) -> Workflow[..., Any]:
        async def buy(ctx: Context, order: Any) -> None:
            await ctx.wait("shipped")

        buy.__annotations__ = {"ctx": Context, "order": type_}
        return workflow(name="buy")(buy)

    run_id = await begun(store, takes(Old), Old(1))
    await drained(store, takes(Old))
    return run_id, takes(New), "argument of buy"


async def newer_input(store: Store) -> tuple[int, Workflow[..., Any], str]:
    """New code has asked for a run with a class that the old does not have."""

    def takes(type_: Any) -> Workflow[..., Any]:
        async def buy(order: Any) -> None:
            pass

        buy.__annotations__ = {"order": type_}
        return workflow(name="buy")(buy)

    return await begun(store, takes(Placed | Paid), Paid(1)), takes(Placed), "argument of buy"


def _priced(type_: Any) -> Workflow[..., Any]:
    async def price() -> Any:
        return {"id": 1}

    price.__annotations__ = {"return": type_}
    return workflow(name="price")(price)


async def _deployed(store: Store, made: Callable[[Any], Workflow[..., Any]]) -> int:
    run_id = await begun(store, made(Old))
    await drained(store, made(Old))
    return run_id


def _asks(type_: Any) -> Workflow[..., Any]:
    @workflow(name="buy")
    async def buy(ctx: Context) -> None:
        try:
            await asyncio.gather(ctx.step("price", lambda: {"id": 1}, returns=type_), ctx.wait("shipped"))
        except Exception:  # noqa: BLE001 - whatever the workflow catches
            await ctx.step("refund", lambda: None)

    return buy


def _asks_in_a_thread(type_: Any) -> Workflow[..., Any]:
    @workflow(name="buy")
    def buy(ctx: sync.Context) -> None:
        try:
            ctx.step("price", lambda: {"id": 1}, returns=type_)
        except Exception:  # noqa: BLE001 - whatever the workflow catches
            ctx.step("refund", lambda: None)
        ctx.wait("shipped")

    return buy


DEPLOYS = pytest.mark.parametrize("deploy", [result, sync_result, signal, child, children, input_, newer_input])


async def woken(store: Store, run_id: int) -> None:
    """Have the run claimed again, if it has begun and waits."""
    if (await store.get_run(run_id)).status == "PAUSED":
        await store.signal(run_id, "shipped")


@pytest.mark.proves("R-16", "DP-06", "F-15")
@DEPLOYS
async def test_a_run_for_other_code_is_left_to_it_and_says_so(store: Store, clock: TestClock, deploy: Deploy) -> None:
    told: list[Event] = []
    store.database.telemetry.subscribe(lambda event: told.append(event) if isinstance(event, TaskUnreadable) else None)
    run_id, newer, what = await deploy(store)
    recorded = {key: step.status for key, step in (await steps_of(store, run_id)).items()}
    await woken(store, run_id)
    spans = []
    for _ in range(4):
        clock.advance("1m")
        assert await drained(store, newer) == 1
        task = await task_of(store, run_id)
        assert (task.status, task.attempt) == ("PENDING", 0)
        assert str(task.last_error).startswith(f"NotThisCode: {what} refused at `$")
        assert task.run_at is not None
        spans.append(round(task.run_at.timestamp() - clock.now() / 1_000_000))
    assert spans == [1, 60, 60, 60]
    assert {key: step.status for key, step in (await steps_of(store, run_id)).items()} == recorded, "no step began"
    why = await store.why(run_id)
    assert (why.reason, why.until) == (Reason.CODE_DIFFERS, (await task_of(store, run_id)).run_at)
    assert f"{what} refused at `$" in why.message
    assert "deploy" in why.next
    assert [one.unreadable for one in await store.queue_stats() if one.queue == "buy"] == [1]
    assert len(told) == 4, "once for each worker"


@pytest.mark.proves("R-16", "F-15")
@DEPLOYS
async def test_a_run_that_no_code_can_read_for_a_week_is_held(store: Store, clock: TestClock, deploy: Deploy) -> None:
    told: list[Event] = []
    store.database.telemetry.subscribe(lambda event: told.append(event) if isinstance(event, TaskUnreadable) else None)
    run_id, newer, what = await deploy(store)
    await woken(store, run_id)
    clock.advance("30d")
    for after in ("6d", "2d"):
        await drained(store, newer)
        assert (await store.get_run(run_id)).status == "PENDING"
        clock.advance(after)
    await drained(store, newer)
    task = await task_of(store, run_id)
    assert (task.status, task.attempt, await store.dead_letters()) == ("PAUSED", 0, [])
    assert f"stepwell accept {run_id}" in str(told[-1]), "the log says that it is held, and what to do"
    why = await store.why(run_id)
    assert (why.reason, why.until) == (Reason.CODE_DIFFERS, None)
    assert f"{what} refused at `$" in why.message
    assert f"stepwell accept {run_id}" in why.message
    queue_id = (await row_of(store, run_id))["queue_id"]
    assert await Holds(store.database, lambda: [queue_id]).look() == 0, "the code that has held it does not let it go"
    assert await store.accept(run_id, reason="the class has its fields again")
    await drained(store, newer)
    assert (await store.get_run(run_id)).status == "PENDING", "accepted, it has a week again"
    clock.advance("8d")
    await drained(store, newer)
    assert (await store.get_run(run_id)).status == "PAUSED", "and is held again by the same code"


@pytest.mark.proves("DP-06", "DP-07")
async def test_what_could_not_be_read_goes_on_with_code_that_can(store: Store, clock: TestClock) -> None:
    run_id, newer, _ = await result(store)
    await woken(store, run_id)
    await drained(store, newer)
    clock.advance("1m")
    await drained(store, _asks(Old))
    run = await store.get_run(run_id)
    assert (run.status, run.attempt, run.last_error) == ("SUCCESS", 1, None)


@pytest.mark.proves("DP-06")
async def test_a_worker_with_other_code_lets_a_held_run_go(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, newer, _ = await result(store)
    await woken(store, run_id)
    await drained(store, newer)
    clock.advance("8d")
    await drained(store, newer)
    assert (await store.get_run(run_id)).status == "PAUSED"
    other = dataclasses.replace(await program(), code="other")
    monkeypatch.setattr(upkeep, "program", lambda: asyncio.sleep(0, other))
    queue_id = (await row_of(store, run_id))["queue_id"]
    assert await Holds(store.database, lambda: [queue_id]).look() == 1
    await drained(store, _asks(Old))
    assert (await store.get_run(run_id)).status == "SUCCESS"


@pytest.mark.proves("R-16", "DP-06")
async def test_a_run_that_is_retried_or_forked_with_other_code_is_left_to_that_which_has_read_it(
    store: Store, clock: TestClock
) -> None:
    def takes(type_: Any) -> Workflow[..., Any]:
        async def buy(ctx: Context, order: Any) -> None:
            await ctx.step("price", lambda: 1)
            await ctx.step("stock", lambda: 0)
            raise PermanentError("no stock")

        buy.__annotations__ = {"ctx": Context, "order": type_}
        return workflow(name="buy")(buy)

    run_id = await begun(store, takes(Old), Old(1))
    await drained(store, takes(Old))
    forked = await store.fork(run_id, at="stock")
    await store.retry(run_id)
    await drained(store, takes(New))
    for one in (run_id, forked):
        run = await store.get_run(one)
        assert (run.status, run.attempt) == ("PENDING", 0)
        assert str(run.last_error).startswith("NotThisCode: argument of buy refused at `$")


@pytest.mark.proves("R-16", "DP-06")
async def test_the_input_that_a_run_restarts_with_was_read_by_the_code_that_gave_it(store: Store) -> None:
    def takes(type_: Any) -> Workflow[..., Any]:
        async def buy(ctx: Context, order: Any) -> None:
            await store.pause_queue("buy")
            ctx.restart(Old(2))

        buy.__annotations__ = {"ctx": Context, "order": type_}
        return workflow(name="buy")(buy)

    run_id = await begun(store, takes(Old), Old(1))
    await drained(store, takes(Old))
    await store.resume_queue("buy")
    await drained(store, takes(New))
    run = await store.get_run(run_id)
    assert (run.status, run.attempt) == ("PENDING", 0)
    assert str(run.last_error).startswith("NotThisCode: argument of buy refused at `$")


@pytest.mark.proves("W-11")
async def test_an_input_that_no_code_has_read_ends_the_run(store: Store, clock: TestClock) -> None:
    """By name alone nothing is checked, and nothing shows that other code could read it: also if it is retried."""

    @workflow
    async def buy(order: Old) -> None:
        pass

    await store.create_workflow("buy")
    run_id = await begun(store, workflow("buy"), {"id": "seven"})
    for _ in range(2):
        clock.advance("1s")
        await drained(store, buy)
        run = await store.get_run(run_id)
        assert (run.status, run.attempt) == ("ERROR", 1)
        assert str(run.last_error).startswith("SerializationError: argument of buy refused at `$.id`")
        await store.retry(run_id)


@pytest.mark.proves("R-16", "S-14")
async def test_what_a_child_returns_and_its_parent_never_could_read_is_the_parents_to_catch(
    store: Store, clock: TestClock
) -> None:
    """It is recorded as that, so that every replay raises the same, and `retry` looks at the child again."""
    caught: list[str] = []

    def asks(type_: Any, *, catches: bool) -> Workflow[..., Any]:
        @workflow(name="buy")
        async def buy(ctx: Context) -> None:
            try:
                await _priced(type_).trigger().wait().execute(ctx)
            except SerializationError as error:
                caught.append(str(error))
                if not catches:
                    raise
            await ctx.wait("shipped")

        return buy

    run_id = await begun(store, asks(int, catches=True))
    await drained(store, asks(int, catches=True), _priced(Old))
    await drained(store, asks(int, catches=True))
    await store.signal(run_id, "shipped")
    await drained(store, asks(int, catches=True))
    assert (await store.get_run(run_id)).status == "SUCCESS"
    assert len(set(caught)) == 1
    assert caught[0].startswith("result of price()#1 refused at `$`")
    failed = await begun(store, asks(int, catches=False))
    await drained(store, asks(int, catches=False), _priced(Old))
    await drained(store, asks(int, catches=False))
    assert (await store.get_run(failed)).status == "ERROR"
    await store.retry(failed)
    await drained(store, asks(Old, catches=False))
    assert (await store.get_run(failed)).status == "PAUSED", "it waits for `shipped`"


@pytest.mark.proves("R-16", "DP-06")
@pytest.mark.parametrize(
    ("wrote", "given", "reads", "status"), [(Placed | Paid, Paid(1), Placed, "PENDING"), (Any, "seven", int, "ERROR")]
)
async def test_the_arguments_of_a_step_of_a_queue_are_judged_like_an_input(
    store: Store, wrote: Any, given: Any, reads: Any, status: str
) -> None:
    def priced(type_: Any) -> Step[..., Any]:
        async def price(order: Any) -> int:
            return 1

        price.__annotations__ = {"order": type_, "return": int}
        return step(queue="prices")(price)

    asked = priced(wrote)

    @workflow
    async def buy() -> int:
        result: int = await asked(given)
        return result

    run_id = await begun(store, buy)
    await drained(store, buy)
    [call] = await store.steps(run_id)
    [child] = call.output["ids"]
    await drained(store, priced(reads))
    task = await task_of(store, child)
    assert task.status == status
    error = "NotThisCode" if status == "PENDING" else "SerializationError"
    assert str(task.last_error).startswith(f"{error}: argument of price refused at `$")


@pytest.mark.proves("R-16", "DP-06")
async def test_a_run_that_is_left_still_ends_at_its_deadline(store: Store, clock: TestClock) -> None:
    def asks(type_: Any) -> Workflow[..., Any]:
        @workflow(name="buy", timeout="10s")
        async def buy(ctx: Context) -> None:
            await ctx.step("price", lambda: {"id": 1}, returns=type_)
            await ctx.wait("shipped")

        return buy

    run_id = await _deployed(store, asks)
    await woken(store, run_id)
    for seconds in (3, 4):
        await drained(store, asks(New))
        clock.advance(seconds)
    await drained(store, asks(New))
    row = await row_of(store, run_id)
    assert row["run_at"] == row["started_at"] + 10_000_000
    clock.advance(3)
    await drained(store, asks(New))
    assert str((await store.get_run(run_id)).last_error).startswith("Timeout: ")


@pytest.mark.proves("R-16", "F-15")
async def test_a_run_is_left_to_other_code_also_if_the_database_is_away_when_it_is_judged(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, newer, _ = await result(store)
    await woken(store, run_id)

    async def away(_: int) -> None:
        raise StoreUnavailable("no route to host")

    monkeypatch.setattr(store.database.tasks, "again", away)
    await drained(store, newer)
    task = await task_of(store, run_id)
    assert (task.status, task.attempt) == ("PENDING", 0), "an outage spends no attempt"
    assert str(task.last_error).startswith("NotThisCode: ")


@pytest.mark.proves("F-15")
async def test_a_worker_warns_of_few_causes_however_many_there_are(store: Store, clock: TestClock) -> None:
    told: list[Event] = []
    store.database.telemetry.subscribe(lambda event: told.append(event) if isinstance(event, TaskUnreadable) else None)

    @handler("placed")
    async def older(order: Placed | Paid) -> None:
        pass

    await store.create_queue("placed")
    await store.enqueue_many("placed", [{"type": f"Newer{number}", "order": 1} for number in range(MOST_WARNED + 5)])
    await drained(store, older)
    assert len(told) == MOST_WARNED
