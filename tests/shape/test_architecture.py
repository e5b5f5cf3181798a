"""The architecture page is current, short, and names only what is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.shape import architecture, sources

if TYPE_CHECKING:
    from pathlib import Path

CONTRIBUTING = sources.ROOT / "CONTRIBUTING.md"
FILE = re.compile(r"(?<![\w./])[\w/-]+\.(?:py|sql|md|toml|sh|svg)\b")
FOLDER = re.compile(r"`(?P<path>\w+(?:/\w+)*/)`")
MOST_FILES = 30


def files(page: Path) -> set[str]:
    """The files that a page names."""
    return set(FILE.findall(page.read_text(encoding="utf-8")))


def folders(page: Path) -> set[str]:
    """The folders that a page names."""
    return set(FOLDER.findall(page.read_text(encoding="utf-8")))


def test_the_folders_and_the_picture_are_those_of_the_code() -> None:
    stale = [sources.name(path) for path, text in architecture.written().items() if path.read_text("utf-8") != text]
    assert stale == [], "make architecture"


@pytest.mark.parametrize("page", [architecture.PAGE, CONTRIBUTING], ids=sources.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    roots = (sources.ROOT, sources.PACKAGE, sources.ROOT / "docs")
    named = files(page) | folders(page)
    assert named
    assert sorted(one for one in named if not any((root / one).exists() for root in roots)) == []


def test_the_architecture_fits_one_screen() -> None:
    assert len(architecture.PAGE.read_text(encoding="utf-8").splitlines()) <= 94


def test_whoever_contributes_has_to_know_few_files() -> None:
    assert len(files(CONTRIBUTING)) < MOST_FILES


def test_an_arrow_is_drawn_once_and_only_downwards() -> None:
    height = {name: number for number, row in enumerate(architecture.layers()) for name in row}
    arrows = architecture.arrows()
    assert ("work", "store") in arrows or ("runs", "store") in arrows
    assert [arrow for arrow in arrows if height[arrow[0]] > height[arrow[1]]] == []
