"""An input is decided once: its key, its own id and its task see to that, whatever is lost or sent again."""

import asyncio
from typing import Any

import pytest

from stepwell import Engine, Receipt, Store, StoreUnavailable, connect
from stepwell.base.clock import TestClock
from tests.deciders.workbench import Bench, Do, Keyed, count, drained, labels, tasks, versions
from tests.store.seam import once, watched

LOST = StoreUnavailable("reset after the work was done")


@pytest.mark.proves("II-01", "II-02")
async def test_a_key_that_was_used_decides_nothing_and_answers_what_was_answered(store: Store) -> None:
    bench = Bench()
    engine = Engine(store).register(bench)
    await engine.execute(Do("a", "zero"))
    first = await engine.execute(Do("a", "one", ask="mail"), key="k")
    for again in (engine, Engine(store).register(bench)):
        decided = bench.decided
        assert await again.execute(Do("a", "one", ask="mail"), key="k") == Receipt("duplicate", first.first, first.last)
        assert bench.decided == decided
    assert (await engine.execute(Do("b", "one"), key="k")).outcome == "applied", "a key is its instance's own"
    assert (await labels(engine), len(await tasks(store, "EFFECT"))) == (["zero", "one"], 1)


@pytest.mark.proves("II-02")
async def test_a_key_is_of_one_type_and_instance_and_is_committed_or_undone_with_the_events(store: Store) -> None:
    class Other(Bench):
        type = "other"

    engine, other = Engine(store).register(Bench()), Engine(store).register(Other())

    async def both(*, fails: bool) -> None:
        async with store.transaction() as tx:
            for one in (engine, other):
                assert (await one.execute(Do("a", "x"), key="k", tx=tx)).outcome == "applied"
            if fails:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await both(fails=True)
    assert (await count(store, "receipt"), await count(store, "event")) == (0, 0)
    await both(fails=False)
    assert (await count(store, "receipt"), await count(store, "event")) == (2, 2)
    for one in (engine, other):
        assert (await one.execute(Do("a", "x"), key="k")).outcome == "duplicate"


@pytest.mark.proves("II-03")
@pytest.mark.parametrize("together", [True, False], ids=["mailbox", "one by one"])
async def test_duplicates_at_the_same_moment_are_decided_once(store: Store, together: bool) -> None:
    engines = [Engine(store, together=together).register(Bench()) for _ in range(2)]
    inputs = [(engine, f"k{number}") for number in range(5) for engine in engines for _ in range(3)]
    receipts = await asyncio.gather(*(engine.execute(Do("a", key), key=key) for engine, key in inputs))
    assert sorted(receipt.outcome for receipt in receipts) == ["applied"] * 5 + ["duplicate"] * 25
    assert sorted(await labels(engines[0])) == [f"k{number}" for number in range(5)]
    by_key: dict[str, set[Any]] = {}
    for (_, key), receipt in zip(inputs, receipts, strict=True):
        by_key.setdefault(key, set()).add((receipt.first, receipt.last))
    assert all(len(answers) == 1 for answers in by_key.values())


@pytest.mark.proves("II-05")
async def test_a_key_whose_input_could_not_be_decided_is_free(store: Store) -> None:
    engine = Engine(store).register(Bench())
    with pytest.raises(ValueError, match="no"):
        await engine.execute(Do("a", fail="no"), key="k")
    assert (await engine.execute(Do("a", "yes"), key="k")).outcome == "applied"


@pytest.mark.proves("II-05")
async def test_keys_are_forgotten_after_the_time_that_finished_work_is_kept(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", "one"), key="k")
    clock.advance("6d")
    await store.database.retention.round()
    assert (await engine.execute(Do("a", "one"), key="k")).outcome == "duplicate"
    clock.advance("2d")
    await store.database.retention.round()
    assert await count(store, "receipt") == 0
    assert (await engine.execute(Do("a", "one"), key="k")).outcome == "applied"


@pytest.mark.proves("protocol-12", "M-09", "II-01")
@pytest.mark.parametrize("key", [None, "k"], ids=["without a key", "with a key"])
@pytest.mark.parametrize("timer", [None, "t"], ids=["plain", "with a timer"])
@pytest.mark.parametrize("warm", [True, False], ids=["known", "unknown"])
async def test_a_decision_whose_reply_is_lost_is_made_once(
    store: Store, key: str | None, timer: str | None, warm: bool
) -> None:
    store, driver = watched(store)
    bench = Bench()
    engine = Engine(store).register(bench)
    await Engine(store).register(Bench()).execute(Do("a", "before"))
    if warm:
        await engine.execute(Do("a", "known", after=5, timer=timer))
    await store.database.decisions.supply(100)
    await asyncio.gather(*(store.database.queue_id(name, create=True) for name in ("bench:effects", "bench:inputs")))
    decided, driver.after = bench.decided, once(LOST)
    driver.forget()
    receipt = await engine.execute(Do("a", "once", ask="mail", after=5, timer=timer), key=key)
    at = 3 if warm else 2
    assert driver.scripts == 2, "the reply was not lost: void"
    assert (receipt.outcome, receipt.first, receipt.last) == ("applied", at, at)
    assert bench.decided <= decided + 1 + (timer is not None and warm), "once on what is at hand, once under the lock"
    assert (await labels(engine))[-1:] == ["once"]
    assert await versions(engine) == list(range(1, at + 1))
    timers = [one["status"] for one in await tasks(store, "TIMER")]
    assert timers.count("PENDING") == (2 if warm and timer is None else 1)
    assert len(await tasks(store, "EFFECT")) == 1


@pytest.mark.proves("protocol-12", "TM-04", "F-04")
async def test_a_delivery_whose_reply_is_lost_is_made_once(store: Store, clock: TestClock) -> None:
    store, driver = watched(store)
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", "go", ask="mail", after=5))
    clock.advance(5)
    lost = 0

    async def losing(_: object) -> None:
        nonlocal lost
        if driver.script and driver.script[-1] in ("count_settled", "move_instances", "append_events"):
            driver.script = []
            lost += 1
            if lost == 1:
                raise LOST

    driver.after = losing
    await drained(store, engine)
    assert lost, "no reply was lost: void"
    assert sorted(await labels(engine)) == ["go", "mail answered", "tick"]
    assert [one["status"] for kind in ("EFFECT", "TIMER") for one in await tasks(store, kind)] == ["SUCCESS"] * 2


@pytest.mark.proves("IN-01", "IN-02", "II-01")
async def test_a_submitted_input_is_decided_once_by_a_worker(store: Store, clock: TestClock) -> None:
    bench = Bench()
    engine = Engine(store).register(bench)
    first = await engine.submit(Do("a", "one"), key="k")
    again = await engine.submit(Do("a", "one"), key="k")
    assert (first == again, first.created, again.created) == (True, True, False)
    assert (await engine.submit(Do("b", "two"), key="k")).created
    await engine.submit(Do("a", "later"), delay=60)
    await engine.submit(Keyed("a", "request"))
    assert (await labels(engine), bench.decided) == ([], 0)
    assert await drained(store, engine) == 3
    assert (await labels(engine), await labels(engine, "b")) == (["one", "request"], ["two"])
    assert (await engine.execute(Do("a", "one"), key="k")).outcome == "duplicate"
    assert (await engine.execute(Keyed("a", "request"))).outcome == "duplicate"
    clock.advance(60)
    assert await drained(store, engine) == 1
    assert (await labels(engine))[-1] == "later"


@pytest.mark.proves("IN-01")
@pytest.mark.backends("sqlite", "turso", "postgres", reason="a store in memory ends with its connection")
async def test_a_submitted_input_outlives_the_process_that_submitted_it(store_url: str) -> None:
    async with connect(store_url) as gone:
        bench = Bench()
        engine = Engine(gone).register(bench)
        await engine.submit(Do("a", "submitted"))
        assert (await engine.execute(Do("b", "executed"))).outcome == "applied"
        assert (await labels(engine), await labels(engine, "b"), bench.decided) == ([], ["executed"], 1)
    async with connect(store_url) as store:
        engine = Engine(store).register(Bench())
        assert await drained(store, engine) == 1
        assert await labels(engine) == ["submitted"]


@pytest.mark.proves("IN-07", "IN-04")
async def test_a_submitted_input_that_cannot_be_decided_is_tried_again_and_then_a_dead_letter(
    store: Store, clock: TestClock
) -> None:
    engine = Engine(store).register(Bench())
    await engine.submit(Do("a", fail="no"))
    await engine.submit(Do("a", "yes"))
    await engine.submit(Do("b", "of another"))
    await drained(store, engine)
    assert await labels(engine, "b") == ["of another"], "it did not wait for the one that fails"
    for _ in range(6):
        await drained(store, engine)
        clock.advance("10m")
    assert await labels(engine) == [], "it waits for the one before it"
    [letter] = await store.dead_letters(kind="INPUT")
    assert (letter.attempt, letter.last_error) == (5, "ValueError: no")
    await store.drop(letter.id)
    await drained(store, engine)
    assert await labels(engine) == ["yes"]


@pytest.mark.proves("M-13", "II-02")
async def test_an_input_that_came_too_late_has_a_receipt(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", end=True))
    await engine.execute(Do("a"), key="late")
    await engine.execute(Do("a"), key="late")
    await engine.execute(Do("a"))
    assert (await count(store, "receipt"), await count(store, "event")) == (2, 2)
