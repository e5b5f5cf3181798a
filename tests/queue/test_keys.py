"""Keys: one task for one key, whoever asks and however often."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pydantic
import pytest

from stepwell import IdempotencyConflict, PermanentError, Store, Worker, connect, handler
from stepwell.base.clock import TestClock
from tests.ground.processes import Crew, wait_for
from tests.queue.raw import ask, change

ROOT = Path(__file__).parents[2]


@handler("mail")
async def send(to: Any) -> None: ...


@pytest.mark.proves("PR-05")
async def test_a_key_that_is_taken_adds_no_row_and_names_the_first(store: Store, store_url: str) -> None:
    first = await store.enqueue(send, {"to": "ann", "n": 1}, key="order-1")
    again = await store.enqueue(send, {"n": 1, "to": "ann"}, key="order-1", priority=9, delay="1h")
    async with connect(store_url) as other:
        elsewhere = await other.enqueue("mail", {"to": "ann", "n": 1}, key="order-1")
    assert (first.created, again.created, elsewhere.created) == (True, False, False)
    assert first == again == elsewhere
    task = await store.get(first)
    assert task is not None
    assert (task.key, task.priority, task.ready) == ("order-1", 0, True)
    assert await store.counts("mail") == {"PENDING": 1}
    await store.create_queue("other")
    assert (await store.enqueue("other", {"to": "ann", "n": 1}, key="order-1")).created


async def test_a_key_lives_as_long_as_its_row(store: Store) -> None:
    first = await store.enqueue(send, "ann", key="once")
    await Worker(store, [send]).drain()
    assert await store.counts("mail") == {"SUCCESS": 1}
    again = await store.enqueue(send, "ann", key="once")
    assert (again, again.created) == (first, False)
    assert await Worker(store, [send]).drain() == 0
    await change(store, "update {task} set deleted_at = 1")
    assert (await store.enqueue(send, "ann", key="once")).created


@pytest.mark.proves("PR-06")
async def test_fifty_at_once_through_two_stores_make_one_task(store_url: str) -> None:
    async with connect(store_url) as one, connect(store_url) as two:
        await one.create_queue("mail")
        asked = [(one, two)[number % 2].enqueue("mail", {"n": 1}, key="k") for number in range(50)]
        ids = await asyncio.gather(*asked)
        assert len(set(ids)) == 1
        assert sum(each.created for each in ids) == 1
        assert await ask(one, "select count(*) from {task}") == [(1,)]


@pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process")
@pytest.mark.proves("PR-06")
async def test_fifty_at_once_from_two_processes_make_one_task(store_url: str, tmp_path: Path) -> None:
    (tmp_path / "asker.py").write_text(
        "import asyncio, json, os, sys, time, stepwell\n"
        "async def main():\n"
        "    async with stepwell.connect(sys.argv[1]) as store:\n"
        "        print('ready', flush=True)\n"
        "        while not os.path.exists(sys.argv[2]): time.sleep(0.001)\n"
        "        ids = await asyncio.gather(*(store.enqueue('mail', 1, key='k') for _ in range(50)))\n"
        "        print(json.dumps([[int(each), each.created] for each in ids]), flush=True)\n"
        "asyncio.run(main())\n"
    )
    go = tmp_path / "go"
    env = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(tmp_path)])}
    async with connect(store_url) as store:
        await store.create_queue("mail")
    with Crew("asker", store_url, str(go), size=2, folder=tmp_path, cwd=tmp_path, env=env) as crew:
        wait_for(lambda: all("ready" in member.stdout.read_text() for member in crew.members), 30)
        go.touch()
        wait_for(lambda: not crew.alive, 30)
        assert [member.process.returncode for member in crew.members] == [0, 0], crew.complaints()
        answers = [pair for member in crew.members for pair in json.loads(member.stdout.read_text().splitlines()[1])]
    assert len(answers) == 100
    assert len({task_id for task_id, _ in answers}) == 1
    assert sum(created for _, created in answers) == 1


@pytest.mark.proves("PR-07")
async def test_messages_without_a_key_never_conflict(store: Store) -> None:
    ids = await asyncio.gather(*(store.enqueue(send, "same") for _ in range(20)))
    many = await store.enqueue_many(send, ["same"] * 20)
    assert len({*ids, *many}) == 40
    assert all(each.created for each in (*ids, *many))
    assert await store.counts("mail") == {"PENDING": 40}


@pytest.mark.proves("PR-08")
async def test_another_payload_under_the_same_key_is_a_conflict(store: Store) -> None:
    first = await store.enqueue(send, {"n": 1}, key="k")
    for other in ({"n": 2}, {"n": "1"}, {}, None):
        with pytest.raises(
            IdempotencyConflict, match=r"key 'k' in 'mail' belongs to task \d+, which has another"
        ) as caught:
            await store.enqueue(send, other, key="k")
        assert (caught.value.queue, caught.value.key, caught.value.existing) == ("mail", "k", first)
    await Worker(store, [send]).drain()
    with pytest.raises(IdempotencyConflict):
        await store.enqueue(send, {"n": 2}, key="k")
    assert await ask(store, "select count(*) from {task}") == [(1,)]


class Mail(pydantic.BaseModel):
    to: set[int]


@handler("mails")
async def post(mail: Mail) -> None: ...


@pytest.mark.proves("PR-05", "PR-08")
async def test_a_set_in_another_order_is_the_same_payload(store: Store) -> None:
    one, two = set((0, 8)), set((8, 0))  # noqa: C405 - these keep the order of their making, as texts do that of a seed
    assert list(one) != list(two)
    first = await store.enqueue(post, Mail(to=one), key="k")
    assert (await store.enqueue(post, Mail(to=two), key="k")) == first
    for created, numbers in ((True, one), (False, two)):
        mixed: list[Any] = [[{None, *numbers}, numbers], Mail(to=numbers)]
        ids = await store.enqueue_many("mails", mixed, keys=["mixed", "k"])
        assert [each.created for each in ids] == [created, False]
    with pytest.raises(IdempotencyConflict):
        await store.enqueue(post, Mail(to={8, 1}), key="k")
    payloads = [message.payload for message in await store.dequeue("mails", 2)]
    assert payloads[0] == {"to": [0, 8]}, "what is stored stays as it was given"


async def test_of_a_crowd_with_two_payloads_one_payload_wins_for_all(store: Store) -> None:
    await store.create_queue("mail")
    asked = [store.enqueue("mail", number % 2, key="k") for number in range(40)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(each, IdempotencyConflict) for each in answers) == 20
    assert len({each for each in answers if isinstance(each, int)}) == 1
    assert await ask(store, "select count(*) from {task}") == [(1,)]


async def test_a_key_unique_while_unfinished_is_free_again_afterwards(store: Store, clock: TestClock) -> None:
    first = await store.enqueue(send, "ann", key="sync", unique="unfinished", delay="1m")
    assert await store.enqueue(send, "ann", key="sync", unique="unfinished") == first
    with pytest.raises(IdempotencyConflict):
        await store.enqueue(send, "bob", key="sync", unique="unfinished")
    clock.advance("1m")
    await Worker(store, [send]).drain()
    second = await store.enqueue(send, "bob", key="sync", unique="unfinished")
    assert second.created
    assert second != first
    await Worker(store, [send]).drain()
    assert await store.counts("mail") == {"SUCCESS": 2}


async def test_a_dead_letter_gives_up_a_key_that_is_unique_while_unfinished(store: Store) -> None:
    @handler("dead")
    async def die(to: str) -> None:
        raise PermanentError("no")

    first = await store.enqueue(die, "a", key="k", unique="unfinished")
    kept = await store.enqueue(die, "b", key="other")
    await Worker(store, [die]).drain()
    second = await store.enqueue(die, "a", key="k", unique="unfinished")
    assert second.created
    assert await store.requeue(first) == 0  # its key belongs to another unfinished one by now
    assert await store.requeue(kept) == 1
    task = await store.get(first)
    assert task is not None
    assert task.status == "ERROR"


async def test_a_batch_with_keys_finds_what_is_there(store: Store) -> None:
    old = await store.enqueue(send, 2, key="b")
    ids = await store.enqueue_many(send, [1, 2, 3, 1], keys=["a", "b", "c", "a"])
    assert [each.created for each in ids] == [True, False, True, False]
    assert ids[1] == old
    assert ids[0] == ids[3]
    assert await store.counts("mail") == {"PENDING": 3}


async def test_a_batch_with_a_conflicting_key_writes_nothing(store: Store) -> None:
    await store.enqueue(send, 2, key="b")
    with pytest.raises(IdempotencyConflict):
        await store.enqueue_many(send, [1, "another", 3], keys=["a", "b", "c"])
    with pytest.raises(IdempotencyConflict):
        await store.enqueue_many(send, [1, "another"], keys=["x", "x"])
    assert await store.counts("mail") == {"PENDING": 1}


async def test_keys_may_hold_any_text(store: Store) -> None:
    keys = ["a b/c", "'; --", "é😀", "\x1f", "k" * 255, ",", "NULL", "\n"]
    ids = [await store.enqueue(send, number, key=key) for number, key in enumerate(keys)]
    again = await store.enqueue_many(send, range(len(keys)), keys=keys)
    assert again == ids
    assert [task.key for each in ids if (task := await store.get(each))] == keys
    with pytest.raises(IdempotencyConflict):
        await store.enqueue(send, "x", key="é😀")
    assert (await store.enqueue(send, "x", key="e\u0301😀")).created  # looks the same, is another text
