"""Inputs that are submitted to one instance are decided in the order in which they were committed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

import pytest

from stepwell import Decision, Engine, InvalidOption, Reason, Store, Worker
from stepwell.base.clock import TestClock
from stepwell.deciders.registry import Family
from tests.deciders.workbench import Ask, Bench, Do, Event, Input, State, asked, drained, labels, tasks
from tests.store.seam import begin, claim

INBOX = "bench:inputs"


class Mended(Bench):
    """After a repair it decides what it could not decide before."""

    mended = False

    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, Ask, Input]:
        mended = replace(input, fail=None) if self.mended and isinstance(input, Do) else input
        return super().decide(state, mended, now)


class Continues(Bench):
    """The inputs behind one that fails do not wait for it."""

    after_failure = "continue"


async def submitted(engine: Engine, *inputs: Do) -> list[int]:
    """The tasks of these inputs, in their order."""
    return [await engine.submit(one) for one in inputs]


async def places(store: Store) -> list[tuple[int, int | None, bool, str]]:
    """Where the inputs stand: their ids, positions, whether they wait for others, and their statuses."""
    rows = await tasks(store, "INPUT")
    return [(row["id"], row["position"], bool(row["waits_for_previous"]), row["status"]) for row in rows]


@pytest.mark.proves("IN-03")
@pytest.mark.parametrize("together", [True, False], ids=["taken along", "one by one"])
async def test_inputs_are_decided_in_the_order_in_which_they_were_submitted(store: Store, together: bool) -> None:
    engine = Engine(store, together=together).register(Bench())
    for number in range(120):
        await engine.submit(Do("a" if number % 2 else "b", str(number)))
    await drained(store, engine)
    assert await labels(engine, "a") == [str(number) for number in range(1, 120, 2)]
    assert await labels(engine, "b") == [str(number) for number in range(0, 120, 2)]
    assert {(place, waits, status) for _, place, waits, status in await places(store)} == {(None, False, "SUCCESS")}


@pytest.mark.proves("IN-03")
async def test_what_comes_while_others_wait_is_behind_them(store: Store) -> None:
    engine = Engine(store).register(Bench())
    ids = await submitted(engine, Do("a", "1"), Do("a", "2"), Do("b", "1"))
    assert await places(store) == [
        (ids[0], 1, False, "PENDING"),
        (ids[1], 2, True, "PENDING"),
        (ids[2], 1, False, "PENDING"),
    ]
    async with Worker(store, [engine]):
        for number in range(3, 40):
            await engine.submit(Do("a", str(number)))
        await drained(store, engine)
    assert await labels(engine) == [str(number) for number in range(1, 40)]


@pytest.mark.proves("IN-03")
async def test_timers_delayed_inputs_answers_and_calls_have_no_place_in_the_order(
    store: Store, clock: TestClock
) -> None:
    engine = Engine(store).register(Bench())
    await submitted(engine, Do("a", "one", ask="mail", after=60, then="rang"))
    await engine.submit(Do("a", "later"), delay="1m")
    assert (await engine.execute(Do("a", "now"))).first == 1
    await drained(store, engine)
    assert await labels(engine) == ["now", "one", "mail answered"]
    [one, later] = await tasks(store, "INPUT")
    [timer] = await tasks(store, "TIMER")
    assert (one["group_key"], later["group_key"], timer["group_key"]) == ("a", None, None)
    clock.advance(60)
    await drained(store, engine)
    assert sorted((await labels(engine))[3:]) == ["later", "rang"]


@pytest.mark.proves("IN-03", "II-01")
async def test_an_input_that_was_there_before_does_not_hold_its_group_up(store: Store) -> None:
    engine = Engine(store).register(Bench())
    first = await engine.submit(Do("a", "one"), key="k")
    await drained(store, engine)
    again, second = await asyncio.gather(engine.submit(Do("a", "one"), key="k"), engine.submit(Do("a", "two")))
    assert (int(again), again.created, second.created) == (first, False, True)
    async with store.transaction() as tx:
        again = await engine.submit(Do("a", "one"), key="k", tx=tx)
        assert not again.created
        await engine.submit(Do("a", "three"), tx=tx)
    await drained(store, engine)
    assert await labels(engine) == ["one", "two", "three"]


@pytest.mark.proves("IN-07")
async def test_the_inputs_behind_one_that_fails_wait_for_it(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Bench())
    ids = await submitted(engine, Do("a", "one"), Do("a", fail="no"), Do("a", "three"), Do("b", "other"))
    await drained(store, engine)
    assert (await labels(engine), await labels(engine, "b")) == (["one"], ["other"])
    for _ in range(5):
        clock.advance(3600)
        await drained(store, engine)
    assert (await labels(engine), await places(store)) == (
        ["one"],
        [
            (ids[0], None, False, "SUCCESS"),
            (ids[1], 2, False, "ERROR"),
            (ids[2], 3, True, "PENDING"),
            (ids[3], None, False, "SUCCESS"),
        ],
    )
    rows = await tasks(store, "INPUT")
    assert [row["attempt"] for row in rows] == [1, 5, 0, 1], "who waits spends no attempt"
    told = await store.why(ids[2])
    assert (told.reason, told.waits_for) == (Reason.WAITS_FOR_PREVIOUS, (str(ids[1]),))
    assert f"waits for input {ids[1]} before it" in told.message
    [stats] = await store.ordered_groups()
    assert (stats.queue, stats.groups, stats.tasks, stats.oldest, stats.stopped) == (INBOX, 1, 2, 5 * 3600.0, 1)
    assert await store.prune(0, dead_letters=True) == 2, "what others wait for is not removed for its age"
    assert await store.drop(ids[1]) == 1
    await drained(store, engine)
    assert await labels(engine) == ["one", "three"]
    assert (await store.why(ids[2])).reason is Reason.SUCCEEDED


@pytest.mark.proves("IN-07")
async def test_a_dead_letter_that_is_requeued_is_decided_in_its_place(store: Store, clock: TestClock) -> None:
    bench = Mended()
    engine = Engine(store).register(bench)
    ids = await submitted(engine, Do("a", "one"), Do("a", "two", fail="no"), Do("a", "three"))
    for _ in range(6):
        await drained(store, engine)
        clock.advance(3600)
    assert await labels(engine) == ["one"]
    bench.mended = True
    assert await store.requeue(ids[1]) == 1
    assert [waits for _, _, waits, status in await places(store) if status == "PENDING"] == [False, True]
    await drained(store, engine)
    assert await labels(engine) == ["one", "two", "three"]


@pytest.mark.proves("IN-07")
async def test_the_inputs_behind_one_that_fails_continue_where_the_decider_says_so(
    store: Store, clock: TestClock
) -> None:
    engine = Engine(store).register(Continues())
    ids = await submitted(engine, Do("a", "one"), Do("a", fail="no"), Do("a", "three"), Do("a", "four"))
    await drained(store, engine)
    assert await labels(engine) == ["one", "three", "four"]
    assert (await places(store))[1] == (ids[1], None, False, "PENDING"), "it comes back, outside the order"
    for _ in range(5):
        clock.advance(3600)
        await drained(store, engine)
    assert (await places(store))[1] == (ids[1], None, False, "ERROR")
    await submitted(engine, Do("a", "five"))
    await drained(store, engine)
    assert await labels(engine) == ["one", "three", "four", "five"]


async def dropped(store: Store, first: int) -> None:
    await asked(
        store,
        "update {task} set status = 'ERROR', ready = false, finished_at = 1, error = '{}'"
        f" where id = {first} returning id",
    )
    assert await store.drop(first) == 1


async def deleted(store: Store, first: int) -> None:
    assert await store.delete(first)


@pytest.mark.proves("IN-03")
@pytest.mark.parametrize("leave", [dropped, deleted])
async def test_when_the_first_is_taken_away_the_next_is_decided(
    store: Store, leave: Callable[[Store, int], Awaitable[None]]
) -> None:
    engine = Engine(store).register(Bench())
    ids = await submitted(engine, Do("a", "one"), Do("a", "two"), Do("a", "three"))
    await store.delete(ids[1])
    await leave(store, ids[0])
    await drained(store, engine)
    assert await labels(engine) == ["three"]
    if leave is deleted:
        assert await store.restore(ids[0])
        await submitted(engine, Do("a", "four"))
        await drained(store, engine)
        assert sorted((await labels(engine))[1:]) == ["four", "one"], "what is restored has no place any more"


@pytest.mark.proves("IN-03")
async def test_a_purge_leaves_no_group_asleep(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await submitted(engine, Do("a", "one"), Do("a", "two"))
    assert await store.purge(INBOX) == 2
    await submitted(engine, Do("a", "three"), Do("a", "four"))
    await drained(store, engine)
    assert await labels(engine) == ["three", "four"]


@pytest.mark.proves("IN-03")
async def test_a_head_that_is_deleted_while_it_is_executed_keeps_its_place_until_it_has_ended(store: Store) -> None:
    engine = Engine(store).register(Bench())
    ids = await submitted(engine, Do("a", "one"), Do("a", "two"))
    worker = await begin(store)
    [head] = await claim(store, worker, INBOX, 5)
    assert await store.delete(head.id)
    assert await claim(store, worker, INBOX, 5) == [], "the next must not be decided beside it"
    await store.database.sessions.end(worker, "stopped")
    assert [place for _, place, _, _ in await places(store)] == [None, 2]
    await drained(store, engine)
    assert (head.id, await labels(engine)) == (ids[0], ["two"])


@pytest.mark.proves("IN-03", "L-08")
async def test_when_the_worker_of_the_first_dies_the_order_stays(store: Store) -> None:
    engine = Engine(store).register(Bench())
    ids = await submitted(engine, Do("a", "one"), Do("b", "one"), Do("a", "two"), Do("a", "three"))
    worker = await begin(store)
    claimed = await claim(store, worker, INBOX, 10)
    assert [task.id for task in claimed] == ids[:2], "only the first of each"
    [dead] = [one for one in await store.database.sessions.living() if one.worker_id == worker]
    assert await store.database.sessions.bury(dead) is not None
    rows = await tasks(store, "INPUT")
    assert [(row["losses"], bool(row["waits_for_previous"])) for row in rows] == [
        (1, False), (1, False), (0, True), (0, True),
    ]  # fmt: skip
    other = await begin(store)
    assert await claim(store, other, INBOX, 10) == [], "a suspect is executed alone, and nothing overtakes it"
    await drained(store, engine)
    assert (await labels(engine), await labels(engine, "b")) == (["one", "two", "three"], ["one"])


@pytest.mark.proves("IN-03", "L-08")
@pytest.mark.parametrize("decider", [Bench, Continues])
async def test_an_input_that_kills_its_worker_holds_up_those_behind_it_only_if_they_wait(
    store: Store, decider: type[Bench]
) -> None:
    engine = Engine(store).register(decider())
    await submitted(engine, Do("a", "deadly"), Do("a", "two"))
    await asked(store, "update {task} set max_attempts = 1 where position = 1 returning id")
    worker = await begin(store)
    assert len(await claim(store, worker, INBOX, 10)) == 1
    [dead] = [one for one in await store.database.sessions.living() if one.worker_id == worker]
    await store.database.sessions.bury(dead)
    await drained(store, engine)
    waits = decider.after_failure == "wait"
    assert (await places(store))[0][1:] == (1 if waits else None, False, "ERROR")
    assert await labels(engine) == ([] if waits else ["two"])


@pytest.mark.proves("IN-03")
async def test_upkeep_wakes_a_group_that_is_asleep_and_tells_it_as_a_fault(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await submitted(engine, Do("a", "one"), Do("a", "two"), Do("b", "one"))
    await asked(store, "update {task} set ready = false, waits_for_previous = true returning id")
    await drained(store, engine)
    assert await labels(engine) == []
    told: list[str] = []
    store.database.telemetry.subscribe(lambda event: told.append(type(event).__name__))
    queue = await store.database.queue_id(INBOX)
    assert not await store.database.groups.tidy([queue])
    assert told.count("OrderRepaired") == 2
    assert [one.repaired for one in await store.ordered_groups()] == [2]
    await drained(store, engine)
    assert (await labels(engine), await labels(engine, "b")) == (["one", "two"], ["one"])
    assert not await store.database.groups.tidy([queue])
    assert told.count("OrderRepaired") == 2, "nothing is asleep any more"


@pytest.mark.proves("IN-03")
async def test_a_group_that_has_been_empty_for_a_day_is_forgotten(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Bench())
    await submitted(engine, Do("a", "one"), Do("b", "one"))
    await drained(store, engine)
    queue = await store.database.queue_id(INBOX)
    await submitted(engine, Do("b", "two"))
    clock.advance(86_500)
    await store.database.groups.tidy([queue])
    rows = await asked(store, "select group_key from {ordered_group}")
    assert [row["group_key"] for row in rows] == ["b"]
    await submitted(engine, Do("a", "two"), Do("a", "three"))
    await drained(store, engine)
    assert (await labels(engine), await labels(engine, "b")) == (["one", "two", "three"], ["one", "two"])


@pytest.mark.proves("IN-03")
async def test_what_is_long_or_cannot_be_read_waits_for_its_own_turn(store: Store) -> None:
    engine = Engine(store).register(Bench())
    ids = await submitted(engine, Do("a", "one"), Do("a", "x" * 70_000), Do("a", "three"), Do("a", "four"))
    gone = '{"id":"a","type":"Gone"}'
    await asked(store, f"update {{task}} set input = '{gone}' where id = {ids[3]} returning id")
    await submitted(engine, Do("a", "five"))
    await drained(store, engine)
    assert [len(label) for label in await labels(engine)] == [3, 70_000, 5]
    rows = await tasks(store, "INPUT")
    assert [row["status"] for row in rows] == ["SUCCESS", "SUCCESS", "SUCCESS", "PENDING", "PENDING"]
    assert [row["attempt"] for row in rows] == [1, 1, 1, 0, 0]
    assert "NotThisCode" in rows[3]["last_error"]


def test_a_policy_that_is_none_is_refused() -> None:
    class Wrong(Bench):
        after_failure = "stop"  # type: ignore[assignment]

    with pytest.raises(InvalidOption, match="'wait' for it, or they 'continue'"):
        Family.of(Wrong())
