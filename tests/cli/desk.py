"""An APP whose runs wait: for signals, for a person, for a moment, for other runs."""

import asyncio
from typing import Any

from stepwell import Context, Paused, PermanentError, Retry, sleep, step, workflow


@step
async def ask(what: str) -> str:
    return f"may we buy a {what}?"


@step
async def price(what: str) -> int:
    return {"lamp": 1900}.get(what, 5)


@step
async def pay(cents: int) -> str:
    if cents == 5:
        raise PermanentError("five cents are too few")
    return f"paid {cents}"


@step
async def approval(cents: int) -> Any:
    raise Paused("more than ten euros")


@step(at_most_once=True)
async def wire(cents: int) -> str:
    raise ConnectionError("no answer from the bank")


@workflow(retry=1)
async def transfer(cents: int) -> str:
    return await wire(cents)


@workflow
async def purchase(ctx: Context, what: str) -> str:
    ctx.progress({"step": 1, "of": 2})
    await ask(what)
    return f"{what} for {await ctx.wait('approved', str)}"


@workflow
async def buy(what: str) -> str:
    return await pay(await price(what))


@workflow
async def approve(cents: int) -> Any:
    return await approval(cents)


@workflow
async def nap(span: str) -> None:
    await sleep(span)


@workflow
async def family(ctx: Context, names: list[str]) -> list[str]:
    ids = await ctx.trigger_many(purchase.trigger(name) for name in names)
    return await ctx.results(ids)


@workflow
async def loop(ctx: Context, left: int) -> int:
    if left:
        ctx.restart(left - 1)
    return left


@step(retry=Retry(3, base=3600.0))
async def call(number: int) -> None:
    raise ConnectionError("nobody answers")


@workflow
async def phone(number: int) -> None:
    await call(number)


@workflow(timeout="1ms")
async def hurry() -> None:
    await sleep("10ms")


@workflow
async def busy() -> None:
    await asyncio.Event().wait()
