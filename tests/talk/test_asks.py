"""Ask and answer: a request is taken once, by a run that waits for it, and its answer comes to who asked."""

import asyncio
import random
from dataclasses import dataclass

import pytest

from stepwell import (
    Context,
    InvalidOption,
    Reason,
    RequestRefused,
    RequestUnanswered,
    RunNotFound,
    SerializationError,
    StepFailed,
    Store,
    Timeout,
    Worker,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.runs import other_run
from stepwell.store import results
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.testing import world
from tests.ground.waiting import until
from tests.queue.raw import ask, change
from tests.store.seam import watched
from tests.workflows.kit import begun, drained

answered: list[str] = []


@dataclass
class Assign:
    to: str
    hours: int = 1


@step
async def book(to: str) -> str:
    answered.append(to)
    return f"booked {to}"


@workflow
async def ticket(ctx: Context, life: int = 3) -> str:
    async with ctx.request("assign", Assign) as request:
        if request.data.hours > 8:
            request.refuse("nobody works that long")
        else:
            request.reply({"by": await book(request.data.to), "number": request.number})
    if life > 1:
        ctx.restart(life - 1)
    return request.data.to


@workflow
async def patient(ctx: Context) -> int:
    async with ctx.request("age", int) as request:
        await sleep("1h")
        request.reply(request.data + 1)
    return 0


@workflow
async def clumsy(ctx: Context) -> str:
    with pytest.raises(ValueError, match="a cup"):
        async with ctx.request("try"):
            int("a cup")
    async with ctx.request("try") as second:
        pass
    return str(second.data)


@workflow
async def deaf(ctx: Context) -> int:
    async with ctx.request("late", timeout="1h") as request:
        assert request is None
    return 1


@workflow
async def stuck(ctx: Context) -> None:
    async with ctx.request("go"):
        ctx.restart()


@workflow
def clerk(ctx: sync.Context) -> int:
    with ctx.request("sum", list[int]) as request:
        request.reply(sum(request.data))
    return len(request.data)


@pytest.fixture(autouse=True)
def anew() -> None:
    answered.clear()


@pytest.mark.proves("TK-14", "TK-15")
async def test_a_run_answers_each_request_once_over_its_restarts(live_store: Store) -> None:
    run = await begun(live_store, ticket)
    waiting = asyncio.create_task(live_store.ask(run, "assign", Assign("eve"), timeout=20))
    await asyncio.sleep(0)
    async with Worker(live_store, [ticket]):
        assert await waiting == {"by": "booked eve", "number": 1}
        with pytest.raises(RequestRefused, match="refused the request 'assign': nobody works that long"):
            await live_store.ask(run, "assign", Assign("bob", 9), timeout=20)
        first = await live_store.ask(run, "assign", Assign("ann"), dict[str, object], timeout=20, key="mine")
        assert await live_store.result(run, timeout=20) == "ann"
    assert await live_store.ask(run, "assign", Assign("ann"), timeout=0, key="mine") == first, "the same answer again"
    assert answered == ["eve", "ann"]
    with pytest.raises(RequestUnanswered, match="is SUCCESS and does not answer the request 'assign'"):
        await live_store.ask(run, "assign", Assign("zoe"), timeout=20)


@pytest.mark.proves("TK-14", "TK-15")
async def test_a_request_is_kept_and_answered_by_a_later_worker(store: Store, clock: TestClock) -> None:
    run = await begun(store, patient)
    with pytest.raises(Timeout, match=r"has not answered the request 'age' in 0 s; the request stays: ask again with"):
        await store.ask(run, "age", 41, timeout=0, key="a")
    await drained(store, patient)
    assert (await store.why(run)).reason is Reason.SLEEPING, "it has taken the request"
    with pytest.raises(Timeout):
        await store.ask(run, "age", 41, timeout=0, key="a")
    clock.advance("2h")
    await drained(store, patient)
    assert await store.ask(run, "age", 41, int, timeout=0, key="a") == 42
    assert [one.key for one in await store.steps(run)] == ["?age#1", "sleep#1", "reply()#1"]


@pytest.mark.proves("TK-16")
async def test_what_does_not_fit_is_refused_and_the_run_waits_on(store: Store, clock: TestClock) -> None:
    run = await begun(store, patient)
    async with asyncio.TaskGroup() as group:
        early = group.create_task(_refused(store, run, "young"))
        await until(lambda: _kept(store, run), 20)
        await drained(store, patient)
        assert "int" in await early, "it was kept before the run said what it takes"
    with pytest.raises(SerializationError, match="waits for int"):
        await store.ask(run, "age", "young", timeout=0)
    why = await store.why(run)
    assert why.reason is Reason.WAITING_FOR_REQUEST
    assert "it waits for the request age" in why.message
    with pytest.raises(Timeout):
        await store.ask(run, "age", 1, timeout=0, key="a")
    await drained(store, patient)
    clock.advance("2h")
    await drained(store, patient)
    assert await store.ask(run, "age", 1, timeout=0, key="a") == 2


async def _refused(store: Store, run: int, data: object) -> str:
    with pytest.raises(RequestRefused) as refused:
        await store.ask(run, "age", data, timeout=20)
    return refused.value.reason


async def _kept(store: Store, run: int) -> bool:
    return bool(await ask(store, f"select 1 from {{signal}} where run_id = {int(run)}"))


@pytest.mark.proves("TK-17")
async def test_how_a_block_is_left(live_store: Store) -> None:
    broken, late, restarts = [await begun(live_store, one) for one in (clumsy, deaf, stuck)]
    async with Worker(live_store, [clumsy, deaf, stuck]):
        with pytest.raises(RequestRefused, match="ValueError: invalid literal for int"):
            await live_store.ask(broken, "try", 1, timeout=20)
        assert await live_store.ask(broken, "try", 2, timeout=20) is None
        assert await live_store.result(broken, timeout=20) == "2"
        with pytest.raises(RequestRefused, match="restart cannot be 'go': this request is not answered yet"):
            await live_store.ask(restarts, "go", timeout=20)
        asking = asyncio.create_task(live_store.ask(late, "never", timeout=20))
        await until(lambda: _kept(live_store, late), 20)
        await live_store.cancel(late)
        with pytest.raises(RequestUnanswered, match="is CANCELLED and does not answer"):
            await asking
        with pytest.raises(RequestUnanswered):
            await live_store.ask(late, "later", timeout=20)
        with pytest.raises(RunNotFound):
            await live_store.ask(10**9, "later", timeout=20)


@workflow
async def doubtful(ctx: Context) -> list[str]:
    said = []
    async with ctx.request("twice", int) as request:
        request.reply(1)
        try:
            request.refuse("no")
        except InvalidOption as error:
            said.append(str(error))
    async with ctx.request("inside", int) as request:
        try:
            await ctx.step("reply", request.reply, 3)
        except StepFailed as error:
            said.append(str(error))
    async with ctx.request("none", timeout="10ms") as request:
        said.append(str(request))
    return said


@pytest.mark.proves("TK-17")
async def test_a_request_has_one_answer_of_the_workflow_and_may_not_come_in_time(live_store: Store) -> None:
    run = await begun(live_store, doubtful)
    async with Worker(live_store, [doubtful]):
        assert await live_store.ask(run, "twice", 1, timeout=20) == 1
        assert await live_store.ask(run, "inside", 1, timeout=20) is None
        once, inside, none = await live_store.result(run, timeout=20)
    assert "a request has one answer" in once
    assert "a step's body" in inside
    assert none == "None"


@pytest.mark.proves("TK-18")
def test_sync_programs_ask_and_sync_workflows_answer(store_url: str) -> None:
    with sync.connect(store_url) as store, sync.Worker(store, [clerk]):
        clerk.trigger().options(key="one").execute(store)
        assert store.ask(clerk.with_key("one"), "sum", [1, 2], int, timeout=20) == 3
        assert store.result(clerk.with_key("one"), timeout=20) == 2


@workflow
async def twice(ctx: Context) -> None:
    async with ctx.request("go") as request:
        request.reply("first")
    await sleep("1h")


@pytest.mark.proves("TK-14")
async def test_a_replay_answers_nothing_again(store: Store, clock: TestClock) -> None:
    run = await begun(store, twice)
    with pytest.raises(Timeout):
        await store.ask(run, "go", timeout=0, key="k")
    await drained(store, twice)
    assert await store.ask(run, "go", timeout=0, key="k") == "first"
    clock.advance("2h")
    store, sent = watched(store)
    await drained(store, twice)
    assert "answer_requests" not in [call.statement for call in sent.said]
    assert [one.key for one in await store.steps(run)] == ["?go#1", "reply()#1", "sleep#1"]


@pytest.mark.proves("TK-14")
async def test_an_answer_is_never_replaced(store: Store) -> None:
    run = await begun(store, twice)
    with pytest.raises(Timeout):
        await store.ask(run, "go", timeout=0, key="k")
    await drained(store, twice)
    again = Call("answer_requests", {"now": 1, "beat_now": 1}, [(int(run), "?go", 1, '"second"', None)])

    def script() -> Script[list[Row]]:
        return (yield again)

    assert await store.database.transact(script) == []
    assert await store.ask(run, "go", timeout=0, key="k") == "first"


@pytest.mark.proves("TK-14")
async def test_who_asks_is_told_of_the_answer_by_a_hint(live_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("SHORTEST_POLL", "LONGEST_POLL"):
        monkeypatch.setattr(results, pause, 1e6)
    live_store, sent = watched(live_store)
    one, other = await begun(live_store, patient), await begun(live_store, twice)
    refused = asyncio.create_task(_refused(live_store, one, "young"))
    replied = asyncio.create_task(live_store.ask(other, "go", timeout=20))
    await until(lambda: sum(len(list(call.rows or ())) for call in sent.reads if call.statement == "answers") >= 2)
    async with Worker(live_store, [patient, twice]):
        assert "int" in await refused
        assert await replied == "first"


@pytest.mark.proves("TK-15")
async def test_a_request_is_kept_until_long_after_its_answer(store: Store) -> None:
    run = await begun(store, twice)
    where: dict[str, Value] = {"id": int(run), "name": "?go", "before": 10**18, "limit": 10}
    for key in ("k", "l"):
        with pytest.raises(Timeout):
            await store.ask(run, "go", timeout=0, key=key)
    await change(store, "update {signal} set taken_at = 1")

    def forget() -> Script[list[Row]]:
        return (yield Call("forget_signals", where))

    assert await store.database.transact(forget) == [], "it was taken, and is not answered"
    await change(store, "update {signal} set answered_at = 1 where key = 'k'")
    assert len(await store.database.transact(forget)) == 1


@step
async def sell(cents: int) -> int:
    return cents * 2


@workflow
async def shop(ctx: Context) -> int:
    async with ctx.request("buy", int) as request:
        request.reply(await sell(request.data))
    return request.data


@workflow
async def buyer(ctx: Context) -> list[int]:
    run = await shop.trigger().execute(ctx)
    return [await ctx.ask(run, "buy", 3, int), *await ctx.results([run])]


@pytest.mark.proves("TK-14", "TK-20")
async def test_ask_and_answer_survive_a_crash_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_run, "LOOK_FOR", 0.2)
    async with world(buyer, shop) as clocked:
        report = await clocked.crash_everywhere(buyer.trigger())
    assert any("answers" in call for call in report.calls)


@workflow
async def till(ctx: Context, taken: int) -> None:
    for _ in range(5):
        async with ctx.request("add", int) as request:
            taken += 1
            request.reply(taken)
    ctx.restart(taken)


@pytest.mark.proves("TK-14", "TK-15")
@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
async def test_timeouts_that_race_with_answers_lose_and_double_none(live_store: Store, count: int) -> None:
    run = await begun(live_store, till, 0)
    chance, late = random.Random(count), 0

    async def one(number: int) -> int:
        nonlocal late
        key = f"k{number}"
        try:
            return await live_store.ask(run, "add", number, int, key=key, timeout=chance.uniform(0, 0.03))
        except Timeout:
            late += 1
            return await live_store.ask(run, "add", number, int, key=key, timeout=20)

    async with Worker(live_store, [till]):
        replies = [reply for _ in range(0, count, 10) for reply in await asyncio.gather(*map(one, range(_, _ + 10)))]
    assert sorted(replies) == list(range(1, count + 1))
    assert late > 0, "no answer was late: void"
