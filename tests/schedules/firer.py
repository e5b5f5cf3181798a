"""A worker process that fires schedules until it is killed: `python -m tests.schedules.firer URL`."""

from __future__ import annotations

import asyncio
import sys

from stepwell import Worker, connect, sleep, workflow


@workflow
async def beat() -> None: ...


@workflow
async def slow() -> None:
    await sleep("1.5s")


async def main() -> None:
    async with connect(sys.argv[1], lease="2s") as store:
        await Worker(store, [beat, slow], concurrency=20).run(signals=True)


if __name__ == "__main__":
    asyncio.run(main())
