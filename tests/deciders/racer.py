"""A process that sends its share of a round's inputs when everybody is at the line: `python -m tests.deciders.racer`.

The arguments are the store's URL, a folder and a JSON object: `number`, `together`, `rounds`, and for each round the
keys of its inputs. It says `ready` by a file, begins a round when the file of that round is there, and prints what it
was answered.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepwell import Engine, connect
from tests.deciders.workbench import Bench, Do
from tests.ground.waiting import until


async def race(url: str, folder: Path, plan: dict[str, Any], tell: Callable[[list[Any]], None]) -> None:
    """Take part in every round."""
    async with connect(url, listen=False) as store:
        engine = Engine(store, together=plan["together"]).register(Bench(), snapshot_every=50)
        for round_, keys in enumerate(plan["rounds"]):
            (folder / f"ready-{round_}-{plan['number']}").touch()
            await until((folder / f"go-{round_}").exists, timeout=60, every=0.002)
            sent = [engine.execute(Do(f"hot-{round_}", key), key=key) for key in keys]
            own = [engine.execute(Do(f"own-{round_}-{plan['number']}")) for _ in range(3)]
            receipts = await asyncio.gather(*sent, *own)
            answered = zip(keys, receipts, strict=False)
            tell([[key, receipt.outcome, receipt.first, receipt.last] for key, receipt in answered])


def say(answers: list[Any]) -> None:
    """Print a round's answers."""
    sys.stdout.write(f"{json.dumps(answers)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(race(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), say))
