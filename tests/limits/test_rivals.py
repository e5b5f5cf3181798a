"""Several processes' claims at once: a limit is checked and taken under one lock."""

import asyncio
import contextlib
from collections import Counter

import pytest

from stepwell import Limits, Store, connect
from tests.limits.test_running import claimed, end, queue
from tests.store.seam import ask, begin

TASKS = 240


@pytest.mark.proves("rule-27", "LI-01")
@pytest.mark.backends("postgres", reason="the others have one writer")
async def test_claims_at_once_never_exceed_the_limits(live_store: Store, store_url: str) -> None:
    number = await queue(
        live_store, Limits(running=7, key="tenant", per_key=3), a=TASKS // 3, b=TASKS // 3, c=TASKS // 3
    )
    most, left = Counter[str](), [TASKS]

    async def look() -> None:
        """From outside, in one snapshot: who runs."""
        running = "select limit_key, count(*) as n from {task} where status = 'RUNNING' group by limit_key"
        while left[0] > 0:
            found = {row["limit_key"]: row["n"] for row in await ask(live_store, running)}
            for key, count in [*found.items(), ("all", sum(found.values()))]:
                most[key] = max(most[key], count)

    async def work(store: Store) -> None:
        worker = await begin(store)
        while left[0] > 0:
            tasks = await claimed(store, worker, number, 2)
            await asyncio.sleep(0)
            await end(store, tasks)
            left[0] -= len(tasks)

    async with contextlib.AsyncExitStack() as opened:
        rivals = [await opened.enter_async_context(connect(store_url)) for _ in range(4)]
        async with asyncio.timeout(60):
            await asyncio.gather(look(), *map(work, rivals))
    assert most["all"] <= 7
    assert max(most[key] for key in "abc") <= 3
    assert most["all"] >= 4, "nothing was at once: void"
