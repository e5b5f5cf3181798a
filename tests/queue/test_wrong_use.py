"""A store used after its end, from another loop or after a fork says so instead of hanging."""

import asyncio
import inspect
import os
import threading
import warnings
from typing import Any

import pytest

from stepwell import (
    ForkError,
    InvalidName,
    InvalidOption,
    Store,
    StoreClosed,
    Worker,
    WrongLoop,
    connect,
    connect_with,
    handler,
)
from stepwell.connect import Config, ConnectOptions, configured


@handler("mail")
async def send(number: int) -> None: ...


def uses(store: Store) -> list[Any]:
    return [
        lambda: store.create_queue("mail"),
        lambda: store.enqueue("mail", 1),
        lambda: store.enqueue(send, 1, key="k"),
        lambda: store.enqueue_many("mail", [1]),
        lambda: store.get(1),
        store.queues,
        lambda: store.counts("mail"),
        store.workers,
        store.dead_letters,
        lambda: store.requeue(1),
        lambda: store.drop(1),
        lambda: Worker(store, [send]).drain(),
        lambda: Worker(store, [send]).run(),
        lambda: Worker(store, [send]).__aenter__(),
    ]


async def test_after_closing(store_url: str) -> None:
    store = await connect(store_url)
    await store.create_queue("mail")
    await store.close()
    await store.close()
    for use in uses(store):
        with pytest.raises(StoreClosed, match=r"this store is closed|This store is closed"):
            await use()


async def test_on_another_loop(store: Store) -> None:
    await store.create_queue("mail")
    raised: list[BaseException] = []

    async def elsewhere() -> None:
        for use in uses(store):
            try:
                await use()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
                raised.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    await asyncio.to_thread(thread.join, 30)
    assert [type(error) for error in raised] == [WrongLoop] * len(uses(store))
    await store.enqueue("mail", 1)  # here it still works


async def test_after_a_fork(store: Store) -> None:
    await store.create_queue("mail")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of forks with threads: that is what is tested
        child = os.fork()
    if child == 0:
        raised = 0
        for use in uses(store):
            try:
                use().send(None)
            except ForkError:
                raised += 1
            except BaseException:  # noqa: BLE001 - the child must end here, whatever happens
                os._exit(99)
        os._exit(raised)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == len(uses(store))
    await store.enqueue("mail", 1)
    assert await store.counts("mail") == {"PENDING": 1}


@pytest.mark.proves("CF-01")
async def test_a_store_is_awaited_entered_or_described(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await connect(store_url)
    await store.create_queue("a")
    await store.close()
    async with connect(store_url) as entered:
        await entered.create_queue("b")
    async with await connect(store_url) as both:
        await both.create_queue("c")
    async with connect_with(Config(store_url, lease=7)) as described:
        assert described.database.options.lease == 7
        assert [queue.name for queue in await described.queues()] == ["a", "b", "c"]
    monkeypatch.setenv("STEPWELL_URL", store_url)
    async with connect() as named:
        assert len(await named.queues()) == 3
    with pytest.raises(StoreClosed):
        await named.queues()


@pytest.mark.proves("B-01")
async def test_the_same_program_runs_wherever_the_url_says(store_url: str, backend: str) -> None:
    done: list[int] = []

    @handler("mail")
    async def work(number: int) -> None:
        done.append(number)

    async with connect(store_url) as store:
        await store.enqueue_many(work, [1, 2, 3])
        async with Worker(store, [work]) as worker:
            await asyncio.wait_for(worker.drain(), 30)
        assert await store.counts("mail") == {"SUCCESS": 3}
        assert store.database.driver.name == backend
    assert sorted(done) == [1, 2, 3]


async def test_memory_is_a_store_of_its_own() -> None:
    async with connect("memory:") as one, connect("memory:") as two:
        await one.enqueue(send, 1)
        assert await two.queues() == []
        assert await Worker(one, [send]).drain() == 1


async def test_ordinary_mistakes_are_refused_with_what_to_do(store: Store) -> None:
    @handler("mail")
    async def send(to: str) -> None: ...

    for payloads in ({"a": 1}, "abc", b"abc", None, 5):
        with pytest.raises(InvalidOption, match="payloads"):
            await store.enqueue_many("mail", payloads)  # type: ignore[arg-type]
    for keys in ({"a", "b"}, {"a": 1, "b": 2}, "ab", iter("ab")):
        with pytest.raises(InvalidOption, match="keys"):
            await store.enqueue_many(send, ["x", "y"], keys=keys)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="handles mail already"):
        handler("other")(send)
    with pytest.raises(InvalidOption, match="timeout"):
        handler("other", timeout=0)
    with pytest.raises(InvalidOption, match="limits"):
        Worker(store, [send], limits=[1])  # type: ignore[arg-type]
    for wrong in (5, send):
        for verb in (store.pause_queue, store.resume_queue, store.delete_queue):
            with pytest.raises(InvalidName):
                await verb(wrong)  # type: ignore[arg-type]


def test_options_that_there_are_not_and_empty_addresses_are_refused() -> None:
    with pytest.raises(InvalidOption, match="options are schema, install, lease"):
        configured("memory:", {"leese": 3})  # type: ignore[typeddict-unknown-key]
    wrong: list[Any] = [{"pool": 10.7}, {"pool": True}, {"retry": 2.9}, {"payload_limit": 1.5}]
    for options in wrong:
        with pytest.raises(InvalidOption):
            configured("memory:", options)
    with pytest.raises(InvalidOption, match="STEPWELL_URL"):
        configured("", {})
    assert set(ConnectOptions.__annotations__) == set(inspect.signature(Config).parameters) - {"url"}


def test_a_functions_own_attributes_do_not_become_the_handlers() -> None:
    async def send(to: str) -> None: ...

    send.queue = "evil"  # type: ignore[attr-defined]
    made = handler("good")(send)
    assert (made.queue, made.__name__) == ("good", "send")  # type: ignore[attr-defined]
