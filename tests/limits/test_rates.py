"""How many tasks of a queue begin in a period, in all and of each key, in every window of that length."""

import random
from collections import defaultdict
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import Context, InvalidOption, Limits, Rate, Reason, Store, Worker, current, handler, workflow
from stepwell.base.clock import TestClock
from stepwell.base.rates import Meter
from stepwell.store.rates import checked_units
from stepwell.sync import Context as SyncContext
from stepwell.testing import world
from tests.limits.test_running import claimed, end, keys_of, queue
from tests.store.seam import DONE, RELEASED, ask, begin

SECOND: Final = 1_000_000
Begun = list[tuple[int, int]]  # when, and what it costs


def worst(begun: Begun, period: int) -> int:
    """The most units that have begun in any window of a period."""
    most = first = units = 0
    for at, cost in begun:
        units += cost
        while begun[first][0] <= at - period:
            units -= begun[first][1]
            first += 1
        most = max(most, units)
    return most


@pytest.mark.proves("LI-10")
@given(
    st.integers(1, 60).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count))),
    st.sampled_from([1_000, 7_919, SECOND, 86_400 * SECOND]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 80)), min_size=1, max_size=80),
)
def test_no_window_holds_more_than_the_rate_and_no_task_waits_forever(
    rate: tuple[int, int], period: int, asked: list[tuple[int, int]]
) -> None:
    (count, burst), now, paid, begun = rate, 10**15, 0, Begun()
    meter = Meter(count, period, burst)
    for pause, cost in asked:
        now += pause * period // 100
        if (wait := meter.wait(paid, now, cost)) > 0:
            assert wait <= 2 * meter.price(count) + meter.price(80), "each waits for what those before it cost, no more"
            now += wait
            assert meter.wait(paid, now, cost) <= 0, "what it waits is enough"
        paid = max(paid, now) + meter.price(cost)
        begun.append((now, cost))
    assert worst([(at, min(cost, count)) for at, cost in begun if cost <= count], period) <= count


@pytest.mark.proves("LI-10")
def test_most_of_a_rate_is_used() -> None:
    for count in (1, 7, 50, 1_000, 1_000_000):
        meter, now, paid, units = Rate(count).meter, 0, 0, 0
        while now < 10 * SECOND:
            cost = max(1, meter.burst // 2)
            now += max(0, meter.wait(paid, now, cost))
            paid, units = max(paid, now) + meter.price(cost), units + cost
        assert 0.85 * count <= units / 10 <= 1.11 * count


@pytest.mark.proves("LI-10")
@pytest.mark.parametrize(("count", "burst"), [(60, 1), (60, 7), (7, 3)])
def test_one_after_the_other_as_soon_as_they_may_no_window_holds_more(count: int, burst: int) -> None:
    meter, now, paid, begun = Meter(count, 1_000, burst), 10**15, 0, Begun()
    for _ in range(5 * count):
        now += max(0, meter.wait(paid, now, 1))
        paid = max(paid, now) + meter.price(1)
        begun.append((now, 1))
    assert count - 1 <= worst(begun, 1_000) <= count


@pytest.mark.proves("LI-10", "LI-11", "LI-12")
@pytest.mark.parametrize("seed", range(2))
async def test_rates_in_all_and_of_keys_hold_in_every_window(store: Store, clock: TestClock, seed: int) -> None:
    chance = random.Random(seed)
    limits = Limits(rate=Rate(20, "1s", burst=6), key="tenant", key_rate=Rate(8, "1s", burst=3))
    number = await queue(store, limits)
    await store.limits.set("q", cost="units")
    worker, begun, of_key = await begin(store), Begun(), defaultdict[str, Begun](list)
    for turn in range(60):
        if turn % 6 == 0:
            costs = [chance.choice([1, 1, 1, 2, 3, 5, 8]) for _ in range(12)]
            await store.enqueue_many("q", [{"tenant": chance.choice("abcd"), "units": cost} for cost in costs])
        tasks = await claimed(store, worker, number, chance.choice([1, 3, 50]))
        for task in tasks:
            key, cost = keys_of([task]), int((task.input or "").partition('"units":')[2].rstrip("}"))
            begun.append((clock.now(), cost))
            of_key[key].append((clock.now(), cost))
        failed = [task for task in tasks if chance.random() < 0.2]
        await end(store, [task for task in tasks if task not in failed], DONE)
        await end(store, failed, RELEASED)  # a message begins anew: that is charged again
        clock.advance(chance.choice([0.01, 0.03, 0.1, 0.4]))
    assert worst(begun, SECOND) <= 20
    assert max(worst(each, SECOND) for each in of_key.values()) <= 8
    assert len(begun) >= 20


@pytest.mark.proves("LI-10")
async def test_a_burst_begins_at_once_and_the_rest_at_the_pace_of_the_rate(store: Store, clock: TestClock) -> None:
    number = await queue(store, Limits(rate="50/s", key="tenant", key_rate="100/s"), a=100)
    worker = await begin(store)
    assert len(await claimed(store, worker, number)) == 5
    assert not await claimed(store, worker, number)
    clock.advance(0.0218)
    assert len(await claimed(store, worker, number)) == 1
    clock.advance("1h")
    assert len(await claimed(store, worker, number)) == 5, "what was not used is not saved up"
    clock._now -= 1800 * SECOND  # somebody sets the clock back
    assert not await claimed(store, worker, number)
    clock.advance(0.0218)
    assert len(await claimed(store, worker, number)) == 1


@pytest.mark.proves("LI-11")
async def test_a_key_whose_rate_is_used_up_holds_no_other_back(store: Store, clock: TestClock) -> None:
    number = await queue(store, Limits(key="tenant", key_rate="10/s"), a=5, b=5, c=5)
    await store.limits.set("q", rate="1000/s")
    worker = await begin(store)
    assert keys_of(await claimed(store, worker, number)) == "abc"
    await store.enqueue("q", {"tenant": "bee"})
    assert keys_of(await claimed(store, worker, number, 1)) == "b", "though it comes after keys that wait"
    clock.advance(0.1)
    assert keys_of(await claimed(store, worker, number, 1)) == "c"
    assert keys_of(await claimed(store, worker, number)) == "ab"


@pytest.mark.proves("LI-11")
async def test_keys_that_have_rested_are_forgotten(store: Store, clock: TestClock) -> None:
    number = await queue(store, Limits(key="tenant", key_rate=Rate(10, "1s", burst=5)), a=1, b=1)
    worker = await begin(store)
    assert keys_of(await claimed(store, worker, number)) == "ab"
    await store.database.limiters.declared({number: None}, looks=True)
    assert len(await ask(store, "select limit_key from {key_paid}")) == 2
    clock.advance(2)
    await store.enqueue("q", {"tenant": "a"})
    assert keys_of(await claimed(store, worker, number)) == "a"
    await store.database.limiters.declared({number: None}, looks=True)
    assert [row["limit_key"] for row in await ask(store, "select limit_key from {key_paid}")] == ["a"]


@pytest.mark.proves("LI-12")
async def test_a_task_costs_what_its_input_or_its_option_says(store: Store, clock: TestClock) -> None:
    number = await queue(store, Limits(rate=Rate(100, "1s", burst=10)))
    await store.limits.set("q", cost="call.tokens")
    worker = await begin(store)
    await store.enqueue_many("q", [{"call": {"tokens": 4}}, {"call": {"tokens": "x"}}, 7])
    await store.enqueue("q", {"call": {"tokens": 1}}, cost=5)
    assert len(await claimed(store, worker, number)) == 3, "4, 1 and 1; 5 more are too many"
    clock.advance(0.011)
    assert len(await claimed(store, worker, number)) == 1
    await store.enqueue("q", 1, cost=50, priority=1)
    await store.enqueue("q", 1)
    clock.advance(0.3)
    assert not await claimed(store, worker, number), "what costs more than a burst waits, and nothing passes it"
    clock.advance(0.3)
    assert len(await claimed(store, worker, number)) == 1, "and begins alone"
    clock.advance(0.4)
    assert not await claimed(store, worker, number), "those after it wait until it is paid"
    clock.advance(0.1)
    assert len(await claimed(store, worker, number)) == 1
    with pytest.raises(InvalidOption):
        await store.enqueue("q", 1, cost=0)


@pytest.mark.proves("LI-13")
async def test_a_retry_is_charged_and_a_run_that_goes_on_is_not(store_url: str) -> None:
    begun: list[tuple[str, int]] = []

    @workflow(limits=Limits(rate="1/1h"))
    async def call(ctx: Context, name: str) -> str:
        begun.append((name, ctx.attempt))
        await ctx.sleep("2s")
        if name == "bad" and ctx.attempt == 1:
            raise ValueError(name)
        return name

    async with world(call, url=store_url) as w:
        good = await w.store.trigger(call.trigger("good"))
        await w.advance("1m")
        assert await w.store.result(good) == "good"
        bad = await w.store.trigger(call.trigger("bad"))
        await w.advance("58m")
        assert begun == [("good", 1), ("good", 1)]
        await w.advance("50m")
        assert begun[2:] == [("bad", 1), ("bad", 1)], "it has failed, and its retry waits for the rate"
        why = await w.store.why(bad)
        assert why.reason == Reason.LIMITED
        assert why.message.startswith("it is number 1 of 1 in line for no key: the rate of call is 1/1h, and allows")
        assert why.until is not None
        await w.advance("20m")
        assert begun[4:] == [("bad", 2)]
        assert await w.store.result(bad) == "bad"


@pytest.mark.proves("LI-13")
async def test_a_suspect_is_charged_too_and_waits_for_its_rate(store: Store, clock: TestClock) -> None:
    number = await queue(store, Limits(rate="10/s", key="tenant", key_rate="10/s"), a=1)
    lost, worker = await begin(store), await begin(store)
    [first] = await claimed(store, lost, number)
    [session] = [one for one in await store.database.sessions.living() if one.worker_id == lost]
    await store.database.sessions.bury(session)
    assert not await store.database.suspects.claim(worker, [number], beside=True)
    clock.advance(0.1)
    [again] = await store.database.suspects.claim(worker, [number], beside=True)
    assert again.id == first.id
    await store.enqueue("q", {"tenant": "b"})
    assert not await claimed(store, worker, number)
    clock.advance(0.1)
    assert len(await claimed(store, worker, number)) == 1


@pytest.mark.proves("LI-14")
async def test_what_a_task_costs_in_truth_is_settled_after_it(store_url: str) -> None:
    costs, begun = {"less": 1, "more": 30, "as told": 10}, list[str]()

    @handler(
        "ask", limits=Limits(rate=Rate(60, "1m", burst=10), key="who", key_rate=Rate(60, "1m", burst=10), cost="most")
    )
    async def ask(prompt: dict[str, Any]) -> None:
        begun.append(str(prompt["says"]))
        current().charge(99)
        current().charge(costs[str(prompt["says"])])  # the last one counts

    async with world(ask, url=store_url) as w:
        for says in ("less", "more", "as told"):
            await w.store.enqueue(ask, {"who": "me", "most": 10, "says": says})
        await w.drain()
        await w.store.database.charges.write()
        assert begun == ["less"]
        await w.advance("2s")  # at the pace of 51 a minute: 1 of 10 units was needed, and 9 are back
        await w.store.database.charges.write()
        assert begun == ["less", "more"]
        await w.advance("30s")
        assert begun == ["less", "more"], "20 more than was paid hold the next one back"
        await w.advance("10s")
        assert begun == ["less", "more", "as told"]


@pytest.mark.proves("LI-14")
async def test_a_run_a_thread_and_a_later_turn_charge_once(store_url: str) -> None:
    @workflow(limits=Limits(rate=Rate(600, "1m", burst=10)))
    def count(ctx: SyncContext, tokens: int) -> int:
        ctx.charge(tokens)  # again in every replay: it says the same
        ctx.sleep("1s")
        return tokens

    async with world(count, url=store_url) as w:
        begun_at = w.store.database.clock.now() or 0
        await w.store.trigger(count.trigger(61))
        await w.drain()
        await w.store.database.charges.write()
        await w.advance("2s")
        await w.store.database.charges.write()
        [row] = await ask(w.store, "select paid from {limiter}")
    assert row["paid"] == begun_at + Rate(600, "1m", burst=10).meter.price(1) + Rate(600, "1m", burst=10).meter.price(
        60
    )


@pytest.mark.proves("LI-14")
async def test_a_late_turn_charges_nothing(store: Store) -> None:
    number = await queue(store, Limits(rate="10/s"), a=1)
    worker = await begin(store)
    [task] = await claimed(store, worker, number)
    before = await ask(store, "select paid from {limiter}")
    store.database.charges.tell(task.id, task.turn - 1, 10)
    await store.database.charges.write()
    assert await ask(store, "select paid from {limiter}") == before
    store.database.charges.tell(task.id, task.turn, 10)
    await store.database.charges.write()
    [row] = await ask(store, "select paid from {limiter}")
    assert row["paid"] == before[0]["paid"] + 900_000
    with pytest.raises(InvalidOption):
        checked_units(-1)


@pytest.mark.proves("LI-07", "LI-10")
async def test_rates_are_declared_and_changed_as_other_limits_are(store: Store) -> None:
    @handler("mail", limits=Limits(rate="14/s", key="to", key_rate="1/1m", cost="size"))
    async def mail(payload: object) -> None:
        """Nothing."""

    async with Worker(store, [mail]):
        info = await store.limits.of("mail")
        assert info is not None
        assert info.declared == {"rate": "14/1s", "key": "to", "key_rate": "1/1m", "cost": "size"}
        assert info.limits == mail.limits
    info = await store.limits.set("mail", rate=Rate(20, "2s", burst=20), key_rate=None)
    assert info is not None
    assert (str(info.limits.rate), info.limits.key_rate) == ("20/2s burst 20", None)
    await store.limits.reset("mail")
    info = await store.limits.of("mail")
    assert info is not None
    assert info.limits == mail.limits


@pytest.mark.proves("LI-10")
@pytest.mark.parametrize("wrong", ["fifty", "50", "0/s", "50/0s", "50/1y", "50/s burst 51", 50, "2000000000/s"])
def test_a_wrong_rate_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidOption):
        Limits(rate=wrong)  # type: ignore[arg-type]
