"""docs/requirements.md and the `proves` markers tell the same story."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from tests import requirements
from tests.proves import WHOLE, outdated, proofs
from tests.shape.sources import ROOT

# fmt: off
GROUPS = {
    "Q": 26, "D": 10, "R": 21, "S": 30, "T": 11, "W": 22, "E": 15, "P": 12, "RS": 9, "DD": 10, "V": 8, "L": 20,
    "SD": 10, "PR": 16, "A": 6, "O": 14, "M": 29, "F": 16, "TM": 15, "PJ": 17, "I": 10, "IO": 5, "IN": 8, "II": 7,
    "TK": 20, "ST": 8, "SC": 15, "BC": 14, "CO": 7, "U": 7, "TU": 7, "MM": 11, "MT": 3, "LI": 18, "VR": 6, "DP": 11,
    "B": 8, "CF": 8, "G": 7,
}
# fmt: on
OTHERS = {
    "promise": 20,
    "security": 15,
    "dashboard": 11,
    "logs": 4,
    "messages": 3,
    "arrivals": 7,
    "types": 2,
    "headers": 4,
    "methods": 4,
    "compose": 8,
    "rule": 35,
    "protocol": 26,
}

INNER = ("-p", "tests.proves", "-p", "no:randomly", "-p", "no:cacheprovider", "-W", "ignore")


def test_the_document_has_every_id_once_and_in_order() -> None:
    listed = [requirement.id for requirement in requirements.read()]
    assert listed == [f"{group}-{n:02}" for group, last in (GROUPS | OTHERS).items() for n in range(1, last + 1)]


def test_every_requirement_is_numbered_in_its_group() -> None:
    assert Counter(requirement.numbered for requirement in requirements.read())[True] == sum(GROUPS.values())


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


HEAD = """\
- 1 requirements: ?
- 1 promises, security goals and rules: ?

| id | what must hold | proved by |
|---|---|---|
"""


def document(*rows: str) -> str:
    return HEAD + "".join(f"{row}\n" for row in rows)


def test_only_the_last_column_and_the_counts_are_rewritten() -> None:
    before = document("| Q-01 | a or b | planned |", "| rule-02 | c | pure |")
    assert requirements.with_proofs(before, {"Q-01": {"postgres", "sqlite"}}).splitlines() == [
        "- 1 requirements: 1 proved, 0 partly, 0 planned, 0 dropped",
        "- 1 promises, security goals and rules: 0 proved, 0 partly, 1 planned, 0 dropped",
        *HEAD.splitlines()[2:],
        "| Q-01 | a or b | sqlite, postgres |",
        "| rule-02 | c | planned |",
    ]


@pytest.mark.parametrize(
    ("cell", "backends", "renewed", "count"),
    [
        ("sqlite", {"turso"}, "turso", "1 proved, 0 partly, 0 planned, 0 dropped"),
        ("sqlite", set(), "planned", "0 proved, 0 partly, 1 planned, 0 dropped"),
        (
            "partly (sqlite): b, c",
            {"pure", "turso"},
            "partly (pure, turso): b, c",
            "0 proved, 1 partly, 0 planned, 0 dropped",
        ),
        ("planned: b, c", {"pure"}, "partly (pure): b, c", "0 proved, 1 partly, 0 planned, 0 dropped"),
        ("partly (sqlite): b, c", set(), "planned: b, c", "0 proved, 0 partly, 1 planned, 0 dropped"),
        ("planned: b, c", set(), "planned: b, c", "0 proved, 0 partly, 1 planned, 0 dropped"),
        ("partly (sqlite): dropped: b", set(), "dropped: b", "0 proved, 0 partly, 0 planned, 1 dropped"),
        ("dropped: b", {"pure"}, "partly (pure): dropped: b", "0 proved, 1 partly, 0 planned, 0 dropped"),
    ],
)
def test_a_row_with_a_note_is_never_called_proved(cell: str, backends: set[str], renewed: str, count: str) -> None:
    after = requirements.with_proofs(document(f"| Q-01 | a |b| | {cell} |"), {"Q-01": backends} if backends else {})
    assert f"\n| Q-01 | a |b| | {renewed} |\n" in after
    assert after.startswith(f"- 1 requirements: {count}\n")


def test_the_document_has_its_counts_once() -> None:
    found = requirements.COUNTS.findall(requirements.PATH.read_text(encoding="utf-8"))
    assert found == [requirements.NUMBERED, requirements.OTHERS]


def test_the_last_column_has_one_of_its_forms() -> None:
    backends = rf"(?:{'|'.join(requirements.BACKENDS)})(?:, (?:{'|'.join(requirements.BACKENDS)}))*"
    form = re.compile(rf"{backends}|partly \({backends}\): .+|planned(?:: .+)?|dropped: .+")
    assert [row.id for row in requirements.read() if not form.fullmatch(row.proved)] == []


@pytest.mark.proves("B-03")
def test_a_row_without_tests_on_one_of_the_databases_is_named_among_the_differences() -> None:
    _, _, differences = requirements.PATH.read_text(encoding="utf-8").partition("## Differences between backends")
    named = re.findall(requirements.ID, differences)
    databases = {"sqlite", "turso", "postgres"}
    on = {row.id: set(re.findall(r"\w+", row.proved.partition(":")[0])) for row in requirements.read()}
    lacking = [one for one, words in on.items() if words & databases and not databases <= words]
    assert sorted(named) == sorted(lacking)
