"""Every Python block of the documentation is a program, and runs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.shape.blocks import ROOT, Block, blocks, documents

if TYPE_CHECKING:
    from pathlib import Path

PYTHON_BLOCKS = [block for document in documents() for block in blocks(document) if block.is_python]
FIRST_PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / "tutorials" / f"{name}.md" for name in ("queue", "workflow", "decider")),
]
BY_ITSELF = [block for block in PYTHON_BLOCKS if block.document not in FIRST_PAGES]


def check_runs(block: Block, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.shape.blocks", str(block.document), str(block.line)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("block", BY_ITSELF, ids=str)
def test_block_runs(block: Block, tmp_path: Path) -> None:
    check_runs(block, tmp_path)


def test_what_people_meet_first_runs_from_top_to_bottom_in_one_folder(tmp_path: Path) -> None:
    """As somebody does who saves every block of the README and the tutorials in the same place."""
    for document in FIRST_PAGES:
        for block in blocks(document):
            if block.is_python:
                check_runs(block, tmp_path)


@pytest.mark.parametrize("block", PYTHON_BLOCKS, ids=str)
def test_no_block_is_exempt(block: Block) -> None:
    assert block.info == "python", "a Python block has no flags: it runs"


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
