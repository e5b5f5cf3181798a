"""Values of several codecs: written by name, side by side, and read by whoever has the codec."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import (
    JSON,
    Compressed,
    Context,
    Engine,
    IdempotencyConflict,
    InvalidOption,
    PayloadTooLarge,
    RunStatus,
    Store,
    UnknownCodec,
    connect,
    register_codec,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.values import named_codecs
from stepwell.values.named_codecs import MessagePackCodec
from stepwell.values.stamp import read_value
from tests.codecs.shop import Coins, Order, Reversed, look, sell, take, take_typed, taken
from tests.deciders.workbench import Bench, Do, asked, labels
from tests.workflows.kit import begun, drained, executed, task_of

INPUTS = "select cast(input as text) as input from {task} order by id"
PHOTO = bytes(range(256))


@pytest.fixture(autouse=True)
def nothing_taken() -> None:
    taken.clear()


@pytest.fixture
async def packed(store_url: str, store: Store, clock: TestClock) -> AsyncIterator[Store]:
    """The same database, opened by a program that writes MessagePack; `memory:` has a database of its own."""
    async with connect(store_url, codec="msgpack", clock=clock) as opened:
        yield opened


@pytest.fixture
async def readers(store: Store, packed: Store, backend: str) -> list[Store]:
    """Programs that read what another has written, which takes a database that is shared."""
    return [packed] if backend in ("memory", "turso") else [store, packed]


async def stored(store: Store) -> list[Any]:
    return [json.loads(row["input"]) for row in await asked(store, INPUTS)]


@pytest.mark.proves("CO-01", "CO-02", "CO-05")
async def test_everything_a_run_stores_is_written_by_the_codec_and_read_by_any_program(
    packed: Store, readers: list[Store]
) -> None:
    run_id = await begun(packed, sell, Order("a", PHOTO), Coins(7))
    await drained(packed, sell)
    await packed.signal(run_id, "more", Order("b", PHOTO))
    await drained(readers[0], sell)
    looked = {"photo": PHOTO, "count": 2}
    assert taken[0] == (Order("a", PHOTO), looked, Coins(7))
    assert taken[-2:] == [(*taken[0][:2], Coins(7)), Order("b", PHOTO)], "bytes stay bytes, also where no type is named"
    for reader in readers:
        run = await reader.get_run(run_id)
        assert (run.status, run.output(Coins)) == (RunStatus.SUCCESS, Coins(8))
    row = (await stored(packed))[0]
    assert (row["order"]["$sw"], row["coins"]["$sw"]) == ({"c": "msgpack"}, {"c": "protobuf"})


@pytest.mark.proves("CO-02")
@pytest.mark.parametrize("value", [PHOTO, {"photo": PHOTO}, [1, None, "x"], {"a": 2**70}, 1.5, {"a": {"b": []}}, "ü"])
async def test_a_message_without_a_type_comes_back_as_it_was(packed: Store, value: Any) -> None:
    await packed.create_queue("orders")
    await packed.enqueue("orders", value, key="k")
    assert not (await packed.enqueue("orders", value, key="k")).created
    with pytest.raises(IdempotencyConflict):
        await packed.enqueue("orders", "other", key="k")
    await drained(packed, take)
    assert taken == [value]


@pytest.mark.proves("CO-05")
async def test_a_program_may_change_its_codec_and_change_it_back(
    store: Store, packed: Store, readers: list[Store]
) -> None:
    """An old row is read by a program with the new codec, and a new one by the program that was rolled back."""
    queues = [reader for reader in readers for _ in (0, 1)]
    for number, writer in enumerate(queues):
        await writer.create_queue("typed")
        await writer.enqueue("typed", Order(str(number), PHOTO))
    for reader in readers[::-1]:
        await drained(reader, take_typed, concurrency=1)
    assert sorted(taken, key=lambda order: str(order.id)) == [Order(str(n), PHOTO) for n in range(len(queues))]


@pytest.mark.proves("CO-01")
async def test_without_a_codec_a_row_is_plain_json(store: Store) -> None:
    await store.create_queue("orders")
    for value in ({"a": 1}, [1], "x", None):
        await store.enqueue("orders", value)
    assert [row["input"] for row in await asked(store, INPUTS)] == ['{"a":1}', "[1]", '"x"', "null"]


@pytest.mark.proves("CO-03")
async def test_a_message_of_protobuf_is_stored_whatever_the_codec_is(store: Store) -> None:
    @workflow
    async def double(coins: Coins) -> Coins:
        return Coins(2 * coins.cents)

    @workflow
    async def hear(ctx: Context) -> Coins:
        return await ctx.wait("more", Coins)

    assert (await executed(store, double, Coins(4))).output() == Coins(8)
    run_id = await begun(store, hear)
    await drained(store, hear)
    await store.signal(run_id, "more", Coins(3))
    await drained(store, hear)
    assert (await store.get_run(run_id)).output(Coins) == Coins(3)
    again = await sell.trigger(Order("a"), Coins(7)).options(key="k", require_worker="ignore").execute(store)
    same = await sell.trigger(Order("a"), Coins(7)).options(key="k", require_worker="ignore").execute(store)
    assert (again, same.created) == (same, False)
    with pytest.raises(IdempotencyConflict):
        await sell.trigger(Order("a"), Coins(6)).options(key="k").execute(store)


class Other(MessagePackCodec):
    name = "reversed"


@pytest.mark.proves("CO-04")
async def test_a_codec_of_the_user_writes_what_it_takes(store_url: str, store: Store, clock: TestClock) -> None:
    async with connect(store_url, codec=Reversed(), clock=clock) as opened:
        await opened.create_queue("orders")
        await opened.enqueue_many("orders", [{"a": 1}, 7, {"b": {1, 2}}])
        row, number, *_ = await stored(opened)
        assert (row["$sw"], number) == ({"c": "reversed"}, 7)
        await drained(opened, take)
    assert sorted(taken, key=str) == [7, {"a": 1}, {"b": {1, 2}}]
    with pytest.raises(InvalidOption, match="read by the name alone"):
        register_codec(Other())
    with pytest.raises(InvalidOption, match=r"there are json, .*msgpack"):
        await connect(store_url, codec="other")


@pytest.mark.proves("CO-05", "DP-06")
async def test_what_an_unknown_codec_has_written_is_left_to_other_code(
    packed: Store, monkeypatch: pytest.MonkeyPatch, clock: TestClock
) -> None:
    """The attempt is given back, people still see the row as it is stored, and code that has the codec goes on."""
    await packed.create_queue("typed")
    message = await packed.enqueue("typed", Order("a"))
    run_id = await begun(packed, sell, Order("a"), Coins(7))
    with monkeypatch.context() as patch:
        patch.delitem(named_codecs._codecs, "msgpack")
        await drained(packed, take_typed, sell)
        for task in (await packed.get(message), await task_of(packed, run_id)):
            assert task is not None
            assert (task.status, task.attempt) == (RunStatus.PENDING, 0), task.last_error
            assert "written by the codec msgpack" in str(task.last_error)
            assert "$sw" in json.dumps(task.input), "shown as it is stored"
        with pytest.raises(UnknownCodec):
            read_value('{"$sw":{"c":"msgpack"},"d":"Aw=="}', int)
    clock.advance("2m")
    await drained(packed, take_typed, sell)
    assert Order("a") in taken
    assert len(taken) == 2


@pytest.mark.proves("CO-01")
async def test_deciders_write_their_events_effects_and_inputs_by_the_codec(packed: Store) -> None:
    engine = Engine(packed).register(Bench())
    await engine.execute(Do("a", ask="mail", after=3600.0))
    await engine.submit(Do("a", label="later"))
    rows = await asked(packed, "select cast(data as text) as data from {event}")
    rows += await asked(packed, "select cast(input as text) as data from {task}")
    assert len(rows) == 4
    assert all('"c":"msgpack"' in row["data"] for row in rows)
    await drained(packed, engine)
    assert await labels(engine) == ["x", "later", "mail answered"]


@pytest.mark.proves("CO-01")
async def test_what_is_large_is_compressed_if_that_is_asked_for(store_url: str, store: Store, clock: TestClock) -> None:
    async with connect(store_url, codec=Compressed(JSON, over=100), clock=clock) as opened:
        await opened.create_queue("orders")
        texts = ["x" * 50, "x" * 5000]
        await opened.enqueue_many("orders", texts)
        small, large, *_ = await stored(opened)
        assert (small, large["$sw"]) == (texts[0], {"c": "json", "z": 5002})
        assert len(large["d"]) < 100
        with pytest.raises(PayloadTooLarge, match="limit"):
            await opened.enqueue("orders", "x" * 2_000_000)
        await drained(opened, take)
    assert sorted(taken) == texts


@pytest.mark.proves("CO-05")
async def test_people_see_values_of_every_codec_as_plain_json(packed: Store) -> None:
    run = await executed(packed, workflow(name="looks")(_looks))
    assert run.output() == {"photo": b"x", "count": 2}
    [one] = await packed.steps(run.id)
    assert one.output == {"photo": "eA==", "count": 2}
    by_name = await begun(packed, sell, Order("a", b"x"), Coins(7))
    shown = (await packed.get_run(by_name)).input()
    assert shown["order"]["id"] == "a"
    assert shown["coins"] == "CAc="


async def _looks() -> Any:
    return await look(Order("a", b"x"))


@pytest.mark.proves("CO-05")
async def test_the_dead_letter_workflow_is_told_the_input_as_plain_json(packed: Store) -> None:
    told: list[Any] = []

    @workflow(name="buried")
    async def bury(letter: Any) -> None:
        told.append(letter["input"])

    @workflow(name="failing", retry=1, dead_letter="buried")
    async def fail(order: Order) -> None:
        raise ValueError

    await begun(packed, fail, Order("a", b"x"))
    await drained(packed, fail, bury)
    assert told == [{"id": "a", "photo": "eA==", "at": "2026-01-02T03:04:05.000006Z"}]
