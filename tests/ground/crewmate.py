"""A process for the tests of the ground itself: writes `lines` lines to a ledger, then waits to be ended."""

import os
import sys
import threading
import time

from tests.ground.ledger import Ledger


def main() -> None:
    """Write from two threads at once, and say so at the end."""
    path, lines = sys.argv[1], int(sys.argv[2])
    with Ledger(path) as ledger:
        threads = [threading.Thread(target=_fill, args=(ledger, half, lines)) for half in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ledger.write(phase="end", durable=True)
        while True:
            time.sleep(60)


def _fill(ledger: Ledger, half: int, lines: int) -> None:
    for number in range(half, lines, 2):
        ledger.write(phase="line", key=f"{os.getpid()}-{number}", text="x" * (number % 3000))


if __name__ == "__main__":
    main()
