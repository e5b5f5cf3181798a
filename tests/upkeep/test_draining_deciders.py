"""Draining a decider or a workflow: nothing new from outside; all that is pending, and what that leads to, ends."""

from typing import Any

import pytest

from stepwell import Context, EffectContext, Engine, QueueDraining, RunStatus, Store, Worker, step, workflow
from stepwell.base.clock import TestClock
from tests.deciders.workbench import Ask, Bench, Do, double, drained, labels, post, posted, tasks
from tests.workflows.kit import begun

OWN = ("bench:effects", "bench:inputs")


async def answer(effect: Ask, ctx: EffectContext) -> Do | None:
    """Of the first effect: another one, a timer that sets itself once more, a run and a message."""
    if effect.label == "first":
        return Do(effect.id, "answered", ask="second", after=60, timer="k", again=60, run=21, message="led to")
    return None


async def to_the_end(store: Store, clock: TestClock, *serves: Any) -> None:
    for _ in range(8):
        await drained(store, *serves)
        clock.advance("10m")


@pytest.mark.proves("DP-09")
@pytest.mark.parametrize("queue", OWN)
async def test_what_is_pending_of_a_decider_goes_on_to_its_end_with_all_it_leads_to(
    store: Store, clock: TestClock, queue: str
) -> None:
    posted.clear()
    engine = Engine(store).register(Bench(answer))
    await engine.execute(Do("a", "one", ask="first", after=3600, then="expired"))
    await engine.submit(Do("b", "submitted", ask="second"))
    await double.trigger(1).options(require_worker="ignore").execute(store)
    await store.enqueue(post, "before")
    await drained(store, double, post)
    for name in (queue, "double", "posts"):
        assert await store.drain_queue(name) == (3 if name == queue else 0)
    assert {one.name for one in await store.queues() if one.draining} == {*OWN, "double", "posts"}
    for refused in (
        engine.execute(Do("c", ask="first")),
        engine.execute(Do("a", "late", after=1)),
        engine.submit(Do("c")),
        store.enqueue(post, "late"),
        double.trigger(1).options(require_worker="ignore").execute(store),
    ):
        with pytest.raises(QueueDraining):
            await refused
    await drained(store, engine)
    assert [await store.drain_queue(name) for name in (queue, "double", "posts")] == [2, 1, 1]  # two timers
    await to_the_end(store, clock, engine, double, post)
    assert [await store.drain_queue(name) for name in (*OWN, "double", "posts")] == [0, 0, 0, 0]
    assert await store.dead_letters() == []
    assert await labels(engine) == ["one", "answered", "tick", "tick", "expired"]
    assert await labels(engine, "b") == ["submitted"]
    assert posted == ["before", "led to"]
    assert [run.output() for run in await store.runs("double")] == [42, 2]
    await store.reopen_queue(queue)
    assert {one.name for one in await store.queues() if one.draining} == {"double", "posts"}
    assert (await engine.execute(Do("a", "late", ask="second"))).outcome == "applied"


@pytest.mark.proves("DP-09")
async def test_an_instance_is_told_of_an_effect_that_was_given_up_while_its_decider_is_drained(
    store: Store, clock: TestClock
) -> None:
    async def never(effect: Ask, ctx: EffectContext) -> Do | None:
        raise ValueError("no")

    engine = Engine(store).register(Bench(never, dead=True))
    await engine.execute(Do("a", "one", ask="mail"))
    assert await store.drain_queue("bench:effects") == 1
    await to_the_end(store, clock, engine)
    assert [row["status"] for row in await tasks(store, "EFFECT")] == ["ERROR"]
    assert (await labels(engine))[-1].startswith("mail given up")
    assert await store.drain_queue("bench:effects") == 0


@pytest.mark.proves("DP-09")
async def test_a_run_of_a_drained_workflow_gets_its_children_and_its_failure_is_told(
    store: Store, clock: TestClock
) -> None:
    told: list[Any] = []

    @step(retry=1)
    async def fail() -> None:
        raise ValueError("no")

    @workflow(name="family")
    async def family(ctx: Context, depth: int) -> int:
        if depth == 0:
            await fail()
        return await family.trigger(depth - 1).options(require_worker="ignore").execute(ctx)

    @workflow(name="mourner")
    async def mourner(letter: dict[str, Any]) -> None:
        told.append(letter["workflow"])

    @workflow(name="parent", dead_letter="mourner")
    async def parent(ctx: Context) -> None:
        await ctx.result_of(family.trigger(2).options(require_worker="ignore"))
        await fail()

    worker = Worker(store, [family, mourner, parent])
    await worker.register()
    await worker.close()
    run_id = await begun(store, parent)
    for name in ("family", "mourner", "parent"):
        await store.drain_queue(name)
        with pytest.raises(QueueDraining):
            await store.trigger(workflow(name).trigger(1).options(require_worker="ignore"))
    await to_the_end(store, clock, family, mourner, parent)
    assert len(await store.runs("family")) == 3
    assert (await store.get_run(run_id)).status is RunStatus.ERROR
    assert told == ["parent"]
    assert [await store.drain_queue(name) for name in ("family", "mourner", "parent")] == [0, 0, 0]
