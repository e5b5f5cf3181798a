"""Break each rule in a copy of the project and run the test that is to notice; a survivor is an error.

`python -m tests.mutants [WORD ...]` runs those whose name holds one of the words. The tests named are run once on the
unbroken copy first: a test that is red anyway proves nothing.
"""
# ruff: noqa: T201 - this program prints

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.ground.postgres import PostgresServer
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "bench", "docs", "pyproject.toml", "README.md")
LONGEST = 240  # seconds for the tests of one mutant ...
LONGEST_OF_ALL = 3600  # ... and of all together, on the unbroken code
TESTS_FAILED = 1  # pytest's exit code; every other one means that the tests did not even run


def main(words: Sequence[str]) -> int:
    """Run the mutants; 0 if none survived."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="stepwell-mutants-") as folder, PostgresServer() as server:
        address = server.url()
        print(f"{len(chosen)} rules to break; first, their tests on the unbroken code", flush=True)
        if not _healthy(Path(folder), sorted({mutant.test for mutant in chosen}), address):
            return 1
        with ThreadPoolExecutor(max_workers=2) as pool:
            copies = (Path(folder) / str(number) for number in range(len(chosen)))
            killed = list(pool.map(_is_killed, copies, chosen, [address] * len(chosen)))
    print(f"{sum(killed)} of {len(killed)} broken rules were noticed", flush=True)
    return 0 if all(killed) else 1


def _healthy(folder: Path, tests: Sequence[str], address: str) -> bool:
    answer = _pytest(_copy(folder / "unbroken"), ["-n", "2", *tests], address, LONGEST_OF_ALL)
    if answer.returncode != 0:
        print(answer.stdout[-4000:], answer.stderr[-2000:], "the tests are red without any mutant", sep="\n")
    return answer.returncode == 0


def _is_killed(place: Path, mutant: Mutant, address: str) -> bool:
    copy = _copy(place)
    file = copy / "src" / "stepwell" / mutant.file
    text = file.read_text()
    if text.count(mutant.rule) < 1:
        print(f"STALE     {mutant.name}: {mutant.file} no longer says what is to be broken", flush=True)
        return False
    file.write_text(text.replace(mutant.rule, mutant.broken))
    answer = _pytest(copy, [mutant.test], address)
    killed = answer.returncode == TESTS_FAILED
    verdict = "noticed " if killed else "SURVIVED" if answer.returncode == 0 else f"INVALID ({answer.returncode})"
    print(f"{verdict}  {mutant.proves:12} {mutant.name}", flush=True)
    if answer.returncode not in (0, TESTS_FAILED):
        print(answer.stdout[-2000:], answer.stderr[-1000:], sep="\n")
    shutil.rmtree(copy)
    return killed


def _copy(place: Path) -> Path:
    place.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, place / name)
    return place


def _pytest(
    copy: Path, tests: Sequence[str], address: str, longest: float = LONGEST
) -> subprocess.CompletedProcess[str]:
    # The copy's code goes before the installed one; its children inherit the path.
    environment = {
        **os.environ,
        "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}",
        "STEPWELL_TEST_POSTGRES": address,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=longest, check=False
        )
    except subprocess.TimeoutExpired as late:
        # A rule whose absence makes a test hang is noticed too: in a run it would end at the test's own timeout.
        return subprocess.CompletedProcess(command, TESTS_FAILED, str(late.stdout or ""), "timed out")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
