"""Run the tests that failed last once more, alone, and say which of them judge by chance.

A test that fails beside others and passes alone is a flake, which is a bug: mend it at its cause (`make flakes`). It is
no reason to hold back a change that did not cause it. More than MOST of the 10,400 tests are no chance, nor are more
than TOGETHER if one file has two of them: a change broke what they have in common. Those are not tried again.
"""

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

MOST = 4
TOGETHER = 2
FAILED = Path(".pytest_cache/v/cache/lastfailed")


def may_be_chance(names: Collection[str]) -> bool:
    """Whether so few tests failed, and with so little in common, that each may have judged by chance."""
    files = {name.partition("::")[0] for name in names}
    return 0 < len(names) <= (MOST if len(files) == len(names) else TOGETHER)


def main() -> int:
    names = list(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not may_be_chance(names):
        print(f"{len(names)} tests failed: up to {TOGETHER} are run again, and up to {MOST} of as many files")
        return 1
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", *sys.argv[1:], *names], check=False
    ).returncode
    for name in names if ended == 0 else ():
        print(f"FLAKE: {name} failed beside other tests and passed alone; mend it at its cause, see `make flakes`")
    return ended


if __name__ == "__main__":
    raise SystemExit(main())
