"""Break each rule in a copy of the project and run the test that is to notice; a survivor is an error.

`python -m tests.mutants [WORD ...]` breaks the rules whose name holds one of the words; `--part 2/4` only a quarter of
them, `--random SEED` in another order. The tests named are run once on the unbroken copy first: a test that is red
anyway proves nothing.

What was noticed is kept in `.mutants`, by the code and the tests with which it was noticed: after an interruption the
next call goes on with what is left. With `--again` nothing that is kept counts.
"""
# ruff: noqa: T201 - this program prints

import argparse
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import astuple, dataclass
from pathlib import Path

from tests.ground.postgres import PostgresServer
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".mutants"
COPIED = ("src", "tests", "bench", "docs", "pyproject.toml", "README.md")
JUDGED = ("src", "tests", "pyproject.toml")  # if one of these files changes, every rule is broken again
LONGEST = 240  # seconds for the tests of one mutant ...
LONGEST_OF_ALL = 3600  # ... and of all together, on the unbroken code
TESTS_FAILED = 1  # pytest's exit code; every other one means that the tests did not even run


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one mutant."""

    mutant: Mutant
    said: str
    seconds: float
    shown: str = ""  # what its tests printed, if they did not even run

    @property
    def noticed(self) -> bool:
        """Whether its test went red."""
        return self.said == "noticed"


def main(argv: Sequence[str]) -> int:
    """Run the mutants; 0 if none survived."""
    parser = argparse.ArgumentParser("python -m tests.mutants", description="Break each rule; its test has to notice.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only rules whose name holds one of the words")
    parser.add_argument("--part", default="1/1", help="only this part of them, such as 2/4")
    parser.add_argument("--random", metavar="SEED", help="in an order made of this")
    parser.add_argument("--again", action="store_true", help="also those that were noticed with this code")
    given = parser.parse_args(argv)
    try:
        asked = chosen(MUTANTS, given.words, given.part, given.random)
    except ValueError as error:
        parser.error(str(error))
    kept = Kept(fingerprint(), anew=given.again)
    left = [mutant for mutant in asked if not kept.noticed(mutant)]
    print(f"{len(asked)} rules to break, {len(asked) - len(left)} of them noticed before with this code", flush=True)
    return 0 if not left or _broken(left, kept) else 1


def chosen(mutants: Sequence[Mutant], words: Sequence[str], part: str, seed: str | None) -> list[Mutant]:
    """The mutants whose name holds one of the words, and of these one part of some; raises if a word fits none."""
    for word in words:
        if not any(word in mutant.name for mutant in mutants):
            raise ValueError(f"no mutant has {word!r} in its name")
    found = [mutant for mutant in mutants if not words or any(word in mutant.name for word in words)]
    if seed is not None:
        random.Random(seed).shuffle(found)
    number, _, parts = part.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise ValueError(f"{part!r} is not a part; say 2/4 for the second of four")
    return found[int(number) - 1 :: int(parts)]


def _broken(left: Sequence[Mutant], kept: "Kept") -> bool:
    """Break these rules, one at a time in each of two copies; True if each was noticed."""
    with tempfile.TemporaryDirectory(prefix="stepwell-mutants-") as folder, PostgresServer() as server:
        unbroken, address = copied(ROOT, Path(folder) / "unbroken"), server.url()
        if not _healthy(
            unbroken, [test for test in sorted({one.test for one in left}) if not kept.green(test)], address
        ):
            return False
        kept.keep_green(one.test for one in left)
        places = (Path(folder) / str(number) for number in range(len(left)))
        noticed = 0
        with ThreadPoolExecutor(max_workers=2) as pool:
            judging = [pool.submit(_judged, *each, unbroken, address) for each in zip(left, places, strict=True)]
            try:
                for number, verdict in enumerate((done.result() for done in as_completed(judging)), 1):
                    _tell(f"{number:4}/{len(left)}", verdict)
                    noticed += verdict.noticed
                    if verdict.noticed:
                        kept.keep(verdict.mutant)
            finally:
                pool.shutdown(cancel_futures=True)
    print(f"{noticed} of {len(left)} broken rules were noticed", flush=True)
    return noticed == len(left)


def _tell(place: str, verdict: Verdict) -> None:
    mutant = verdict.mutant
    print(f"{place}  {verdict.said}  {verdict.seconds:5.1f} s  {mutant.proves:12} {mutant.name}", flush=True)
    if verdict.shown:
        print(verdict.shown, flush=True)


def _healthy(unbroken: Path, tests: Sequence[str], address: str) -> bool:
    if not tests:
        return True
    print(f"first, {len(tests)} tests on the unbroken code", flush=True)
    began = time.monotonic()
    answer = _pytest(unbroken, ["-n", "2", *tests], address, LONGEST_OF_ALL)
    if answer.returncode != 0:
        print(answer.stdout[-4000:], answer.stderr[-2000:], "the tests are red without any mutant", sep="\n")
        return False
    print(f"they are green, {time.monotonic() - began:.0f} s", flush=True)
    return True


def _judged(mutant: Mutant, place: Path, unbroken: Path, address: str) -> Verdict:
    began = time.monotonic()
    copy = copied(unbroken, place)
    if not broken_in(copy, mutant):
        return Verdict(mutant, f"STALE: {mutant.file} no longer says what is to be broken", 0.0)
    answer = _pytest(copy, [mutant.test], address)
    shutil.rmtree(copy)
    seconds = time.monotonic() - began
    match answer.returncode:
        case 0:
            return Verdict(mutant, "SURVIVED", seconds)
        case code if code == TESTS_FAILED:
            return Verdict(mutant, "noticed", seconds)
        case code:
            return Verdict(mutant, f"INVALID ({code})", seconds, answer.stdout[-2000:] + answer.stderr[-1000:])


def copied(source: Path, place: Path) -> Path:
    """Copy the project with its bytecode, which stays valid because the copy has the times of the sources.

    Bytecode is linked, not copied: Python replaces such a file and never writes into it.
    """
    place.mkdir()
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, place / name, copy_function=_copy)
        else:
            shutil.copy2(source / name, place / name)
    return place


def _copy(source: str, place: str) -> None:
    if source.endswith(".pyc"):
        try:
            os.link(source, place)
        except OSError:  # on another file system, or just replaced: then it is compiled again
            return
    else:
        shutil.copy2(source, place)


def broken_in(copy: Path, mutant: Mutant) -> bool:
    """Break the rule in this copy, where the bytecode of the file must not survive; False if it is not there."""
    file = copy / "src" / "stepwell" / mutant.file
    text = file.read_text()
    if mutant.rule not in text:
        return False
    file.write_text(text.replace(mutant.rule, mutant.broken))
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()
    return True


def _pytest(
    copy: Path, tests: Sequence[str], address: str, longest: float = LONGEST
) -> subprocess.CompletedProcess[str]:
    # The copy's code goes before the installed one; its children inherit the path.
    environment = {
        **os.environ,
        "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}",
        "STEPWELL_TEST_POSTGRES": address,
        "PYTHONDONTWRITEBYTECODE": "",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=longest, check=False
        )
    except subprocess.TimeoutExpired as late:
        # A rule whose absence makes a test hang is noticed too: in a run it would end at the test's own timeout.
        return subprocess.CompletedProcess(command, TESTS_FAILED, str(late.stdout or ""), "timed out")


def fingerprint() -> str:
    """What the verdicts rest on: the code and the tests, without the mutants, of which each has its own."""
    told = hashlib.sha256()
    for name in JUDGED:
        files = sorted((ROOT / name).rglob("*")) if (ROOT / name).is_dir() else [ROOT / name]
        for file in files:
            path = file.relative_to(ROOT).as_posix()
            if file.is_file() and "__pycache__" not in path and not path.startswith("tests/mutants/"):
                told.update(f"{path}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return told.hexdigest()[:12]


class Kept:
    """What was seen with this code, a line each: mutants that were noticed, and tests that are green without any."""

    def __init__(self, code: str, *, anew: bool = False, folder: Path = KEPT) -> None:
        folder.mkdir(exist_ok=True)
        self._file = folder / f"{code}.txt"
        if anew:
            self._file.unlink(missing_ok=True)
        self._lines = set(self._file.read_text().splitlines()) if self._file.exists() else set[str]()

    def noticed(self, mutant: Mutant) -> bool:
        """Whether this mutant was noticed."""
        return _line_of(mutant) in self._lines

    def keep(self, mutant: Mutant) -> None:
        """It was noticed."""
        self._append([_line_of(mutant)])

    def green(self, test: str) -> bool:
        """Whether this test was green on the unbroken code."""
        return f"green {test}" in self._lines

    def keep_green(self, tests: Iterable[str]) -> None:
        """They were green."""
        self._append(sorted({f"green {test}" for test in tests} - self._lines))

    def _append(self, lines: Sequence[str]) -> None:
        self._lines.update(lines)
        with self._file.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))


def _line_of(mutant: Mutant) -> str:
    return f"noticed {hashlib.sha256(repr(astuple(mutant)).encode()).hexdigest()[:16]} {mutant.name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
