"""The mutants fit the code: `make mutants` takes minutes, so what would make it useless is noticed here."""

import py_compile
from collections.abc import Iterator
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.mutants.__main__ import Kept, broken_in, chosen, copied
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.shape.sources import ROOT

HERE = "tests/shape/test_mutants.py::test_a_mutant_that_would_show_nothing_is_seen"


def test_mutants_break_what_is_there_and_name_tests_that_exist() -> None:
    assert [f"{mutant.name}: {what}" for mutant in MUTANTS for what in misfits(mutant)] == []


def misfits(mutant: Mutant) -> Iterator[str]:
    """Why this mutant would show nothing."""
    if mutant.rule not in text(ROOT / "src" / "stepwell" / mutant.file):
        yield f"{mutant.file} does not have its rule"
    if mutant.rule == mutant.broken:
        yield "it breaks nothing"
    file, _, test = mutant.test.partition("::")
    if f"def {test}(" not in text(ROOT / file):
        yield f"there is no {mutant.test}"


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("mutant", "why"),
    [
        (Mutant("a", "", "store/flush.py", "no such rule", "x", HERE), "does not have its rule"),
        (Mutant("b", "", "store/flush.py", "import", "import", HERE), "breaks nothing"),
        (Mutant("c", "", "store/flush.py", "import", "x", "tests/shape/test_mutants.py::test_no"), "there is no"),
    ],
    ids=["no rule", "not broken", "no test"],
)
def test_a_mutant_that_would_show_nothing_is_seen(mutant: Mutant, why: str) -> None:
    assert [why in one for one in misfits(mutant)] == [True]


def test_every_mutant_is_in_one_part_in_whatever_order() -> None:
    parts = [chosen(MUTANTS, (), f"{number}/4", "seed") for number in range(1, 5)]
    assert sorted(one.name for part in parts for one in part) == sorted(one.name for one in MUTANTS)
    assert chosen(MUTANTS, (), "1/1", "seed") != list(MUTANTS)
    assert chosen(MUTANTS, (), "1/1", None) == list(MUTANTS)


@pytest.mark.parametrize(("words", "part"), [(("no such rule",), "1/1"), ((), "0/4"), ((), "5/4"), ((), "two")])
def test_a_word_or_a_part_that_fits_nothing_is_refused(words: tuple[str, ...], part: str) -> None:
    with pytest.raises(ValueError, match=r"mutant|part"):
        chosen(MUTANTS, words, part, None)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of one compiled file."""
    place = tmp_path / "project"
    for name in ("src/stepwell", "tests", "bench", "docs"):
        (place / name).mkdir(parents=True)
    for name in ("pyproject.toml", "README.md"):
        (place / name).touch()
    source = place / "src" / "stepwell" / "one.py"
    source.write_text("rule = 1\n")
    py_compile.compile(str(source))
    return place


def test_a_copy_has_the_bytecode_but_not_that_of_the_broken_file(project: Path, tmp_path: Path) -> None:
    copy = copied(project, tmp_path / "copy")
    source = copy / "src" / "stepwell" / "one.py"
    compiled = Path(cache_from_source(str(source)))
    assert compiled.exists()
    assert source.stat().st_mtime == (project / "src" / "stepwell" / "one.py").stat().st_mtime
    assert broken_in(copy, Mutant("no rule", "", "one.py", "rule = 1", "rule = 2", ""))
    assert (source.read_text(), compiled.exists()) == ("rule = 2\n", False)
    assert (project / "src" / "stepwell" / "one.py").read_text() == "rule = 1\n"
    assert Path(cache_from_source(str(project / "src" / "stepwell" / "one.py"))).exists()
    assert not broken_in(copy, Mutant("stale", "", "one.py", "rule = 1", "rule = 2", ""))


def test_a_verdict_counts_for_its_mutant_and_the_code_it_was_seen_with(tmp_path: Path) -> None:
    one, other = (Mutant("a rule", "L-01", "one.py", "rule", broken, "test") for broken in ("1", "2"))
    kept = Kept("code", folder=tmp_path)
    kept.keep(one)
    kept.keep_green(["test"])
    again = Kept("code", folder=tmp_path)
    assert (again.noticed(one), again.noticed(other), again.green("test")) == (True, False, True)
    assert not Kept("other code", folder=tmp_path).noticed(one)
    assert not Kept("code", folder=tmp_path, anew=True).noticed(one)
