"""What callers see: reads by id and key, keyed duplicates, new instances, with few runs in the store and with many."""

import contextlib
import statistics
import time
from collections.abc import Awaitable, Callable

import pytest

from stepwell import Engine, RunNotFound, Store, connect
from tests.deciders.workbench import Bench, Do
from tests.ground.scale import Scale
from tests.store.seam import do
from tests.store.world import Size, found, load

CALLS = 20
Verb = Callable[[int], Awaitable[object]]


@pytest.mark.proves("PR-15", "promise-18")
@pytest.mark.backends("postgres", reason="an embedded store has no plans that it keeps")
async def test_reads_by_id_and_key_stay_flat(
    store_url: str, scale: Scale, measured: Callable[..., None], backend: str
) -> None:
    few, many = scale.of((500, 5_000), (4_000, 200_000))
    at_few, at_many = [await timed(store_url, f"flat_{tasks}", tasks) for tasks in (few, many)]
    times = {name: (at_few[name], at_many[name]) for name in at_few}
    measured("flat reads", few=few, many=many, times=times)
    # Fifty times as many tasks would be fifty times as long. At full size only: a short call is at the mercy of others.
    assert not scale.is_full or all(after < 5 * before + 2 for before, after in times.values()), times


async def timed(url: str, schema: str, tasks: int) -> dict[str, float]:
    """The median milliseconds of each verb, on connections that knew the store when it was empty."""
    async with connect(url, schema=schema) as store:
        await do(store, "alter sequence {block} restart with 100000000")  # far from the tasks that are loaded
        of = await found(store)
        verbs = await verbs_of(store, of.ended)
        for verb in verbs.values():  # on every connection of the pool
            for number in range(CALLS):
                await verb(-1 - number)
        await load(store, Size(tasks, 2 * tasks, max(tasks // 10, 1), tasks), of)
        return {name: await median(verb) for name, verb in verbs.items()}


async def verbs_of(store: Store, ended: range) -> dict[str, Verb]:
    """What is called; a negative number for nothing that is there yet."""
    engine = Engine(store).register(Bench())
    await store.enqueue("q", 0, key="taken")
    return {
        "result": lambda number: found_or_not(store.result(ended[number % len(ended)], timeout=5)),
        "get_run": lambda number: found_or_not(store.get_run(ended[number % len(ended)])),
        "keyed duplicate": lambda _: store.enqueue("q", 0, key="taken"),
        "new instance": lambda number: engine.execute(Do(f"instance {number}", "one")),
    }


async def found_or_not(asked: Awaitable[object]) -> None:
    with contextlib.suppress(RunNotFound):
        await asked


async def median(verb: Verb) -> float:
    times = []
    for number in range(CALLS):
        begun = time.perf_counter()
        await verb(number)
        times.append(1000 * (time.perf_counter() - begun))
    return statistics.median(times)
