"""The tests that race, again and again, while other programs take every core: `python -m tests.flakes [--times N] ...`.

On the loop where all comes late that may. Prints a line for every test that was red, with how often; 1 if there is any.
Bounded: no round begins after `--minutes`, and one that takes longer than it may is stopped and counts as red.
"""
# ruff: noqa: T201 - this program prints

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST_ROUND = 1800.0  # seconds
RED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
ALL_WELL, NONE_CHOSEN = 0, 5  # pytest's exit codes


def main(words: Sequence[str]) -> int:
    """Run the rounds; 0 if no test was red in any."""
    options, chosen = _parsed(words)
    red: Counter[str] = Counter()
    until = time.monotonic() + 60 * options.minutes
    rounds = 0
    with busy(options.busy):
        while rounds < options.times and time.monotonic() < until:
            rounds += 1
            found = one_round(chosen, options.workers)
            red.update(found)
            print(f"round {rounds} of {options.times}: {', '.join(found) or 'all green'}", flush=True)
    for test, times in red.most_common():
        print(f"RED {times} of {rounds}: {test}")
    print(f"{rounds} rounds, {len(red)} tests were red", flush=True)
    return 1 if red else 0


def one_round(chosen: Sequence[str], workers: int) -> list[str]:
    """The tests that were red in one round."""
    words = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-m", "racing and not soak", *chosen]
    environment = {"STEPWELL_TEST_LOOP": "late", **os.environ}
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST_ROUND, check=False
        )
    except subprocess.TimeoutExpired:
        return [f"the round itself, stopped after {LONGEST_ROUND:g} s"]
    if done.returncode in (ALL_WELL, NONE_CHOSEN):
        return []
    print(done.stdout[done.stdout.find("= FAILURES =") :][:60_000], done.stderr[-2000:], sep="\n")
    return RED.findall(done.stdout) or [f"pytest, with exit code {done.returncode}"]


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """Take this many cores from everybody, at no lower a priority."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def _parsed(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m tests.flakes", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=20, help="rounds (20)")
    parser.add_argument("--minutes", type=float, default=120, help="no round begins after that (120)")
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 2, help="programs beside it (one a core)")
    parser.add_argument("--workers", type=int, default=4, help="processes of pytest (4)")
    return parser.parse_known_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
