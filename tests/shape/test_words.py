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


SOURCES = sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.sql")])


def test_no_page_has_a_refused_word() -> None:
    assert [f"{page.relative_to(ROOT)} {place}" for page in PAGES for place in refused(page.read_text("utf-8"))] == []


def test_no_source_has_a_refused_word() -> None:
    assert [f"{path.relative_to(PACKAGE)} {place}" for path in SOURCES for place in refused_in_source(path)] == []


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
