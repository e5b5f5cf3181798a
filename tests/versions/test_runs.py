"""Runs and messages whose classes change while they are open."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from stepwell import (
    Context,
    IdempotencyConflict,
    RunStatus,
    Store,
    Worker,
    handler,
    step,
    sync,
    upcast,
    workflow,
)
from stepwell.base.clock import TestClock
from tests.deciders.workbench import asked
from tests.workflows.kit import begun, drained, steps_of, task_of

calls: list[str] = []


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    calls.clear()


def in_cents(old: dict[str, Any]) -> dict[str, Any]:
    return {"cents": 100 * old["price"]}


def program(version: int, up: Any = in_cents) -> Any:
    """One version of a program: an order has a price in units, and from version 2 on in cents."""

    @dataclass(frozen=True)
    class Order:
        __stepwell_version__: ClassVar[int] = version
        cents: int = 0
        price: int = 0

    if version == 2:
        upcast(Order, 1)(up)

    @step
    async def charge(order: Order, note: str) -> Order:
        calls.append(f"charge {order.cents or order.price} {note}")
        return order

    @step(queue="spawned")
    async def elsewhere(order: Order) -> Order:
        calls.append(f"elsewhere {order.cents or order.price}")
        return order

    @workflow(name="child")
    async def child(order: Order) -> Order:
        return order

    @workflow(name="sale")
    async def sale(ctx: Context, order: Order) -> int:
        charged = await charge(order, "x")
        more = await ctx.wait("more", Order)
        calls.append("after")
        return charged.cents + more.cents

    @workflow(name="sync_sale")
    def sync_sale(ctx: sync.Context, order: Order) -> int:
        charged = ctx.step(charge, order, "x")
        more = ctx.wait("more", Order)
        calls.append("after")
        return charged.cents + more.cents

    @workflow(name="parent")
    async def parent(ctx: Context, order: Order) -> int:
        first = await child.trigger(order).wait().execute(ctx)
        ids = await ctx.trigger_many([child.trigger(order), child.trigger(order)])
        several = await ctx.results(ids)
        spawned = await elsewhere(order)
        await ctx.sleep("1h")
        return sum(one.cents or one.price for one in (first, *several, spawned))

    @handler("orders")
    async def take(order: Order) -> None:
        calls.append(f"take {order.cents or order.price}")

    return SimpleNamespace(**locals())


ONE, TWO = program(1), program(2)


@pytest.mark.proves("U-07", "DP-06")
@pytest.mark.parametrize("name", ["sale", "sync_sale"])
async def test_the_input_the_results_and_the_signals_of_an_open_run_are_upcast(store: Store, name: str) -> None:
    run_id = await begun(store, getattr(ONE, name), ONE.Order(price=3))
    await drained(store, getattr(ONE, name))
    before = await asked(store, "select cast(input as text) as input, cast(output as text) as output from {step}")
    await store.signal(run_id, "more", ONE.Order(price=4))
    await drained(store, getattr(TWO, name))
    run = await store.get_run(run_id)
    assert (run.status, run.output()) == (RunStatus.SUCCESS, 700)
    assert calls == ["charge 3 x", "after"], "it was charged once"
    after = await asked(store, "select cast(input as text) as input, cast(output as text) as output from {step}")
    assert tuple(before[0]) in [tuple(row) for row in after], "nothing that is recorded was rewritten"


@pytest.mark.proves("U-07", "DP-06")
async def test_children_and_steps_of_a_queue_are_upcast(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, ONE.parent, ONE.Order(price=3))
    await drained(store, ONE.parent)
    clock.advance("1m")
    for shop in (TWO, ONE, TWO, TWO):  # the children, the step of a queue and their parent change by and by
        await drained(store, shop.parent, shop.child, shop.elsewhere)
        clock.advance("1h")
    assert (await store.get_run(run_id)).output() == 1200
    assert len([call for call in calls if call.startswith("elsewhere")]) == 1


@pytest.mark.proves("U-04", "U-07", "DP-07")
@pytest.mark.parametrize("name", ["sale", "sync_sale"])
async def test_a_run_that_newer_code_has_gone_on_with_is_left_to_it_before_any_body(store: Store, name: str) -> None:
    run_id = await begun(store, getattr(ONE, name), ONE.Order(price=3))
    await drained(store, getattr(TWO, name))
    assert (await steps_of(store, run_id))["charge#1"].output["cents"] == 300
    await store.signal(run_id, "more", TWO.Order(cents=4))
    calls.clear()
    await drained(store, getattr(ONE, name))
    task = await task_of(store, run_id)
    assert (task.status, task.attempt, calls) == (RunStatus.PENDING, 0, [])
    assert "result of charge#1 refused" in str(task.last_error)
    assert "stored as Order, version 2, and this code has version 1" in str(task.last_error)
    assert "stored as Order, version 2" in str(await store.why(run_id))


@pytest.mark.proves("U-07")
async def test_a_signal_that_is_newer_than_the_code_is_kept_for_newer_code(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, ONE.sale, ONE.Order(price=3))
    await drained(store, ONE.sale)
    await store.signal(run_id, "more", TWO.Order(cents=4))  # not refused either: the wait is of another version
    await drained(store, ONE.sale)
    task = await task_of(store, run_id)
    assert (task.status, task.attempt) == (RunStatus.PENDING, 0)
    assert "signal more refused" in str(task.last_error)
    clock.advance("1m")
    await drained(store, TWO.sale)
    assert (await store.get_run(run_id)).output() == 304


@pytest.mark.proves("U-07")
async def test_the_result_of_a_child_that_is_newer_is_no_failure_of_its_parent(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, ONE.parent, ONE.Order(price=3))
    await drained(store, ONE.parent)
    await drained(store, TWO.child)
    await drained(store, ONE.parent)
    task = await task_of(store, run_id)
    assert (task.status, task.attempt) == (RunStatus.PENDING, 0)
    assert "result of child()#1 refused" in str(task.last_error)
    for _ in range(3):
        clock.advance("1h")
        await drained(store, TWO.parent, TWO.child, TWO.elsewhere)
    assert (await store.get_run(run_id)).output() == 1200


@pytest.mark.proves("U-07")
async def test_messages_in_flight_are_upcast_and_newer_ones_are_left(store: Store, clock: TestClock) -> None:
    await store.enqueue(ONE.take, ONE.Order(price=3))
    await store.enqueue_many(TWO.take, [TWO.Order(cents=5), {"cents": 6}])
    await drained(store, ONE.take)
    assert calls == ["take 3"]
    rows = await asked(store, "select status, attempt from {task} order by id")
    assert [(row["status"], row["attempt"]) for row in rows] == [("SUCCESS", 1), ("PENDING", 0), ("PENDING", 0)]
    await store.enqueue(ONE.take, ONE.Order(price=7))
    clock.advance("1m")
    await drained(store, TWO.take)
    assert sorted(calls[1:]) == ["take 5", "take 6", "take 700"]


@pytest.mark.proves("U-07")
async def test_a_key_is_compared_with_a_payload_of_its_own_version_only(store: Store) -> None:
    assert (await store.enqueue(ONE.take, ONE.Order(price=3), key="a")).created
    assert not (await store.enqueue(TWO.take, TWO.Order(cents=1), key="a")).created
    assert (await store.enqueue(TWO.take, TWO.Order(cents=1), key="b")).created
    with pytest.raises(IdempotencyConflict):
        await store.enqueue(TWO.take, TWO.Order(cents=2), key="b")
    await begun(store, ONE.sale, ONE.Order(price=3), key="run")
    assert not (await begun(store, TWO.sale, TWO.Order(cents=1), key="run")).created


@pytest.mark.proves("U-04")
async def test_an_upcaster_that_fails_is_an_ordinary_failure_that_no_workflow_catches(
    store: Store, clock: TestClock
) -> None:
    broken = program(2, lambda old: {"cents": old["no such field"]})

    @workflow(name="sale")
    async def catches(ctx: Context, order: Any) -> str:
        try:
            await broken.charge(broken.Order(cents=3), "x")
        except Exception:  # noqa: BLE001 - what it must not do
            calls.append("caught")
        return "went on"

    run_id = await begun(store, ONE.sale, ONE.Order(price=3))
    await drained(store, ONE.sale)
    await store.signal(run_id, "more", ONE.Order(price=4))
    await drained(store, catches)
    task = await task_of(store, run_id)
    assert (task.status, task.attempt) == (RunStatus.PENDING, 1)
    assert "result of charge#1 cannot be read: the upcaster of Order 1 failed" in str(task.last_error)
    assert "caught" not in calls
    await store.enqueue(ONE.take, ONE.Order(price=3))
    await drained(store, broken.take)
    [row] = await asked(store, "select attempt, last_error from {task} where kind = 'MESSAGE'")
    assert row["attempt"] == 1
    assert row["last_error"].startswith(
        "UpcastFailed: payload cannot be read: the upcaster of Order 1 failed: it raised"
    )
    clock.advance("1h")
    await Worker(store, [TWO.sale, TWO.take]).drain()
    assert (await store.get_run(run_id)).output() == 700


@pytest.mark.proves("U-07")
async def test_an_edited_result_of_a_fork_has_the_version_of_the_one_that_it_replaces(store: Store) -> None:
    run_id = await begun(store, TWO.sale, TWO.Order(cents=3))
    await drained(store, TWO.sale)
    forked = await store.fork(run_id, at="more", outputs={"charge": {"cents": 50}})
    await store.signal(forked, "more", TWO.Order(cents=4))
    await drained(store, TWO.sale)
    assert (await store.get_run(forked)).output() == 54


async def test_what_people_are_shown_is_the_value_without_its_version(store: Store) -> None:
    run_id = await begun(store, TWO.sale, TWO.Order(cents=3))
    await drained(store, TWO.sale)
    assert (await store.get_run(run_id)).input() == {"cents": 3, "price": 0}
    assert (await steps_of(store, run_id))["charge#1"].output == {"cents": 3, "price": 0}
