"""What the end of a run means for those that it asked for: who ends with it, by when they have to be finished."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from stepwell import Context, ExecutionFailed, InvalidOption, RunStatus, Store, step, sync, workflow
from stepwell.base.clock import TestClock
from stepwell.base.durations import seconds_of
from stepwell.errors import StillStopping
from tests.store.seam import begin, claim, row_of
from tests.workflows.kit import begun, die, drained

Policy = Literal["cancel", "leave"] | None
CANCELLED, PAUSED, ERROR = RunStatus.CANCELLED, RunStatus.PAUSED, RunStatus.ERROR
POLICIES: tuple[Policy, ...] = ("cancel", "leave", None)
ran: list[str] = []


@pytest.fixture(autouse=True)
def anew() -> None:
    ran.clear()


@workflow
async def child(ctx: Context) -> str:
    return await ctx.wait("word", str)


@workflow(timeout="1h", retry=1)
async def parent(ctx: Context) -> str:
    for policy in POLICIES:
        await child.trigger().options(on_parent_end=policy, require_worker="ignore").execute(ctx)
    if await ctx.wait("end", str) == "fail":
        if not ran:
            ran.append("failed")
            raise ValueError("it failed")
        await ctx.wait("end", str)
    return "done"


async def family(store: Store) -> tuple[int, dict[Policy, int]]:
    """A parent and its children, all waiting."""
    parent_id = await begun(store, parent)
    await drained(store, parent, child)
    children = sorted(one.id for one in await store.runs(parent=parent_id, status="PAUSED"))
    return parent_id, dict(zip(POLICIES, children, strict=True))


async def status_of(store: Store, run_id: int) -> RunStatus:
    return (await store.get_run(run_id)).status


async def end(store: Store, clock: TestClock, parent_id: int, how: str) -> None:
    match how:
        case "success" | "failure":
            await store.signal(parent_id, "end", "fail" if how == "failure" else "return")
            await drained(store, parent)
        case "cancel":
            assert await store.cancel(parent_id)
        case "timeout":
            clock.advance("1h")
            await drained(store, parent)  # no worker of the child sees that its own time is over
        case "loss":
            await store.signal(parent_id, "end", "return")
            await claim(store, await begin(store), "parent", 1)
            await die(store.database)
        case "delete":
            assert await store.delete(parent_id)
        case "delete many":
            assert await store.delete_runs(workflow="parent") == 1
        case "purge":
            assert await store.purge("parent") == 1


HOW = ("success", "failure", "cancel", "timeout", "loss", "delete", "delete many", "purge")


@pytest.mark.proves("compose-07")
@pytest.mark.parametrize("how", HOW)
async def test_a_child_ends_with_its_parent_or_not_as_was_said(store: Store, clock: TestClock, how: str) -> None:
    parent_id, children = await family(store)
    await end(store, clock, parent_id, how)
    ended = [policy for policy, child_id in children.items() if await status_of(store, child_id) is CANCELLED]
    assert ended == (["cancel", None] if how in ("cancel", "timeout") else ["cancel"])
    if how != "cancel":
        assert "the run that asked for it has ended" in str((await store.get_run(children["cancel"])).last_error)
    await store.signal(children["leave"], "word", "still here")
    await drained(store, child)
    assert await store.result(children["leave"], timeout=0) == "still here"


@workflow(timeout="1h")
async def limited(ctx: Context, *, policy: Policy = None, timeout: str | None = None, wait: str = "30m") -> None:
    await ctx.sleep(wait)
    await middle.trigger().options(timeout=timeout, on_parent_end=policy, require_worker="ignore").execute(ctx)


@workflow
async def middle(ctx: Context) -> str:
    await child.trigger().options(require_worker="ignore").execute(ctx)
    return await ctx.wait("word", str)


async def _of(store: Store, run_id: int) -> int:
    [one] = await store.runs(parent=run_id)
    return one.id


@pytest.mark.proves("compose-08")
@pytest.mark.parametrize(("timeout", "left"), [(None, "30m"), ("2h", "30m"), ("10m", "10m")])
async def test_a_child_has_the_time_of_its_parent_or_less(
    store: Store, clock: TestClock, timeout: str | None, left: str
) -> None:
    run_id = await limited.trigger(timeout=timeout).options(require_worker="ignore").execute(store)
    await drained(store, limited)
    clock.advance("30m")
    assert await drained(store, limited, middle, child) >= 3
    assert await status_of(store, run_id) is RunStatus.SUCCESS
    middle_id = await _of(store, run_id)
    grandchild = await _of(store, middle_id)
    clock.advance(seconds_of(left) - 1)
    await drained(store, middle, child)
    assert [await status_of(store, one) for one in (middle_id, grandchild)] == [PAUSED, PAUSED]
    clock.advance(1)
    await drained(store, middle)
    late = await store.get_run(middle_id)
    assert (late.status, (late.error or {})["type"]) == (ERROR, "Timeout")
    if timeout != "10m":
        assert f"when the time of run {run_id} was over" in str(late.last_error)
    assert await status_of(store, grandchild) is CANCELLED  # with the one that asked for it


@pytest.mark.proves("compose-08")
async def test_a_child_that_is_left_alone_has_no_deadline(store: Store, clock: TestClock) -> None:
    run_id = await limited.trigger(policy="leave").options(require_worker="ignore").execute(store)
    await drained(store, limited)
    clock.advance("30m")
    await drained(store, limited, middle)
    clock.advance("5h")
    await drained(store, limited, middle)
    assert await status_of(store, await _of(store, run_id)) is PAUSED


@step(queue="far")
async def far() -> str:
    ran.append("far")
    return "far"


@workflow(timeout="1h")
async def spawning() -> str:
    return await far()


@pytest.mark.proves("compose-08")
async def test_a_step_of_another_queue_has_the_deadline_of_its_run(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, spawning)
    await drained(store, spawning)
    spawned = await _of(store, run_id)
    assert (await row_of(store, spawned))["deadline_at"] == (await row_of(store, run_id))["started_at"] + 3_600_000_000
    clock.advance("1h")
    await drained(store, far)
    assert ran == []
    assert await status_of(store, spawned) is ERROR
    await drained(store, spawning)
    assert await status_of(store, run_id) is ERROR


@workflow(timeout="1h")
async def waits(ctx: Context) -> str:
    return await ctx.wait("word", str)


@pytest.mark.proves("compose-08")
@pytest.mark.parametrize(("timeout", "over"), [("10m", "10m"), ("3h", "3h"), (None, "1h")])
async def test_a_trigger_says_how_long_its_run_may_take(
    store: Store, clock: TestClock, timeout: str | None, over: str
) -> None:
    run_id = await begun(store, waits, timeout=timeout)
    fork_id = await store.fork(run_id)
    clock.advance("5h")  # before its first start nothing counts
    await drained(store, waits)
    clock.advance(seconds_of(over) - 1)
    await drained(store, waits)
    assert [await status_of(store, one) for one in (run_id, fork_id)] == [PAUSED, PAUSED]
    clock.advance(1)
    await drained(store, waits)
    assert [await status_of(store, one) for one in (run_id, fork_id)] == [ERROR, ERROR]
    assert await store.retry(run_id)  # with the whole time again
    await drained(store, waits)
    assert await status_of(store, run_id) is PAUSED


@pytest.mark.proves("compose-08")
async def test_a_trigger_that_replaces_another_replaces_its_time(store: Store, clock: TestClock) -> None:
    await begun(store, waits, key="one", debounce="1m", timeout="10m")
    run_id = await begun(store, waits, key="one", debounce="1m", timeout="3h")
    clock.advance("1m")
    await drained(store, waits)
    clock.advance("2h")
    await drained(store, waits)
    assert await status_of(store, run_id) is PAUSED


@workflow
async def again(ctx: Context, left: int) -> None:
    if left > 0:
        await child.trigger().options(on_parent_end="cancel", require_worker="ignore").execute(ctx)
        ctx.restart(left - 1)
    await ctx.wait("end", str)


@pytest.mark.proves("compose-07")
async def test_a_restart_is_no_end_and_the_end_is_one_for_the_children_of_every_generation(store: Store) -> None:
    run_id = await begun(store, again, 2)
    await drained(store, again, child)
    assert (await store.get_run(run_id)).generation == 2
    statuses = [one.status for one in (await store.runs(parent=run_id))]
    assert statuses == [PAUSED, PAUSED]
    await store.signal(run_id, "end", "")
    await drained(store, again)
    assert {one.status for one in (await store.runs(parent=run_id))} == {CANCELLED}


@pytest.mark.proves("compose-07")
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("how", "policy"), [("failure", "cancel"), ("timeout", None)])
async def test_what_ended_with_a_run_goes_on_with_its_retry(
    store: Store, clock: TestClock, how: str, policy: Policy, *, many: bool
) -> None:
    parent_id, children = await family(store)
    child_id = children[policy]
    await end(store, clock, parent_id, how)
    assert await status_of(store, child_id) is CANCELLED
    assert await (store.retry_runs(workflow="parent") if many else store.retry(parent_id))
    await drained(store, parent, child)
    assert await status_of(store, child_id) is PAUSED
    await store.signal(child_id, "word", "again")
    await drained(store, child)
    assert await store.result(child_id, timeout=0) == "again"  # without the deadline that has passed


@pytest.mark.proves("compose-07")
async def test_a_retry_waits_for_children_that_stop(store: Store, clock: TestClock) -> None:
    parent_id, children = await family(store)
    await store.signal(children["cancel"], "word", "go on")
    [held] = await claim(store, await begin(store), "child", 1)
    await end(store, clock, parent_id, "failure")
    assert (await store.get_run(held.id)).cancel_requested_at is not None
    with pytest.raises(StillStopping, match=str(held.id)):
        await store.retry(parent_id)
    assert await store.retry_runs(workflow="parent") == 0


@pytest.mark.proves("compose-07")
async def test_a_mistake_is_told_before_anything_is_written(store: Store) -> None:
    with pytest.raises(InvalidOption, match="no run asks for it"):
        await child.trigger().options(on_parent_end="cancel").execute(store)
    with pytest.raises(InvalidOption, match="timeout"):
        await child.trigger().options(timeout=0).execute(store)
    wrong: Any = "stop"

    @workflow(retry=1)
    async def asks(ctx: Context) -> None:
        await child.trigger().options(on_parent_end=wrong).execute(ctx)

    run_id = await begun(store, asks)
    await drained(store, asks)
    with pytest.raises(ExecutionFailed, match="'cancel' or 'leave'"):
        await store.result(run_id, timeout=0)


@workflow
def sync_parent(ctx: sync.Context) -> int:
    return child.trigger().options(on_parent_end="cancel", require_worker="ignore").execute(ctx)


@pytest.mark.proves("compose-07")
async def test_a_child_of_a_sync_workflow_ends_with_it_too(store: Store) -> None:
    run_id = await begun(store, sync_parent)
    await drained(store, sync_parent)
    child_id = await store.result(run_id, timeout=0)
    assert await status_of(store, child_id) is CANCELLED
