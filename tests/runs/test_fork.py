"""Forks: a new run goes on at a step of another one, with what that had recorded before, edited if wanted."""

from typing import Any

import pytest

from stepwell import (
    Context,
    ExecutionFailed,
    InvalidOption,
    NonDeterminismError,
    PermanentError,
    QueueDraining,
    RunNotFound,
    SerializationError,
    StepFailed,
    StepNotFound,
    Store,
    StoreUnavailable,
    current,
    step,
    sync,
    workflow,
)
from tests.queue.raw import change
from tests.runs.kit import record, tick
from tests.store.seam import begin, claim, count, once, watched
from tests.workflows.kit import begun, drained, executed, steps_of

ran: list[str] = []


@pytest.fixture(autouse=True)
def anew() -> None:
    ran.clear()


@step
async def price(item: str) -> int:
    ran.append(f"price {item}")
    return 10


@step(retry=1)
async def charge(cents: int) -> str:
    ran.append(f"charge {cents}")
    if cents > 50:
        raise PermanentError("too much")
    return f"receipt {cents}"


@step
async def ship(receipt: str) -> str:
    ran.append(f"ship {receipt}")
    return f"parcel with {receipt} of {current().run_id}"


@workflow
async def buy(item: str) -> str:
    cents = await price(item)
    try:
        receipt = await charge(cents)
    except StepFailed:
        receipt = await charge(1)
    return await ship(receipt)


@pytest.mark.proves("R-20")
async def test_a_fork_keeps_what_came_before_and_executes_the_rest_anew(store: Store) -> None:
    run = await executed(store, buy, "lamp", key="order-7", tags=["a"], priority=3, max_attempts=9)
    before = await steps_of(store, run.id)
    ran.clear()
    forked = await store.fork(run.id, at="charge#1", reason="the bank was wrong")
    assert forked.created
    await drained(store, buy)
    assert ran == ["charge 10", "ship receipt 10"]
    assert await store.result(forked, timeout=0) == f"parcel with receipt 10 of {forked}"
    new = await store.get_run(forked)
    assert (new.cause, new.key) == (f"fork of {run.id} at charge#1: the bank was wrong", None)
    assert (new.workflow, new.input(), new.tags, new.priority, new.max_attempts) == ("buy", "lamp", ("a",), 3, 9)
    assert await store.result(run.id, timeout=0) == f"parcel with receipt 10 of {run.id}"
    assert await steps_of(store, run.id) == before
    after = await steps_of(store, forked)
    assert (list(after), after["price#1"]) == (list(before), before["price#1"])


async def test_outputs_of_earlier_steps_are_edited_and_a_name_will_do(store: Store) -> None:
    run = await executed(store, buy, "lamp")
    ran.clear()
    forked = await store.fork(run.id, at="charge", outputs={"price": 20})
    await drained(store, buy)
    assert ran == ["charge 20", "ship receipt 20"]
    assert (await steps_of(store, forked))["price#1"].output == 20


async def test_a_step_that_failed_is_copied_as_that_or_edited_into_a_success(store: Store) -> None:
    run = await executed(store, buy, "lamp")
    dear = await store.fork(run.id, at="charge", outputs={"price": 60})
    await drained(store, buy)
    assert list(await steps_of(store, dear)) == ["price#1", "charge#1", "charge#2", "ship#1"]
    ran.clear()
    again = await store.fork(dear, at="ship")
    await drained(store, buy)
    assert ran == ["ship receipt 1"], "the failure that was caught is kept, and so is what came of it"
    assert (await steps_of(store, again))["charge#1"].status == "ERROR"
    with pytest.raises(InvalidOption, match="several of this name; say which: charge#1, charge#2"):
        await store.fork(dear, at="charge")
    ran.clear()
    await store.fork(dear, at="charge#2", outputs={"charge#1": "a gift"})
    await drained(store, buy)
    assert ran == ["ship a gift"]


async def test_an_edit_that_changes_what_a_kept_step_was_asked_for_is_refused_when_it_is_replayed(store: Store) -> None:
    run = await executed(store, buy, "lamp")
    forked = await store.fork(run.id, at="ship", outputs={"price": 20})
    await drained(store, buy)
    error = (await store.get_run(forked)).error
    assert error is not None
    assert error["type"] == NonDeterminismError.__name__


async def test_only_what_has_ended_is_copied(store: Store) -> None:
    run_id = await tick.trigger().execute(store)
    await record(
        store, run_id, ("a#1", "SUCCESS"), ("b#1", "RUNNING"), ("c#1", "PENDING"), ("d#1", "ERROR"), ("e#1", "SUCCESS")
    )
    forked = await store.fork(run_id, at="e#1")
    assert list(await steps_of(store, forked)) == ["a#1", "d#1"]
    await store.delete(run_id)
    session = await begin(store)
    [task] = await claim(store, session, "tick")
    assert (task.id, task.attempt) == (forked, 1)
    assert task.turn > 1, "what is recorded of a run is read from its second turn on"


async def test_what_cannot_be_forked_is_refused_and_nothing_is_written(store: Store) -> None:
    run = await executed(store, buy, "lamp")
    rows = await count(store)
    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (StepNotFound, "no step 'refund'; name one of those it has: price#1, charge#1, ship#1", {"at": "refund"}),
        (StepNotFound, "no step 'refund#1'", {"at": "ship", "outputs": {"refund#1": 1}}),
        (InvalidOption, "executes it anew", {"at": "charge", "outputs": {"charge": "x"}}),
        (InvalidOption, "executes it anew", {"at": "charge", "outputs": {"ship": "x"}}),
        (SerializationError, "output of price", {"at": "charge", "outputs": {"price": object()}}),
    ]
    for error, message, options in refused:
        with pytest.raises(error, match=message):
            await store.fork(run.id, **options)
    with pytest.raises(RunNotFound):
        await store.fork(999_999, at="price")
    await store.drain_queue("buy")
    with pytest.raises(QueueDraining):
        await store.fork(run.id, at="price")
    assert await count(store) == rows


async def test_a_fork_whose_reply_is_lost_is_one_fork(store: Store) -> None:
    run = await executed(store, buy, "lamp")
    rows = await count(store)
    store, driver = watched(store)
    await store.database.ids.take(1)
    driver.forget()
    driver.after = once(StoreUnavailable("reset after the work was done"))
    forked = await store.fork(run.id, at="charge", outputs={"price": 20})
    assert driver.scripts == 2, "the reply was not lost: void"
    assert await count(store) == rows + 1
    assert (await steps_of(store, forked))["price#1"].output == 20


def test_a_sync_store_forks_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run_id = buy.trigger("lamp").execute(store)
        sync.Worker(store, [buy]).drain()
        forked = store.fork(run_id, at="ship")
        sync.Worker(store, [buy]).drain()
        assert store.result(forked) == f"parcel with receipt 10 of {forked}"


@workflow
async def part(number: int) -> int:
    ran.append(f"part {number}")
    if number < 0:
        raise PermanentError("less than nothing")
    return 2 * number


@workflow
async def assembled(ctx: Context, number: int) -> list[int]:
    one = await part.trigger(number).execute(ctx)
    others = await ctx.trigger_many([part.trigger(number + 1), part.trigger(number + 2)])
    await price("lamp")
    return await ctx.results([one, *others])


async def pruned(store: Store, *, but: set[int]) -> None:
    """Have the runs removed as if their time was over."""
    keep = ", ".join(map(str, but))
    await change(store, f"delete from {{task}} where id not in ({keep})")


@pytest.mark.proves("R-20")
async def test_a_fork_has_the_answers_of_children_that_were_removed_meanwhile(store: Store) -> None:
    run_id = await begun(store, assembled, 1)
    await drained(store, assembled, part)
    again = await store.fork(run_id, at="results()#1")
    once_more = await store.fork(again, at="price#1")
    await pruned(store, but={run_id, again, once_more})
    ran.clear()
    await drained(store, assembled, part)
    assert [await store.result(one, timeout=0) for one in (again, once_more)] == [[2, 4, 6], [2, 4, 6]]
    assert ran == ["price lamp"], "no child is asked for again"
    assert [one.name for one in await store.steps(again)] == ["part()", "trigger_many()", "price", "results()"]


@pytest.mark.proves("R-20")
async def test_a_fork_knows_which_of_its_removed_children_failed(store: Store) -> None:
    run_id = await begun(store, assembled, -1)
    await drained(store, assembled, part)
    assert (await store.get_run(run_id)).status == "ERROR"
    again = await store.fork(run_id, at="results()#1")
    await pruned(store, but={run_id, again})
    await drained(store, assembled, part)
    with pytest.raises(ExecutionFailed, match="less than nothing"):
        await store.result(again, timeout=0)


@pytest.mark.proves("ST-02")
async def test_a_run_that_has_not_begun_is_forked_from_its_beginning(store: Store) -> None:
    run = await buy.trigger("lamp").options(key="k", delay="1h", tags=["a"]).execute(store)
    forked = await store.fork(run, reason="today")
    await drained(store, buy)
    assert ran == ["price lamp", "charge 10", "ship receipt 10"]
    new = await store.get_run(forked)
    assert (new.input(), new.tags, new.key) == ("lamp", ("a",), None)
    assert new.cause == f"fork of {run} at its beginning: today"
    assert (await store.get_run(run)).status == "PENDING"
    assert [note.what for note in await store.history(run)] == ["forked"]


@pytest.mark.proves("ST-02")
async def test_without_a_step_all_are_executed_anew(store: Store) -> None:
    run = await executed(store, buy, "lamp")
    ran.clear()
    await store.fork(run.id)
    await drained(store, buy)
    assert ran == ["price lamp", "charge 10", "ship receipt 10"]
    with pytest.raises(InvalidOption, match="say `at`"):
        await store.fork(run.id, outputs={"price": 5})
    with pytest.raises(RunNotFound):
        await store.fork(10**9)
