"""How many tasks of a queue run at once, in all and of each key; and that keys take turns."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from stepwell import Limits, Reason, Store, Worker, handler, workflow
from stepwell.store.rows import Claimed, Settlement
from tests.ground.waiting import until
from tests.store.seam import DONE, RELEASED, begin, claim


async def queue(store: Store, limits: Limits, **keys: int) -> int:
    """A limited queue with that many messages of each key; its number."""
    await store.create_queue("q")
    await store.limits.set("q", **{name: getattr(limits, name) for name in Limits.__dataclass_fields__})
    for key, count in keys.items():
        await store.enqueue_many("q", [{"tenant": key, "nth": nth} for nth in range(count)])
    return await store.database.queue_id("q")


def keys_of(tasks: Sequence[Claimed]) -> str:
    return "".join(sorted((task.input or "").partition('"tenant":"')[2][:1] for task in tasks))


async def claimed(store: Store, worker: int, number: int, limit: int = 100) -> list[Claimed]:
    return await store.database.limited.claim(worker, number, limit)


async def end(store: Store, tasks: Sequence[Claimed], settlement: Settlement = DONE) -> None:
    for task in tasks:
        await store.database.tasks.settle(task.id, task.owner, task.turn, settlement)


@pytest.mark.proves("LI-01", "LI-02")
async def test_no_more_run_at_once_than_the_limits_say(store: Store) -> None:
    number = await queue(store, Limits(running=5, key="tenant", per_key=2), a=10, b=10, c=10)
    worker = await begin(store)
    first = await claimed(store, worker, number)
    assert keys_of(first) == "aabbc"
    assert not await claimed(store, worker, number)
    assert not await claim(store, worker, "q"), "a claim that knows of no limits takes nothing"
    assert not await store.dequeue("q"), "nor does a consumer without a place"
    await end(store, first[:1])
    second = await claimed(store, worker, number)
    assert keys_of(second) == "c"
    await end(store, [*first[1:], *second], RELEASED)
    assert len(taken := await store.dequeue("q", 3)) == 3
    assert len(await claimed(store, worker, number)) == 2
    assert await taken[0].archive()
    assert len(await claimed(store, worker, number)) == 1
    info = await store.limits.of("q")
    assert info is not None
    assert (info.running, info.limits) == (5, Limits(running=5, key="tenant", per_key=2))


@pytest.mark.proves("LI-03")
@pytest.mark.parametrize("size", [1, 2, 3, 10])
async def test_keys_take_turns_by_their_weights(store: Store, size: int) -> None:
    number = await queue(store, Limits(key="tenant"), a=40, b=40, c=40)
    await store.limits.set_key("q", "a", weight=3)
    worker = await begin(store)
    begun: Counter[str] = Counter()
    while begun.total() < 50:
        begun += Counter(keys_of(await claimed(store, worker, number, min(size, 50 - begun.total()))))
    assert begun["a"] == 30
    assert abs(begun["b"] - begun["c"]) <= 1


@pytest.mark.proves("LI-03", "LI-04")
async def test_a_light_key_is_next_beside_a_noisy_one_and_a_paused_key_waits(store: Store) -> None:
    number = await queue(store, Limits(running=2, key="tenant"), n=100)
    worker = await begin(store)
    noisy = await claimed(store, worker, number)
    assert keys_of(noisy) == "nn"
    await store.enqueue("q", {"tenant": "light"})
    await end(store, noisy[:1])
    assert keys_of(await claimed(store, worker, number)) == "l"
    await store.limits.pause("q", "n", reason="abuse")
    await end(store, noisy[1:])
    assert not await claimed(store, worker, number)
    [shown] = [one for one in await store.limits.keys("q") if one.key == "n"]
    assert (shown.ready, shown.running, shown.paused, shown.pause_reason) == (98, 0, True, "abuse")
    await store.limits.resume("q", "n")
    assert keys_of(await claimed(store, worker, number)) == "n"


@pytest.mark.proves("LI-05")
async def test_what_was_there_before_the_limits_and_after_them_is_claimed_too(store: Store) -> None:
    await store.create_queue("q")
    worker = await begin(store)
    await store.enqueue_many("q", [{"tenant": "a"}] * 4)
    before = await claim(store, worker, "q", 2)
    number = await queue(store, Limits(key="tenant", per_key=3), b=1)
    assert keys_of(await claimed(store, worker, number)) == "ab", "the two that ran before have places"
    await end(store, before, RELEASED)
    await store.enqueue("q", {"other": 1}, limit_key="a")
    assert keys_of(await claimed(store, worker, number)) == "aa"
    await store.limits.reset("q")
    assert await store.limits.of("q") is None
    assert len(await claim(store, worker, "q", 9)) == 2
    await store.enqueue("q", 1)
    assert len(await claim(store, worker, "q")) == 1


@pytest.mark.proves("LI-06")
async def test_a_worker_lost_gives_its_places_back_and_a_suspect_needs_one(store: Store) -> None:
    number = await queue(store, Limits(running=1), a=2)
    lost, worker = await begin(store), await begin(store)
    [first] = await claimed(store, lost, number)
    assert not await claimed(store, worker, number)
    await store.database.sessions.bury(
        next(one for one in await store.database.sessions.living() if one.worker_id == lost)
    )
    [second] = await claimed(store, worker, number)
    assert second.id != first.id, "the one that was lost is executed alone"
    assert not await store.database.suspects.claim(worker, [number], beside=True)
    await end(store, [second])
    [again] = await store.database.suspects.claim(worker, [number], beside=True)
    assert again.id == first.id
    await store.enqueue("q", 1)
    assert not await claimed(store, worker, number)


@pytest.mark.proves("LI-01", "LI-07")
async def test_declared_limits_hold_over_all_workers_for_messages_and_runs(store: Store) -> None:
    running, most = Counter[str](), Counter[str]()

    async def body(key: str) -> None:
        running[key] += 1
        most[key], most["all"] = max(most[key], running[key]), max(most["all"], running.total())
        await asyncio.sleep(0.002)
        running[key] -= 1

    @handler("work", limits=Limits(running=5, key="tenant", per_key=3))
    async def work(payload: dict[str, str]) -> None:
        await body(payload["tenant"])

    @workflow(limits=Limits(key="tenant", per_key=1))
    async def render(tenant: str, scene: int) -> int:
        await body(f"run of {tenant}")
        return scene

    async with Worker(store, [work, render]), Worker(store, [work, render]):
        messages = [{"tenant": "ab"[nth % 2]} for nth in range(30)]
        await store.enqueue_many(work, messages)
        ids = [await store.trigger(render.trigger("a", nth)) for nth in range(5)]
        await until(lambda: store.limits.of("work"))
        for run_id in ids:
            await store.result(run_id)
        await until(lambda: drained(store))
    assert most["run of a"] == 1
    assert 2 <= most["a"] <= 3
    assert most["all"] <= 6
    info = await store.limits.of("work")
    assert info is not None
    assert info.declared == {"running": 5, "key": "tenant", "per_key": 3}
    await store.limits.set("work", running=1)
    async with Worker(store, [work]):
        info = await store.limits.of("work")
    assert info is not None
    assert (info.limits.running, info.limits.per_key, info.edited) == (1, 3, {"running": 1})


async def drained(store: Store) -> bool:
    return (await store.counts("work")).get("SUCCESS") == 30


@pytest.mark.proves("LI-08")
async def test_why_says_behind_how_many_of_which_key_a_run_waits(store: Store) -> None:
    @workflow(limits=Limits(key="tenant", per_key=1))
    async def render(tenant: str, scene: int) -> int:
        await asyncio.Event().wait()
        return scene

    async with Worker(store, [render], grace=0):
        first, _, third = [await store.trigger(render.trigger("acme", nth)) for nth in range(3)]
        await until(lambda: has(store, first, "RUNNING"))
        why = await store.why(third)
        assert why.reason == Reason.LIMITED
        assert why.message == "it is number 2 of 2 in line for key 'acme': 1 of 1 places of that are taken"
        await store.limits.pause("render", "acme", reason="abuse")
        why = await store.why(third)
        assert (why.reason, why.message) == (Reason.KEY_PAUSED, "key 'acme' of render is paused: abuse")


async def has(store: Store, run_id: int, status: str) -> bool:
    return (await store.get_run(run_id)).status == status
