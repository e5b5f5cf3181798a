"""Run the tests that failed last once more, alone, and say which of them judge by chance.

A test that fails beside others and passes alone is a flake, which is a bug: mend it at its cause (`make flakes`). It is
no reason to hold back a change that did not cause it. More than MOST failures are no chance, and are not tried again.
"""

import json
import subprocess
import sys
from pathlib import Path

MOST = 2
FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    names = list(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(names) <= MOST:
        print(f"{len(names)} tests failed: between 1 and {MOST} are run again")
        return 1
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", *sys.argv[1:], *names], check=False
    ).returncode
    for name in names if ended == 0 else ():
        print(f"FLAKE: {name} failed beside other tests and passed alone; mend it at its cause, see `make flakes`")
    return ended


if __name__ == "__main__":
    raise SystemExit(main())
