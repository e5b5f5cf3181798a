"""What was lost with others is executed alone: who is a suspect, who is blamed, who is acquitted."""

import asyncio

import pytest

from stepwell import Store
from stepwell.base.clock import TestClock
from stepwell.store.rows import Claimed, SeenWorker
from tests.store.seam import AGAIN, DONE, FAILED, IDENTITY, RELEASED, ask, begin, claim, count, do, row_of


async def bury(store: Store, worker: int) -> list[int]:
    """Declare a session dead; the tasks that it gave back."""
    [row] = await ask(store, f"select beat_at from {{beat}} where worker_id = {worker}")
    returned = await store.database.sessions.bury(SeenWorker(worker, row["beat_at"]))
    assert returned is not None
    return [row["id"] for row in returned]


async def messages(store: Store, number: int, max_attempts: int = 3) -> list[int]:
    await store.create_queue("q")
    return [int(await store.enqueue("q", n, max_attempts=max_attempts)) for n in range(number)]


async def alone(store: Store, worker: int, *, beside: bool = False) -> list[Claimed]:
    return await store.database.suspects.claim(worker, [await store.database.queue_id("q")], beside=beside)


async def state(store: Store, task_id: int) -> tuple[str, bool, int, int]:
    row = await row_of(store, task_id)
    return row["status"], bool(row["ready"]), row["attempt"], row["losses"]


@pytest.mark.proves("rule-07", "promise-12")
async def test_who_is_lost_in_company_loses_no_attempt_and_is_claimed_alone(store: Store, clock: TestClock) -> None:
    ids = await messages(store, 3, max_attempts=3)
    dead, other = await begin(store), await begin(store)
    assert len(await claim(store, dead, "q", 3)) == 3
    await bury(store, dead)
    assert [await state(store, one) for one in ids] == [("PENDING", False, 0, 1)] * 3
    assert await claim(store, other, "q", 3) == [], "the claim passes suspects over"
    assert await store.database.suspects.wait_in([await store.database.queue_id("q")])
    [first] = await alone(store, other)
    assert (first.id, first.attempt, first.suspect) == (ids[0], 1, True)
    assert await alone(store, other) == [], "it has something else"
    third = await begin(store)
    assert [task.id for task in await alone(store, third)] == [ids[1]], "another session has not"


@pytest.mark.proves("rule-07")
async def test_a_suspect_does_not_go_beside_others_unless_it_is_said(store: Store, clock: TestClock) -> None:
    await messages(store, 2)
    dead, worker = await begin(store), await begin(store)
    await claim(store, dead, "q", 2)
    await bury(store, dead)
    await store.enqueue("q", "ordinary")
    assert len(await claim(store, worker, "q")) == 1
    assert await alone(store, worker) == []
    assert len(await alone(store, worker, beside=True)) == 1


@pytest.mark.proves("rule-07", "E-07")
@pytest.mark.parametrize("budget", [2, 3, 5])
async def test_what_kills_its_process_ends_after_as_many_starts_as_it_has_attempts(
    store: Store, clock: TestClock, budget: int
) -> None:
    poison, innocent = await messages(store, 2, max_attempts=budget)
    first = await begin(store)
    await claim(store, first, "q", 2)
    await bury(store, first)  # 1, in company
    starts = 1
    while await count(store, "status = 'PENDING'"):
        worker = await begin(store)
        [task] = await alone(store, worker)
        if task.id == innocent:
            await store.database.tasks.settle(task.id, worker, task.turn, DONE)
            continue
        starts += 1
        await bury(store, worker)
    assert starts == budget
    row = await row_of(store, poison)
    assert (row["status"], row["last_error"], bool(row["ready"])) == ("ERROR", "worker_lost", False)
    assert (await row_of(store, innocent))["status"] == "SUCCESS"


@pytest.mark.proves("E-07")
async def test_a_task_that_is_always_alone_is_blamed_at_once(store: Store, clock: TestClock) -> None:
    [poison] = await messages(store, 1, max_attempts=2)
    first = await begin(store)
    await claim(store, first, "q")
    await bury(store, first)
    assert await state(store, poison) == ("PENDING", False, 1, 1), "its attempt is lost, and it is a suspect"
    second = await begin(store)
    assert len(await alone(store, second)) == 1
    await bury(store, second)
    assert (await state(store, poison))[0] == "ERROR"


@pytest.mark.proves("rule-07")
async def test_with_one_attempt_nothing_is_executed_twice(store: Store, clock: TestClock) -> None:
    ids = await messages(store, 2, max_attempts=1)
    worker = await begin(store)
    await claim(store, worker, "q", 2)
    await bury(store, worker)
    assert [(await state(store, one))[0] for one in ids] == ["ERROR", "ERROR"]


@pytest.mark.proves("rule-07")
async def test_losses_in_company_count_as_one(store: Store, clock: TestClock) -> None:
    """A suspect that went beside a body of hours, and was lost with it, is no nearer to its end."""
    ids = await messages(store, 2, max_attempts=2)
    for _ in range(4):
        worker = await begin(store)
        taken = len(await claim(store, worker, "q", 2)) + len(await alone(store, worker))
        assert taken + len(await alone(store, worker, beside=True)) == 2
        await bury(store, worker)
        assert [await state(store, one) for one in ids] == [("PENDING", False, 0, 1)] * 2


@pytest.mark.proves("rule-07")
async def test_whatever_settles_a_suspect_acquits_it(store: Store, clock: TestClock) -> None:
    ids = await messages(store, 2)
    dead, worker = await begin(store), await begin(store)
    await claim(store, dead, "q", 2)
    await bury(store, dead)
    [task] = await alone(store, worker)
    await store.database.tasks.settle(task.id, worker, task.turn, AGAIN)
    row = await row_of(store, task.id)
    assert (row["losses"], row["lost_by"], row["attempt"]) == (0, None, 1)
    clock.advance(6)
    await store.database.tasks.wake_due()
    assert [one.id for one in await claim(store, worker, "q", 2)] == [task.id], "in company again, the other is not"
    assert await count(store, "losses > 0") == len(ids) - 1


@pytest.mark.proves("rule-07")
async def test_a_suspect_that_others_were_begun_beside_is_blamed_and_they_are_not(
    store: Store, clock: TestClock
) -> None:
    """After a lease ordinary work goes on beside a suspect; else a poison that acts late would never be found."""
    [poison, _] = await messages(store, 2, max_attempts=3)
    dead, worker = await begin(store), await begin(store)
    await claim(store, dead, "q", 2)
    await bury(store, dead)
    await do(store, f"update {{task}} set run_at = run_at + 1 where id <> {poison}")
    assert [task.id for task in await alone(store, worker)] == [poison]
    clock.advance(1)
    ordinary = int(await store.enqueue("q", "ordinary"))
    assert [task.id for task in await claim(store, worker, "q")] == [ordinary]
    await bury(store, worker)
    assert await state(store, poison) == ("PENDING", False, 1, 2)
    assert await state(store, ordinary) == ("PENDING", False, 0, 1)


@pytest.mark.proves("rule-07")
async def test_what_a_session_leaves_by_its_own_wish_is_no_suspect(store: Store, clock: TestClock) -> None:
    ids = await messages(store, 2)
    worker = await begin(store)
    await claim(store, worker, "q", 2)
    await store.database.sessions.end(worker, "stopped")
    assert [await state(store, one) for one in ids] == [("PENDING", True, 1, 0)] * 2


@pytest.mark.proves("rule-07")
async def test_a_session_that_was_declared_dead_and_lives_acquits_what_was_lost_with_it(
    store: Store, clock: TestClock
) -> None:
    ids = await messages(store, 3)
    cut_off, other = await begin(store), await begin(store)
    await claim(store, cut_off, "q", 3)
    await bury(store, cut_off)
    [taken] = await alone(store, other)
    assert await store.database.sessions.acquit(cut_off) == {await store.database.queue_id("q")}
    rest = [one for one in ids if one != taken.id]
    assert [await state(store, one) for one in rest] == [("PENDING", True, 0, 0)] * 2
    assert (await state(store, taken.id))[0] == "RUNNING", "what is executed is left to whoever executes it"
    assert await store.database.sessions.acquit(cut_off) == set()
    await bury(store, other)
    assert (await state(store, taken.id))[3] == 2, "a second loss is another session's"
    assert await store.database.sessions.acquit(cut_off) == set()
    assert (await state(store, taken.id))[3] == 2


@pytest.mark.proves("rule-07", "promise-12", "L-06")
async def test_the_sessions_of_one_worker_are_company_for_each_other(store: Store, clock: TestClock) -> None:
    """Its sessions have other leases, and are found dead one after the other."""
    ids = await messages(store, 2)
    short, long = await begin(store), await begin(store)
    await claim(store, short, "q")
    await claim(store, long, "q")
    await bury(store, short)
    await bury(store, long)
    assert [await state(store, one) for one in ids] == [("PENDING", False, 0, 1)] * 2, "each was alone in its session"
    later = await begin(store)
    [suspect] = await alone(store, later)
    beside = await begin(store)
    await store.enqueue("q", "ordinary")
    assert len(await claim(store, beside, "q")) == 1
    await bury(store, later)
    assert await state(store, suspect.id) == ("PENDING", False, 1, 2), "a suspect is executed alone: it is blamed"


@pytest.mark.proves("rule-07", "E-07")
@pytest.mark.parametrize("other", ["idle", "of another process", "before"])
async def test_a_session_that_held_nothing_or_is_another_workers_is_no_company(
    store: Store, clock: TestClock, other: str
) -> None:
    before = await begin(store)
    [only, *others] = await messages(store, 1 if other == "idle" else 2)
    if others:
        assert len(await claim(store, before, "q", 1)) == 1
        only = others[0]
    if other == "before":
        await bury(store, before)
        clock.advance(1, leases=True)
    worker = await begin(store)
    if other == "of another process":
        await do(store, f"update {{worker}} set pid = 2 where id = {before}")
    assert len(await claim(store, worker, "q")) == 1
    await bury(store, worker)
    assert await state(store, only) == ("PENDING", False, 1, 1), "it was alone: its attempt is lost"


@pytest.mark.proves("rule-07")
async def test_an_acquittal_gives_back_the_attempt_of_the_one_that_was_blamed(store: Store, clock: TestClock) -> None:
    [only] = await messages(store, 1)
    worker = await begin(store)
    await claim(store, worker, "q")
    await bury(store, worker)
    assert await state(store, only) == ("PENDING", False, 1, 1)
    await store.database.sessions.acquit(worker)
    assert await state(store, only) == ("PENDING", True, 0, 0)


@pytest.mark.proves("rule-07")
async def test_an_acquittal_undoes_the_last_loss_of_a_suspect_and_no_earlier_one(
    store: Store, clock: TestClock
) -> None:
    ids = await messages(store, 2)
    dead, cut_off = await begin(store), await begin(store)
    await claim(store, dead, "q", 2)
    await bury(store, dead)
    [task] = await alone(store, cut_off)
    await bury(store, cut_off)
    assert await state(store, task.id) == ("PENDING", False, 1, 2)
    await store.database.sessions.acquit(cut_off)
    assert await state(store, task.id) == ("PENDING", False, 0, 1), "a suspect still, by the death of the first"
    assert [(await state(store, one))[3] for one in ids] == [1, 1]


@pytest.mark.proves("rule-07")
@pytest.mark.backends("postgres", reason="an embedded store has one writer: recovery never meets a locked row")
async def test_what_recovery_skipped_is_judged_by_what_the_session_held(store: Store, store_url: str) -> None:
    import asyncpg  # noqa: PLC0415 - Postgres's own driver, for a lock of somebody else's

    ids = await messages(store, 2)
    dead = await begin(store)
    await claim(store, dead, "q", 2)
    connection = await asyncpg.connect(store_url)
    try:
        async with connection.transaction():
            await connection.execute("select 1 from stepwell.task where id = $1 for update", ids[0])
            assert await bury(store, dead) == [ids[1]]
        [returned] = await store.database.sessions.return_stranded()
    finally:
        await connection.close()
    assert returned["id"] == ids[0]
    assert [await state(store, one) for one in ids] == [("PENDING", False, 0, 1)] * 2, "the last one was not alone"


@pytest.mark.proves("rule-07")
@pytest.mark.backends("postgres", reason="an embedded store has one writer: recovery never meets a locked row")
async def test_what_is_given_back_after_the_acquittal_is_no_suspect_either(store: Store, store_url: str) -> None:
    import asyncpg  # noqa: PLC0415 - Postgres's own driver, for a lock of somebody else's

    ids = await messages(store, 2)
    cut_off = await begin(store)
    await claim(store, cut_off, "q", 2)
    connection = await asyncpg.connect(store_url)
    try:
        async with connection.transaction():
            await connection.execute("select 1 from stepwell.task where id = $1 for update", ids[0])
            assert await bury(store, cut_off) == [ids[1]]
            await store.database.sessions.acquit(cut_off)
        await store.database.sessions.return_stranded()
    finally:
        await connection.close()
    assert [(await state(store, one))[1::2] for one in ids] == [(True, 0)] * 2


@pytest.mark.proves("rule-07")
@pytest.mark.parametrize("barred", ["paused", "maintenance", "held", "deleted", "later", "another queue"])
async def test_a_suspect_that_may_not_be_executed_is_not_asked_for(store: Store, clock: TestClock, barred: str) -> None:
    ids = await messages(store, 2)
    dead, worker = await begin(store), await begin(store)
    await claim(store, dead, "q", 2)
    await bury(store, dead)
    queues = [await store.database.queue_id("q")]
    match barred:
        case "paused":
            await store.pause_queue("q")
        case "maintenance":
            await store.begin_maintenance(reason="a test")
        case "held":
            await do(store, "update {task} set held_at = 1, status = 'PAUSED'")
        case "deleted":
            for one in ids:
                await store.delete(one, reason="a test")
        case "later":
            await do(store, "update {task} set run_at = run_at + 1000000")
        case _:
            await store.create_queue("other")
            queues = [await store.database.queue_id("other")]
    assert not await store.database.suspects.wait_in(queues)
    assert await store.database.suspects.claim(worker, queues, beside=True) == []
    assert await store.database.suspects.take(queues, 1_000_000) == []


@pytest.mark.proves("rule-07")
async def test_no_session_without_a_fence_takes_a_suspect(store: Store, clock: TestClock) -> None:
    await messages(store, 2)
    dead, worker = await begin(store), await begin(store)
    await claim(store, dead, "q", 2)
    await bury(store, dead)
    await store.database.sessions.end(worker, "stopped")
    assert await alone(store, worker) == []


@pytest.mark.proves("rule-07", "Q-05")
async def test_who_dequeues_by_hand_gets_suspects_when_nothing_else_is_there(store: Store, clock: TestClock) -> None:
    ids = await messages(store, 2)
    dead = await begin(store)
    await claim(store, dead, "q", 2)
    await bury(store, dead)
    await store.enqueue("q", "ordinary")
    got = []
    while received := await store.dequeue("q", limit=5):
        got.append([message.id for message in received])
        for message in received:
            await message.archive()
    assert sorted(got[1:]) == [[one] for one in ids], "one in a call, after what is ready"
    assert await count(store, "status = 'SUCCESS' and losses = 0") == 3


@pytest.mark.proves("rule-07")
async def test_two_sessions_never_take_one_suspect(store: Store, clock: TestClock) -> None:
    await messages(store, 5)
    dead = await begin(store)
    await claim(store, dead, "q", 5)
    await bury(store, dead)
    workers = [await begin(store) for _ in range(8)]
    taken = await asyncio.gather(*(alone(store, worker) for worker in workers))
    ids = [task.id for tasks in taken for task in tasks]
    assert len(ids) == len(set(ids)) <= 5


async def had(store: Store, task_id: int) -> tuple[int | None, str | None]:
    """Which session had a task last, and its name."""
    task = await store.get(task_id)
    assert task is not None
    assert task.owner is None or task.owner == task.last_worker
    return task.last_worker, task.last_worker_name


@pytest.mark.proves("Q-15", "L-01")
async def test_a_task_tells_which_session_had_it_last(store: Store, clock: TestClock) -> None:
    [task_id] = await messages(store, 1)
    assert await had(store, task_id) == (None, None)
    first, second, third = [await begin(store) for _ in range(3)]
    await claim(store, first, "q")
    assert await had(store, task_id) == (first, IDENTITY.name), "while it is executed"
    await bury(store, first)
    assert await had(store, task_id) == (first, IDENTITY.name), "lost"
    [task] = await alone(store, second)
    await store.database.tasks.settle(task_id, second, task.turn, AGAIN)
    assert await had(store, task_id) == (second, IDENTITY.name), "to be tried again"
    clock.advance("10m")
    await store.database.tasks.wake_due()
    [task] = await claim(store, third, "q")
    await store.database.tasks.settle(task_id, third, task.turn, FAILED)
    [letter] = await store.dead_letters()
    assert (letter.last_worker, letter.last_worker_name) == (third, IDENTITY.name) == await had(store, task_id)
    await store.database.sessions.end(third, "stopped")
    await do(store, f"delete from {{worker}} where id = {third}")
    [letter] = await store.dead_letters()
    assert (letter.last_worker, letter.last_worker_name) == (third, None), "its session is removed"
    await store.requeue(task_id)
    assert await had(store, task_id) == (None, None), "it begins anew"


@pytest.mark.proves("Q-06", "Q-08")
async def test_what_is_taken_by_hand_is_no_workers_any_more(store: Store, clock: TestClock) -> None:
    lost, back = await messages(store, 2)
    worker = await begin(store)
    tasks = await claim(store, worker, "q", 2)
    await store.database.tasks.settle(back, worker, tasks[1].turn, RELEASED)
    await bury(store, worker)
    for task_id in (back, lost):
        assert await had(store, task_id) == (worker, IDENTITY.name)
        [taken] = await store.dequeue("q")
        assert taken.id == task_id
        assert await had(store, task_id) == (None, None)
