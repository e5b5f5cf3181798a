"""A process that finishes runs: `python -m tests.results.finisher URL COUNT`; it is gone right after."""

import asyncio
import sys

from stepwell import connect
from tests.results.runs import settle_and_tell, take


async def main() -> None:
    """Claim that many runs, and finish one after the other."""
    url, count = sys.argv[1], int(sys.argv[2])
    async with connect(url) as store:
        for run in await take(store, count):
            await settle_and_tell(store, run)


if __name__ == "__main__":
    asyncio.run(main())
