"""A run changes its tags: each call once in its life, and only in a turn that stands."""

from __future__ import annotations

import pytest

from stepwell import Context, LeaseLost, Store, current, sync, workflow
from stepwell.store.driver import Call, Script
from tests.store.seam import begin, claim
from tests.workflows.kit import drained

rounds: list[str] = []


@workflow
async def shopper(ctx: Context, name: str) -> None:
    await ctx.tag("vip")
    await ctx.tag("vip")
    await ctx.untag("new")
    await ctx.wait("paid")
    await current().untag("vip")
    await ctx.tag("served")


@workflow
async def greedy(ctx: Context) -> None:
    for number in range(21):
        await ctx.tag(f"tag {number}")


@workflow
def quiet(ctx: sync.Context) -> None:
    ctx.tag("vip")
    ctx.untag("new")


@pytest.mark.proves("ST-05")
async def test_a_run_changes_its_tags_and_is_found_by_them(store: Store) -> None:
    run = await shopper.trigger("ann").options(tags=["new", "eu"]).execute(store)
    await drained(store, shopper)
    assert (await store.get_run(run)).tags == ("eu", "vip")
    assert [one.id for one in await store.runs(tag="vip")] == [run]
    assert await store.runs(tag="new") == []
    assert [step.key for step in await store.steps(run)][:3] == ["tag()#1", "tag()#2", "untag()#1"]
    await store.signal(run, "paid")
    await drained(store, shopper)
    assert (await store.get_run(run)).tags == ("eu", "served")


@pytest.mark.proves("ST-05")
async def test_a_replay_changes_nothing_again(store: Store) -> None:
    run = await shopper.trigger("ann").execute(store)
    await drained(store, shopper)
    await store.database.driver.transact(lambda: _put(store, run, '["other"]'))
    await store.signal(run, "paid")
    await drained(store, shopper)  # it replays `tag("vip")`
    assert (await store.get_run(run)).tags == ("other", "served")


@pytest.mark.proves("ST-05")
async def test_who_has_lost_the_run_changes_nothing(store: Store) -> None:
    run = await shopper.trigger("ann").execute(store)
    worker = await begin(store)
    [task] = await claim(store, worker, "shopper")
    await store.database.sessions.end(worker, "test")
    with pytest.raises(LeaseLost):
        await store.database.task_edits.retag(task, "late", on=True)
    assert (await store.get_run(run)).tags == ()


@pytest.mark.proves("ST-05")
async def test_too_many_tags_fail_the_run_at_once(store: Store) -> None:
    run = await greedy.trigger().execute(store)
    await drained(store, greedy)
    failed = await store.get_run(run)
    assert failed.status == "ERROR"
    assert "at most 20 tags" in str(failed.last_error)
    assert len(failed.tags) == 20


@pytest.mark.proves("ST-05")
async def test_a_sync_workflow_does_too(store: Store) -> None:
    run = await quiet.trigger().options(tags=["new"]).execute(store)
    await drained(store, quiet)
    assert (await store.get_run(run)).tags == ("vip",)


def _put(store: Store, run: int, tags: str) -> Script[None]:
    yield Call("put_tags", store.database.params(id=run, tags=tags))
