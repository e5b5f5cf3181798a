"""Plain English: pages and sources name who does something, and say "even if" instead of "although"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.shape.blocks import ROOT
from tests.shape.sources import PACKAGE

if TYPE_CHECKING:
    from pathlib import Path

REFUSED = re.compile(r"\b(nobody|whoever|somebody|anybody|although)\b", re.IGNORECASE)
REFERENCE = ROOT / "docs" / "reference.md"  # its words are those of docstrings, and counted there
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
PAGES = sorted({*DOCUMENTS, *(ROOT / "examples").rglob("*.py")} - {REFERENCE})
UNIX_USER = {PACKAGE / "cli" / "demo" / "processes.py": "nobody"}  # the user that runs the demo's Postgres


def refused(text: str) -> list[str]:
    """The refused words of a text, each with its line."""
    return [
        f"line {number}: {found[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for found in REFUSED.finditer(line)
    ]


def refused_in_source(path: Path) -> list[str]:
    """The refused words of a source file, each with its line; the name of a Unix user is allowed."""
    name = UNIX_USER.get(path)
    return [
        place for place in refused(path.read_text(encoding="utf-8")) if name is None or not place.lower().endswith(name)
    ]


def package_of(path: Path) -> str:
    """The package below `stepwell`: `store` for all folders of the store, a dot for the modules at the top."""
    folders = path.relative_to(PACKAGE).parent.parts
    return folders[0] if folders else "."


SOURCES: dict[str, list[Path]] = {}
for source in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.sql")]):
    SOURCES.setdefault(package_of(source), []).append(source)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_no_refused_word(page: Path) -> None:
    assert refused(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("package", SOURCES)
def test_a_package_has_no_refused_word(package: str) -> None:
    found = [f"{path.relative_to(PACKAGE)} {place}" for path in SOURCES[package] for place in refused_in_source(path)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("It is handled even if every process dies.", []),
        ("No one\nor Nobody's", ["line 2: Nobody"]),
        ("whoever, although", ["line 1: whoever", "line 1: although"]),
        ("everybody", []),
    ],
)
def test_refused_words_are_found(text: str, places: list[str]) -> None:
    assert refused(text) == places
