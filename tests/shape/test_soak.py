"""The report of the long runs knows what tests measure, and runs the tests that measure it."""

from __future__ import annotations

import re
from pathlib import Path

from tests import soak

MEASURES = re.compile(r'\bmeasured\(\s*"([^"]+)"')
ROOT = Path(__file__).parents[2]


def test_what_is_measured_is_a_promise_and_is_run_at_full_size() -> None:
    files = {path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.glob("tests/**/test_*.py")}
    found = {file: set(MEASURES.findall(text)) for file, text in files.items()}
    told = set().union(*found.values())
    assert told == soak.PROMISES.keys()
    assert {file for file, names in found.items() if names} <= set(soak._files())
