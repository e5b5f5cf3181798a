"""A run talks to other runs: it signals, cancels and asks them, each once, whatever is replayed."""

import pytest

from stepwell import (
    CancelAnswer,
    Context,
    RequestRefused,
    RunNotFound,
    SignalAnswer,
    Store,
    Timeout,
    Worker,
    sleep,
    sync,
    wait,
    workflow,
)
from stepwell.runs import other_run
from tests.queue.raw import ask
from tests.workflows.kit import begun


@workflow
async def account(ctx: Context, cents: int) -> None:
    async with ctx.request("draw", int) as request:
        if request.data > cents:
            request.refuse("there is not so much")
        else:
            cents -= request.data
            request.reply(cents)
    ctx.restart(cents)


@workflow
async def listener() -> list[int]:
    first = await wait("number", int)
    return [first, await wait("number", int, timeout="500ms", default=0)]


@workflow
async def teller(ctx: Context, run: int) -> list[object]:
    other = account.with_key("a")
    said: list[object] = [await ctx.ask(other, "draw", 30, int)]
    with pytest.raises(RequestRefused, match="there is not so much"):
        await ctx.ask(other, "draw", 300)
    said.append(await ctx.signal(run, "number", said[0]))
    await sleep("20ms")
    with pytest.raises(RunNotFound):
        await ctx.signal(10**9, "number", 1)
    return [*said, await ctx.cancel(other, reason="closed")]


@workflow
async def slow(ctx: Context) -> None:
    await sleep("1s")
    async with ctx.request("late") as request:
        request.reply("at last")


@workflow
async def hasty(ctx: Context, run: int) -> str:
    with pytest.raises(Timeout, match="has not answered the request 'never'"):
        await ctx.ask(run, "never", timeout="100ms")
    return str(await ctx.ask(run, "late", timeout="1m"))


@workflow
def clerk(ctx: sync.Context, run: int) -> list[object]:
    return [ctx.ask(run, "draw", 1, int), ctx.signal(run, "other"), ctx.cancel(run)]


@pytest.mark.proves("TK-20")
async def test_each_call_of_another_run_is_made_once(live_store: Store) -> None:
    await begun(live_store, account, 100, key="a")
    hears = await begun(live_store, listener)
    run = await begun(live_store, teller, int(hears))
    async with Worker(live_store, [account, listener, teller]):
        ended: list[object] = await live_store.result(run, list[object], timeout=20)
        assert await live_store.result(hears, timeout=20) == [70, 0], "a replay sends nothing again"
    assert ended[0] == 70
    assert SignalAnswer(str(ended[1])) in (SignalAnswer.WOKE, SignalAnswer.KEPT)
    assert CancelAnswer(str(ended[2])) in (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED)


@pytest.mark.proves("TK-20")
async def test_a_run_that_waits_for_an_answer_holds_no_place(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_run, "LOOK_FOR", 0.02)
    monkeypatch.setattr(other_run, "LOOK_AGAIN", 0.1)
    answers = await begun(live_store, slow)
    run = await begun(live_store, hasty, int(answers))
    async with Worker(live_store, [slow, hasty], concurrency=1):
        assert await live_store.result(run, timeout=20) == "at last"


@pytest.mark.proves("TK-20")
async def test_sync_workflows_talk_to_other_runs(live_store: Store) -> None:
    paid = await begun(live_store, account, 5)
    run = await begun(live_store, clerk, int(paid))
    async with Worker(live_store, [account, clerk]):
        assert (await live_store.result(run, list[object], timeout=20))[0] == 4


@pytest.mark.proves("TK-20")
async def test_a_signal_that_is_sent_again_is_answered_as_the_first_time(store: Store) -> None:
    run = await begun(store, listener)
    answers = [await store.database.signals.send_once(run, "number", 1, "~k") for _ in "12"]
    assert answers == [SignalAnswer.KEPT] * 2
    assert await ask(store, f"select count(*) from {{signal}} where run_id = {int(run)}") == [(1,)]
