"""Ids: reserved in blocks, never twice, whoever takes them."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from stepwell import Store, connect
from stepwell.errors import StoreUnavailable
from stepwell.store.ids import BLOCK, Ids
from tests.ground.processes import Crew, wait_for
from tests.store.seam import once, watched

ROOT = Path(__file__).parents[2]
ENV = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


async def test_ids_of_several_stores_never_collide_and_rise_in_each_helping(store_url: str, backend: str) -> None:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(connect(store_url, pool=4)) for _ in range(4)]

        async def take(store: Store) -> list[list[int]]:
            return await asyncio.gather(*(store.database.ids.take(1 + 37 * number) for number in range(20)))

        helpings = [helping for taken in await asyncio.gather(*map(take, stores)) for helping in taken]
    assert all(helping == sorted(helping) for helping in helpings)
    everything = [task_id for helping in helpings for task_id in helping]
    assert len(everything) == len(set(everything)) == 4 * sum(1 + 37 * number for number in range(20))
    assert min(everything) >= 1


@pytest.mark.proves("B-04")
@pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process")
async def test_ids_of_several_processes_never_collide(store_url: str, backend: str, tmp_path: Path) -> None:
    async with connect(store_url):
        pass
    with Crew("tests.store.hand", "ids", store_url, "6", "700", size=3, folder=tmp_path, env=ENV, cwd=ROOT) as crew:
        wait_for(lambda: not crew.alive, 30, message=crew.complaints())
        lines = [member.stdout.read_text().split("\n")[1:-1] for member in crew.members]
    taken = [int(word) for words in lines for line in words for word in line.split()]
    assert len(taken) == len(set(taken)) == 3 * 6 * 700


async def test_the_next_block_is_reserved_before_the_last_is_used_up(store: Store) -> None:
    store, driver = watched(store)
    ids = store.database.ids
    await ids.take(BLOCK // 2)
    assert driver.scripts == 1
    await ids.take(BLOCK * 2 // 5)  # a tenth is left
    assert ids._ahead is not None
    await ids._ahead
    assert driver.scripts == 2
    await ids.take(BLOCK // 2)
    assert driver.scripts == 2, "nobody had to wait"


async def test_a_reservation_whose_reply_is_lost_wastes_a_block_and_gives_none_twice(store: Store) -> None:
    store, driver = watched(store)
    driver.after = once(StoreUnavailable("reset"))
    first = await store.database.ids.take(10)
    second = await watched(store)[0].database.ids.take(10)
    assert set(first).isdisjoint(second)


async def test_a_failed_reservation_ahead_of_need_is_asked_for_again() -> None:
    answers: Iterator[list[int] | StoreUnavailable] = iter([[1], StoreUnavailable("reset"), [5]])

    async def reserve(_: int) -> list[int]:
        answer = next(answers)
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

    ids = Ids(reserve)
    await ids.take(BLOCK - 10)
    await asyncio.sleep(0.01)
    assert await ids.take(12) == [*range(BLOCK - 9, BLOCK + 1), 4 * BLOCK + 1, 4 * BLOCK + 2]
