"""SQL lives in .sql files, and nothing that is stored is ever executed."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.shape import sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READS = re.compile(r"\bselect\s.*\bfrom\s", re.IGNORECASE | re.DOTALL)
WRITES = re.compile(
    r"""\b( insert \s+ into \s
          | update \s+ \S+ \s+ set \s
          | delete \s+ from \s
          | (create|alter|drop) \s+ (table|index|view|schema|trigger|sequence) \s
          )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
GLUE = {
    "src/stepwell/store/sql.py": "expands the macros of the .sql files",
    "src/stepwell/store/rules.py": "has the texts of some of these macros",
    "src/stepwell/store/postgres/compose.py": "composes the parts of a flush into one statement",
    "src/stepwell/store/embedded/render.py": "spells a row set as JSON of many rows",
}  # may say `select ... from` around statements that stand in .sql files; may not write
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
COMPUTED_IMPORT = "import_module with a computed name"
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", COMPUTED_IMPORT}
NAMED_BY_A_PERSON = {
    "src/stepwell/cli/parse.py": {COMPUTED_IMPORT},  # APP on the command line, never a stored name
    "src/stepwell/work/process_child.py": {COMPUTED_IMPORT},  # that of a function of its parent
}


def is_sql(text: str, *, glue: bool = False) -> bool:
    return bool(WRITES.search(text)) or (not glue and bool(READS.search(text)))


def texts(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string of a module that is a value, with its line; an f-string's holes read as `x`."""
    skip = sources.docstrings(module)
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr):
            skip.update(node.values)
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skip:
            yield node.lineno, node.value


def imported(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, (node.module or "").partition(".")[0]


def called(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.lineno, node.func.id
            named = node.args and isinstance(node.args[0], ast.Constant)
            if ast.unparse(node.func).endswith("import_module") and not named:
                yield node.lineno, COMPUTED_IMPORT


@pytest.mark.proves("security-02")
def test_sql_lives_in_sql_files() -> None:
    assert [
        f"{name}:{line} {text!r}"
        for path in sources.MODULES
        for name in [sources.name(path)]
        for line, text in texts(sources.tree(path))
        if is_sql(text, glue=name in GLUE)
    ] == []


@pytest.mark.proves("security-01")
def test_no_code_from_data() -> None:
    assert [one for path in sources.MODULES for one in code_from_data(path)] == []


def code_from_data(path: Path) -> Iterator[str]:
    """Where a module imports or calls what makes code of data."""
    name, module = sources.name(path), sources.tree(path)
    yield from (f"{name}:{line} imports {one}" for line, one in imported(module) if one in FORBIDDEN_MODULES)
    forbidden = FORBIDDEN_CALLS - NAMED_BY_A_PERSON.get(name, set())
    yield from (f"{name}:{line} calls {one}" for line, one in called(module) if one in forbidden)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select id from task where ready", True),
        ("INSERT INTO task values (1)", True),
        ("update stepwell_task\n set ready = true", True),
        ("delete from task", True),
        ("create table x (id int)", True),
        ("select a queue first", False),
        ("nothing to update in this set", False),
        ("begin immediate", False),
        ("pragma journal_mode = wal", False),
    ],
)
def test_the_heuristic_knows_sql_when_it_sees_it(text: str, expected: bool) -> None:
    assert is_sql(text) is expected
