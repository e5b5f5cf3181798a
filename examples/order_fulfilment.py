"""An order from its payment to its parcels: a worker is killed in the middle, and another goes on where it was.

Run it:  python examples/order_fulfilment.py
It uses a temporary SQLite file, or the store that STEPWELL_URL names.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stepwell import PermanentError, Retry, RunId, Worker, connect, current, sleep, step, sync, workflow

BOOK = Path(os.environ.get("BANK_BOOK", "book.txt"))  # stands for the bank, which lives elsewhere
UNLUCKY = "UNLUCKY" in os.environ


@dataclass(frozen=True)
class Order:
    number: str
    cents: int
    items: list[str]


class SoldOutError(PermanentError):
    """It will not be there the next time either."""


@step(timeout="10s")
async def charge(order: Order) -> str:
    """The key is the same in every attempt: a bank that knows it charges once, however often it is asked."""
    say(f"charge {order.cents} cents for {order.number}")
    write_to_book(f"charged {order.number}", key=current().key)
    return f"receipt of {order.number}"


@step(raises=(SoldOutError,))
async def reserve(order: Order) -> None:
    say(f"reserve {' and '.join(order.items)}")
    if "unicorn" in order.items:
        raise SoldOutError("no unicorns are left")


@step(retry=Retry(5, base=0.1))  # five attempts in all
async def ship(item: str) -> str:
    if UNLUCKY:
        say("is killed while it packs")
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "desk" and current().attempt == 1:
        raise ConnectionError("the carrier is busy")  # tried again, after a pause
    say(f"ship the {item}, attempt {current().attempt}")
    return f"parcel with the {item}"


@step
async def refund(receipt: str) -> None:
    say(f"refund the {receipt}")
    write_to_book(f"refunded the {receipt}", key=current().key)


@workflow
async def fulfil(order: Order) -> list[str]:
    """Plain code. What a step returned is recorded; when the code runs again, the step is not called again."""
    receipt = await charge(order)
    try:
        await reserve(order)
    except SoldOutError:
        await refund(receipt)  # a compensation is a step like any other
        return []
    parcels = await asyncio.gather(*(ship(item) for item in order.items))
    await sleep("200ms")  # or a week: a run that sleeps holds no memory, and survives every restart
    return [receipt, *parcels]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/orders.db"
        book = Path(folder) / "book.txt"
        with sync.connect(url) as store:
            first = fulfil.trigger(Order("order 1", 9900, ["lamp", "desk"])).execute(store)
        work(url, book, first, unlucky=True)
        with sync.connect(url) as store:
            print("order 1 is", store.get_run(first).status, "with", [one.key for one in store.steps(first)])
            second = fulfil.trigger(Order("order 2", 500, ["unicorn"])).execute(store)
        work(url, book, first, second)
        with sync.connect(url) as store:
            print("order 1:", store.result(first))
            print("order 2:", store.result(second))
        print("the bank:", ", ".join(json.loads(book.read_text()).values()))


def work(url: str, book: Path, *run_ids: RunId[list[str]], unlucky: bool = False) -> None:
    """A worker process; usually it is `await Worker(...).run(signals=True)`, and there are several."""
    environment = os.environ | {"BANK_BOOK": str(book)} | ({"UNLUCKY": "1"} if unlucky else {})
    subprocess.run([sys.executable, __file__, url, *map(str, run_ids)], env=environment, check=not unlucky)


async def work_until_finished(url: str, run_ids: list[int]) -> None:
    async with connect(url, lease="1s") as store, Worker(store, [fulfil]):
        for run_id in run_ids:
            await store.result(run_id)


def write_to_book(line: str, key: str) -> None:
    """A key that the bank has seen before changes nothing."""
    entries = json.loads(BOOK.read_text()) if BOOK.exists() else {}
    entries.setdefault(key, line)
    BOOK.write_text(json.dumps(entries))


def say(words: str) -> None:
    print(f"  {'worker 1' if UNLUCKY else 'worker 2'}: {words}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work_until_finished(sys.argv[1], [int(number) for number in sys.argv[2:]]))
    else:
        main()
