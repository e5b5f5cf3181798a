"""A step that gets a transaction: what its body writes and its result are committed together, or neither."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from stepwell import Context, InvalidOption, NotInRun, StepFailed, Store, Tx, connect, current, step, sync, workflow
from stepwell.base.clock import TestClock
from stepwell.errors import StoreUnavailable
from tests.workflows.kit import begun, die, drained, executed, statuses, steps_of

TOGETHER = pytest.mark.proves("promise-06", "S-28")
LOST = StoreUnavailable("reset after the work was done")
Numbers = Callable[[], Awaitable[list[int]]]


@pytest.fixture
async def paid(store: Store) -> Numbers:
    """A table of the user's; the numbers in it."""
    async with store.transaction() as tx:
        await tx.execute("create table paid (n bigint not null)")

    async def numbers() -> list[int]:
        async with store.transaction() as tx:
            return sorted(row[0] for row in await tx.execute("select n from paid"))

    return numbers


def insert(store: Store) -> str:
    return f"insert into paid (n) values ({'$1' if store.database.driver.name == 'postgres' else '?'})"


@TOGETHER
async def test_the_rows_of_a_body_are_there_once_with_its_result(store: Store, clock: TestClock, paid: Numbers) -> None:
    """Also what it enqueues and emits; and a failed attempt, sync or async, leaves nothing but its error."""
    await store.create_queue("post")
    tries: list[int] = []

    @step(tx=True, retry=3)
    async def pay(tx: Tx, n: int) -> int:
        await tx.execute(insert(store), n)
        await store.enqueue("post", n, tx=tx)
        await current().emit("paid", n)
        tries.append(n)
        if len(tries) == 1:
            raise RuntimeError("no")
        return n + 1

    @step(tx=True)
    def book(tx: sync.Tx, n: int) -> int:
        tx.execute(insert(store), n)
        tries.append(n)
        if len(tries) == 3:
            raise RuntimeError("no")
        return n + 1

    @workflow
    async def shop(ctx: Context, n: int) -> int:
        done = await ctx.step(book, await pay(n))
        await ctx.sleep(60)
        return done

    run_id = await begun(store, shop, 5)
    await drained(store, shop)
    [failed] = (await steps_of(store, run_id)).values()
    assert (failed.status, failed.attempt, await paid()) == ("PENDING", 1, [])
    assert await store.counts("post") == {}
    for _ in range(4):
        clock.advance(60)
        await drained(store, shop)
    run = await store.get_run(run_id)
    assert (run.status, run.output(), await paid()) == ("SUCCESS", 7, [5, 6])
    assert [(one.status, one.attempt) for one in await store.steps(run_id)][:2] == [("SUCCESS", 2)] * 2
    assert (await store.counts("post"), await store.counts("outbox:paid")) == ({"PENDING": 1}, {"PENDING": 1})
    assert tries == [5, 5, 6, 6], "a replay has called a body"


@TOGETHER
@pytest.mark.backends("postgres", reason="elsewhere one writer: nobody takes the run while the body holds it")
async def test_a_body_whose_turn_is_lost_commits_nothing_and_its_successor_commits_once(
    store: Store, paid: Numbers
) -> None:
    tries: list[int] = []

    @step(tx=True, retry=1)
    async def pay(tx: Tx) -> int:
        tries.append(len(tries))
        await tx.execute(insert(store), len(tries))
        if len(tries) == 1:
            await die(store.database)
        return len(tries)

    @workflow
    async def shop() -> int:
        return await pay()

    run_id = await begun(store, shop)
    for _ in range(2):
        await drained(store, shop)
    assert ((await store.get_run(run_id)).output(), await paid(), len(tries)) == (2, [2], 2)


@TOGETHER
@pytest.mark.parametrize("is_written", [True, False], ids=["written", "not written"])
async def test_after_a_lost_reply_of_the_commit_the_record_says_what_became_of_it(
    store: Store, clock: TestClock, paid: Numbers, is_written: bool
) -> None:
    tries: list[int] = []
    transactions = store.database.transactions
    begin = transactions.of_step

    @contextlib.asynccontextmanager
    async def losing(lease: float) -> AsyncIterator[Tx]:
        async with begin(lease) as tx:
            yield tx
            if len(tries) == 1 and not is_written:
                raise LOST
        if len(tries) == 1:
            raise LOST

    transactions.of_step = losing  # type: ignore[method-assign]

    @step(tx=True)
    async def pay(tx: Tx) -> int:
        tries.append(len(tries))
        await tx.execute(insert(store), len(tries))
        return len(tries)

    @workflow
    async def shop() -> int:
        return await pay()

    run_id = await begun(store, shop)
    await drained(store, shop)
    assert (await store.get_run(run_id)).status == ("SUCCESS" if is_written else "PENDING")
    clock.advance(60)
    await drained(store, shop)
    made = 1 if is_written else 2
    assert ((await store.get_run(run_id)).output(), await paid(), len(tries)) == (made, [made], made)


@TOGETHER
async def test_a_body_that_ends_its_transaction_itself_fails_for_good(store: Store, paid: Numbers) -> None:
    """Trying again would write its rows twice. A result that cannot be stored undoes them."""

    @step(tx=True, retry=3)
    async def commits(tx: Tx) -> None:
        await tx.execute(insert(store), 1)
        await tx.execute("commit")

    @step(tx=True, retry=3)
    async def returns_an_object(tx: Tx) -> Any:
        await tx.execute(insert(store), 2)
        return object()

    @workflow
    async def shop(first: bool) -> None:
        await (commits() if first else returns_an_object())

    run = await executed(store, shop, True)
    assert (run.status, (run.error or {})["type"]) == ("ERROR", "StepFailed")
    assert "it was committed or rolled back by the code that was given it" in str(run.error)
    assert (await executed(store, shop, False)).status == "ERROR"
    assert await paid() == [1]


@TOGETHER
async def test_a_body_that_outlives_its_limit_commits_nothing_even_if_it_returns_later(
    store: Store, clock: TestClock, paid: Numbers
) -> None:
    go, began, left = threading.Event(), threading.Event(), threading.Event()

    @step(tx=True, timeout=0.05, retry=1)
    async def slow(tx: Tx) -> None:
        await tx.execute(insert(store), 1)
        await asyncio.sleep(3600)

    @step(tx=True, timeout=0.5, retry=1)
    def stuck(tx: sync.Tx) -> None:
        began.set()
        tx.execute(insert(store), 2)
        go.wait(20)
        with contextlib.suppress(InvalidOption):
            tx.execute(insert(store), 3)
        left.set()

    @workflow
    async def shop(ctx: Context) -> None:
        for late in (slow(), ctx.step(stuck)):
            with pytest.raises(StepFailed):
                await late
        go.set()

    run = await executed(store, shop)
    assert run.status == "SUCCESS"
    # On a machine at its limit the time may be over before the body has begun: then it is never called.
    assert not began.is_set() or await asyncio.to_thread(left.wait, 20)
    assert await paid() == []
    assert await statuses(store, run.id) == {"slow#1": "ERROR", "stuck#1": "ERROR"}


@TOGETHER
@pytest.mark.backends("postgres", reason="elsewhere one writer: nobody can ask while the body holds it")
async def test_what_another_process_asks_of_the_run_is_heard_with_the_commit(
    store: Store, store_url: str, paid: Numbers
) -> None:
    """What was committed stays recorded, and no further body begins."""

    @step(tx=True)
    async def pay(tx: Tx, n: int) -> None:
        await tx.execute(insert(store), n)
        if n == 1:
            async with connect(store_url) as other:
                await other.pause(current().run_id)

    @workflow
    async def shop() -> None:
        for n in range(3):
            await pay(n)

    run = await executed(store, shop)
    assert (run.status, await paid()) == ("PAUSED", [0, 1])
    assert await statuses(store, run.id) == {"pay#1": "SUCCESS", "pay#2": "SUCCESS"}


@pytest.mark.proves("promise-06")
async def test_what_cannot_be_a_transactional_step_is_refused_where_it_is_declared(store: Store) -> None:
    async def pay(n: int) -> None: ...
    async def charge(tx: Tx, n: int) -> int:
        return n

    with pytest.raises(InvalidOption, match="its first parameter is the transaction, and is called `tx`"):
        step(tx=True)(pay)
    with pytest.raises(InvalidOption, match="name an engine, a pool"):
        step(tx="sqlite:///file.db")(charge)
    with pytest.raises(NotInRun, match=r"charge gets its transaction from a run: here say `charge.local\(tx, ...\)`"):
        await step(tx=True)(charge)(1)
    assert await step(tx=True)(charge).local(None, 1) == 1
