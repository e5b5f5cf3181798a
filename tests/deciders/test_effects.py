"""Effects: carried out at least once, answered exactly once, given up in the end, and never twice at a time."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import pytest

from stepwell import (
    Decider,
    Decision,
    EffectContext,
    Engine,
    InvalidOption,
    PermanentError,
    Retry,
    Store,
    Worker,
    connect,
)
from stepwell.base.clock import TestClock
from tests.deciders.workbench import BEGINNING, Ask, Bench, Do, Noted, drained, labels, tasks
from tests.ground.waiting import until
from tests.store.seam import begin, claim, claim_alone
from tests.workflows.kit import die

EFFECTS = 12


def failing(times: int, then: Callable[[Ask], Do | None] = lambda _: None) -> Callable[..., Awaitable[Do | None]]:
    """A handler that fails so often."""

    async def answer(effect: Ask, ctx: EffectContext) -> Do | None:
        if ctx.attempt <= times:
            raise ConnectionError(f"attempt {ctx.attempt}")
        return then(effect)

    return answer


async def nothing(effect: Ask, ctx: EffectContext) -> None:
    """A handler with nothing to say."""


@pytest.mark.proves("F-02", "F-03", "F-09")
async def test_an_effect_without_an_answer_is_done(store: Store, clock: TestClock) -> None:
    bench = Bench(nothing)
    engine = Engine(store).register(bench)
    await engine.execute(Do("a", ask="mail"))
    await engine.execute(Do("a", ask="mail"))
    clock.advance("1h")
    assert await drained(store, engine) == 2
    assert [effect["status"] for effect in await tasks(store, "EFFECT")] == ["SUCCESS", "SUCCESS"]
    assert await labels(engine) == ["x", "x"]
    first, second = bench.asked
    assert (first.type, first.id, first.attempt, first.created_at) == ("bench", "a", 1, BEGINNING)
    assert first.key != second.key
    assert sorted(one.effect_id for one in bench.asked) == [one["id"] for one in await tasks(store, "EFFECT")]
    assert first.effect_id != second.effect_id


@pytest.mark.proves("F-02", "M-17", "M-19", "M-24")
async def test_each_type_of_an_engine_has_its_own_handler_and_all_are_served_until_the_shutdown(store: Store) -> None:
    held: list[tuple[str, object, str]] = []

    async def answer(effect: Ask, ctx: EffectContext) -> None:
        task = await store.get(ctx.effect_id)
        assert task is not None
        held.append((ctx.type, task.owner, task.status))

    class First(Bench):
        type = "first"

    @dataclass(frozen=True)
    class Ring:
        id: str

    class Second(Decider[int, Ring, Noted, Ask]):
        type, route = "second", "id"
        rung: ClassVar[list[Ask]] = []

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Noted) -> int:
            return state + 1

        def decide(self, state: int, input: Ring, now: datetime) -> Decision[Noted, Ask, Ring]:
            decision: Decision[Noted, Ask, Ring] = Decision.event(Noted("rung", state))
            return (
                decision if state else decision.with_effect(Ask("bell", input.id)).with_timer_after(0, Ring(input.id))
            )

        async def handle(self, effect: Ask, ctx: EffectContext) -> None:
            self.rung.append(effect)
            await answer(effect, ctx)

    first = First(answer)
    engine = Engine(store).register(first).register(Second())
    await engine.execute(Do("a", ask="mail", after=0))
    await engine.execute(Ring("a"))
    shutdown = asyncio.Event()
    running = asyncio.ensure_future(engine.run(shutdown.wait()))

    async def is_done() -> bool:
        return (
            len(held) == 2
            and (await engine.state(First, "a")).labels == ("x", "tick")
            and (await engine.state(Second, "a") == 2)
        )

    await until(is_done)
    assert not running.done()
    [worker] = await store.workers()
    assert sorted(held) == [("first", worker.id, "RUNNING"), ("second", worker.id, "RUNNING")]
    assert ([ctx.type for ctx in first.asked], Second.rung) == (["first"], [Ask("bell", "a")])
    shutdown.set()
    await asyncio.wait_for(running, 10)


@pytest.mark.proves("F-04", "II-07")
async def test_what_an_effect_answers_is_decided_and_the_effect_is_done(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", "ordered", ask="mail"))
    await drained(store, engine)
    [effect] = await tasks(store, "EFFECT")
    assert (effect["status"], effect["attempt"]) == ("SUCCESS", 1)
    assert await labels(engine) == ["ordered", "mail answered"]
    assert (await engine.events("bench", "a"))[1].cause == f"effect:{effect['id']}"


@pytest.mark.proves("F-05", "F-09", "promise-07")
async def test_an_effect_that_fails_is_tried_again_with_the_same_key(store: Store, clock: TestClock) -> None:
    bench = Bench(failing(2, lambda effect: Do(effect.id, "at last")))
    engine = Engine(store).register(bench)
    await engine.execute(Do("a", ask="mail"))
    await drained(store, engine)
    [effect] = await tasks(store, "EFFECT")
    assert (effect["status"], effect["attempt"], effect["last_error"]) == ("PENDING", 1, "ConnectionError: attempt 1")
    for _ in range(2):
        clock.advance("10m")
        await drained(store, engine)
    assert await labels(engine) == ["x", "at last"]
    assert [ctx.attempt for ctx in bench.asked] == [1, 2, 3]
    assert len({ctx.key for ctx in bench.asked}) == 1


class Twice(Bench):
    """Tries its effects twice, a quarter of a second each."""

    retry = 2
    timeout = "250ms"


@pytest.mark.proves("F-05")
@pytest.mark.parametrize(("options", "attempts"), [({}, 2), ({"retry": 1}, 1), ({"retry": Retry(7, base=30)}, 7)])
async def test_a_decider_says_how_often_its_effects_are_tried(
    store: Store, clock: TestClock, options: dict[str, Any], attempts: int
) -> None:
    bench = Twice(failing(99))
    engine = Engine(store).register(bench, **options)
    await engine.execute(Do("a", ask="mail"))
    for _ in range(attempts):
        assert await store.dead_letters(kind="EFFECT") == []
        await drained(store, engine)
        clock.advance("10m")
    [letter] = await store.dead_letters(kind="EFFECT")
    assert (letter.attempt, len(bench.asked)) == (attempts, attempts)


@pytest.mark.proves("F-05")
@pytest.mark.parametrize("options", [{}, {"timeout": 0.1}])
async def test_an_attempt_of_an_effect_ends_at_its_timeout(store: Store, clock: TestClock, options: Any) -> None:
    async def hangs(effect: Ask, ctx: EffectContext) -> Do:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return Do(effect.id, "at last")

    engine = Engine(store).register(Twice(hangs), **options)
    await engine.execute(Do("a", ask="mail"))
    await drained(store, engine)
    [effect] = await tasks(store, "EFFECT")
    assert (effect["status"], effect["attempt"]) == ("PENDING", 1)
    assert "Timeout: `handle` of effect" in effect["last_error"]
    clock.advance("10m")
    await drained(store, engine)
    assert await labels(engine) == ["x", "at last"]


@pytest.mark.proves("F-05")
@pytest.mark.parametrize("options", [{"retry": 0}, {"timeout": 0}, {"timeout": "soon"}])
async def test_a_policy_of_effects_that_cannot_be_is_refused(store: Store, options: Any) -> None:
    with pytest.raises(InvalidOption):
        Engine(store).register(Bench(), **options)
    with pytest.raises(InvalidOption):
        Engine(store).register(type("Wrong", (Bench,), options)())


@pytest.mark.proves("F-06")
async def test_an_effect_that_fails_for_good_is_a_dead_letter_until_it_is_requeued(
    store: Store, clock: TestClock
) -> None:
    bench = Bench(failing(99))
    engine = Engine(store).register(bench)
    await engine.execute(Do("a", ask="mail"))
    for _ in range(6):
        await drained(store, engine)
        clock.advance("10m")
    [letter] = await store.dead_letters(kind="EFFECT")
    assert (letter.attempt, letter.queue, len(bench.asked)) == (5, "bench:effects", 5)
    assert await labels(engine) == ["x"], "nobody is told unless the decider says so"
    [queue] = [one for one in await store.queue_stats() if one.queue == "bench:effects"]
    assert (queue.dead, queue.ready, queue.waiting) == (1, 0, 0)
    bench.answer = failing(0, lambda effect: Do(effect.id, "mended"))
    assert await store.requeue(letter.id) == 1
    await drained(store, engine)
    assert await labels(engine) == ["x", "mended"]
    assert bench.asked[-1].attempt == 1, "with all of its attempts"
    assert await store.dead_letters(kind="EFFECT") == []


@pytest.mark.proves("F-06")
async def test_an_instance_is_told_of_an_effect_that_was_given_up(store: Store, clock: TestClock) -> None:
    async def refused(effect: Ask, ctx: EffectContext) -> None:
        raise PermanentError("no such address")

    engine = Engine(store).register(Bench(refused, dead=True))
    await engine.execute(Do("a", ask="mail"))
    await drained(store, engine)
    assert await labels(engine) == ["x", "mail given up: PermanentError: no such address"]
    assert len(await store.dead_letters(kind="EFFECT")) == 1


@pytest.mark.proves("F-06", "F-10")
async def test_an_instance_is_told_of_an_effect_that_was_lost_with_its_workers(store: Store) -> None:
    died = asyncio.Event()

    async def deadly(effect: Ask, ctx: EffectContext) -> None:
        try:
            await die(store.database)  # from here on this is what is left of a process that was killed
        finally:
            died.set()  # also if its heartbeat has heard of it first, and stops this body
        await asyncio.Event().wait()

    engine = Engine(store).register(Bench(deadly, dead=True))
    await engine.execute(Do("a", ask="mail"))
    await store.pause_queue("bench:inputs")
    for _ in range(5):
        died.clear()
        async with Worker(store, [engine], grace=0):
            await asyncio.wait_for(died.wait(), 10)
    await store.resume_queue("bench:inputs")
    await drained(store, engine)
    assert await labels(engine) == ["x", "mail given up: worker_lost"]


@pytest.mark.proves("F-07", "F-08", "F-10", "L-19")
async def test_an_effect_whose_worker_was_lost_is_carried_out_by_another(store: Store) -> None:
    begun = asyncio.Event()

    async def hangs(effect: Ask, ctx: EffectContext) -> Do:
        if ctx.attempt == 1:
            begun.set()
            await asyncio.Event().wait()
        return Do(effect.id, f"attempt {ctx.attempt}")

    engine = Engine(store).register(Bench(hangs))
    await engine.execute(Do("a", ask="mail"))
    async with Worker(store, [engine], grace=0):
        await begun.wait()
        [effect] = await tasks(store, "EFFECT")
        assert effect["owner"] is not None
        await die(store.database)
        assert await drained(store, engine) == 1
    assert await labels(engine) == ["x", "attempt 2"]


@pytest.mark.proves("F-08")
@pytest.mark.parametrize("answers", [True, False], ids=["an answer", "no answer"])
async def test_an_effect_whose_worker_is_lost_between_its_end_and_its_record_is_carried_out_again(
    store: Store, answers: bool
) -> None:
    async def carried_out(effect: Ask, ctx: EffectContext) -> Do | None:
        if ctx.attempt == 1:
            await die(store.database)  # all is done, and nobody has heard of it
        return Do(effect.id, f"attempt {ctx.attempt}") if answers else None

    bench = Bench(carried_out)
    engine = Engine(store).register(bench)
    await engine.execute(Do("a", ask="mail"))
    await drained(store, engine, grace=0)
    await drained(store, engine)
    assert [ctx.attempt for ctx in bench.asked] == [1, 2]
    assert len({ctx.key for ctx in bench.asked}) == 1
    assert await labels(engine) == (["x", "attempt 2"] if answers else ["x"])
    assert [one["status"] for one in await tasks(store, "EFFECT")] == ["SUCCESS"]


@pytest.mark.proves("F-10")
async def test_of_effects_that_are_lost_together_the_one_that_kills_again_is_blamed(store: Store) -> None:
    queue = "bench:effects"
    bench = Bench(nothing)
    engine = Engine(store).register(bench, retry=2)
    for name in ("deadly", "innocent"):
        await engine.execute(Do(name, ask="mail"))

    async def spent() -> list[tuple[int, int]]:
        return [(one["attempt"], one["losses"]) for one in await tasks(store, "EFFECT")]

    first, second = await begin(store), await begin(store)
    assert len(await claim(store, first, queue, 2)) == 2
    assert await claim(store, second, queue, 2) == [], "the lease is not over"
    await store.database.sessions.end(second, "stopped")
    await die(store.database)
    assert await spent() == [(0, 1), (0, 1)], "nobody knows which it was"
    third = await begin(store)
    [deadly] = await claim_alone(store, third, queue)
    await die(store.database)
    [letter] = await store.dead_letters(kind="EFFECT")
    assert (letter.id, letter.last_error, letter.payload["id"]) == (deadly.id, "worker_lost", "deadly")
    await drained(store, engine)
    assert [(ctx.id, ctx.attempt) for ctx in bench.asked] == [("innocent", 1)]


@pytest.mark.proves("F-07", "TM-06", "L-19")
async def test_workers_that_compete_never_have_one_effect_or_timer_at_once(store_url: str, clock: TestClock) -> None:
    """More workers than tasks: with a claim that two can have, one of them would be executed twice."""
    begun: Counter[str] = Counter()

    async def carried_out(effect: Ask, ctx: EffectContext) -> None:
        begun[ctx.key] += 1
        await until(lambda: len(begun) == EFFECTS)  # all are under way at once: nobody is done early

    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(connect(store_url, clock=clock)) for _ in range(3)]
        engines = [Engine(store).register(Bench(carried_out)) for store in stores]
        for number in range(EFFECTS):
            await engines[0].execute(Do(str(number), ask="mail", after=10))
        clock.advance(10)
        done = await asyncio.gather(*(drained(*pair, concurrency=20) for pair in zip(stores, engines, strict=True)))
        assert sum(done) == 2 * EFFECTS
        assert set(begun.values()) == {1}
        assert [await labels(engines[0], str(number)) for number in range(EFFECTS)] == [["x", "tick"]] * EFFECTS


@pytest.mark.proves("F-07")
async def test_of_two_handlers_at_once_only_the_answer_of_the_one_that_holds_the_effect_counts(store: Store) -> None:
    """A worker that was taken for dead and goes on cannot be kept from that: both have one key, and it is refused."""
    entered, let_go = asyncio.Event(), asyncio.Event()

    async def goes_on(effect: Ask, ctx: EffectContext) -> Do:
        entered.set()
        while ctx.attempt == 1 and not let_go.is_set():
            with suppress(asyncio.CancelledError):  # its heartbeat may have heard of it, and it does not listen
                await let_go.wait()
        return Do(effect.id, f"attempt {ctx.attempt}")

    bench = Bench(goes_on)
    engine = Engine(store).register(bench)
    await engine.execute(Do("a", ask="mail"))
    async with Worker(store, [engine]):
        await entered.wait()
        await die(store.database)
        await drained(store, engine)
        assert await labels(engine) == ["x", "attempt 2"]
        let_go.set()
    assert [ctx.attempt for ctx in bench.asked] == [1, 2]
    assert len({ctx.key for ctx in bench.asked}) == 1
    assert await labels(engine) == ["x", "attempt 2"]
    assert [(one["status"], one["attempt"]) for one in await tasks(store, "EFFECT")] == [("SUCCESS", 2)]


@pytest.mark.proves("F-11")
async def test_so_many_effects_of_a_type_are_carried_out_at_once(store: Store) -> None:
    at_once: list[int] = []
    running = 0
    full = asyncio.Event()

    async def slow(effect: Ask, ctx: EffectContext) -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        if running == 3:
            full.set()
        await asyncio.wait_for(full.wait(), 10)
        await asyncio.sleep(0)
        running -= 1

    engine = Engine(store).register(Bench(slow), workers=3)
    for number in range(9):
        await engine.execute(Do(str(number), ask="mail"))
    assert await drained(store, engine, concurrency=20) == 9
    assert max(at_once) == 3


@pytest.mark.proves("F-11")
async def test_more_workers_carry_out_more_effects_at_once(store_url: str) -> None:
    at_once: set[str] = set()

    async def slow(effect: Ask, ctx: EffectContext) -> None:
        at_once.add(ctx.key)
        await until(lambda: len(at_once) == 6)  # none ends before as many are under way as both have places for

    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(connect(store_url)) for _ in range(2)]
        engines = [Engine(store).register(Bench(slow), workers=3) for store in stores]
        for number in range(6):
            await engines[0].execute(Do(str(number), ask="mail"))
        done = await asyncio.gather(*(drained(*pair, concurrency=20) for pair in zip(stores, engines, strict=True)))
        assert sorted(done) == [3, 3]


@pytest.mark.proves("F-12")
async def test_effects_are_put_in_order_through_the_state(store: Store) -> None:
    async def chain(effect: Ask, ctx: EffectContext) -> Do | None:
        step = int(effect.label)
        return Do(effect.id, f"did {step}", ask=str(step + 1)) if step < 3 else None

    engine = Engine(store).register(Bench(chain))
    await engine.execute(Do("a", "go", ask="1"))
    await drained(store, engine)
    assert await labels(engine) == ["go", "did 1", "did 2"]


@pytest.mark.proves("F-13", "F-04")
async def test_an_answer_that_cannot_be_routed_is_kept_and_the_effect_is_not_repeated(
    store: Store, clock: TestClock
) -> None:
    broken = True

    class Strict(Bench):
        def decide(self, state, input, now):  # type: ignore[no-untyped-def]
            if broken and input.label == "mail answered":
                raise RuntimeError("not now")
            return super().decide(state, input, now)

    bench = Strict()
    engine = Engine(store).register(bench)
    await engine.execute(Do("a", ask="mail"))
    await drained(store, engine)
    [effect] = await tasks(store, "EFFECT")
    assert (effect["status"], effect["last_error"]) == ("PENDING", "RuntimeError: not now")
    assert '"mail answered"' in effect["output"]
    broken = False
    clock.advance("10m")
    await drained(store, engine)
    assert await labels(engine) == ["x", "mail answered"]
    assert len(bench.asked) == 1


@pytest.mark.proves("F-13", "F-08")
async def test_a_worker_that_is_lost_after_the_answer_was_kept_does_not_repeat_the_effect(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    engine = Engine(store).register(bench)
    await engine.execute(Do("a", ask="mail"))
    keep_answer = store.database.decisions.keep_answer

    async def and_die(*args: object) -> bool:
        kept = await keep_answer(*args)  # type: ignore[arg-type]
        await die(store.database)
        return kept

    monkeypatch.setattr(store.database.decisions, "keep_answer", and_die)
    await drained(store, engine)
    monkeypatch.undo()
    await drained(store, engine)
    assert await labels(engine) == ["x", "mail answered"]
    assert len(bench.asked) == 1


@pytest.mark.proves("F-14", "L-19")
async def test_a_long_effect_keeps_its_lease(live_store: Store) -> None:
    async def long(effect: Ask, ctx: EffectContext) -> Do:
        await asyncio.sleep(2.5)  # the lease of this store is two seconds
        return Do(effect.id, "done")

    bench = Bench(long)
    engine = Engine(live_store).register(bench)
    await engine.execute(Do("a", ask="mail"))
    async with Worker(live_store, [engine]), Worker(live_store, [engine]):
        await until(lambda: _has(engine, 2))
    assert len(bench.asked) == 1


async def _has(engine: Engine, count: int) -> bool:
    return len(await labels(engine)) == count


@pytest.mark.proves("F-15")
async def test_effects_of_a_type_that_nobody_serves_wait_and_are_reported(store: Store) -> None:
    class Other(Bench):
        type = "other"

    engine, other = Engine(store).register(Bench()), Engine(store).register(Other())
    await other.execute(Do("a", ask="mail"))
    assert await drained(store, engine) == 0
    assert [one.queue for one in await store.unserved()] == ["other:effects"]
    assert await drained(store, other) == 1


@pytest.mark.proves("F-02", "M-24")
async def test_a_plain_function_handles_effects_in_a_thread(store: Store) -> None:
    class Plain(Bench):
        def handle(self, effect: Ask, ctx: EffectContext) -> Do:  # type: ignore[override]
            return Do(effect.id, "plain")

    engine = Engine(store).register(Plain())
    await engine.execute(Do("a", ask="mail"))
    await drained(store, engine)
    assert await labels(engine) == ["x", "plain"]


@pytest.mark.proves("E-12")
async def test_an_effect_pauses_without_spending_an_attempt(store: Store, clock: TestClock) -> None:
    async def answer(effect: Ask, ctx: EffectContext) -> Do | None:
        if not bench.asked[1:]:
            raise PermissionError("not paid yet")
        return Do(effect.id, "answered")

    bench = Bench(answer)
    engine = Engine(store).register(bench, retry=Retry(1, paused=(PermissionError,)))
    await engine.execute(Do("a", ask="mail"))
    assert await drained(store, engine) == 1
    assert [(one["status"], one["attempt"]) for one in await tasks(store, "EFFECT")] == [("PAUSED", 0)]
    clock.advance("1h")
    assert await drained(store, engine) == 1
    assert await labels(engine) == ["x", "answered"]
