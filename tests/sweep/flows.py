"""Async workflows of every shape that a crash could disturb."""

import asyncio
from typing import Any

from stepwell import Context, PermanentError, StepFailed, TransientError, Trigger, current, sleep, step, workflow
from stepwell.runs.long_steps import SHOW_AFTER
from tests.sweep.ledger import note


@step
async def add(a: int, b: int) -> int:
    note()
    await asyncio.sleep(0)
    return a + b


@step(retry=3)
async def flaky(n: int) -> int:
    note()
    if current().attempt < 3:
        raise TransientError("not yet", retry_after="10m")
    return n


@step
async def tarry(n: int) -> int:
    """Takes so long that it is recorded as RUNNING first."""
    note()
    await asyncio.sleep(2 * SHOW_AFTER)
    return n


@step
async def charge(cents: int) -> str:
    note()
    raise PermanentError(f"no card takes {cents}")


@step
async def refund(cents: int) -> str:
    note()
    return f"refunded {cents}"


async def sequence(n: int) -> list[int]:
    first = await add(n, 1)
    second = await add(first, 10)
    return [first, second, await add(second, 100)]


async def hesitant(n: int) -> list[int]:
    """Waits, between its steps, for something outside the run."""
    first = await add(n, 1)
    await asyncio.sleep(0.003)
    second = await add(first, 10)
    await asyncio.sleep(0.003)
    return [first, second, await add(second, 100)]


async def nap(span: str, n: int) -> int:
    await sleep(span)
    return await add(n, 1000)


@workflow(name="sweep.linear")
async def linear(ctx: Context, n: int) -> list[str]:
    first = await add(n, 1)
    at = ctx.now()
    second = await add(first, 2)
    third = await ctx.step("plain", lambda: second * 2)
    return [str(third), at.isoformat()]


@workflow(name="sweep.loop")
async def loop(n: int) -> int:
    total = 0
    for number in range(n):
        total += await add(total, number)
        if total % 2:  # on data that is recorded
            total += await add(total, 1)
    return total


@workflow(name="sweep.gather_sequences")
async def gather_sequences(n: int) -> list[object]:
    return list(await asyncio.gather(sequence(n), sequence(2 * n), add(n, n)))


@workflow(name="sweep.gather_sleep")
async def gather_sleep(n: int) -> list[object]:
    return list(await asyncio.gather(nap("1h", n), hesitant(n)))


@workflow(name="sweep.group")
async def group(ctx: Context, n: int) -> list[object]:
    async with asyncio.TaskGroup() as tasks:
        napping = tasks.create_task(nap("2h", n))
        busy = tasks.create_task(sequence(n))
        single = tasks.create_task(add(n, 5))
    at = ctx.now()
    return [napping.result(), busy.result(), single.result(), await add(n, 7), at.isoformat()]


@workflow(name="sweep.retried")
async def retried(n: int) -> int:
    return await flaky(await add(n, 1)) + await add(n, 2)


@workflow(name="sweep.slow")
async def slow(n: int) -> int:
    return await tarry(n) + await add(n, 1)


@workflow(name="sweep.compensated")
async def compensated(cents: int) -> str:
    try:
        return await charge(cents)
    except StepFailed as failed:
        return f"{await refund(cents)}: {failed.message}"


@workflow(name="sweep.failed")
async def failed(cents: int) -> str:
    await add(cents, 1)
    return await charge(cents)


@workflow(name="sweep.nested")
async def nested(ctx: Context, n: int) -> list[object]:
    inner = await linear(ctx, n)
    return [inner, *await asyncio.gather(loop(2), loop(3)), await add(n, 1)]


@workflow(name="sweep.tidied")
async def tidied(ctx: Context, n: int) -> list[str]:
    began = ctx.now()
    try:
        await sleep("1h")
        done = await add(n, 1)
    finally:  # entered when the run is given back, too: nothing may come of it then
        ended = ctx.now()
        tidy = await refund(n)
    return [str(done), tidy, began.isoformat(), ended.isoformat()]


@workflow(name="sweep.again")
async def again(n: int) -> int:
    first = await add(n, 1)
    if current().attempt == 1:
        raise TransientError("the run is tried again", retry_after="5m")
    return await add(first, 1)


NOW = "2026-01-01T00:00:00+00:00"
FLOWS: tuple[tuple[Trigger[Any], object], ...] = (
    (linear.trigger(1), ["8", NOW]),
    (loop.trigger(3), 8),
    (gather_sequences.trigger(1), [[2, 12, 112], [3, 13, 113], 2]),
    (gather_sleep.trigger(1), [1001, [2, 12, 112]]),
    (group.trigger(1), [1001, [2, 12, 112], 6, 8, "2026-01-01T02:00:00+00:00"]),
    (retried.trigger(1), 5),
    (slow.trigger(1), 3),
    (compensated.trigger(300), "refunded 300: no card takes 300"),
    (failed.trigger(300), None),
    (nested.trigger(1), [["8", NOW], 3, 8, 2]),
    (tidied.trigger(1), ["2", "refunded 1", NOW, "2026-01-01T01:00:00+00:00"]),
    (again.trigger(1), 3),
)
