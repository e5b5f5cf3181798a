"""Timers: never early, applied once, the last word on a key, and nothing after a cancel."""

import asyncio

import pytest

from stepwell import Engine, Receipt, Store, Worker, connect
from stepwell.base.clock import TestClock
from stepwell.base.durations import moment_of
from stepwell.store.poll import SWEEP_EVERY
from tests.deciders.workbench import Bench, Do, drained, labels, names, tasks
from tests.ground.waiting import until
from tests.workflows.kit import die


@pytest.fixture
def engine(store: Store) -> Engine:
    return Engine(store).register(Bench())


@pytest.mark.proves("TM-02", "TM-03", "TM-12", "II-07", "promise-10")
async def test_a_timer_is_delivered_when_it_is_due_and_not_before(
    engine: Engine, store: Store, clock: TestClock
) -> None:
    await engine.execute(Do("a", after=60))
    clock.advance(59.999999)
    assert await drained(store, engine) == 0
    clock.advance(0.000001)
    assert await drained(store, engine) == 1
    first, second = await engine.events("bench", "a")
    assert (second.event.at - first.event.at).total_seconds() == 60
    [timer] = await tasks(store, "TIMER")
    assert (timer["status"], second.cause) == ("SUCCESS", f"timer:{timer['id']}")


@pytest.mark.proves("TM-02")
async def test_a_timer_wakes_the_worker_of_its_process_by_the_databases_clock(live_store: Store) -> None:
    engine = Engine(live_store).register(Bench())
    async with Worker(live_store, [engine]):
        await engine.execute(Do("a", after=0.2))
        await until(lambda: _has(engine, 2), timeout=5)
    first, second = await engine.events("bench", "a")
    assert second.event.at >= first.event.at
    assert (second.recorded_at - first.event.at).total_seconds() >= 0.2


@pytest.mark.proves("TM-02")
async def test_a_timer_that_another_process_set_is_delivered_at_the_next_sweep_at_the_latest(store_url: str) -> None:
    assert SWEEP_EVERY == 1
    async with connect(store_url, listen=False) as theirs, connect(store_url, listen=False) as mine:
        engine = Engine(theirs).register(Bench())
        await engine.execute(Do("warm"))
        async with Worker(mine, [Engine(mine).register(Bench())]) as worker:
            await worker.drain()
            await engine.execute(Do("a", after=0.1))
            await until(lambda: _has(engine, 2), timeout=20)
        first, second = await engine.events("bench", "a")
    late = (second.recorded_at - first.event.at).total_seconds() - 0.1
    assert 0 <= late <= SWEEP_EVERY + 2, "two seconds are for a machine that is busy"


async def _has(engine: Engine, count: int) -> bool:
    return len(await labels(engine)) == count


@pytest.mark.proves("TM-12")
@pytest.mark.parametrize("joins", [False, True], ids=["by itself", "in a transaction"])
async def test_the_time_of_a_timer_counts_from_the_now_that_was_decided_on(
    store: Store, clock: TestClock, joins: bool
) -> None:
    """However long the decision takes: what it says of the time and what its timer does are of one moment."""

    class Slow(Bench):
        def decide(self, state, input, now):  # type: ignore[no-untyped-def]
            decision = super().decide(state, input, now)
            clock.advance(10)
            return decision

    engine = Engine(store).register(Slow())
    if joins:
        async with store.transaction() as tx:
            await engine.execute(Do("a", after=60), tx=tx)
    else:
        await engine.execute(Do("a", after=60))
    [event], [timer] = await engine.events("bench", "a"), await tasks(store, "TIMER")
    assert clock.now() - moment_of(event.event.at, "at") >= 10_000_000, "time has passed meanwhile"
    assert timer["run_at"] - moment_of(event.event.at, "at") == 60_000_000


@pytest.mark.proves("TM-03")
async def test_a_timer_is_decided_on_what_has_happened_since_it_was_set(
    engine: Engine, store: Store, clock: TestClock
) -> None:
    await engine.execute(Do("a", "set", after=60))
    for label in ("one", "two"):
        await Engine(store).register(Bench()).execute(Do("a", label))
    clock.advance(60)
    await drained(store, engine)
    assert await labels(engine) == ["set", "one", "two", "tick"]
    assert (await engine.events("bench", "a"))[-1].event.before == 3


@pytest.mark.proves("TM-05")
@pytest.mark.parametrize("key", ["k", None])
async def test_a_timer_that_cannot_be_delivered_is_tried_again_and_then_a_dead_letter(
    store: Store, clock: TestClock, key: str | None
) -> None:
    class Refusing(Bench):
        def decide(self, state, input, now):  # type: ignore[no-untyped-def]
            if input.label == "tick":
                raise RuntimeError("no")
            return super().decide(state, input, now)

    engine = Engine(store).register(Refusing())
    await engine.execute(Do("a", after=1, timer=key))
    attempts = []
    for _ in range(6):
        clock.advance("10m")
        await drained(store, engine)
        attempts.append((await tasks(store, "TIMER"))[0]["attempt"])
    assert attempts == [1, 2, 3, 4, 5, 5]
    [letter] = await store.dead_letters(kind="TIMER")
    assert letter.last_error == "RuntimeError: no"
    await engine.execute(Do("a", "again", after=1, timer=key))
    assert len(await tasks(store, "TIMER")) == 2, "the key is free again"


@pytest.mark.proves("TM-07", "TM-15")
async def test_a_key_has_one_timer_and_without_a_key_each_stands_for_itself(
    engine: Engine, store: Store, clock: TestClock
) -> None:
    await engine.execute(Do("a", after=10, timer="k", then="first"))
    await engine.execute(Do("a", after=20, timer="k", then="second"))
    await engine.execute(Do("b", after=15, timer="k", then="of b"))
    await asyncio.gather(*(engine.execute(Do("a", after=5, then="each")) for _ in range(2)))
    clock.advance(60)
    await drained(store, engine)
    assert await labels(engine) == ["x"] * 4 + ["each", "each", "second"]
    assert await labels(engine, "b") == ["x", "of b"]
    assert await names(engine) == ["Noted"] * 7, "a timer that is replaced is not cancelled by anybody"


@pytest.mark.proves("TM-07")
async def test_the_last_word_on_a_key_counts_among_inputs_that_are_decided_together(
    engine: Engine, store: Store, clock: TestClock
) -> None:
    await asyncio.gather(
        engine.execute(Do("a", "1", after=10, timer="k", then="old")),
        engine.execute(Do("a", "2", after=20, timer="k", then="new")),
        engine.execute(Do("a", "3", after=5, timer="gone")),
        engine.execute(Do("a", "4", cancel="gone")),
        engine.execute(Do("a", "5", cancel="k", after=30, timer="k", then="newest")),
    )
    clock.advance(60)
    await drained(store, engine)
    assert await labels(engine) == ["1", "2", "3", "4", "5", "newest"]
    cancelled = [one.event.key for one in await engine.events("bench", "a") if "Cancelled" in one.type]
    assert cancelled == ["gone", "k"]


@pytest.mark.proves("TM-08", "TM-09", "promise-10")
async def test_a_cancelled_timer_never_fires_and_the_stream_says_so(
    engine: Engine, store: Store, clock: TestClock
) -> None:
    await engine.execute(Do("a", after=10, timer="k"))
    receipt = await engine.execute(Do("a", cancel="k"))
    assert (receipt.first, receipt.last) == (2, 3)
    await engine.execute(Do("a", cancel="k"))
    await engine.execute(Do("a", cancel="unheard of"))
    clock.advance(60)
    assert await drained(store, engine) == 0
    assert await names(engine) == ["Noted", "Noted", "stepwell.TimerCancelled", "Noted", "Noted"]
    assert [timer["status"] for timer in await tasks(store, "TIMER")] == ["CANCELLED"]


@pytest.mark.proves("TM-10", "TM-06")
@pytest.mark.parametrize("how", ["cancel", "replace", "end"])
async def test_a_timer_that_was_claimed_and_then_cancelled_or_replaced_is_not_delivered(
    store: Store, clock: TestClock, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = Engine(store).register(Bench()), Engine(store).register(Bench())
    await engine.execute(Do("a", after=10, timer="k", then="too late"))
    clock.advance(10)
    inputs = {"cancel": Do("a", cancel="k"), "replace": Do("a", after=10, timer="k"), "end": Do("a", end=True)}
    meanwhile = [inputs[how]]

    async def first(batch):  # type: ignore[no-untyped-def]
        if batch[0].delivery is not None and meanwhile:
            await other.execute(meanwhile.pop())
        return await decide(batch)

    decide = engine._mailbox.decide
    monkeypatch.setattr(engine._mailbox, "decide", first)
    await drained(store, engine)
    assert meanwhile == []
    assert await labels(other) == ["x", "x"]
    clock.advance(10)
    await drained(store, engine)
    assert await labels(other) == (["x", "x", "tick"] if how == "replace" else ["x", "x"])


@pytest.mark.proves("TM-10")
async def test_an_input_that_waits_before_a_claimed_timer_may_still_cancel_it(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", after=10, timer="k", then="too late"))
    clock.advance(10)
    put = engine._mailbox.put
    waiting: list[asyncio.Future[Receipt]] = []

    def behind(pending):  # type: ignore[no-untyped-def]
        if pending.delivery is not None and not waiting:
            waiting.append(asyncio.ensure_future(engine.execute(Do("a", "in time", cancel="k"))))
            asyncio.get_running_loop().call_soon(put, pending)
        else:
            put(pending)

    engine._mailbox.put = behind  # type: ignore[method-assign]
    await drained(store, engine)
    await waiting[0]
    assert await labels(engine) == ["x", "in time"]
    assert [timer["status"] for timer in await tasks(store, "TIMER")] == ["CANCELLED"]


@pytest.mark.proves("TM-11", "protocol-11")
async def test_a_timer_that_is_set_again_under_its_own_key_while_it_is_delivered_fires_again(
    store: Store, clock: TestClock
) -> None:
    class Recurring(Bench):
        def decide(self, state, input, now):  # type: ignore[no-untyped-def]
            decision = super().decide(state, input, now)
            again = Do(input.id, "tick", timer="k")
            return decision.with_timer_after(10, again, key="k") if input.label == "tick" else decision

    engine = Engine(store).register(Recurring())
    await engine.execute(Do("a", "go", after=10, timer="k"))
    for number in range(1, 4):
        clock.advance(10)
        assert await drained(store, engine) == 1
        assert await labels(engine) == ["go", *["tick"] * number]
    assert [timer["status"] for timer in await tasks(store, "TIMER")] == [*["SUCCESS"] * 3, "PENDING"]
    assert await names(engine) == ["Noted"] * 4, "it has cancelled nothing"


@pytest.mark.proves("TM-09", "TM-08")
async def test_a_timer_that_cancels_its_own_key_while_it_is_delivered_cancels_nothing(
    store: Store, clock: TestClock
) -> None:
    class Tidy(Bench):
        def decide(self, state, input, now):  # type: ignore[no-untyped-def]
            decision = super().decide(state, input, now)
            return decision.cancel_timer("k") if input.label == "tick" else decision

    engine = Engine(store).register(Tidy())
    await engine.execute(Do("a", "go", after=10, timer="k"))
    clock.advance(10)
    await drained(store, engine)
    assert await names(engine) == ["Noted", "Noted"]


@pytest.mark.proves("TM-14")
@pytest.mark.parametrize("at_once", [10, 1], ids=["together", "one by one"])
async def test_timers_that_were_due_while_nobody_worked_are_delivered_once_in_their_order(
    store: Store, clock: TestClock, at_once: int
) -> None:
    for number in (3, 1, 2):
        await Engine(store).register(Bench()).execute(Do("a", "set", after=number, then=f"due {number}"))
    clock.advance("1d")
    engine = Engine(store).register(Bench())  # of a process that knows nothing
    assert await drained(store, engine, concurrency=at_once) == 3
    assert await labels(engine) == ["set"] * 3 + ["due 1", "due 2", "due 3"]


@pytest.mark.proves("TM-06", "TM-04", "L-19", "promise-10")
async def test_a_timer_whose_worker_was_lost_is_delivered_by_another_once(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", after=10))
    clock.advance(10)
    decide, alive = engine._mailbox.decide, [True]

    async def dying(batch):  # type: ignore[no-untyped-def]
        if alive:
            alive.pop()
            await die(store.database)
        return await decide(batch)

    monkeypatch.setattr(engine._mailbox, "decide", dying)
    await drained(store, engine)
    assert await labels(engine) in (["x"], ["x", "tick"])
    await drained(store, engine)
    assert await labels(engine) == ["x", "tick"]
    [timer] = await tasks(store, "TIMER")
    assert (timer["status"], timer["turn"]) == ("SUCCESS", 2)


@pytest.mark.proves("TM-13")
async def test_a_timer_that_is_due_when_its_instance_ends_decides_nothing(
    engine: Engine, store: Store, clock: TestClock
) -> None:
    await engine.execute(Do("a", after=10))
    await engine.execute(Do("a", end=True))
    clock.advance(10)
    assert await drained(store, engine) == 0
    assert await labels(engine) == ["x", "x"]
