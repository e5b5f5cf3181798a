"""Every Python block of the documentation is a program, and runs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.shape.blocks import ROOT, Block, blocks, documents

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PYTHON_BLOCKS = [block for document in documents() for block in blocks(document) if block.is_python]
FIRST_PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / "tutorials" / f"{name}.md" for name in ("queue", "workflow", "decider", "read_model")),
]
BY_ITSELF = [block for block in PYTHON_BLOCKS if block.document not in FIRST_PAGES]


def check_run(chosen: Sequence[Block], folder: Path, where: str) -> None:
    """Blocks of one document run, each in a folder of its own (`apart`), or all in this one (`here`)."""
    lines = [str(block.line) for block in chosen]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.shape.blocks", str(chosen[0].document), where, *lines],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def _named(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", sorted({block.document for block in BY_ITSELF}), ids=_named)
def test_every_block_runs(document: Path, tmp_path: Path) -> None:
    check_run([block for block in BY_ITSELF if block.document == document], tmp_path, "apart")


def test_what_people_meet_first_runs_from_top_to_bottom_in_one_folder(tmp_path: Path) -> None:
    """As somebody does who saves every block of the README and the tutorials in the same place."""
    for document in FIRST_PAGES:
        check_run([block for block in blocks(document) if block.is_python], tmp_path, "here")


@pytest.mark.parametrize("block", [one for one in PYTHON_BLOCKS if one.document in FIRST_PAGES], ids=str)
def test_what_people_save_has_a_name(block: Block) -> None:
    assert block.saved_as is not None, "its first line says the file: `# emails.py`"


@pytest.mark.parametrize("block", [one for one in PYTHON_BLOCKS if one.saved_as is not None], ids=str)
def test_what_people_save_hides_no_module_that_others_import(block: Block) -> None:
    """A `calendar.py` in the folder of a program is what its libraries import then."""
    name = str(block.saved_as).removesuffix(".py")
    assert name not in sys.stdlib_module_names
    assert importlib.util.find_spec(name) is None, "an installed package has this name"


def test_no_block_is_exempt() -> None:
    assert [str(block) for block in PYTHON_BLOCKS if block.info != "python"] == [], (
        "a Python block has no flags: it runs"
    )


def test_the_readme_shows_a_program() -> None:
    assert any(block.document.name == "README.md" for block in PYTHON_BLOCKS)


def test_blocks_are_found_with_their_lines(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "# title\n\n```python\nawait x\n```\n\n```sh\nls\n```\n\n- item\n  ```python no-run\n  y\n  ```\n"
    )
    found = blocks(document)
    assert [(block.line, block.info, block.is_python) for block in found] == [
        (3, "python", True),
        (7, "sh", False),
        (12, "python no-run", True),
    ]
