"""A run of one branch goes on when a result is submitted, and nothing acts on it before it is in the database."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from stepwell import Context, Store, sleep, step, workflow
from stepwell.errors import Refused
from stepwell.records import RunStatus
from stepwell.store.driver import Call
from stepwell.testing import world
from stepwell.testing.crashes import WHENS, Case
from tests.store.seam import watched
from tests.workflows.kit import begun, drained, statuses

WRITES = ("add_steps", "change_steps", "settle", "settle_steps", "count_settled")
IDS = itertools.count(1)
SAW: list[tuple[str, int]] = []  # what acted, and the id that it saw: a ledger that stepwell does not write


@step
async def new_id() -> int:
    """Another one each time: what a service gives that makes an order."""
    return next(IDS)


@step
async def new_id_slowly() -> int:
    await asyncio.sleep(0)
    return next(IDS)


@step
async def acts(what: str, id: int) -> int:
    SAW.append((what, id))
    return id


@workflow
async def acting(slowly: bool) -> list[int]:
    get = new_id_slowly if slowly else new_id
    first = await acts("first", await get())
    both = await asyncio.gather(acts("second", await get()), acts("third", first))
    return [first, *both, await get()]


@workflow
async def acting_otherwise(ctx: Context) -> list[int]:
    ids = [await new_id()]
    ctx.set_value("order", ids[-1])
    ids.append(await new_id())
    ctx.now()
    ids.append(await new_id())
    await sleep("1s")
    ids.append(await new_id())
    guard: Any = await ctx.acquire("by hand")
    if hasattr(guard, "success"):
        SAW.append(("by hand", ids[-1]))
        await guard.success(ids[-1])
    ids.append(await new_id())
    ids.append(await acted.trigger(ids[-1]).wait().execute(ctx))
    ids.append(await new_id())
    if ids[-1] < 0:
        raise AssertionError("no id is negative")
    return ids


@workflow
async def acted(id: int) -> int:
    SAW.append(("child", id))
    return id


def assert_what_acted_saw_one_id(case: Case) -> None:
    """Fail if something acted on an id that a crash has undone: the next worker acted on another one."""
    for what in {what for what, _ in SAW}:
        seen = {one for name, one in SAW if name == what}
        assert len(seen) == 1, f"{case}: {what} has seen {seen}"
    assert case.life.status == "SUCCESS", case.life


@pytest.mark.proves("S-04", "R-06", "promise-03")
@pytest.mark.backends("sqlite", "postgres", reason="the same driver serves Turso")
@pytest.mark.parametrize("way", ["at once", "slowly", "otherwise"])
async def test_whatever_acts_on_a_result_sees_the_recorded_one_wherever_its_worker_is_lost(
    store_url: str, backend: str, way: str
) -> None:
    """Cut off between the submission of each write of the run and its commit, and right after it."""
    trigger = acting_otherwise.trigger() if way == "otherwise" else acting.trigger(way == "slowly")
    happened = 0
    async with world(acting, acting_otherwise, acted, url=store_url) as w, w.crashes(trigger) as crashes:
        calls = (await crashes.undisturbed()).calls
        writing = [at for at, call in enumerate(calls, 1) if any(one in call for one in WRITES)]
        for number, at in enumerate(writing):
            SAW.clear()
            if (case := await crashes.cut_off(at, WHENS[number % 2 == 1 and backend == "sqlite"])) is not None:
                assert_what_acted_saw_one_id(case)
                happened += 1
    assert happened > len(writing) // 2


# What is written, and when


async def written_by(store: Store, flow: Any, *args: Any) -> list[list[str]]:
    """What the flushes of a run write."""
    over, driver = watched(store)
    await begun(store, flow, *args)
    await drained(over, flow)
    calls = [[call.statement for call in calls if call.statement in WRITES] for calls in driver.flushes]
    return [one for one in calls if one]


@step
async def plain(number: int) -> int:
    return number + 1


@workflow
async def in_a_row(number: int) -> int:
    for _ in range(3):
        number = await plain(number)
    return number


@workflow
async def at_once(number: int) -> int:
    return sum(await asyncio.gather(plain(number), plain(number)))


@workflow
async def failing(number: int) -> int:
    raise ValueError(await plain(number))


END = ["settle", "count_settled", "settle_steps"]


@pytest.mark.proves("S-04")
async def test_the_last_result_and_the_end_of_its_run_are_one_transaction(store: Store) -> None:
    assert await written_by(store, in_a_row, 1) == [["add_steps"], ["add_steps"], END]
    assert await written_by(store, at_once, 1) == [["add_steps"], END[:2]], "other tasks of the run: it waits"


@pytest.mark.proves("S-04", "R-05")
async def test_a_run_that_fails_records_what_it_has_seen_in_the_same_transaction(store: Store) -> None:
    assert (await written_by(store, failing, 1))[0] == END
    [run] = await store.runs()
    assert await statuses(store, run.id) == {"plain#1": "SUCCESS"}


@pytest.mark.proves("S-04")
async def test_no_body_begins_before_the_result_before_it_is_in_the_database(store: Store) -> None:
    over, driver = watched(store)
    began, seen = list[int](), list[int]()

    @step
    async def notes(number: int) -> int:
        began.append(number)
        return number + 1

    @workflow
    async def noting() -> int:
        return await notes(await notes(1))

    async def look(calls: Sequence[Call]) -> None:
        for _ in range(5):  # whatever was about to begin begins now
            await asyncio.sleep(0)
        if any(call.statement in WRITES for call in calls):
            seen.append(len(began))

    driver.before = look
    await begun(store, noting)
    await drained(over, noting)
    assert seen == [1, 2], "the first result is written before the second body begins"


@pytest.mark.proves("S-04")
async def test_no_child_is_added_before_the_result_before_it_is_in_the_database(store: Store) -> None:
    over, driver = watched(store)
    added: list[bool] = []

    @workflow
    async def parent(ctx: Context) -> int:
        return await acted.trigger(await plain(1)).wait().execute(ctx)

    def has_added() -> bool:
        return any(call.statement.startswith("add_tasks") for call in driver.said)

    async def look(calls: Sequence[Call]) -> None:
        if not any(call.statement in WRITES for call in calls):
            return
        for _ in range(1 if added else 20):  # the first time, whatever was about to begin begins now
            if has_added():
                break
            await asyncio.sleep(0.01)
        added.append(has_added())

    driver.before = look
    run_id = await begun(store, parent)
    await drained(over, parent, acted)
    assert (await store.get_run(run_id)).output() == 2
    assert added[0] is False
    assert added[-1] is True, "the children are not added as this test thinks: void"


@pytest.mark.proves("S-04")
async def test_a_transaction_of_the_workflow_waits_for_the_result_that_it_may_act_on(store: Store) -> None:
    seen: list[int] = []
    recorded = store.database.statements._macros.fill("select count(*) as number from {step} where status = 'SUCCESS'")

    @workflow
    async def opening() -> None:
        await plain(1)
        async with store.transaction() as tx:
            seen.extend(row["number"] for row in await tx.execute(recorded))

    await begun(store, opening)
    await drained(store, opening)
    assert seen == [1]


@pytest.mark.proves("S-04", "protocol-15")
@pytest.mark.parametrize("way", ["the last", "on its way", "one before"])
async def test_a_result_that_the_database_refuses_fails_its_run_and_is_not_missing_in_one_that_succeeds(
    store: Store, way: str
) -> None:
    over, driver = watched(store)
    odd, under_way = "plain#2" if way == "one before" else "plain#1", asyncio.Event()

    async def refuse(calls: Sequence[Call]) -> None:
        if any(odd in row for call in calls for row in call.rows or ()):
            under_way.set()
            for _ in range(5):  # the run ends meanwhile, if it does not wait
                await asyncio.sleep(0)
            raise Refused("a row that the database refuses")

    @workflow
    async def unlucky() -> int:
        number = await plain(1)
        if way == "on its way":
            await under_way.wait()
        return await plain(await plain(number)) if way == "one before" else number

    driver.before = refuse
    run_id = await begun(store, unlucky, max_attempts=1)
    await drained(over, unlucky)
    assert (await store.get_run(run_id)).status is RunStatus.ERROR
    assert odd not in await statuses(store, run_id)
