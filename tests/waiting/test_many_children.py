"""Many children: few statements, few turns of their parent, and nothing for flushes that concern no parent."""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable

import pytest

from stepwell import Context, Store, Worker, step, workflow
from tests.ground.scale import Scale
from tests.store.seam import DONE, begin, claim, row_of, watched
from tests.waiting.family import IGNORE, child, claimed, parent_of_many, waiting
from tests.workflows.kit import begun, drained, task_of

MOST_TURNS = 3


@workflow
async def gathers(ctx: Context, count: int) -> int:
    asked = (child.trigger(number).options(**IGNORE).wait().execute(ctx) for number in range(count))
    return sum(await asyncio.gather(*asked))


@step(queue="frames")
async def render(frame: int) -> int:
    return frame


@workflow
async def film(count: int) -> int:
    return sum(await asyncio.gather(*(render(frame) for frame in range(count))))


@pytest.mark.proves("R-21", "S-15", "PR-15")
async def test_many_children_are_few_statements_and_few_turns(
    store: Store, scale: Scale, measured: Callable[..., None], backend: str
) -> None:
    # Turso executes, and prepares anew, a statement for each row.
    count = scale.of(60, 1_000) if backend == "turso" else scale.of(600, 10_000)
    over, driver = watched(store)
    run_id = await begun(over, parent_of_many, count)
    began = time.monotonic()
    await drained(over, parent_of_many)
    asked = Counter(call.statement for call in driver.said)
    assert asked["add_tasks_once"] == -(-count // 1000)
    assert asked["lock_turns"] == 2  # once to ask for them, once to see that none has ended
    assert sum(asked.values()) < 40 + count / 1000
    driver.forget()
    async with Worker(over, [parent_of_many, child], concurrency=200):
        assert await over.result(run_id, timeout=120) == count * (count - 1)
    seconds = time.monotonic() - began
    turns, waited = (await task_of(store, run_id)).turn, Counter(call.statement for call in driver.said)
    assert turns <= MOST_TURNS
    assert waited["ends_of"] <= MOST_TURNS
    wakes = sum(call.statement == "wake_parents" for calls in driver.flushes for call in calls)
    assert 0 < wakes <= sum(any(call.statement == "settle" for call in calls) for calls in driver.flushes)
    assert wakes < count / 4, "ends are not counted together"
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    measured("children", children=count, turns=turns, wakes=wakes, seconds=round(seconds, 1), megabytes=megabytes)


@pytest.mark.proves("R-21", "S-14")
@pytest.mark.parametrize("how", ["children", "steps"])
async def test_a_gather_asks_for_its_children_together(live_store: Store, scale: Scale, backend: str, how: str) -> None:
    store, count = live_store, 40 if backend == "turso" else scale.of(200, 500)
    over, driver = watched(store)
    run_id = await begun(over, gathers if how == "children" else film, count)
    await drained(over, gathers, film)
    asked = Counter(call.statement for call in driver.said)
    assert asked["add_tasks_once"] <= count / 4
    assert asked["lock_turns"] <= count / 4
    row = await row_of(store, run_id)
    assert (row["status"], row["waiting"]) == ("PAUSED", 1)  # whichever ends first, its branch goes on
    await drained(over, child, render)
    driver.forget()
    await drained(over, gathers, film)
    assert (await over.get_run(run_id)).output() == sum(range(count)) * (2 if how == "children" else 1)
    assert Counter(call.statement for call in driver.said)["ends_of"] <= count / 4
    assert (await task_of(store, run_id)).turn == 2


@pytest.mark.proves("R-21", "PR-15")
async def test_a_flush_that_ends_nobodys_child_says_nothing_of_parents(store: Store, backend: str) -> None:
    over, driver = watched(store)
    await over.create_queue("q")
    await over.enqueue_many("q", range(3))
    run_id, _ = await waiting(over, parent_of_many, 1)
    tasks = [*await claim(over, await begin(over), "q", 2), *await claimed(over)]
    [message] = await over.dequeue("q")
    driver.forget()
    parts: list[list[str]] = []
    for task in tasks:
        await over.database.tasks.settle(task.id, task.owner, task.turn, DONE, parent=task.parent_id)
        parts.append([call.statement for call in driver.flushes[-1] if call.statement != "beat"])
    await message.archive()
    locked = ["lock_tasks"] if backend == "postgres" else []  # both rows, in the order in which all lock them
    parts.append([call.statement for call in driver.flushes[-1] if call.statement != "beat"])
    alone, told = ["settle", "count_settled"], [*locked, "settle", "count_settled", "wake_parents"]
    assert parts == [alone, alone, told, ["close_taken", "count_settled"]]
    assert (await row_of(store, run_id))["ready"]
