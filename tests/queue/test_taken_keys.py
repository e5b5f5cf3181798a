"""What an add does that finds its key taken, and for how long a key is: messages and runs alike."""

import asyncio
import contextlib
from typing import Any

import pytest

from stepwell import (
    IdempotencyConflict,
    InvalidOption,
    KeyInUse,
    PermanentError,
    QueueDraining,
    RunCancelled,
    Store,
    Worker,
    connect,
    handler,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.errors import StoreUnavailable
from tests.queue.raw import ask, everything_written
from tests.queue.work import Work, of_both_kinds
from tests.store.seam import once, watched

LOST = StoreUnavailable("reset after the work was done")


# Keys of those that wait


@pytest.mark.proves("arrivals-01")
@of_both_kinds
async def test_one_that_has_begun_does_not_swallow_the_next(store: Store, work: Work, clock: TestClock) -> None:
    first = await work.add(store, 1, key="k", unique="waiting")
    again = await work.add(store, 1, key="k", unique="waiting")
    assert (again, again.created) == (first, False)
    added: list[Any] = []

    async def add(n: int) -> None:
        added.extend([await work.add(store, 1, key="k", unique="waiting", delay="1s") for _ in range(2)])

    work.during = add
    assert await work.drain(store) == [1]
    work.during = None
    clock.advance(1)
    assert await work.drain(store) == [1]
    assert added[0].created
    assert not added[1].created
    assert added[0] == added[1] != first


@pytest.mark.proves("arrivals-01")
async def test_one_that_is_tried_again_or_requeued_does_not_take_the_key_back(store: Store) -> None:
    tries = 0

    @handler("mail", retry=1)
    async def send(n: int) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise PermanentError("no")

    first = await store.enqueue(send, 1, key="k", unique="waiting")
    await Worker(store, [send]).drain()
    second = await store.enqueue(send, 2, key="k", unique="waiting")
    assert second.created
    assert await store.requeue(first) == 1, "both stand in the queue, under one key"
    assert await store.enqueue(send, 2, key="k", unique="waiting") == second
    await Worker(store, [send]).drain()
    assert tries == 3


@pytest.mark.proves("arrivals-01")
@of_both_kinds
async def test_scopes_of_one_key_exclude_each_other(store: Store, work: Work, clock: TestClock) -> None:
    waiting = await work.add(store, 1, key="k", unique="waiting")
    assert await work.add(store, 1, key="k") == waiting
    assert await work.add(store, 1, key="k", unique="unfinished") == waiting
    forever = await work.add(store, 1, key="other")
    assert await work.add(store, 1, key="other", unique="waiting") == forever
    with pytest.raises(IdempotencyConflict):
        await work.add(store, 2, key="k", unique="waiting")


# on_conflict


@pytest.mark.proves("arrivals-02")
@of_both_kinds
async def test_replace_gives_the_one_that_waits_what_is_new(store: Store, work: Work, clock: TestClock) -> None:
    first = await work.add(store, 1, key="k", priority=2, tags=["old"], delay="1h")
    again = await work.add(store, 2, key="k", on_conflict="replace", priority=5, max_attempts=9, tags=["new"])
    assert (again, again.created) == (first, False)
    [row] = await ask(store, f"select priority, max_attempts, tags, ready, key from {{task}} where id = {first}")
    assert row == (5, 9, '["new"]', True, "k")
    assert await work.add(store, 2, key="k") == first, "its key stands for the new payload now"
    await work.add(store, 3, key="k", on_conflict="replace", delay="1h")
    assert await work.drain(store) == []
    clock.advance(3601)
    assert await work.drain(store) == [3]


@pytest.mark.proves("arrivals-02")
@of_both_kinds
async def test_replace_does_not_touch_one_that_has_begun(store: Store, work: Work, clock: TestClock) -> None:
    added: dict[str, Any] = {}

    async def replace(n: int) -> None:
        if n == 1:
            added["same"] = await work.add(store, 1, key="k", on_conflict="replace")
            with pytest.raises(IdempotencyConflict):
                await work.add(store, 2, key="k", on_conflict="replace")
            added["next"] = await work.add(store, 3, key="w", unique="waiting", on_conflict="replace")

    work.during = replace
    first = await work.add(store, 1, key="k")
    assert await work.drain(store) == [1, 3]
    assert (added["same"], added["same"].created) == (first, False)
    assert added["next"].created


@pytest.mark.proves("arrivals-02")
async def test_what_an_operator_holds_back_stays_held_when_it_is_replaced(store: Store) -> None:
    work = Work("runs")
    run = await work.add(store, 1, key="k")
    await store.pause(run)
    assert await work.add(store, 2, key="k", on_conflict="replace") == run
    assert await work.drain(store) == []
    await store.unpause(run)
    assert await work.drain(store) == [2]


@pytest.mark.proves("arrivals-02")
@of_both_kinds
async def test_error_names_who_has_the_key_and_writes_nothing(store: Store, work: Work, clock: TestClock) -> None:
    first = await work.add(store, 1, key="k")
    before = await everything_written(store)
    with pytest.raises(KeyInUse, match=f"key 'k' in .* belongs to task {first}") as refused:
        await work.add(store, 1, key="k", on_conflict="error")
    assert (refused.value.key, refused.value.existing) == ("k", first)
    with pytest.raises(KeyInUse):
        await work.add_many(store, [(5, "new"), (1, "k")], on_conflict="error")
    with pytest.raises(KeyInUse):
        await work.add_many(store, [(5, "twice"), (5, "twice")], on_conflict="error")
    assert await everything_written(store) == before
    assert (await work.add(store, 1, key="free", on_conflict="error")).created


@pytest.mark.proves("arrivals-02", "arrivals-03")
@of_both_kinds
async def test_in_bulk_the_last_of_a_key_counts(store: Store, work: Work, clock: TestClock) -> None:
    first = await work.add(store, 0, key="a", unique="waiting")
    many = [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "c")]
    ids = await work.add_many(store, many, unique="waiting", on_conflict="replace")
    assert ids[0] == ids[2] == first
    assert ids[1] == ids[3] != ids[4]
    assert sorted(await work.drain(store)) == [3, 4, 5]


@pytest.mark.proves("arrivals-02")
async def test_a_queue_that_is_drained_takes_no_replacement(store: Store) -> None:
    work = Work("messages")
    await work.add(store, 1, key="k", unique="waiting")
    await store.drain_queue("mail")
    with pytest.raises(QueueDraining):
        await work.add(store, 2, key="k", unique="waiting", on_conflict="replace")
    assert await work.drain(store) == [1]


# newest


@pytest.mark.proves("arrivals-03")
@of_both_kinds
async def test_the_newest_of_a_key_supersedes_those_that_wait(store: Store, work: Work, clock: TestClock) -> None:
    old = await work.add(store, 1, key="k", newest=True, delay="1h")
    new = await work.add(store, 2, key="k", newest=True)
    assert new.created
    assert new != old
    [row] = await ask(store, f"select status, last_error from {{task}} where id = {old}")
    assert row == ("CANCELLED", f"cancelled: superseded by {new}")
    if store.database.audit.problems:
        [noted] = [one.note for one in await store.audit() if one.task_id == old]
        assert (noted.what, noted.detail) == ("cancelled", f"superseded by {new}")
    if work.kind == "runs":
        with pytest.raises(RunCancelled) as cancelled:
            await store.result(old, timeout=10)
        assert cancelled.value.error == {"type": "Cancelled", "message": f"superseded by {new}"}
        assert (await store.why(old)).message == f"cancelled: superseded by {new}"
    assert await work.drain(store) == [2]


@pytest.mark.proves("arrivals-03")
@of_both_kinds
async def test_the_newest_leaves_what_has_begun_alone(store: Store, work: Work, clock: TestClock) -> None:
    async def add(n: int) -> None:
        if n == 1:
            await work.add(store, 2, key="k", newest=True, delay="1s")
            await work.add(store, 3, key="k", newest=True, delay="1s")

    work.during = add
    first = await work.add(store, 1, key="k", newest=True)
    assert await work.drain(store) == [1]
    clock.advance(1)
    assert await work.drain(store) == [3]
    assert await ask(store, f"select status from {{task}} where id = {first}") == [("SUCCESS",)]


@pytest.mark.proves("arrivals-03")
async def test_a_run_asks_for_no_newest_child(store: Store) -> None:
    child = Work("runs").target

    @workflow
    async def parent() -> str:
        try:
            await child.trigger(1).options(key="k", newest=True).execute()
        except InvalidOption as error:
            return str(error)
        return "accepted"

    run = await store.trigger(parent.trigger().options(require_worker="ignore"))
    await Worker(store, [parent, child]).drain()
    assert "trigger it in a step" in await store.result(run)


# debounce


@pytest.mark.proves("arrivals-04")
@of_both_kinds
async def test_a_debounced_add_waits_for_the_last(store: Store, work: Work, clock: TestClock) -> None:
    first = await work.add(store, 1, key="k", debounce="5s")
    for n in (2, 3):
        clock.advance(4)
        assert await work.drain(store) == []
        assert await work.add(store, n, key="k", debounce="5s") == first
    clock.advance(4.9)
    assert await work.drain(store) == []
    clock.advance(0.2)
    assert await work.drain(store) == [3]
    assert (await work.add(store, 4, key="k", debounce="5s")).created, "what comes after the start is a new one"
    clock.advance(5)
    assert await work.drain(store) == [4]


@pytest.mark.proves("arrivals-04")
@of_both_kinds
async def test_a_debounced_add_waits_no_longer_than_its_bound(store: Store, work: Work, clock: TestClock) -> None:
    options = {"key": "k", "debounce": "5s", "debounce_max": "12s"}
    for n in range(4):  # at 0, 4, 8 and 12 s
        await work.add(store, n, **options)
        if n < 3:
            assert await work.drain(store) == []
            clock.advance(4)
    assert await work.drain(store) == [3], "the bound was reached, and the last input counts"


@pytest.mark.proves("arrivals-04")
@of_both_kinds
async def test_one_that_is_due_and_not_claimed_is_put_off_again(store: Store, work: Work, clock: TestClock) -> None:
    first = await work.add(store, 1, key="k", debounce="5s")
    clock.advance(6)
    await store.database.tasks.wake()
    assert await ask(store, f"select ready from {{task}} where id = {first}") == [(True,)]
    await work.add(store, 2, key="k", debounce="5s")
    assert await work.drain(store) == []
    clock.advance(5)
    assert await work.drain(store) == [2]


@pytest.mark.proves("arrivals-04")
@of_both_kinds
async def test_a_replacement_whose_reply_is_lost_is_made_once(store: Store, work: Work, clock: TestClock) -> None:
    """Even if the task that it replaced has begun before it was repeated."""
    over, driver = watched(store)
    first = await work.add(over, 1, key="k", unique="waiting")
    lost = once(LOST)

    async def lose(calls: Any) -> None:
        if not calls and "replace_waiting" in driver.script:
            driver.after = None
            assert await work.drain(store) == [2]
            await lost(calls)

    driver.after = lose
    again = await work.add(over, 2, key="k", unique="waiting", on_conflict="replace")
    assert driver.after is None, "no reply was lost: void"
    assert (again, again.created) == (first, False)
    assert await work.drain(store) == []


# once per period


@pytest.mark.proves("arrivals-05")
@of_both_kinds
async def test_one_of_a_key_in_each_period(store: Store, work: Work, clock: TestClock) -> None:
    period = 3600
    now = (clock.now() or 0) / 1_000_000
    clock.advance(period - now % period + 1)  # a second into a period
    first = await work.add(store, 1, key="k", once_per="1h")
    assert await work.drain(store) == [1]
    again = await work.add(store, 2, key="k", once_per="1h")
    assert (again, again.created) == (first, False), "the first of the period counts, whatever the others say"
    assert (await work.add(store, 3, key="other", once_per="1h")).created
    clock.advance(period - 2)
    assert not (await work.add(store, 4, key="k", once_per="1h")).created
    clock.advance(2)
    assert (await work.add(store, 5, key="k", once_per="1h")).created
    many = await work.add_many(store, [(6, "k"), (7, "third")], once_per="1h")
    assert [one.created for one in many] == [False, True]
    [keys] = await ask(store, f"select key from {{task}} where id = {first}")
    assert keys[0].startswith("k@20")


# Together with the rest


@pytest.mark.proves("arrivals-02", "arrivals-03", "arrivals-04")
@of_both_kinds
async def test_in_a_transaction_it_happens_if_that_commits(store: Store, work: Work, clock: TestClock) -> None:
    first = await work.add(store, 1, key="k", unique="waiting")
    old = await work.add(store, 1, key="n", newest=True)
    with contextlib.suppress(ZeroDivisionError):
        async with store.transaction() as tx:
            await work.add(store, 2, key="k", unique="waiting", on_conflict="replace", tx=tx)
            await work.add(store, 2, key="n", newest=True, tx=tx)
            raise ZeroDivisionError
    async with store.transaction() as tx:
        assert await work.add(store, 3, key="k", debounce="0s", tx=tx) == first
        assert await work.add_many(store, [(4, "d")], unique="waiting", on_conflict="replace", tx=tx)
        assert await work.add(store, 5, key="d", unique="waiting", on_conflict="replace", tx=tx)
        await work.add(store, 6, key="p", once_per="1h", tx=tx)
        with pytest.raises(KeyInUse):
            await work.add(store, 9, key="k", on_conflict="error", tx=tx)
    assert sorted(await work.drain(store)) == [1, 3, 5, 6]
    assert await ask(store, f"select status from {{task}} where id = {old}") == [("SUCCESS",)]


@pytest.mark.backends("sqlite", "postgres", "turso", reason="the sync face opens the store again")
@pytest.mark.proves("arrivals-01", "arrivals-02", "arrivals-04")
def test_the_sync_face_says_the_same(store_url: str) -> None:
    done: list[int] = []

    @handler("mail")
    def send(n: int) -> None:
        done.append(n)

    @workflow(name="flow")
    async def flow(n: int) -> None:
        done.append(n)

    with sync.connect(store_url) as store:
        first = store.enqueue(send, 1, key="k", unique="waiting")
        assert store.enqueue(send, 2, key="k", debounce="0s") == first
        with pytest.raises(KeyInUse):
            store.enqueue(send, 2, key="k", on_conflict="error")
        run = store.trigger(flow.trigger(7).options(key="k", unique="waiting", require_worker="ignore"))
        replace = flow.trigger(8).options(key="k", on_conflict="replace", require_worker="ignore")
        assert store.trigger(replace) == run
        sync.Worker(store, [send, flow]).drain()
    assert sorted(done) == [2, 8]


@pytest.mark.proves("arrivals-04")
async def test_many_that_trigger_and_execute_at_once_lose_nothing_and_repeat_nothing(store_url: str) -> None:
    """Each key has one producer, which counts up: what is executed of a key grows, and ends with the last."""
    seen: dict[int, list[int]] = {key: [] for key in range(4)}

    @handler("mail")
    async def send(given: tuple[int, int]) -> None:
        seen[given[0]].append(given[1])

    async def produce(store: Store, key: int) -> None:
        for n in range(12):
            await store.enqueue(send, (key, n), key=str(key), debounce="1ms")

    async with connect(store_url) as store, connect(store_url) as other:
        await store.create_queue("mail")
        async with Worker(other, [send]):
            await asyncio.gather(*(produce((store, other)[key % 2], key) for key in seen))
        await asyncio.sleep(0)
        await store.database.tasks.wake()
        await Worker(store, [send]).drain()
    for numbers in seen.values():
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == 11


@pytest.mark.backends("postgres", reason="an embedded store has one writer at a time")
@pytest.mark.proves("arrivals-04")
async def test_a_task_that_is_being_replaced_is_not_claimed_meanwhile(store_url: str) -> None:
    work = Work("messages")
    async with connect(store_url) as store:
        first = await work.add(store, 1, key="k", unique="waiting")
        async with store.transaction() as tx:
            assert await work.add(store, 2, key="k", unique="waiting", on_conflict="replace", tx=tx) == first
            assert await work.drain(store) == []
        assert await work.drain(store) == [2]


NONSENSE: tuple[tuple[dict[str, Any], str], ...] = (
    ({"unique": "waiting"}, "give one"),
    ({"on_conflict": "replace"}, "give one"),
    ({"debounce": "5s"}, "give one"),
    ({"newest": True}, "give one"),
    ({"once_per": "1h"}, "give one"),
    ({"key": "k", "on_conflict": "ignore"}, "it is 'existing', 'replace' or 'error'"),
    ({"key": "k", "debounce": "5s", "newest": True}, "not both"),
    ({"key": "k", "debounce": "5s", "unique": "ever"}, "leave `unique` out"),
    ({"key": "k", "newest": True, "on_conflict": "replace"}, "leave `on_conflict` out"),
    ({"key": "k", "debounce": "5s", "delay": "1s"}, "leave `delay` and `run_at` out"),
    ({"key": "k", "debounce": "5s", "debounce_max": "1s"}, "at least `debounce`"),
    ({"key": "k", "debounce_max": "1s"}, "give that too"),
    ({"key": "k", "once_per": "10ms"}, "at least a second"),
    ({"key": "k", "once_per": "1h", "unique": "unfinished"}, "leave `unique` out"),
    ({"expires": 0}, "give it some time"),
    ({"expires": "1h", "delay": "2h"}, "never begin"),
    ({"expires": "soon"}, "write it like"),
)


@pytest.mark.proves("arrivals-02", "arrivals-03", "arrivals-04", "arrivals-05", "arrivals-06")
@of_both_kinds
async def test_what_makes_no_sense_is_refused(store: Store, work: Work, clock: TestClock) -> None:
    await store.create_queue("mail")
    await store.create_workflow("flow")
    before = await everything_written(store)
    for options, words in NONSENSE:
        with pytest.raises(InvalidOption, match=words):
            await work.add(store, 1, **options)
    assert await everything_written(store) == before
