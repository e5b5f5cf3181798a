"""Runs are found by statuses, tags, keys and beginnings of keys, page by page, and keys by an index."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import InvalidOption, RunStatus, Store
from stepwell.base.clock import TestClock
from stepwell.store.driver import Call, Value
from stepwell.store.run_filter import behind
from tests.queue.raw import change
from tests.runs.kit import CANCELLED, FAILED, settle, tick
from tests.runs.test_reading import FILL
from tests.store.plans import Prepared, buffers, drawn, nodes


async def keyed(store: Store, *keys: str, **options: Any) -> list[int]:
    return [await tick.trigger().options(key=key, **options).execute(store) for key in keys]


async def pages(store: Store, limit: int, **which: Any) -> list[int]:
    """The ids of all pages."""
    found: list[int] = []
    after = None
    while True:
        page = await store.runs(**which, limit=limit, after=after)
        found += [int(run.id) for run in page]
        if (after := page.next) is None:
            return found


@pytest.mark.proves("ST-06")
async def test_runs_of_several_statuses_newest_first(store: Store, clock: TestClock) -> None:
    runs = []
    for ending in (FAILED, CANCELLED, FAILED, None):
        runs.append(int(await tick.trigger().execute(store)))
        clock.advance("1s")
        if ending is not None:
            await settle(store, "tick", ending)
    failed, cancelled, again, pending = runs
    assert await pages(store, 2, status=["ERROR", RunStatus.CANCELLED]) == [again, cancelled, failed]
    assert await pages(store, 1, status={"PENDING", "CANCELLED"}) == [pending, cancelled]
    with pytest.raises(InvalidOption, match="status cannot be 'LOST'"):
        await store.runs(status=["ERROR", "LOST"])
    assert await store.retry_runs(status=["ERROR"]) == 2
    with pytest.raises(InvalidOption):
        await store.cancel_runs(status=["PENDING", "ERROR"])


@pytest.mark.proves("ST-06")
async def test_runs_that_have_all_of_these_tags(store: Store) -> None:
    both = await tick.trigger().options(tags=["vip", "eu", "x"]).execute(store)
    await tick.trigger().options(tags=["vip"]).execute(store)
    await tick.trigger().execute(store)
    assert await pages(store, 5, tag=["vip", "eu"]) == [both]
    assert len(await store.runs(tag="vip")) == 2
    assert await pages(store, 5, tag=["eu"], status=["PENDING", "ERROR"]) == [both]
    parent = await tick.trigger().execute(store)
    assert await store.runs(parent=parent, tag=["vip", "eu"], key_prefix="k") == []
    assert await store.cancel_runs(tag=["vip", "eu"]) == 1


@pytest.mark.proves("ST-06")
async def test_keys_that_begin_so_come_in_their_order(store: Store) -> None:
    await keyed(store, "b", "order", "order-1", "Order-1", "order-2", "order-10", "ordes", "zz", "order-é")
    found = [run.key for run in await store.runs(key_prefix="order-")]
    assert found == ["order-1", "order-10", "order-2", "order-é"]
    assert len(await pages(store, 1, key_prefix="order")) == 5
    assert await pages(store, 2, key_prefix="order-") == [int(run.id) for run in await store.runs(key_prefix="order-")]
    assert [run.key for run in await store.runs("tick", key_prefix="order-1", status="PENDING")] == [
        "order-1",
        "order-10",
    ]
    assert await store.runs(key_prefix="nothing") == []
    with pytest.raises(InvalidOption, match="not both"):
        await store.runs(key="a", key_prefix="b")
    with pytest.raises(InvalidOption, match="pass the `next`"):
        await store.runs(key_prefix="order-", after="1-2-zz")
    assert await store.cancel_runs(key_prefix="order-") == 4


@pytest.mark.proves("ST-06")
async def test_runs_whose_key_is_free_again_are_found_by_it(store: Store, clock: TestClock) -> None:
    runs = []
    for _ in range(3):
        [run] = await keyed(store, "daily", unique="unfinished")
        runs.append(int(run))
        clock.advance("1s")
        await settle(store, "tick")
    [open_one] = await keyed(store, "daily", unique="unfinished")
    [gone] = await keyed(store, "daily-2")
    await store.delete(gone)
    newest_first = [int(open_one), *reversed(runs)]
    assert await pages(store, 1, key="daily") == newest_first
    assert await pages(store, 2, key_prefix="daily") == newest_first
    assert await pages(store, 2, key_prefix="daily", deleted=True) == [*newest_first, int(gone)]
    assert await pages(store, 9, key="daily", status="SUCCESS") == newest_first[1:]


@pytest.mark.proves("ST-06")
@pytest.mark.backends("postgres", reason="plans made on an empty table and kept are Postgres's own")
async def test_a_search_by_key_looks_at_nothing_else(store: Store, live_store: Store, prepared: Prepared) -> None:
    await store.create_workflow("tick")
    call = await asking(store, "order-7")
    await prepared.prepare("by_key", [call])  # planned while there is nothing
    await change(store, FILL % (10_000, 14_999, "RUN", "tick", "SUCCESS", 1, "1"))
    await change(store, "update {task} set key = 'k' || id where kind = 'RUN'")
    wanted = await keyed(store, *(f"order-7{number}" for number in range(5)))
    await change(
        store, "update {task} set key = 'order-70' || id, key_scope = 'unfinished' where id between 14000 and 14004"
    )
    plan = await prepared.explain("by_key", [await asking(store, "order-7")])
    reads = [node for node in nodes(plan) if node.get("Relation Name") == "task"]
    assert {node["Index Name"] for node in reads} == {"task_key", "task_freed_key"}, drawn("by key", plan)
    assert buffers(plan) < 60, drawn("by key", plan)
    assert len(wanted) == 5
    assert plan["Actual Rows"] == 10, drawn("by key", plan)


@pytest.mark.proves("ST-06")
@pytest.mark.backends("postgres", reason="plans made on an empty table and kept are Postgres's own")
async def test_a_search_by_tags_looks_only_at_runs_with_tags(
    store: Store, live_store: Store, prepared: Prepared
) -> None:
    await store.create_workflow("tick")
    place: dict[str, Value] = {"since": 0, "until": 2**62, "after_time": 2**62, "after_id": 2**62, "deleted": False}
    params: dict[str, Value] = {"key": None, "prefix": None, "tags": '["vip","eu"]', "limit": 50, **place}
    lines = await store.database.runs.lines("tick", list(RunStatus))
    await prepared.prepare("by_tags", [Call("find_tagged_runs", params, lines)])  # planned while there is nothing
    await change(store, FILL % (10_000, 14_999, "RUN", "tick", "SUCCESS", 1, "1"))
    wanted = [await tick.trigger().options(tags=["eu", "vip"]).execute(store) for _ in range(3)]
    await tick.trigger().options(tags=["vip"]).execute(store)
    plan = await prepared.explain("by_tags", [Call("find_tagged_runs", params, lines)])
    reads = [node for node in nodes(plan) if node.get("Relation Name") == "task"]
    assert {node["Index Name"] for node in reads} == {"task_tagged"}, drawn("by tags", plan)
    assert buffers(plan) < 40, drawn("by tags", plan)
    assert plan["Actual Rows"] == len(wanted), drawn("by tags", plan)


async def asking(store: Store, prefix: str) -> Call:
    """The call that the store makes for a page of the runs whose keys begin so."""
    queue_id = await store.database.workflow_id("tick")
    rest: dict[str, Value] = {
        "since": 0,
        "until": 2**62,
        "after_key": "",
        "after_time": 2**62,
        "after_id": 2**62,
        "deleted": False,
    }
    params: dict[str, Value] = {
        "key_from": prefix,
        "key_until": behind(prefix),
        "types": '["PENDING","SUCCESS"]',
        "limit": 50,
        **rest,
    }
    return Call("find_runs_by_key", params, [(queue_id,)])


@pytest.mark.proves("ST-06")
def test_the_first_text_behind_a_prefix() -> None:
    assert [behind(text) for text in ("a", "a\U0010ffff", "\ud7ff")] == ["b", "b", "\ue000"]
    assert all(text < behind("ab") for text in ("ab", "ab\U0010ffff", "abz"))
