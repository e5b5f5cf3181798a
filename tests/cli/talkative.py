"""A workflow that says something when it is asked."""

import logging

from stepwell import Context, step, workflow


@step
async def listen() -> None:
    logging.getLogger("talk").warning("all ears\nand eyes")


@workflow
async def talkative(ctx: Context) -> None:
    logging.getLogger("talk").warning("so it begins")
    ctx.progress("half")
    await listen()
    ctx.set_value("status", {"n": 1})
    ctx.set_value("colour", "red")
    async with ctx.request("assign", dict[str, int]) as request:
        request.reply(request.data)
    for chunk in ("one", {"two": 2}, "three"):
        ctx.stream("log").write(chunk)
