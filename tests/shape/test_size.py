"""No file and no function becomes a god."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.shape import sources
from tests.shape.map import LARGE

if TYPE_CHECKING:
    from pathlib import Path

FILE_LINES = LARGE  # aim for 300
FUNCTION_LINES = 45  # aim for 25


@pytest.mark.parametrize("path", sources.MODULES, ids=sources.name)
def test_files_stay_small(path: Path) -> None:
    assert sources.lines(path) <= FILE_LINES


@pytest.mark.parametrize("path", sources.MODULES, ids=sources.name)
def test_functions_stay_small(path: Path) -> None:
    long = [
        f"{sources.name(path)}:{node.lineno} {node.name} has {sources.body_lines(node)} lines"
        for node in ast.walk(sources.tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and sources.body_lines(node) > FUNCTION_LINES
    ]
    assert not long
