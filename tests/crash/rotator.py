"""A process that rotates the keys of a store to and fro: `python -m tests.crash.rotator --url ... --keys ...`."""

import argparse
import asyncio
import itertools
from pathlib import Path

from stepwell import Encrypted, Keyring, connect
from tests.ground.ledger import Ledger


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--keys", required=True, type=Path)
    options = parser.parse_args()
    ring = Keyring.read(options.keys)
    with Ledger(options.ledger) as ledger:
        for current in itertools.cycle(ring.keys):
            async with connect(options.url, codec=Encrypted(keys=Keyring(ring.keys, current))) as store:
                ledger.write(phase="rotating", key=current)
                changed = await store.rotate_keys(actor="rotator")
                ledger.write(phase="rotated", key=current, changed=changed)


if __name__ == "__main__":
    asyncio.run(main())
