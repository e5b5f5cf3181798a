"""No file and no function becomes a god."""

from __future__ import annotations

import ast

from tests.shape import sources
from tests.shape.map import LARGE

FILE_LINES = LARGE  # aim for 300
FUNCTION_LINES = 45  # aim for 25


def test_files_stay_small() -> None:
    assert [sources.name(path) for path in sources.MODULES if sources.lines(path) > FILE_LINES] == []


def test_functions_stay_small() -> None:
    assert [
        f"{sources.name(path)}:{node.lineno} {node.name} has {sources.body_lines(node)} lines"
        for path in sources.MODULES
        for node in ast.walk(sources.tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and sources.body_lines(node) > FUNCTION_LINES
    ] == []
