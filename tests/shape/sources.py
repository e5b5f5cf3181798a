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


def module(path: Path) -> str:
    """`store.flush` for src/stepwell/store/flush.py, `store` for its package, nothing for the package of all."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement to the last; signature and docstring are free."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


@cache
def imports() -> dict[str, frozenset[str]]:
    """For every module of stepwell the others that it imports, wherever the import stands."""
    known = {module(path) for path in MODULES}
    return {module(path): frozenset(_imported(path, known) - {module(path)}) for path in MODULES}


def _imported(path: Path, known: set[str]) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {one for one in inside if one.removeprefix("stepwell.") in known}
            names |= modules or {node.module}
    return {one.removeprefix("stepwell.") for one in names if one.startswith("stepwell.")} & known


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
