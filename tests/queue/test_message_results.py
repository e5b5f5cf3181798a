"""What the handler of a message returns, kept for those who ask for it when they enqueue."""

import asyncio
from dataclasses import dataclass

import pytest

from stepwell import (
    ExecutionFailed,
    InvalidOption,
    PermanentError,
    RunCancelled,
    RunNotFound,
    Store,
    Timeout,
    Worker,
    connect,
    handler,
    sync,
)
from tests.queue.raw import ask


@dataclass
class Sum:
    total: int
    parts: tuple[int, ...]


@handler("add")
async def add(parts: list[int]) -> Sum:
    if not parts:
        raise PermanentError("there is nothing to add")
    return Sum(sum(parts), tuple(parts))


@handler("double")
def double(n: int):  # type: ignore[no-untyped-def]
    return 2 * n


@handler("compute", executor="process")
def compute(n: int) -> Sum:
    return Sum(n, (n,))


@pytest.mark.proves("arrivals-07")
async def test_what_a_handler_returns_is_read_as_its_type(store: Store) -> None:
    kept = await store.enqueue(add, [1, 2], result=True)
    many = await store.enqueue_many(double, [3, 4], keys=["a", "b"], result=True)
    forgotten = await store.enqueue(add, [5])
    with pytest.raises(Timeout):
        await store.result(kept, timeout=0)
    await Worker(store, [add, double]).drain()
    assert await store.result(kept, timeout=10) == Sum(3, (1, 2))
    assert await store.result(kept, dict, timeout=10) == {"total": 3, "parts": [1, 2]}
    assert [await store.result(one, timeout=10) for one in many] == [6, 8]
    with pytest.raises(RunNotFound) as caught:
        await store.result(forgotten, timeout=0)
    assert "`result=True`" in caught.value.__notes__[0]
    assert await ask(store, f"select output from {{task}} where id = {forgotten}") == [(None,)]


@pytest.mark.proves("arrivals-07")
async def test_a_message_that_failed_or_was_cancelled_says_so(store: Store) -> None:
    failed, cancelled = await store.enqueue(add, [], result=True), await store.enqueue(add, [1], result=True)
    await store.cancel(cancelled, reason="not needed")
    await Worker(store, [add]).drain()
    told = rf"message {failed:d} failed with .*there is nothing to add; `store.requeue\({failed:d}\)` tries it again"
    with pytest.raises(ExecutionFailed, match=told):
        await store.result(failed, timeout=10)
    with pytest.raises(RunCancelled, match=f"message {cancelled:d} was cancelled; enqueue it again"):
        await store.result(cancelled, timeout=10)


@pytest.mark.proves("arrivals-07")
async def test_who_waits_beside_the_worker_is_told_how_a_message_is_tried_again(live_store: Store) -> None:
    async with Worker(live_store, [add]):
        failed = await live_store.enqueue(add, [], result=True)
        with pytest.raises(ExecutionFailed, match=f"`store.requeue.{failed:d}.` tries it again"):
            await live_store.result(failed, timeout=10)


@pytest.mark.proves("arrivals-07")
async def test_who_waits_is_told_when_the_handler_returns(live_store: Store) -> None:
    async with Worker(live_store, [add, compute]):
        message = await live_store.enqueue(add, [1, 1], key="k", unique="waiting", result=True)
        computed = await live_store.enqueue(compute, 7, result=True)
        added, same = await asyncio.gather(live_store.result(message, Sum), live_store.result(computed, Sum))
    assert (added, same) == (Sum(2, (1, 1)), Sum(7, (7,)))


@pytest.mark.proves("arrivals-07")
async def test_a_batch_returns_nothing_of_each(store: Store) -> None:
    @handler("many", batch=3)
    async def many(numbers: list[int]) -> int:
        return sum(numbers)

    with pytest.raises(InvalidOption, match="several messages at once"):
        await store.enqueue(many, 1, result=True)
    message = await store.enqueue("many", 1, result=True) if await _made(store) else None
    await Worker(store, [many]).drain()
    assert message is not None
    assert await store.result(message, timeout=10) is None


@pytest.mark.proves("arrivals-07")
async def test_what_cannot_be_kept_fails_the_message(store: Store) -> None:
    @handler("odd", retry=1)
    async def odd(n: int) -> object:
        return object()

    asked, unasked = await store.enqueue(odd, 1, result=True), await store.enqueue(odd, 1)
    await Worker(store, [odd]).drain()
    statuses = dict(await ask(store, "select id, status from {task}"))
    assert statuses == {asked: "ERROR", unasked: "SUCCESS"}


@pytest.mark.backends("sqlite", "postgres", "turso", reason="the sync face opens the store again")
@pytest.mark.proves("arrivals-07")
def test_a_sync_program_gets_it_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        message = store.enqueue(double, 21, result=True)
        sync.Worker(store, [double]).drain()
        assert store.result(message, int, timeout=10) == 42


@pytest.mark.proves("arrivals-07")
async def test_it_is_kept_for_another_process(store_url: str, backend: str) -> None:
    async with connect(store_url) as store:
        message = await store.enqueue(add, [4], result=True)
        await Worker(store, [add]).drain()
        other = store if backend == "turso" else await connect(store_url)
        assert await other.result(int(message), Sum, timeout=10) == Sum(4, (4,))
        await other.close()


async def _made(store: Store) -> bool:
    await store.create_queue("many")
    return True
