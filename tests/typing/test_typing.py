"""Type checkers see what users see: nothing wrong in right programs, and each planted mistake at its line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = ("programs.py", "mistakes.py")
PLANTED = re.compile(r"  # error: ")
MYPY_ERROR = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: ", re.MULTILINE)

Lines = dict[str, set[int]]


def mypy(folder: Path) -> Lines:
    options = ["--strict", "--config-file=", "--no-error-summary", "--cache-dir", str(folder / "cache")]
    done = checked("mypy", [*options, "--python-executable", sys.executable, *PROGRAMS], folder)
    reported: Lines = {name: set() for name in PROGRAMS}
    for error in MYPY_ERROR.finditer(done):
        reported[error["file"]].add(int(error["line"]))
    return reported


def pyright(folder: Path) -> Lines:
    done = checked("pyright", ["--outputjson", "--pythonpath", sys.executable, *PROGRAMS], folder)
    reported: Lines = {name: set() for name in PROGRAMS}
    for told in json.loads(done)["generalDiagnostics"]:
        reported[Path(told["file"]).name].add(told["range"]["start"]["line"] + 1)
    return reported


def checked(checker: str, options: list[str], folder: Path) -> str:
    """What a checker says in a user's own folder, where the package is installed and nothing else of it is seen."""
    done = subprocess.run(
        [sys.executable, "-m", checker, *options],
        cwd=folder,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr  # it found errors; any other code is trouble of its own
    return done.stdout


def planted() -> Lines:
    texts = {name: (HERE / name).read_text(encoding="utf-8").splitlines() for name in PROGRAMS}
    return {name: {n for n, line in enumerate(text, 1) if PLANTED.search(line)} for name, text in texts.items()}


@pytest.mark.parametrize("checker", [mypy, pyright], ids=lambda checker: checker.__name__)
def test_each_mistake_is_reported_and_nothing_else(checker: Callable[[Path], Lines], tmp_path: Path) -> None:
    for name in PROGRAMS:
        shutil.copy(HERE / name, tmp_path)
    assert checker(tmp_path) == planted()


def test_there_are_mistakes() -> None:
    assert len(planted()["mistakes.py"]) > 70
    assert not planted()["programs.py"]
