"""Dead letters: how a message becomes one, how it is listed, brought back and removed."""

from datetime import UTC, datetime
from typing import Any

import pytest

from stepwell import InvalidOption, PermanentError, QueueNotFound, Store, TaskKind, Worker, connect, handler, workflow
from stepwell.base.clock import TestClock
from stepwell.store import dead_letters
from tests.queue.raw import ask, change


def failing(queue: str, *, retry: int = 3, error: type[Exception] = ValueError) -> Any:
    @handler(queue, retry=retry)
    async def fail(payload: Any) -> None:
        raise error(f"no {payload}")

    return fail


async def until_dead(store: Store, clock: TestClock, *handlers: Any) -> int:
    """Drain until nothing is waiting; how many attempts that was."""
    attempts = 0
    for _ in range(4):
        attempts += await Worker(store, handlers).drain()
        clock.advance("10m")
    return attempts


@pytest.mark.proves("Q-15", "E-06")
async def test_a_message_without_attempts_left_is_a_dead_letter_with_its_last_error(
    store: Store, clock: TestClock
) -> None:
    seen: list[int] = []

    @handler("mail")
    async def fail(payload: str) -> None:
        seen.append(len(seen) + 1)
        raise ValueError(f"no {payload}, attempt {len(seen)}")

    message = await store.enqueue(fail, "ann", key="k")
    once = await store.enqueue(fail, "bob", max_attempts=1)
    assert await until_dead(store, clock, fail) == 4
    await store.create_queue("other")
    assert await store.dead_letters(queue="other") == []
    with pytest.raises(QueueNotFound):
        await store.dead_letters(queue="othre")
    letters = {letter.id: letter for letter in await store.dead_letters(queue="mail")}
    assert set(letters) == {message, once}
    letter = letters[message]
    assert (letter.kind, letter.queue, letter.key, letter.payload) == ("MESSAGE", "mail", "k", "ann")
    assert (letter.attempt, letter.max_attempts) == (3, 3)
    assert (letters[once].attempt, letters[once].max_attempts) == (1, 1)
    assert letter.error is not None
    assert letter.error["type"] == "ValueError"
    assert letter.error["message"] == "no ann, attempt 4"
    assert "in fail" in letter.error["traceback"]
    assert letter.last_error == "ValueError: no ann, attempt 4"
    assert letter.created_at == datetime(2026, 1, 1, tzinfo=UTC) < letter.finished_at
    task = await store.get(message)
    assert task is not None
    assert (task.status, task.ready, task.owner, task.finished_at) == ("ERROR", False, None, letter.finished_at)
    clock.advance("365d")
    assert await Worker(store, [fail]).drain() == 0


@pytest.mark.proves("Q-16")
async def test_a_requeued_dead_letter_has_all_its_attempts_and_nothing_else_is_touched(
    store: Store, clock: TestClock
) -> None:
    broken = [True]

    @handler("mail")
    async def send(payload: str) -> None:
        if broken and payload != "good":
            raise ValueError(payload)

    good, bad = await store.enqueue(send, "good"), await store.enqueue(send, "bad")
    await until_dead(store, clock, send)
    waiting = await store.enqueue(send, "waiting", delay="1d")
    running, cancelled, deleted = [await store.enqueue(send, text, delay="1d") for text in "rcd"]
    await change(
        store,
        f"update {{task}} set status = 'RUNNING', owner = 77 where id = {running}",
        f"update {{task}} set status = 'CANCELLED', finished_at = 1 where id = {cancelled}",
        f"update {{task}} set status = 'ERROR', finished_at = 1, deleted_at = 1 where id = {deleted}",
    )
    others = (good, waiting, running, cancelled, deleted)
    before = [await store.get(each) for each in others]
    broken.clear()
    assert await store.requeue(bad, *others, 999_999) == 1
    assert [await store.get(each) for each in others] == before
    task = await store.get(bad)
    assert task is not None
    assert (task.status, task.ready, task.attempt, task.error, task.last_error) == ("PENDING", True, 0, None, None)
    assert (task.started_at, task.finished_at, task.turn) == (None, None, 3)  # the turn only grows
    assert await store.requeue(bad) == 0
    assert await Worker(store, [send]).drain() == 1
    task = await store.get(bad)
    assert task is not None
    assert (task.status, task.attempt) == ("SUCCESS", 1)
    assert await store.requeue(bad, good) == 0


@pytest.mark.proves("Q-16")
async def test_a_message_that_succeeded_is_requeued_by_its_id_and_nothing_else_is(
    store: Store, clock: TestClock
) -> None:
    seen: list[str] = []

    @handler("mail")
    async def send(payload: str) -> None:
        seen.append(payload)

    @workflow
    async def idle() -> None:
        """Do nothing."""

    done = await store.enqueue(send, "again", key="k")
    again, taken = await store.enqueue_many(send, ["again too", "taken"], keys=["u", "v"], unique="unfinished")
    run = await idle.trigger().options(require_worker="ignore").execute(store)
    assert await Worker(store, [send, idle]).drain() == 4
    other = await store.enqueue(send, "other", key="v", unique="unfinished", delay="1d")
    assert other.created
    with pytest.raises(InvalidOption, match="by their ids"):
        await store.requeue(queue="mail", succeeded=True)
    assert await store.requeue(done, again) == 0
    seen.clear()
    assert await store.requeue(done, again, taken, run, other, succeeded=True) == 2
    task = await store.get(done)
    assert task is not None
    assert (task.status, task.ready, task.attempt, task.key, task.finished_at) == ("PENDING", True, 0, "k", None)
    assert not (await store.enqueue(send, "again", key="k")).created
    assert await Worker(store, [send, idle]).drain() == 2
    assert seen == ["again", "again too"]
    assert await store.counts("mail") == {"PENDING": 1, "SUCCESS": 3}


@pytest.mark.proves("E-15")
async def test_more_attempts_later_revive_nothing(store: Store, clock: TestClock) -> None:
    await store.enqueue(failing("mail", retry=2), "ann")
    assert await until_dead(store, clock, failing("mail", retry=2)) == 2
    assert await until_dead(store, clock, failing("mail", retry=50)) == 0
    await change(store, "update {task} set max_attempts = 50")
    assert await until_dead(store, clock, failing("mail", retry=50)) == 0
    [letter] = await store.dead_letters()
    assert (letter.attempt, letter.max_attempts) == (2, 50)


async def test_dead_letters_are_found_by_queue_error_and_kind(store: Store, clock: TestClock) -> None:
    a, b = failing("a", retry=1), failing("b", retry=1, error=KeyError)
    for number in range(3):
        await store.enqueue(a, number)
        await store.enqueue(b, number)
        await Worker(store, [a, b]).drain()
        clock.advance(1)
    assert [letter.payload for letter in await store.dead_letters(queue="a")] == [0, 1, 2]
    assert {letter.queue for letter in await store.dead_letters(error="KeyError")} == {"b"}
    assert len(await store.dead_letters(kind="MESSAGE")) == 6
    assert await store.dead_letters(kind="RUN") == []
    assert await store.dead_letters(kind=TaskKind.TIMER) == []
    for wrong in ("run", "", 3):
        with pytest.raises(InvalidOption, match="it is one of MESSAGE, RUN, EFFECT"):
            await store.dead_letters(kind=wrong)  # type: ignore[arg-type]
    assert await store.requeue(error="KeyError") == 3
    assert await store.drop(queue="a") == 3
    assert await store.dead_letters() == []
    assert await store.counts("a") == {}
    assert await store.counts("b") == {"PENDING": 3}


async def test_dead_letters_come_in_pages(store: Store, clock: TestClock) -> None:
    fail = failing("mail", retry=1)
    ids = await store.enqueue_many(fail, range(7))
    await Worker(store, [fail]).drain()
    seen: list[int] = []
    after: str | None = None
    for size in (3, 3, 1):
        page = await store.dead_letters(limit=3, after=after)
        assert len(page) == size
        seen += [letter.id for letter in page]
        after = page.next
    assert after is None
    assert seen == ids
    with pytest.raises(InvalidOption, match="after"):
        await store.dead_letters(after="yesterday")


async def test_dropping_removes_dead_letters_only(store: Store, clock: TestClock) -> None:
    fail = failing("mail", retry=1)
    dead = await store.enqueue(fail, 1, key="k")
    await Worker(store, [fail]).drain()
    alive = await store.enqueue(fail, 2)
    assert await store.drop(dead, alive) == 1
    assert await store.get(dead) is None
    assert await store.get(alive) is not None
    assert (await store.enqueue(fail, "other", key="k")).created  # its key went with it


async def test_more_dead_letters_than_a_transaction_takes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "CHUNK", 50)
    fail = failing("mail", retry=1)
    ids = await store.enqueue_many(fail, range(120))
    await change(store, "update {task} set status = 'ERROR', ready = false, finished_at = 5")
    assert await store.requeue(queue="mail") == 120
    await change(store, "update {task} set status = 'ERROR', ready = false, finished_at = 5")
    assert await store.drop(*ids) == 120
    assert await ask(store, "select count(*) from {task}") == [(0,)]


async def test_requeue_and_drop_want_ids_or_a_filter_not_both_nor_neither(store: Store) -> None:
    for verb in (store.requeue, store.drop):
        with pytest.raises(InvalidOption):
            await verb()
        with pytest.raises(InvalidOption):
            await verb(1, queue="mail")


async def test_a_permanent_error_needs_no_attempts(store: Store, clock: TestClock) -> None:
    fail = failing("mail", error=PermanentError)
    await store.enqueue(fail, "ann")
    assert await until_dead(store, clock, fail) == 1
    [letter] = await store.dead_letters()
    assert letter.last_error == "PermanentError: no ann"


@pytest.mark.proves("Q-15", "L-01")
async def test_which_worker_had_a_message_last_is_told_without_an_audit(store_url: str) -> None:
    @handler("mail", retry=1)
    async def send(address: str) -> None:
        if "@" not in address:
            raise ValueError("no address")

    async with connect(store_url, audit="off") as store:
        sent, dead = await store.enqueue_many(send, ["ada@example.org", "ada"])
        await Worker(store, [send], name="early").drain()
        [early] = await store.workers()
        await store.requeue(dead)
        await Worker(store, [send], name="late").drain()
        late = next(one for one in await store.workers() if one.id != early.id)
        assert (early.name, late.name) == ("early", "late")
        task = await store.get(sent)
        assert task is not None
        assert (task.last_worker, task.last_worker_name) == (early.id, "early")
        [letter] = await store.dead_letters()
        assert (letter.last_worker, letter.last_worker_name) == (late.id, "late")
        assert await store.history(dead) == [], "nothing was noted"
