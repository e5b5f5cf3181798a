"""`ready` has one meaning, and there is one list of the ways by which a task comes to be executed."""

import re
from collections.abc import Awaitable, Callable

import pytest

from stepwell import Store
from stepwell.base.clock import TestClock
from stepwell.store.driver import Call
from stepwell.store.settle import wake_parents
from stepwell.store.sql import Dialect, Macros, Statements
from tests.store.seam import ask, begin, claim, do, row_of
from tests.store.test_schema import headings

# Every statement that lets a task be RUNNING, and what each asks of it before. Whatever is to hold for all that is
# executed (a limit, a place in an ordered group) has to be said in each of these, or be refused by it.
ROADS = {
    "claim": "task.ready",
    "claim_above": "task.ready",
    "claim_alone": "task.losses > 0",
    "claim_limited": "task.ready",
    "hand_over": "taking.paused",
    "take": "task.ready",
    "take_along": "task.status = 'PENDING' and task.deleted_at is null and task.held_at is null and task.losses = 0",
    "take_suspect": "task.losses > 0",
}
# What takes only what another statement of the same script has found, with one writer: that one asks for it.
ASKED_BEFORE = {"take_picked": ("open_limiter", "task.ready")}
# What writes `ready` as a caller says it: the caller is `adding.load`, for new tasks alone.
TOLD = {"load_task"}


def changes(body: str) -> str:
    """The part of a statement that says what rows are to become."""
    return re.sub(r"^--.*\n", "", body, flags=re.MULTILINE)


def test_every_road_to_running_stands_in_one_list() -> None:
    found = {
        name
        for _, name, _, body in headings()
        if re.search(r"status = 'RUNNING', ready = false|case when [^;]*? else 'RUNNING' end", changes(body))
        or re.search(r"\bset\b[^;]*?\bstatus = 'RUNNING',", changes(body))
    }
    assert found == ROADS.keys() | ASKED_BEFORE.keys()


@pytest.mark.parametrize(("road", "condition"), [*sorted(ROADS.items()), *ASKED_BEFORE.values()])
def test_every_road_asks_whether_the_task_may_be_executed(road: str, condition: str) -> None:
    for _, name, dialect, body in headings():
        if name == road:
            text = changes(body)
            assert condition in text.replace("walk.", "task."), dialect
            assert "{maintenance}" in text, dialect
            assert re.search(r"\bpaused\b", text), dialect


def test_every_statement_that_sets_ready_says_by_the_macro_whether_it_may() -> None:
    setters = []
    for file, name, dialect, body in headings():
        text = changes(body)
        set_to = re.findall(r"\bready = (?!false\b)", text)
        inserted = re.search(r"insert into \{task\} \([^)]*\bready\b", text)
        if set_to or inserted:
            setters.append((file, name, dialect))
            assert "{may_be_ready " in text or name in TOLD, f"{file}: {name}"
    assert {name for _, name, _ in setters} >= {"settle", "return_tasks", "wake_due", "requeue", "add_tasks"}


def test_what_the_check_of_the_table_says_is_what_the_macro_says() -> None:
    macro = Macros("postgres", "s").fill("{may_be_ready task}").replace("task.", "").strip("()")
    said = macro.removesuffix(" and waits_for_previous = false")
    assert said != macro
    for dialect in ("postgres", "sqlite"):
        [table] = [
            text
            for _, _, texts in Statements(_dialect(dialect), "s").migrations()
            for text in texts
            if "constraint task_may_be_ready" in text
        ]
        assert f"check (not ready or (status = 'PENDING' and {said}))" in table
        [column] = [
            text
            for _, _, texts in Statements(_dialect(dialect), "s").migrations()
            for text in texts
            if "add column waits_for_previous" in text
        ]
        assert "check (not (ready and waits_for_previous))" in column
    cleared = Macros("sqlite", "s").fill("{may_be_ready task clears held_at, losses, waits_for_previous}")
    assert cleared == "(task.deleted_at is null)"
    for dialect in ("postgres", "sqlite"):
        assert Macros(_dialect(dialect), "s").fill("{may_be_ready new}") == "true"


def _dialect(name: str) -> Dialect:
    return "postgres" if name == "postgres" else "sqlite"


# What would make a task ready leaves a suspect alone


async def _swept(store: Store, _: int) -> None:
    await store.database.tasks.wake()


async def _let_go(store: Store, task_id: int) -> None:
    await do(store, f"update {{task}} set status = 'PAUSED', held_at = 1 where id = {task_id}")
    await store.database.driver.write(Call("let_go_run", store.database.params(id=task_id)))


async def _restored(store: Store, task_id: int) -> None:
    await store.delete(task_id, reason="a test")
    await store.restore(task_id)


async def _signalled(store: Store, task_id: int) -> None:
    await do(store, f"update {{task}} set status = 'PAUSED' where id = {task_id}")
    await store.database.driver.write(Call("wake_run", store.database.params(id=task_id, waits=True)))


async def _child_ended(store: Store, task_id: int) -> None:
    await do(store, f"update {{task}} set status = 'PAUSED', waiting = 1 where id = {task_id}")
    ended = [{"id": -1, "status": "SUCCESS", "parent_id": task_id}]
    await store.database.driver.transact(lambda: wake_parents(store.database.params(), ended))


@pytest.mark.proves("rule-07")
@pytest.mark.parametrize("event", [_swept, _let_go, _restored, _signalled, _child_ended])
async def test_what_makes_others_ready_does_not_make_a_suspect_so(
    store: Store, clock: TestClock, event: Callable[[Store, int], Awaitable[None]]
) -> None:
    await store.create_queue("q")
    task_id, control = await store.enqueue("q", 1), await store.enqueue("q", 2)
    await do(store, "update {task} set ready = false", f"update {{task}} set losses = 1 where id = {task_id}")
    for one in (task_id, control):
        await event(store, one)
    suspect, other = await row_of(store, task_id), await row_of(store, control)
    assert (suspect["status"], bool(suspect["ready"])) == ("PENDING", False)
    assert (other["status"], bool(other["ready"])) == ("PENDING", True), "the control: the event does make others ready"
    worker = await begin(store)
    assert [task.id for task in await claim(store, worker, "q", 5)] == [control]


@pytest.mark.proves("rule-07")
async def test_the_sweep_does_not_find_a_suspect_again_and_again(store: Store, clock: TestClock) -> None:
    await store.create_queue("q")
    task_id = await store.enqueue("q", 1)
    await do(store, f"update {{task}} set losses = 1, ready = false where id = {task_id}")
    assert await store.database.tasks.wake_due() == (set(), None)
    [row] = await ask(store, "select suspects, waiting, next_due from {queue_counts}")
    assert (row["suspects"], row["waiting"], row["next_due"]) == (1, 1, None)
    [seen] = await ask(store, f"select state, until from {{tasks}} where id = {task_id}")
    assert (seen["state"], seen["until"]) == ("was lost with others, is executed alone", None)


async def test_a_suspect_cannot_be_written_as_ready(store: Store) -> None:
    await store.create_queue("q")
    task_id = await store.enqueue("q", 1)
    for wrong in ("losses = 1", "held_at = 1", "deleted_at = 1", "status = 'PAUSED'"):
        with pytest.raises(Exception, match="task_may_be_ready"):
            await do(store, f"update {{task}} set {wrong} where id = {task_id}")
