"""Events of a workflow's life: emitted in the transaction of what they tell of, for who asks for them."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import Context, InvalidName, InvalidOption, PermanentError, Store, Worker, workflow
from stepwell.base.clock import TestClock
from stepwell.store.rows import SeenWorker
from tests.outbox.kit import Sink, drained, outbox
from tests.store.seam import ask, begin

ALL: Any = {"succeeded", "failed", "dead_letter", "no_handler"}


@workflow(retry=2, lifecycle=ALL)
async def parse(ctx: Context, number: int) -> int:
    if number < 0:
        raise PermanentError("negative")
    if number == 0:
        raise OSError("zero")
    return number


@workflow(retry=1)
async def quiet(ctx: Context, number: int) -> int:
    raise OSError("quiet")


def told(sink: Sink) -> list[tuple[str, Any, Any]]:
    """What has been published: type, attempt and error."""
    return sorted((one.type, one.data["attempt"], one.data.get("error", {}).get("message")) for one in sink.events)


@pytest.mark.proves("O-08", "O-07")
async def test_a_run_that_succeeds_says_so_once(store: Store) -> None:
    sink = Sink()
    await drained(store, parse, outbox(sink))
    run_id = await parse.trigger(3).options(key="three").execute(store)
    await drained(store, parse, outbox(sink))
    [event] = sink.events
    assert (event.type, event.subject) == ("parse.succeeded.v1", f"parse/{run_id}")
    assert event.data == {"workflow": "parse", "run_id": run_id, "key": "three", "attempt": 1}
    assert await store.result(run_id) == 3


@pytest.mark.proves("O-08", "E-11")
async def test_each_failed_attempt_and_the_dead_letter_are_told(store: Store, clock: TestClock) -> None:
    sink = Sink()
    await drained(store, parse, outbox(sink))
    await parse.trigger(0).execute(store)
    await drained(store, parse, outbox(sink))
    assert told(sink) == [("parse.failed.v1", 1, "zero")]
    clock.advance(60)
    await drained(store, parse, outbox(sink))
    assert told(sink) == [
        ("parse.dead_letter.v1", 2, "zero"),
        ("parse.failed.v1", 1, "zero"),
        ("parse.failed.v1", 2, "zero"),
    ]
    assert len({one.id for one in sink.events}) == 3
    assert all(one.data["error"].keys() == {"type", "message"} for one in sink.events)


@pytest.mark.proves("E-11")
async def test_a_dead_letter_tells_the_outside_world_and_a_workflow_in_one_transaction(store: Store) -> None:
    sink, letters = Sink(), list[Any]()

    @workflow
    async def tell(letter: dict[str, Any]) -> None:
        letters.append(letter["run_id"])

    @workflow(retry=1, dead_letter="tell", lifecycle={"dead_letter"})
    async def pay(ctx: Context) -> None:
        raise OSError("away")

    await drained(store, pay, tell, outbox(sink))
    run_id = await pay.trigger().execute(store)
    await drained(store, pay, tell, outbox(sink))
    assert letters == [run_id]
    assert told(sink) == [("pay.dead_letter.v1", 1, "away")]


@pytest.mark.proves("O-08")
@pytest.mark.parametrize("wanted", sorted(ALL))
async def test_what_was_not_asked_for_is_not_told(store: Store, clock: TestClock, wanted: Any) -> None:
    sink = Sink()

    @workflow(name="some", retry=2, lifecycle={wanted})
    async def some(ctx: Context, number: int) -> None:
        if number == 0:
            raise OSError("zero")

    await drained(store, some, outbox(sink))
    for number in (0, 1):
        await some.trigger(number).execute(store)
    for _ in range(2):
        await drained(store, some, outbox(sink))
        clock.advance(60)
    expected = {"succeeded": 1, "failed": 2, "dead_letter": 1, "no_handler": 0}
    assert [one.type for one in sink.events] == [f"some.{wanted}.v1"] * expected[wanted]


@pytest.mark.proves("O-08", "W-12")
async def test_a_run_without_a_handler_is_told_of(store: Store) -> None:
    sink = Sink()
    await drained(store, parse, outbox(sink))
    run_id = await parse.trigger(1).execute(store)
    await Worker(store, [], prefixes=["parse"]).drain()
    await drained(store, outbox(sink))
    assert sorted(one.type for one in sink.events) == ["parse.dead_letter.v1", "parse.failed.v1", "parse.no_handler.v1"]
    assert (await store.get_run(run_id)).last_error == "no_handler_registered"


@pytest.mark.proves("O-08", "E-11")
async def test_a_run_that_is_lost_with_its_last_worker_is_told_of(store: Store, clock: TestClock) -> None:
    sink = Sink()
    await drained(store, parse, outbox(sink))
    run_id = await parse.trigger(3).execute(store)
    for _ in range(2):
        await lost(store, "parse")
    await drained(store, outbox(sink))
    assert sorted(one.type for one in sink.events) == ["parse.dead_letter.v1", "parse.failed.v1"]
    assert {one.data["run_id"] for one in sink.events} == {run_id}


async def lost(store: Store, queue: str) -> None:
    """A session claims a task and dies with it."""
    session, queue_id = await begin(store), await store.database.queue_id(queue)
    claimed = await store.database.tasks.claim(session, [(queue_id, 1)], 1)
    assert claimed or await store.database.suspects.claim(session, [queue_id], beside=False)
    await bury(store, session)


async def bury(store: Store, session: int) -> None:
    """Declare a session dead."""
    [row] = await ask(store, f"select beat_at from {{beat}} where worker_id = {session}")
    assert await store.database.sessions.bury(SeenWorker(session, row["beat_at"])) is not None


async def test_a_cancelled_run_tells_nothing(store: Store) -> None:
    sink = Sink()
    await drained(store, parse, outbox(sink))
    await store.cancel(await parse.trigger(0).execute(store))
    await drained(store, parse, outbox(sink))
    assert sink.events == []


@pytest.mark.proves("O-08", "O-01")
async def test_no_event_tells_of_a_settle_that_was_refused(store: Store) -> None:
    sink = Sink()

    @workflow(name="robbed", retry=1, lifecycle=ALL)
    async def robbed(ctx: Context) -> None:
        [row] = await ask(store, "select owner from {task} as task where owner is not null")
        await bury(store, row["owner"])

    await drained(store, robbed, outbox(sink))
    await robbed.trigger().execute(store)
    await drained(store, robbed)
    await drained(store, outbox(sink))
    assert sorted(one.type for one in sink.events) == ["robbed.dead_letter.v1", "robbed.failed.v1"]


@pytest.mark.proves("O-14")
async def test_a_workflow_that_asks_for_nothing_emits_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    await drained(store, quiet, outbox(sink))
    await quiet.trigger(1).execute(store)
    asked = list[Any]()
    monkeypatch.setattr(store.database.outboxes, "writing", asked.append)
    await drained(store, quiet, outbox(sink))
    assert (asked, sink.events) == ([], [])


@pytest.mark.parametrize("wrong", ["failed", ["fail"], {"succeeded", 3}])
def test_what_no_life_has_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="'succeeded', 'failed', 'dead_letter', 'no_handler'"):
        workflow(name="x", lifecycle=wrong)(lambda: None)


def test_a_name_has_room_for_its_events() -> None:
    with pytest.raises(InvalidName, match="event type"):
        workflow(name="x" * 250, lifecycle=ALL)(lambda: None)
