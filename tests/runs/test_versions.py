"""A version is a name: names run side by side, what began on one ends on it, and the caller says where runs go."""

import zlib
from dataclasses import dataclass
from datetime import datetime
from typing import Never

import pytest

from stepwell import Decider, Decision, Engine, Store, Trigger, Worker, WorkflowNotFound, admin, handler, step, workflow


@step
async def charge(order: str, version: int) -> str:
    return f"{order} by v{version}"


@workflow(name="pay_v1")
async def pay_v1(order: str) -> str:
    return await charge(order, 1)


@workflow(name="pay_v2")
async def pay_v2(order: str) -> str:
    return await charge(order, 2)


def pay(order: str, percent: int) -> Trigger[str]:
    """As the page about versions does it."""
    return (pay_v2 if zlib.crc32(order.encode()) % 100 < percent else pay_v1).trigger(order)


@pytest.mark.proves("VR-01", "VR-02")
async def test_what_began_on_one_name_ends_on_it_beside_the_other(store: Store) -> None:
    first = await pay_v1.trigger("a").execute(store)
    await Worker(store, [pay_v2]).drain()
    assert (await store.get_run(first)).status == "PENDING"
    second = await pay_v2.trigger("b").execute(store)
    await Worker(store, [pay_v1, pay_v2]).drain()
    assert (await store.result(first), await store.result(second)) == ("a by v1", "b by v2")
    assert (await store.counts("pay_v1"), await store.counts("pay_v2")) == ({"SUCCESS": 1}, {"SUCCESS": 1})


@pytest.mark.proves("VR-04")
async def test_a_percentage_of_triggers_goes_to_another_name(store: Store) -> None:
    orders = [f"order-{number}" for number in range(200)]
    for percent, expected in ((0, 0), (100, 200)):
        runs = await store.trigger_many([pay(order, percent) for order in orders])
        assert sum([(await store.get_run(run)).workflow == "pay_v2" for run in (runs[0], runs[-1])]) == expected // 100
    before = (await store.counts("pay_v2"))["PENDING"]
    await store.trigger_many([pay(order, 20) for order in orders])
    assert 20 <= (await store.counts("pay_v2"))["PENDING"] - before <= 60, "a fifth, give or take"
    assert pay("order-7", 20).workflow == pay("order-7", 20).workflow, "one order, one version"


@pytest.mark.proves("VR-05", "VR-06")
async def test_any_suffix_is_a_name_and_none_is_the_latest(store: Store) -> None:
    for name in ("pay.1.4.2", "pay-2026-01-31", "pay-3f2a9c1", "pay:staging", "pay_v3"):
        await store.create_workflow(name)
        run_id = await workflow(name).trigger("a").execute(store)
        assert (await store.get_run(run_id)).workflow == name
    with pytest.raises(WorkflowNotFound, match="pay"):
        await workflow("pay").trigger("a").execute(store)


@dataclass(frozen=True)
class Add:
    account: str
    cents: int


@dataclass(frozen=True)
class Added:
    cents: int


class Accounts(Decider[int, Add, Added, Never]):
    type, route = "account", "account"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Added) -> int:
        return state + event.cents

    def decide(self, state: int, input: Add, now: datetime) -> Decision[Added, Never, Never]:
        return Decision.event(Added(input.cents))


@handler("versions.mail")
async def send(address: str) -> None: ...


@pytest.mark.proves("G-05", "DP-03")
async def test_no_type_of_an_application_changes_the_tables(store: Store) -> None:
    engine = Engine(store).register(Accounts())
    await engine.execute(Add("ada", 500))
    await store.enqueue(send, "ada@example.org")
    await pay_v1.trigger("a").execute(store)
    await Worker(store, [engine, send, pay_v1]).drain()
    await admin(store).verify()  # exactly this release's tables, whatever was declared and stored
