"""Creating queues and writing messages: what is there afterwards, and when it may be claimed."""

import asyncio
import json
import os
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepwell import InvalidOption, QueueNotFound, SerializationError, Store, Worker, connect, handler
from stepwell.base.clock import TestClock
from stepwell.store import add as adding
from tests.ground.processes import Crew, wait_for
from tests.queue.raw import ask, change, everything_written

ROOT = Path(__file__).parents[2]
LONGEST = "a" * 255


@pytest.mark.proves("Q-01")
async def test_a_queue_is_created_once_however_often_it_is_asked_for(store: Store, store_url: str) -> None:
    for _ in range(2):
        await store.create_queue("mail")
    await store.create_queue(LONGEST)
    async with connect(store_url) as other:
        await other.create_queue("mail")
        assert [queue.name for queue in await other.queues()] == [LONGEST, "mail"]
    [[first, count]] = await ask(store, "select min(id), count(*) from {queue} where name = 'mail'")
    assert count == 1
    assert first == await store.database.queue_id("mail") == await store.database.queue_id("mail", create=True)


@pytest.mark.proves("PR-14")
async def test_dotted_and_versioned_names_go_all_the_way(store: Store) -> None:
    done: list[int] = []

    @handler("billing.invoice_charge.v1")
    async def charge(cents: int) -> None:
        done.append(cents)

    @handler("a-b:c_d.2")
    async def other(cents: int) -> None:
        done.append(-cents)

    await store.enqueue(charge, 1)
    await store.enqueue("billing.invoice_charge.v1", 2)
    await store.enqueue(other, 3)
    await Worker(store, [charge, other]).drain()
    assert sorted(done) == [-3, 1, 2]
    assert await store.counts("billing.invoice_charge.v1") == {"SUCCESS": 2}
    assert [worker.handlers for worker in await store.workers()] == [("billing.invoice_charge.v1", "a-b:c_d.2")]


async def test_a_message_is_one_row_with_its_defaults(store: Store, clock: TestClock) -> None:
    await store.create_queue("mail")
    message = await store.enqueue("mail", {"to": "ann", "n": [1, 2.5, None, "é"]})
    assert isinstance(message, int)
    assert message.created
    task = await store.get(message)
    assert task is not None
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert (task.id, task.kind, task.queue, task.status, task.ready) == (message, "MESSAGE", "mail", "PENDING", True)
    assert (task.priority, task.attempt, task.max_attempts, task.turn, task.key) == (0, 0, 3, 0, None)
    assert (task.input, task.output, task.error, task.last_error) == (
        {"to": "ann", "n": [1, 2.5, None, "é"]},
        *[None] * 3,
    )
    assert (task.created_at, task.run_at, task.started_at, task.finished_at, task.owner) == (now, now, None, None, None)
    assert await ask(store, "select count(*) from {task}") == [(1,)]
    assert await store.get(message + 1) is None


@pytest.mark.proves("Q-02", "B-07")
async def test_a_message_outlives_its_producer(store_url: str, tmp_path: Path) -> None:
    program = tmp_path / "producer.py"
    program.write_text(
        "import asyncio, os, signal, sys, stepwell\n"
        "async def main():\n"
        "    store = await stepwell.connect(sys.argv[1])\n"
        "    await store.create_queue('mail')\n"
        "    message = await store.enqueue('mail', {'to': 'ann'})\n"
        "    print(message, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    path = os.pathsep.join([str(ROOT / "src"), str(tmp_path)])
    with Crew("producer", store_url, size=1, folder=tmp_path, cwd=tmp_path, env={"PYTHONPATH": path}) as crew:
        [producer] = crew.members
        wait_for(lambda: not producer.is_alive, 30)
        assert producer.process.returncode == -signal.SIGKILL, crew.complaints()
        message = int(producer.stdout.read_text())

    received: list[Any] = []

    @handler("mail")
    async def send(payload: dict[str, str]) -> None:
        received.append(payload)

    async with connect(store_url) as store:
        task = await store.get(message)
        assert task is not None
        assert task.ready
        assert await Worker(store, [send]).drain() == 1
    assert received == [{"to": "ann"}]


@pytest.mark.proves("Q-03")
async def test_an_unknown_queue_by_name_is_an_error_and_nothing_is_written(store: Store) -> None:
    await store.create_queue("mail")
    before = await everything_written(store)
    with pytest.raises(QueueNotFound, match=r"no queue is named 'mial'; create it with `store\.create_queue"):
        await store.enqueue("mial", 1)
    with pytest.raises(QueueNotFound) as caught:
        await store.enqueue_many("mial", [1, 2])
    assert caught.value.name == "mial"
    with pytest.raises(QueueNotFound):
        await store.counts("mial")
    assert await everything_written(store) == before


async def test_a_handler_brings_its_queue_along(store: Store) -> None:
    @handler("mail", retry=7)
    async def send(to: str) -> None: ...

    message = await store.enqueue(send, "ann")
    many = await store.enqueue_many(send, ["bob", "eve"])
    assert [queue.name for queue in await store.queues()] == ["mail"]
    written = [await store.get(each) for each in (message, *many)]
    assert [task.max_attempts for task in written if task] == [7, 7, 7]


async def test_a_handler_with_a_bad_payload_brings_nothing_along(store: Store) -> None:
    @handler("mail")
    async def send(to: object) -> None: ...

    with pytest.raises(SerializationError):
        await store.enqueue(send, {"bad": object()})
    with pytest.raises(SerializationError):
        await store.enqueue_many(send, ["good", float("nan")])
    assert await everything_written(store) == (0, 0, 0)


@pytest.mark.proves("CO-07")
@pytest.mark.backends("postgres", reason="the others store text")
async def test_a_payload_is_queried_as_json(store: Store, backend: str) -> None:
    await store.create_queue("mail")
    await store.enqueue("mail", {"to": {"name": "ada"}, "cents": 7})
    text = "select input -> 'to' ->> 'name', (input ->> 'cents')::int, input::jsonb @> '{\"cents\": 7}' from {task}"
    assert [tuple(row) for row in await ask(store, text)] == [("ada", 7, True)]
    await change(store, "create index of_the_user on {task} using gin ((input::jsonb))")
    await store.enqueue_many("mail", [{"cents": number} for number in range(50)])
    text = "select count(*) from {task} where input::jsonb @> '{\"cents\": 7}'"
    assert await ask(store, text) == [(2,)]


@pytest.mark.proves("Q-04")
@pytest.mark.parametrize("how", ["delay", "run_at"])
async def test_a_delayed_message_is_delivered_by_the_first_claim_after_its_time(
    store: Store, clock: TestClock, how: str
) -> None:
    done: list[str] = []

    @handler("mail")
    async def send(to: str) -> None:
        done.append(to)

    if how == "delay":
        message = await store.enqueue(send, "ann", delay=timedelta(seconds=90))
    else:
        message = await store.enqueue(send, "ann", run_at=datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC))
    task = await store.get(message)
    assert task is not None
    assert (task.status, task.ready) == ("PENDING", False)
    assert task.run_at == datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)
    assert await Worker(store, [send]).drain() == 0
    clock.advance("89.999999s")
    assert await Worker(store, [send]).drain() == 0
    clock.advance(0.000001)
    assert await Worker(store, [send]).drain() == 1
    assert done == ["ann"]


@pytest.mark.proves("PR-04")
async def test_a_message_due_in_the_future_is_left_alone_and_one_due_in_the_past_is_not(
    store: Store, clock: TestClock
) -> None:
    done: list[str] = []

    @handler("mail")
    async def send(to: str) -> None:
        done.append(to)

    await store.enqueue(send, "later", run_at=datetime(2026, 1, 2, tzinfo=UTC), priority=100)
    await store.enqueue(send, "past", run_at=datetime(1999, 1, 1, tzinfo=UTC))
    await store.enqueue(send, "zone", run_at=datetime(2026, 1, 1, 2, tzinfo=UTC).astimezone())
    worker = Worker(store, [send])
    await worker.drain()
    assert done == ["past"]
    clock.advance("2h")
    await worker.drain()
    assert done == ["past", "zone"]
    clock.advance("22h")
    await worker.drain()
    assert done == ["past", "zone", "later"]


async def test_the_database_clock_decides_when_there_is_no_other(live_store: Store) -> None:
    await live_store.create_queue("mail")
    message = await live_store.enqueue("mail", 1, delay="1h")
    task = await live_store.get(message)
    assert task is not None
    assert task.run_at is not None
    assert abs(task.run_at - task.created_at - timedelta(hours=1)) < timedelta(seconds=1)
    assert abs(task.created_at - datetime.now(UTC)) < timedelta(seconds=30)


@pytest.mark.proves("Q-05")
async def test_a_batch_is_written_whole_or_not_at_all_and_in_order(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "LOAD_BYTES", 40_000)
    await store.create_queue("mail")
    payloads = [{"n": number} for number in range(250)]  # more than one statement carries
    ids = await store.enqueue_many("mail", payloads, priority=3, delay="1s")
    assert len(set(ids)) == 250
    assert all(each.created for each in ids)
    for place in (0, 99, 100, 101, 249):
        task = await store.get(ids[place])
        assert task is not None
        assert (task.input, task.priority, task.ready) == ({"n": place}, 3, False)
    for bad in (float("nan"), object(), "x" * (1 << 20)):
        with pytest.raises(SerializationError):
            await store.enqueue_many("mail", [*payloads, bad])
    assert await store.counts("mail") == {"PENDING": 250}
    assert await store.enqueue_many("mail", []) == []
    generated = await store.enqueue_many("mail", (number for number in range(3)))
    assert [task.input for each in generated if (task := await store.get(each))] == [0, 1, 2]


async def test_a_batch_that_the_database_refuses_halfway_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first chunk is written when the second is refused."""
    monkeypatch.setattr(adding, "LOAD_BYTES", 40_000)
    await store.create_queue("mail")
    real = store.database.ids.take
    [taken] = await store.enqueue_many("mail", ["first"])

    async def take(count: int) -> list[int]:
        return [*(await real(count))[:-1], int(taken)] if count > 1 else await real(count)

    store.database.ids.take = take  # type: ignore[method-assign]
    with pytest.raises(Exception, match="refused the row"):
        await store.enqueue_many("mail", list(range(150)))
    assert await store.counts("mail") == {"PENDING": 1}


async def test_tags_priority_and_attempts_are_stored(store: Store) -> None:
    @handler("mail", retry=2)
    async def send(to: str) -> None: ...

    message = await store.enqueue(send, "ann", tags=["b", "a", "b"], priority=-7, max_attempts=9)
    task = await store.get(message)
    assert task is not None
    assert (task.priority, task.max_attempts) == (-7, 9)
    [[tags]] = await ask(store, "select tags from {task}")
    assert tags == '["b","a"]'
    limits = [await store.enqueue(send, "x", priority=priority) for priority in (-32768, 32767)]
    assert [task.priority for each in limits if (task := await store.get(each))] == [-32768, 32767]


async def test_payloads_come_back_as_they_went_in(store: Store) -> None:
    received: list[Any] = []
    payloads: list[Any] = [
        None, True, 0, -(2**63), 2**80, 0.1, 1e300, "", "\x01\x1f\x7f\u2028😀", "'; drop table task; --", "\\u0000",
        [], {}, {"": {"\x1f": [[]]}}, "x" * 1_000_000, {"k": "v" * 1000, "é": None},
    ]  # fmt: skip

    @handler("any")
    async def take(payload: Any) -> None:
        received.append(payload)

    ids = [*[await store.enqueue(take, payload) for payload in payloads], *await store.enqueue_many(take, payloads)]
    assert [task.input for each in ids if (task := await store.get(each))] == payloads * 2
    await Worker(store, [take], concurrency=1).drain()
    assert received == payloads * 2


@pytest.mark.proves("Q-05", "V-06")
async def test_a_bulk_keeps_every_character_of_payloads_and_tags(store: Store) -> None:
    """What separates rows and cells on their way to a database may stand in any of them."""
    strange = ["a\tb\nc\rd", "\\", "\\N", "\\.", "%s %d 50%", "\x1f", "{}", "é😀", '"', "null", "1", ""]
    tags = [text for text in strange if text]
    await store.create_queue("strange")
    ids = await store.enqueue_many("strange", strange, tags=tags)
    spaced = [msgspec.Raw(b'{"a":\t1,\n\r\t"b\\\\": [2]}')] * 3
    ids += await store.enqueue_many("strange", spaced)
    assert [task.input for each in ids if (task := await store.get(each))] == [*strange, *[{"a": 1, "b\\": [2]}] * 3]
    stored = await ask(store, "select distinct cast(tags as text) from {task} where tags is not null")
    assert [json.loads(row[0]) for row in stored] == [tags]


@pytest.mark.proves("Q-05", "V-06")
@pytest.mark.parametrize("encoding", ["latin1", "euc_jp"])
async def test_a_bulk_is_written_in_any_encoding_of_the_connection(postgres_url: str, encoding: str) -> None:
    """Only connections to Postgres have one; the embedded databases speak UTF-8."""
    async with connect(f"{postgres_url}?client_encoding={encoding}") as store:
        await store.create_queue("q")
        texts = ["\u00e9", "\u00fc\\x"] if encoding == "latin1" else ["\u65e5\u672c", "\u8a9e\\"]
        ids = [await store.enqueue("q", texts[0]), *await store.enqueue_many("q", texts, tags=texts)]
        assert [task.input for each in ids if (task := await store.get(each))] == [texts[0], *texts]


@pytest.mark.proves("Q-26", "V-06", "B-08")
async def test_a_queue_that_is_deleted_while_it_is_filled_leaves_no_task_without_a_queue(store: Store) -> None:
    async def fill(number: int) -> None:
        match number % 3:
            case 0:
                await store.enqueue("mail", number)
            case 1:
                await store.enqueue("mail", number, key=str(number))
            case _:
                await store.enqueue_many("mail", [number] * 20)

    outcomes: list[str] = []
    for number in range(30):
        await store.create_queue("mail")
        answers = await asyncio.gather(store.delete_queue("mail"), fill(number), return_exceptions=True)
        outcomes += [type(answer).__name__ for answer in answers]
        assert await ask(store, "select count(*) from {task} where queue_id not in (select id from {queue})") == [(0,)]
        await store.create_queue("mail")
        await store.purge("mail")
    assert {"QueueInUse", "QueueNotFound"} & set(outcomes), f"nobody was in the way: void; {Counter(outcomes)}"


@pytest.mark.proves("messages-03")
async def test_the_messages_of_a_queue_are_listed_page_by_page_in_each_state(store: Store, clock: TestClock) -> None:
    begun, leave = asyncio.Event(), asyncio.Event()

    @handler("mail")
    async def mail(number: int) -> None:
        if number == 0:
            begun.set()
            await leave.wait()

    listed = partial(_listed, store)
    for number in range(1, 8):
        await store.enqueue(mail, number, priority=number % 3)
    for number in (8, 9, 10):
        await store.enqueue(mail, number, delay=f"{number}m")
    for limit in (1, 2, 3, 100):
        assert await listed("ready", limit) == [2, 5, 1, 4, 7, 3, 6], "as they are claimed"
        assert await listed("waiting", limit) == [8, 9, 10]
    assert await listed("finished", 2) == await listed("running", 2) == []
    await Worker(store, [mail]).drain()
    await store.cancel((await store.messages("mail", "waiting"))[0].id)
    for limit in (1, 3, 100):
        assert sorted(await listed("finished", limit)) == [*range(1, 9)]
    assert (await listed("finished", 4))[0] == 8, "the newest first"
    await store.enqueue(mail, 0)
    async with Worker(store, [mail], grace=0):
        await asyncio.wait_for(begun.wait(), 10)
        assert await listed("running", 1) == [0]
        leave.set()
    for wrong in ({"state": "dead"}, {"after": "1"}, {"after": "a.b.c"}, {"limit": 0}):
        with pytest.raises(InvalidOption):
            await store.messages("mail", **wrong)
    with pytest.raises(QueueNotFound):
        await store.messages("nobody")


async def _listed(store: Store, state: Any, limit: int) -> list[Any]:
    numbers: list[Any] = []
    after = None
    while True:
        page = await store.messages("mail", state, limit=limit, after=after)
        numbers += [task.input for task in page]
        if (after := page.next) is None:
            return numbers
