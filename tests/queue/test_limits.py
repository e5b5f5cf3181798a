"""What somebody could make too large: payloads, what they nest, names, pages and errors; each has its limit."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepwell import (
    Context,
    Engine,
    InvalidName,
    InvalidOption,
    PayloadTooLarge,
    PermanentError,
    SerializationError,
    Store,
    Worker,
    connect,
    handler,
    workflow,
)
from tests.deciders.workbench import Bench, Do, count
from tests.queue.raw import everything_written

LIMIT = 1_048_576
DEEPEST = 200
LONGEST_NAME = 255
LONGEST_ERROR = 65_536

Door = Callable[[Any], Awaitable[object]]


@handler("mail", retry=1)
async def mail(size: int) -> None:
    raise PermanentError("x" * size)


@workflow
async def work(ctx: Context, payload: Any) -> Any:
    return await ctx.wait("word")


@workflow(retry=1)
async def returns(ctx: Context, size: int, in_step: bool) -> str:
    return await ctx.step("large", lambda: "x" * size, returns=str) if in_step else "x" * size


@workflow(retry=1)
async def fails(ctx: Context, size: int) -> None:
    raise PermanentError("x" * size)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


async def doors(store: Store) -> dict[str, Door]:
    """Every way by which a value of a caller's comes in."""
    run_id = await work.trigger(0).options(require_worker="ignore").execute(store)
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a"))
    return {
        "message": lambda value: store.enqueue("letters", value),
        "messages": lambda value: store.enqueue_many("letters", [value]),
        "run": lambda value: work.trigger(value).options(require_worker="ignore").execute(store),
        "signal": lambda value: store.signal(run_id, "word", value),
        "resume": lambda value: store.resume(run_id, "word", value),
        "input": lambda value: engine.submit(Do("a", value)),
        "event": lambda value: engine.execute(Do("a", value)),
    }


@pytest.mark.proves("security-09")
@pytest.mark.parametrize("limit", [LIMIT, 1000], ids=["as it is", "as it is said"])
async def test_what_is_too_large_or_too_deep_is_refused_at_every_door(store_url: str, limit: int) -> None:
    options: Any = {} if limit == LIMIT else {"payload_limit": limit}
    async with connect(store_url, **options) as store:
        await store.create_queue("letters")
        ways = await doors(store)
        before = await _written(store)
        for name, door in ways.items():
            with pytest.raises(PayloadTooLarge, match=f"the limit is {limit}"):
                await door("x" * limit)
            with pytest.raises(SerializationError):
                await door(nested(DEEPEST + 1))
            assert await _written(store) == before, name
        assert await store.enqueue("letters", "x" * (limit - 2))
        assert await store.enqueue("letters", nested(DEEPEST))


async def _written(store: Store) -> tuple[int, ...]:
    return (*await everything_written(store), await count(store, "signal"), await count(store, "event"))


@pytest.mark.proves("security-09")
async def test_a_result_that_is_too_large_fails_and_is_not_stored(store: Store) -> None:
    for in_step in (True, False):
        run_id = await returns.trigger(LIMIT, in_step).options(require_worker="ignore").execute(store)
        await Worker(store, [returns]).drain()
        run = await store.get_run(run_id)
        assert (run.status, "the limit is 1048576" in str(run.last_error)) == ("ERROR", True)
        assert len(json.dumps(run.error)) < LONGEST_ERROR


@pytest.mark.proves("security-09")
async def test_the_text_of_an_error_is_cut_with_a_mark(store: Store) -> None:
    message = await store.enqueue(mail, 3_000_000)
    run_id = await fails.trigger(3_000_000).options(require_worker="ignore").execute(store)
    await Worker(store, [mail, fails]).drain()
    for failed in (await store.get(message), await store.get_run(run_id)):
        assert failed is not None
        assert failed.error is not None
        text = failed.error["message"]
        assert len(text.encode()) <= LONGEST_ERROR
        assert text.endswith(" ... (cut, 3000000 characters in all)")
        assert len(failed.last_error or "") <= 500


def named(store: Store, run_id: int) -> dict[str, Door]:
    """Every way by which somebody chooses a name."""
    engine = Engine(store).register(Bench())

    async def of_a_workflow(name: str) -> object:
        async def fn() -> None: ...

        return await workflow(name=name)(fn).trigger().options(require_worker="ignore").execute(store)

    return {
        "queue": store.create_queue,
        "workflow": store.create_workflow,
        "workflow of a function": of_a_workflow,
        "key": lambda name: store.enqueue("letters", 1, key=name),
        "tag": lambda name: store.enqueue("letters", 1, tags=[name]),
        "signal": lambda name: store.signal(run_id, name),
        "instance": lambda name: engine.execute(Do(name)),
        "key of an input": lambda name: engine.execute(Do("a"), key=name),
        "reason": lambda name: store.pause(run_id, reason=name),
    }


@pytest.mark.proves("security-09")
async def test_a_name_is_limited_wherever_one_is_chosen(store: Store) -> None:
    await store.create_queue("letters")
    run_id = await work.trigger(0).options(require_worker="ignore").execute(store)
    for door in named(store, run_id).values():
        await door("n" * LONGEST_NAME)
        with pytest.raises(InvalidName, match=str(LONGEST_NAME)):
            await door("n" * (LONGEST_NAME + 1))


@pytest.mark.proves("security-09")
async def test_a_page_is_limited(store: Store) -> None:
    pages: list[Any] = [store.runs, store.dead_letters, Engine(store).instances]
    for page in pages:
        assert list(await page(limit=10_000)) == []
        for limit in (0, 10_001):
            with pytest.raises(InvalidOption, match="between 1 and 10000"):
                await page(limit=limit)
