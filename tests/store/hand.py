"""A process for the tests of a store that several share: `python -m tests.store.hand WHAT URL [ARGUMENT...]`.

It says what it has done on its standard output, a line each, and then waits to be ended, or ends.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from stepwell import connect
from stepwell.errors import StoreInUse
from stepwell.store.embedded.file import WriteTurn
from tests.store.seam import begin, claim


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def ids(url: str, takes: str, each: str) -> None:
    """Take ids in several helpings and say them."""
    async with connect(url) as store:
        say("ready")
        for _ in range(int(takes)):
            say(*await store.database.ids.take(int(each)))


async def enqueue(url: str, queue: str, messages: str) -> None:
    """Write messages, one after the other and at once."""
    async with connect(url) as store:
        for number in range(int(messages) // 10):
            await asyncio.gather(*(store.enqueue(queue, number) for _ in range(10)))
        say("done")


async def hold(url: str, queue: str, *, fork: bool = False) -> None:
    """Begin a session, claim, say its number, and wait to be killed; with `fork`, leave a child that lives on."""
    async with connect(url) as store:
        worker = await begin(store)
        tasks = await claim(store, worker, queue)
        if fork:
            say(worker, len(tasks), leave_a_child())
        else:
            say(worker, len(tasks))
        await asyncio.sleep(60)


def leave_a_child() -> int:
    """Fork a process that only lives on for a while."""
    if (child := os.fork()) == 0:
        time.sleep(30)
        os._exit(0)
    return child


async def use(url: str) -> None:
    """Try to open the store, and say who has it if it is in use."""
    try:
        async with connect(url):
            say("opened")
    except StoreInUse as error:
        say("in use by", error.pid)


def die_writing(folder: str) -> None:
    """Take the turn to write, fork a child that lives on, and die in the middle of it."""
    with WriteTurn(Path(folder)):
        say(leave_a_child())
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    match sys.argv[1:]:
        case ["ids", url, takes, each]:
            asyncio.run(ids(url, takes, each))
        case ["enqueue", url, queue, messages]:
            asyncio.run(enqueue(url, queue, messages))
        case ["hold", url, queue]:
            asyncio.run(hold(url, queue))
        case ["hold-and-fork", url, queue]:
            asyncio.run(hold(url, queue, fork=True))
        case ["use", url]:
            asyncio.run(use(url))
        case ["die-writing", folder]:
            die_writing(folder)
        case unknown:
            raise SystemExit(f"cannot {unknown}")


if __name__ == "__main__":
    main()
