"""Bodies that are called in a process of their own."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

from stepwell import Context, handler, step, workflow

logger = logging.getLogger("pooled")


class TooManyError(ValueError):
    """What a body raises."""


@step(executor="process")
def spell(number: int, *, word: str = "n") -> dict[str, list[str]]:
    logger.warning("spelling %d", number)
    return {"words": [word] * number, "pid": [str(os.getpid())]}


@step(executor="process", retry=1, raises=(TooManyError,))
def refuse(number: int) -> None:
    raise TooManyError(f"{number} are too many")


@step(executor="process", retry=1, timeout="3s")
def spin(mark: str) -> None:
    with Path(mark).open("a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        time.sleep(0.01)


@step(executor="process", retry=3)
def die_once(mark: str) -> str:
    path = Path(mark)
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "lived"


@workflow
async def spelling(ctx: Context, number: int) -> list[str]:
    found = await ctx.step(spell, number, word="w")
    return [*found["words"], *found["pid"]]


@workflow(retry=1)
async def refusing(ctx: Context) -> str:
    try:
        await ctx.step(refuse, 7)
    except TooManyError as error:
        return str(error)
    return "?"


@workflow(retry=1)
async def spinning(ctx: Context, mark: str) -> None:
    await ctx.step(spin, mark)


@workflow
async def dying(ctx: Context, mark: str) -> str:
    return await ctx.step(die_once, mark)


@workflow
def sync_spelling(number: int) -> int:
    return len(spell(number)["words"])


@handler("squares", executor="process", timeout="2s", retry=1)
def square(payload: list[int]) -> None:
    numbers, mark = payload[:-1], payload[-1]
    if mark:
        time.sleep(60)
    logger.warning("squares %s of %d", [one * one for one in numbers], os.getpid())
