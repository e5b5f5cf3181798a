"""A process that enqueues: `python -m tests.wakeups.sender URL COUNT`; it is gone right after."""

import asyncio
import sys

from stepwell import connect


async def main() -> None:
    """One message after the other, and nothing else."""
    url, count = sys.argv[1], int(sys.argv[2])
    async with connect(url) as store:
        for number in range(count):
            await store.enqueue("mail", number)


if __name__ == "__main__":
    asyncio.run(main())
