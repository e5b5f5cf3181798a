"""docs/requirements.md and the `proves` markers tell the same story."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests import requirements
from tests.proves import WHOLE, outdated, proofs
from tests.shape.sources import ROOT

# fmt: off
GROUPS = {
    "Q": 26, "D": 10, "R": 21, "S": 27, "T": 11, "W": 20, "E": 15, "P": 12, "RS": 9, "DD": 10, "V": 8, "L": 20,
    "SD": 10, "PR": 16, "A": 6, "O": 14, "M": 29, "F": 16, "TM": 15, "PJ": 17, "I": 10, "IO": 5, "IN": 8, "II": 7,
    "CO": 7, "U": 7, "TU": 7, "MM": 11, "MT": 3, "VR": 6, "DP": 11, "B": 8, "CF": 8, "G": 7,
}
# fmt: on
OTHERS = {"promise": 20, "security": 10, "rule": 35, "protocol": 26}

INNER = ("-p", "tests.proves", "-p", "no:randomly", "-p", "no:cacheprovider", "-W", "ignore")


def test_the_document_has_every_id_once_and_in_order() -> None:
    listed = [requirement.id for requirement in requirements.read()]
    assert listed == [f"{group}-{n:02}" for group, last in (GROUPS | OTHERS).items() for n in range(1, last + 1)]


def test_there_are_417_requirements() -> None:
    assert sum(GROUPS.values()) == 417
    assert Counter(requirement.numbered for requirement in requirements.read())[True] == 417


def test_no_row_of_the_document_is_overlooked() -> None:
    rows = [
        line
        for line in requirements.PATH.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith(("| id |", "| group |"))
    ]
    assert [row for row in rows if not requirements.ROW.match(row)] == []


def test_the_last_column_is_what_the_markers_say(request: pytest.FixtureRequest) -> None:
    """Asked of what this run has collected, if that is every test; otherwise they are collected for it."""
    if (every := request.config.stash.get(WHOLE, None)) is not None:
        assert not (complaint := outdated(proofs(every))), "\n".join(complaint)
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--proved=check"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_unknown_id_fails_the_collection_and_names_the_nearest(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile("import pytest\n@pytest.mark.proves('Q-7')\ndef test_it(): pass\n")
    result = pytester.runpytest_subprocess(*INNER)
    result.stdout.fnmatch_lines(["*test_it proves 'Q-7', which docs/requirements.md does not have; did you mean Q-*"])
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_proofs_are_told_apart_by_backend(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers = proves")
    items = pytester.getitems("""
        import pytest

        @pytest.fixture(params=["sqlite", "postgres"])
        def backend(request): return request.param

        @pytest.mark.proves("Q-01", "Q-02")
        def test_on_stores(backend): ...

        @pytest.mark.proves("Q-02")
        def test_without_store(): ...

        @pytest.mark.skip
        @pytest.mark.proves("Q-03")
        def test_that_does_not_run(): ...

        @pytest.mark.xfail
        @pytest.mark.proves("Q-04")
        def test_that_fails(): ...
    """)
    assert proofs(items) == {"Q-01": {"sqlite", "postgres"}, "Q-02": {"pure", "sqlite", "postgres"}}


def test_only_the_last_column_is_rewritten() -> None:
    head = "| id | what must hold | proved by |\n|---|---|---|\n"
    before = head + "| Q-01 | a or b | planned |\n| rule-02 | c | pure |\n"
    after = head + "| Q-01 | a or b | sqlite, postgres |\n| rule-02 | c | planned |\n"
    assert requirements.with_proofs(before, {"Q-01": {"postgres", "sqlite"}}) == after
