"""What a run says of how far it is: the latest wins, and nobody waits for the write."""

import asyncio
import threading
from typing import Any

import pytest

from stepwell import (
    Context,
    PayloadTooLarge,
    RunStatus,
    SerializationError,
    Store,
    Worker,
    current,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.runs.reports import Reporter
from stepwell.runs.turn import RunTurn
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.store.seam import DONE, begin, claim, claim_alone, watched
from tests.workflows.kit import begun, drained, executed

said = asyncio.Event()
go_on = asyncio.Event()


@pytest.fixture(autouse=True)
def anew() -> None:
    global said, go_on  # an event belongs to the loop of its test
    said, go_on = asyncio.Event(), asyncio.Event()


@step
async def half() -> None:
    current().progress({"done": 1, "of": 2})
    said.set()
    await go_on.wait()


@step
def all_of_it() -> None:
    current().progress({"done": 2, "of": 2})


@workflow
async def work(ctx: Any) -> None:
    await half()
    await ctx.step(all_of_it)


@workflow
async def sleeper(ctx: Any) -> None:
    ctx.progress("asleep")
    await sleep("1h")


async def test_a_caller_reads_it_while_the_run_is_under_way(live_store: Store) -> None:
    async def progress() -> Any:
        return (await live_store.get_run(run_id)).progress

    run_id = await begun(live_store, work)
    assert await progress() is None
    async with Worker(live_store, [work]):
        await asyncio.wait_for(said.wait(), 20)
        await until(progress, 20, message="the progress to be written")
        assert await progress() == {"done": 1, "of": 2}
        go_on.set()
        await live_store.result(run_id, timeout=20)
    assert await progress() == {"done": 2, "of": 2}, "what is said last, from a thread too, is written before the end"


async def test_it_stays_while_the_run_waits(store: Store) -> None:
    run = await executed(store, sleeper)
    assert (run.status, run.progress) == (RunStatus.PENDING, "asleep")
    [[progress]] = await ask(store, f"select progress from {{runs}} where id = {int(run.id)}")
    assert progress == '"asleep"'


async def test_a_thousand_words_are_few_writes_and_the_last_is_kept(store: Store) -> None:
    @workflow
    async def chatty(ctx: Any) -> None:
        for number in range(1000):
            ctx.progress(number)

    store, driver = watched(store)
    run = await executed(store, chatty)
    assert run.progress == 999
    assert len([ids for ids in driver.ids("note_progress") if ids]) <= 2


async def test_threads_that_say_the_first_word_at_once_have_one_last_word(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Reporter] = []
    both = threading.Barrier(2)

    class Made(Reporter):
        def __init__(self, run: RunTurn) -> None:
            made.append(self)
            if threading.get_ident() != run.home:
                both.wait(20)
            super().__init__(run)

    @workflow
    async def crowd(ctx: Context) -> None:
        await asyncio.gather(*(ctx.step("tell", ctx.progress, number) for number in range(2)))

    monkeypatch.setattr("stepwell.runs.reports.Reporter", Made)
    run = await executed(store, crowd)
    assert (run.status, len(made)) == (RunStatus.SUCCESS, 1), "two of them overwrite each other in any order"


async def test_it_shares_the_transactions_of_others(store: Store) -> None:
    @workflow
    async def quiet(ctx: Context, number: int) -> int:
        ctx.progress(number)
        return await ctx.step("add", lambda: number + 1)

    store, driver = watched(store)
    runs = [await begun(store, quiet, number) for number in range(20)]
    driver.forget()
    await drained(store, quiet, concurrency=20)
    notes = [ids for ids in driver.ids("note_progress") if ids]
    assert sorted(one for ids in notes for one in ids) == sorted(runs)
    assert len(notes) < 20, "each was written by itself"
    assert [(await store.get_run(run_id)).progress for run_id in runs] == list(range(20))


@pytest.mark.proves("protocol-03")
async def test_a_turn_that_is_over_says_nothing_more(store: Store) -> None:
    run_id = await begun(store, work)
    first, second = await begin(store), await begin(store)
    [old] = await claim(store, first, "work")
    for one in await store.database.sessions.living():
        if one.worker_id == first:
            assert await store.database.sessions.bury(one)
    [new] = await claim_alone(store, second, "work")
    assert await _noted(store, new.owner, new.turn, run_id, '"new"')
    assert not await _noted(store, old.owner, old.turn, run_id, '"dead session"')
    assert not await _noted(store, new.owner, old.turn, run_id, '"old turn"')
    await store.database.tasks.settle(run_id, second, new.turn, DONE)
    assert not await _noted(store, new.owner, new.turn, run_id, '"after the end"')
    assert (await store.get_run(run_id)).progress == "new"


async def test_what_cannot_be_stored_is_refused_where_it_is_said(store: Store) -> None:
    errors: list[Exception] = []

    @workflow
    async def wrong(ctx: Any) -> None:
        for value in (object(), "x" * 20_000):
            try:
                ctx.progress(value)
            except (SerializationError, PayloadTooLarge) as error:
                errors.append(error)

    run = await executed(store, wrong)
    assert (run.status, run.progress) == (RunStatus.SUCCESS, None)
    assert [type(error) for error in errors] == [SerializationError, PayloadTooLarge]


async def test_a_run_that_is_being_given_back_says_nothing(store: Store) -> None:
    @workflow
    async def tidy(ctx: Any) -> None:
        try:
            ctx.progress("at work")
            await sleep("1h")
        finally:
            ctx.progress("in finally")

    assert (await executed(store, tidy)).progress == "at work"


def test_a_sync_workflow_says_it_too(store_url: str) -> None:
    @workflow
    def plain(ctx: sync.Context) -> None:
        ctx.progress([1, 2])

    with sync.connect(store_url) as store:
        run_id = plain.trigger().options(require_worker="ignore").execute(store)
        sync.Worker(store, [plain]).drain()
        assert store.get_run(run_id).progress == [1, 2]


async def _noted(store: Store, worker: int, turn: int, run_id: int, text: str) -> bool:
    operation = store.database.tasks.note_progress(int(run_id), worker, turn, text, None)
    assert operation is not None
    answered: list[Any] = []
    operation.heard = answered.append
    await until(lambda: answered, 20, message="the write")
    return answered[0].value is not None
