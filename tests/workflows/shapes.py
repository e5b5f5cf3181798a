"""Workflows that wait in one place and work in another, in every shape that asyncio and anyio offer.

Each notes what it does in `log`, sleeps for a minute in one of its branches and has a step beside or after that.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio

from stepwell import Context, Workflow, current, sleep, step, workflow

log: list[str] = []
released = asyncio.Event()
limit = asyncio.Semaphore(0)  # one for all the runs of a process


@step
async def work(what: str) -> str:
    """A body that lets others have their turn."""
    for _ in range(3):
        await asyncio.sleep(0)
    log.append(what)
    return what


async def sequence(name: str, length: int = 3) -> list[str]:
    """Several steps, one after the other."""
    return [await work(f"{name} {number}") for number in range(1, length + 1)]


async def nap(name: str) -> str:
    """A durable minute, and a step after it."""
    await sleep(60)
    return await work(f"{name} awake")


@workflow(name="linear")
async def linear() -> list[str]:
    return [*await sequence("linear", 1), await nap("linear")]


@workflow(name="gather")
async def gather() -> Any:
    return await asyncio.gather(nap("gather"), sequence("gather"))


@step
async def parts() -> str:
    """A body with tasks of its own, which are nothing to the run."""
    run, more = current()._run, 5
    while more:
        await asyncio.gather(asyncio.sleep(0), asyncio.create_task(asyncio.sleep(0)))
        more -= len(run._parked)  # the sleeper beside it waits, and for a while it alone
    log.append("inside 1")
    return "inside 1"


@workflow(name="inside")
async def inside() -> Any:
    return await asyncio.gather(nap("inside"), parts())


@workflow(name="group")
async def group() -> list[Any]:
    async with asyncio.TaskGroup() as tasks:
        beside = [tasks.create_task(nap("group")), tasks.create_task(sequence("group"))]
    return [task.result() for task in beside]


@workflow(name="anyio")
async def anyio_group() -> list[Any]:
    found: list[Any] = []

    async def kept(part: Any) -> None:
        found.append(await part)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kept, nap("anyio"))
        tasks.start_soon(kept, sequence("anyio"))
    return found


@workflow(name="lock")
async def lock() -> list[Any]:
    few = asyncio.Lock()

    async def in_turn(part: Callable[..., Any], *given: Any) -> Any:
        async with few:
            return await part(*given)

    parts = in_turn(sequence, "lock", 2), in_turn(nap, "lock"), in_turn(work, "lock 4")
    return list(await asyncio.gather(*parts))


@workflow(name="shared")
async def shared() -> Any:
    async def from_outside() -> str:
        async with limit:
            return await work("shared released")

    return await asyncio.gather(nap("shared"), from_outside())


@workflow(name="handle")
async def handle() -> list[Any]:
    found: list[Any] = []
    async with anyio.create_task_group() as tasks:
        beside = [tasks.create_task(nap("handle")), tasks.create_task(sequence("handle"))]
        found += [await one for one in beside]
    return found


@workflow(name="scope")
async def scope() -> list[Any]:
    with anyio.fail_after(3600):
        before = await work("scope 1")
        return [before, await nap("scope")]


@workflow(name="exceptions")
async def exceptions() -> Any:
    return await asyncio.gather(nap("exceptions"), sequence("exceptions"), return_exceptions=True)


@workflow(name="wait")
async def wait() -> list[Any]:
    beside = [asyncio.create_task(nap("wait")), asyncio.create_task(sequence("wait"))]
    await asyncio.wait(beside)
    return [task.result() for task in beside]


@workflow(name="completed")
async def completed() -> list[Any]:
    beside = [asyncio.create_task(nap("completed")), asyncio.create_task(sequence("completed"))]
    return [await one for one in asyncio.as_completed(beside)][::-1]


@workflow(name="nested")
async def nested() -> Any:
    async def inner() -> Any:
        return await asyncio.gather(nap("nested"), sequence("nested", 2))

    async def outer() -> Any:
        found, _ = await asyncio.gather(inner(), sequence("outer", 2))
        return found

    return await asyncio.gather(outer(), sequence("outermost", 2))


@workflow(name="timeout")
async def timeout() -> list[Any]:
    async with asyncio.timeout(3600):
        before = await work("timeout 1")
        return [before, await nap("timeout")]


@workflow(name="wait_for")
async def wait_for() -> list[Any]:
    before = await asyncio.wait_for(work("wait_for 1"), 3600)
    return [before, await asyncio.wait_for(nap("wait_for"), 3600)]


@workflow(name="finally")
async def finally_() -> list[str]:
    try:
        return [await nap("finally")]
    finally:
        await work("finally refunded")


@workflow(name="swallow")
async def swallow(ctx: Context) -> list[str]:
    for _ in range(2):
        try:
            await ctx.sleep(60)
            break
        except BaseException:  # noqa: BLE001 - that is the point
            pass
    with contextlib.suppress(asyncio.CancelledError):
        await work("swallow awake")
    return ["swallow awake"]


@contextlib.asynccontextmanager
async def account() -> AsyncIterator[None]:
    """Opens with a step, and closes with one."""
    await work("account opened")
    try:
        yield
    finally:
        await work("account closed")


@workflow(name="context")
async def context() -> list[str]:
    async with account():
        return [await nap("context")]


@workflow(name="outside")
async def outside() -> Any:
    async def from_outside() -> str:
        await released.wait()
        return await work("outside released")

    return await asyncio.gather(nap("outside"), from_outside())


SHAPES: tuple[Workflow[..., Any], ...] = (
    linear,
    gather,
    inside,
    group,
    lock,
    shared,
    anyio_group,
    handle,
    scope,
    exceptions,
    wait,
    completed,
    nested,
    timeout,
    wait_for,
    finally_,
    swallow,
    context,
    outside,
)
BEFORE = {
    "linear": ["linear 1"],
    "inside": ["inside 1"],
    "nested": ["nested 1", "nested 2", "outer 1", "outer 2", "outermost 1", "outermost 2"],
    "timeout": ["timeout 1"],
    "scope": ["scope 1"],
    "wait_for": ["wait_for 1"],
    "finally": [],
    "swallow": [],
    "context": ["account opened"],
    "outside": ["outside released"],
    "lock": ["lock 1", "lock 2"],
    "shared": ["shared released"],
}
AFTER = {
    "finally": ["finally awake", "finally refunded"],
    "context": ["context awake", "account closed"],
    "lock": ["lock awake", "lock 4"],
}
FROM_OUTSIDE = ("outside", "shared")  # wait for something that is not theirs
