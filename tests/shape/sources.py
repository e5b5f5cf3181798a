"""The source files of the package, parsed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "stepwell"
MODULES = sorted(PACKAGE.rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=name(path))


def docstrings(module: ast.Module) -> set[ast.AST]:
    """The nodes that are documentation, not values: strings that stand alone as a statement."""
    return {
        node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
