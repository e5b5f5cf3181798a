"""Workflows that wait for signals and other runs, race, pause and are cancelled, and that a crash could disturb.

Nobody but time stands outside a sweep, so they send their own signals: a step does, with its key, which is the same in
every attempt.
"""

import asyncio
from typing import Any

from stepwell import (
    Context,
    ExecutionFailed,
    Paused,
    PermanentError,
    Run,
    RunCancelled,
    Trigger,
    condition,
    current,
    shield,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.store.audit import By
from tests.sweep.ledger import note


@step
async def add(a: int, b: int) -> int:
    note()
    await asyncio.sleep(0)
    return a + b


@step
async def tell(name: str, data: int) -> None:
    note()
    ctx = current()
    await ctx._run.slot.database.signals.send(ctx.run_id, name, data, ctx.key, check=True, tx=None)


@step
async def stop(run_id: int) -> None:
    note()
    await current()._run.slot.database.control.cancel(run_id, By(reason="it is not needed any more"))


async def resign(ctx: Context) -> None:
    """Cancel the run from its body: a step that cancelled it would be recorded or not, by when the worker is lost."""
    await ctx._run.slot.database.control.cancel(ctx.run_id, By(reason="it is not needed any more"))


@condition("sweep.met")
async def met(run: Run[Any]) -> int:
    return 40


@step
async def aside(n: int) -> int:
    note()
    raise Paused("not yet", resume_condition="sweep.met")


async def nap(span: str, n: int) -> int:
    await sleep(span)
    return await add(n, 1000)


@workflow(name="sweep.waiting.child")
async def child(n: int) -> int:
    await sleep("10m")
    if n == 13:
        raise PermanentError("unlucky")
    return await add(n, n)


@workflow(name="sweep.waiting.signalled")
async def signalled(ctx: Context, n: int) -> list[int]:
    await tell("early", n)
    first = await ctx.wait("early", int)
    _, second, third = await asyncio.gather(tell("word", n + 1), ctx.wait("word", int), add(n, 2))
    return [first, second, third]


@workflow(name="sweep.waiting.timed_out")
async def timed_out(ctx: Context, n: int) -> list[object]:
    async with asyncio.TaskGroup() as group:
        late = group.create_task(ctx.wait("never", int, timeout="2h", default=-1))
        busy = group.create_task(nap("1h", n))
    return [late.result(), busy.result(), await ctx.wait("never", timeout="1h"), await add(n, 1)]


@workflow(name="sweep.waiting.raced")
async def raced(ctx: Context, n: int) -> list[object]:
    first = await ctx.race(nap("1h", n), ctx.wait("stop"), nap("2h", n))
    await tell("go", n)
    second = await ctx.race(ctx.sleep("1h"), ctx.wait("go", int))
    return [*first, *second, await add(n, 1)]


@workflow(name="sweep.waiting.parent")
async def parent(ctx: Context, n: int) -> list[object]:
    one = await child.trigger(n).wait().execute(ctx)
    ids = await ctx.trigger_many([child.trigger(number) for number in range(3)])
    several = await ctx.results(ids)
    both = await asyncio.gather(child.trigger(7).wait().execute(ctx), nap("5m", n))
    return [one, several, both]


@workflow(name="sweep.waiting.bereaved")
async def bereaved(ctx: Context, n: int) -> list[str]:
    told = []
    lost = await child.trigger(n).execute(ctx)
    await stop(int(lost))
    try:
        await ctx.results([lost])
    except RunCancelled as error:
        told.append(str(error.error and error.error["message"]))
    try:
        await child.trigger(13).wait().execute(ctx)
    except ExecutionFailed as error:
        told.append(str(error.error and error.error["message"]))
    place, _ = await ctx.race(child.trigger(n).wait().execute(ctx), ctx.sleep("5m"))
    return [*told, str(place), str(await add(n, 1))]


@workflow(name="sweep.waiting.resigned")
async def resigned(ctx: Context, n: int) -> int:
    total = await add(n, 1)
    await resign(ctx)
    return await add(total, 1)


@workflow(name="sweep.waiting.set_aside")
async def set_aside(n: int) -> int:
    return sum(await asyncio.gather(aside(n), nap("2h", n), add(n, 1)))


@workflow(name="sweep.waiting.sync")
def in_a_thread(ctx: sync.Context, n: int) -> list[object]:
    ctx.step(tell, "word", n)
    ids = ctx.trigger_many([child.trigger(n)])
    late = ctx.wait("never", timeout="1h", default="late")
    return [ctx.wait("word", int), late, ctx.results(ids), child.trigger(n).wait().execute(ctx), ctx.step(add, n, 1)]


@workflow(name="sweep.waiting.undone", cleanup="1d")
async def undone(ctx: Context, n: int) -> int:
    room = await add(n, 1)
    try:
        await resign(ctx)
        await sleep("1h")
    finally:
        async with shield():
            await sleep("1h")
            await asyncio.gather(add(room, 1), child.trigger(n).execute(ctx))
    return await add(n, 2)


FLOWS: tuple[tuple[Trigger[Any], object], ...] = (
    (signalled.trigger(1), [1, 2, 3]),
    (timed_out.trigger(1), [-1, 1001, None, 2]),
    (raced.trigger(1), [0, 1001, 1, 1, 2]),
    (parent.trigger(1), [2, [0, 2, 4], [14, 1001]]),
    (bereaved.trigger(1), ["it is not needed any more", "unlucky", "1", "2"]),
    (resigned.trigger(1), None),
    (set_aside.trigger(1), 1043),
    (in_a_thread.trigger(1), [1, "late", [2], 2, 2]),
    (undone.trigger(1), None),
)
