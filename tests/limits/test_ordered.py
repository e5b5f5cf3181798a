"""Strict order of each key of a queue: nothing begins before what was committed before it has ended."""

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from stepwell import InvalidOption, Limits, Store, Worker, connect, handler, sleep, step, workflow
from stepwell.base.clock import TestClock
from stepwell.store.rows import Claimed, Settlement
from tests.ground.waiting import until
from tests.store.seam import AGAIN, DONE, FAILED, RELEASED, begin

IN_ORDER = Limits(key="tenant", ordered=True)


async def ordered(store: Store, limits: Limits = IN_ORDER) -> int:
    """A queue whose keys are in order; its number."""
    await store.create_queue("q")
    said = {name: getattr(limits, name) for name in Limits.__dataclass_fields__}
    await store.limits.set("q", **said)
    return await store.database.queue_id("q")


async def taken(store: Store, worker: int, number: int) -> list[Claimed]:
    return sorted(await store.database.limited.claim(worker, number, 100), key=lambda task: task.id)


async def end(store: Store, tasks: Sequence[Claimed], settlement: Settlement = DONE) -> None:
    for task in tasks:
        group = None if task.group_key is None else (task.queue_id, task.group_key)
        await store.database.tasks.settle(task.id, task.owner, task.turn, settlement, group=group)


def names(tasks: Sequence[Claimed]) -> list[str]:
    """The tenant and the number of each."""
    inputs = [(task.input or "").partition('"tenant":"')[2] for task in tasks]
    return sorted(text[0] + text.rpartition(":")[2].rstrip("}") for text in inputs)


async def add(store: Store, *named: str) -> list[int]:
    return [int(await store.enqueue("q", {"tenant": one[0], "n": int(one[1:])})) for one in named]


@pytest.mark.proves("LI-18")
async def test_the_next_of_a_key_waits_until_the_one_before_has_ended(store: Store) -> None:
    number = await ordered(store)
    await add(store, "a1", "a2", "b1")
    await store.enqueue_many("q", [{"tenant": "a", "n": 3}, {"tenant": "b", "n": 2}])
    assert not await store.dequeue("q"), "by hand none is taken out of the order"
    worker = await begin(store)
    first = await taken(store, worker, number)
    assert names(first) == ["a1", "b1"]
    assert not await taken(store, worker, number)
    await end(store, first[1:], RELEASED)
    again = await taken(store, worker, number)
    assert names(again) == ["b1"]
    await end(store, again)
    assert names(await taken(store, worker, number)) == ["b2"]
    await end(store, first[:1], AGAIN)  # its retry comes in five seconds, and the others wait for it
    assert not await taken(store, worker, number)
    await store.cancel(first[0].id)
    second = await taken(store, worker, number)
    assert names(second) == ["a2"]
    await end(store, second, FAILED)
    assert names(await taken(store, worker, number)) == ["a3"], "a dead letter stops none behind it"


@pytest.mark.proves("LI-18")
async def test_behind_a_dead_letter_the_others_may_have_to_wait(store: Store) -> None:
    number = await ordered(store, Limits(key="tenant", ordered=True, after_dead="stop"))
    await add(store, "a1", "a2", "b1")
    worker = await begin(store)
    await end(store, await taken(store, worker, number), FAILED)
    assert not await taken(store, worker, number)
    [letter, _] = sorted(await store.dead_letters(queue="q"), key=lambda one: one.id)
    await store.drop(letter.id)
    assert names(await taken(store, worker, number)) == ["a2"]


@pytest.mark.proves("LI-18")
async def test_every_way_to_add_keeps_the_order(store: Store, clock: TestClock) -> None:
    number = await ordered(store, Limits(key="tenant", ordered=True, running=100, rate="1000/s burst 1000"))
    store.database.new_tasks.in_order.clear()  # as in a process that has never heard of the order
    await store.enqueue_many("q", [{"tenant": "a", "n": n} for n in (0, 1)])
    await store.enqueue_many("q", [{"tenant": "a", "n": n} for n in (2, 3)], keys=["z", "y"])
    await store.enqueue("q", {"tenant": "a", "n": 4}, key="k")
    await store.enqueue("q", {"tenant": "a", "n": 4}, key="k")
    async with store.transaction() as tx:
        await store.enqueue("q", {"tenant": "a", "n": 5}, tx=tx)
    await store.enqueue("q", {"tenant": "a", "n": 0}, key="d", debounce="1s")
    await store.enqueue("q", {"tenant": "a", "n": 6}, key="d", debounce="1s")
    await store.enqueue("q", {"tenant": "a", "n": 0}, key="n", newest=True)
    await store.enqueue("q", {"tenant": "a", "n": 7}, key="n", newest=True)
    await store.enqueue("q", {"tenant": "a", "n": 8}, expires="1h")
    await store.enqueue("q", 9, limit_key="a")
    [stats] = await store.ordered_groups()
    assert (stats.groups, stats.tasks) == (1, 10)
    clock.advance(2)
    worker = await begin(store)
    for n in range(9):
        await until(partial(_one, store, worker, number, f"a{n}"))


async def _one(store: Store, worker: int, number: int, name: str) -> bool:
    await store.database.tasks.wake_due()
    if tasks := await taken(store, worker, number):
        assert names(tasks) == [name]
        await end(store, tasks)
    return bool(tasks)


@pytest.mark.proves("LI-18")
async def test_runs_and_those_that_runs_ask_for_keep_the_order(live_store: Store) -> None:
    said: list[str] = []

    @step
    async def note(text: str) -> None:
        said.append(text)

    @workflow(name="line", limits=Limits(key="tenant", ordered=True))
    async def line(tenant: str, n: int) -> int:
        await note(f"{tenant}{n} begins")
        await sleep("1ms")
        await note(f"{tenant}{n} ends")
        return n

    @workflow(name="asks")
    async def asks() -> list[int]:
        return list(await asyncio.gather(*(line.trigger("c", n).wait().execute() for n in range(3))))

    async with Worker(live_store, [line, asks]):
        runs = [await line.trigger(tenant, n).execute(live_store) for n in range(3) for tenant in "ab"]
        parent = await asks.trigger().execute(live_store)
        for run in runs:
            await live_store.result(run, timeout=30)
        assert await live_store.result(parent, timeout=30) == [0, 1, 2]
    for tenant in "abc":
        own = [text for text in said if text[0] == tenant]
        # Which of the three that are asked for at once is committed first is open; after that they take turns.
        order = [int(text[1]) for text in own[::2]] if tenant == "c" else [0, 1, 2]
        assert sorted(order) == [0, 1, 2]
        assert own == [f"{tenant}{n} {what}" for n in order for what in ("begins", "ends")]


@pytest.mark.proves("LI-18")
async def test_what_was_there_before_the_order_stands_before_all_that_comes(store: Store) -> None:
    await store.create_queue("q")
    await add(store, "a1", "a2")
    number = await ordered(store)
    await add(store, "a3")
    worker = await begin(store)
    for name in ("a1", "a2", "a3"):
        tasks = await taken(store, worker, number)
        assert names(tasks) == [name]
        await end(store, tasks)
    await store.limits.set("q", ordered=False)
    await add(store, "a4", "a5")
    assert names(await taken(store, worker, number)) == ["a4", "a5"]


@pytest.mark.proves("LI-18")
async def test_a_group_whose_cancel_was_cut_short_is_woken_by_upkeep(store: Store) -> None:
    number = await ordered(store)
    first, _ = await add(store, "a1", "a2")

    async def cut(_: object) -> None:
        """The process has died between the commit of the cancel and this."""

    store.database.groups.let_go, kept = cut, store.database.groups.let_go  # type: ignore[method-assign,assignment]
    await store.cancel(first)
    store.database.groups.let_go = kept  # type: ignore[method-assign]
    worker = await begin(store)
    assert not await taken(store, worker, number)
    await store.database.groups.tidy([number])
    assert names(await taken(store, worker, number)) == ["a2"]


@pytest.mark.proves("LI-18")
async def test_a_worker_that_has_a_free_place_is_not_handed_a_task_out_of_its_order(store_url: str) -> None:
    said: list[int] = []

    @handler("q")
    async def note(payload: dict[str, int]) -> None:
        said.append(payload["n"])
        if payload["n"] == 0 and said.count(0) < 2:
            raise ConnectionError
        await asyncio.sleep(0)

    async with connect(store_url) as store, Worker(store, [note]):
        await store.limits.set("q", ordered=True)
        for n in range(5):
            await store.enqueue(note, {"n": n})
        await until(lambda: len(said) == 6)
        assert said == [0, 0, 1, 2, 3, 4]


@pytest.mark.proves("LI-18")
def test_only_what_is_in_order_waits_for_a_dead_letter() -> None:
    with pytest.raises(InvalidOption, match="after_dead"):
        Limits(after_dead="stop")
    with pytest.raises(InvalidOption, match="ordered"):
        Limits(ordered="yes")  # type: ignore[arg-type]


@pytest.mark.proves("LI-18")
async def test_a_task_that_another_replaces_keeps_its_place(store: Store, clock: TestClock) -> None:
    number = await ordered(store, Limits(key="tenant", ordered=True, per_key=1))
    await store.enqueue("q", {"tenant": "a", "n": 1}, key="d", debounce="1s")
    await store.enqueue("q", {"tenant": "b", "n": 2}, key="d", debounce="1s")
    await add(store, "a3", "b4")
    clock.advance(2)
    await store.database.tasks.wake_due()
    worker = await begin(store)
    tasks = await taken(store, worker, number)
    assert names(tasks) == ["b2", "b4"], "it stands in the line of a, where it was added first"
    assert [task.group_key for task in tasks] == ["a", "b"]
    assert {key.key for key in await store.limits.keys("q")} == {"a", "b"}
    assert [key.running for key in await store.limits.keys("q")] == [1, 1]
