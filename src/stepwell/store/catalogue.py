"""The parts of a schema, read from the database's catalogue, and the first difference of two schemas: pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

Part = tuple[str, str, str]  # kind; the name of a table, index or view; a column's name or a constraint's text
Catalogue = dict[Part, str]  # the definition of every part, in one spelling


def catalogue_of(rows: Iterable[Sequence[str]], prefix: str = "") -> Catalogue:
    """The parts in rows of (kind, name, part, definition); `prefix` is removed from the names in definitions."""
    given = [tuple(row) for row in rows]
    # It is a prefix only before one of our names: in a schema called `task`, `task_id` is still a column.
    ours = {f"{prefix}{name}": name for _, name, _, _ in given}
    parts: Catalogue = {}
    for kind, name, part, definition in given:
        tokens = [ours.get(token, token) for token in _tokens(definition)]
        if kind == "table":
            parts[kind, name, ""] = ""
            parts.update(((inner, name, key), text) for inner, key, text in _taken_apart(tokens))
        else:
            parts[kind, name, _text(_tokens(part))] = _text(tokens)
    return parts


def first_difference(expected: Catalogue, found: Catalogue, full_name: Callable[[str], str]) -> str | None:
    """Say in words where the found schema first differs from the expected one; None if it does not.

    Tables, indexes and views that are not expected belong to the user and are ignored.
    """
    for at, definition in expected.items():
        kind, name, part = at
        if at not in found:
            return _missing(kind, full_name(name), part, definition)
        if found[at] != definition:
            return _changed(kind, full_name(name), part, definition, found[at])
    for at, definition in found.items():
        kind, name, part = at
        if at not in expected and ("table", name, "") in expected and kind in {"column", "constraint"}:
            return f"table {full_name(name)} has a {kind} it should not have: {f'{part} {definition}'.strip()}"
    return None


def _missing(kind: str, name: str, part: str, definition: str) -> str:
    match kind:
        case "column":
            return f"table {name} has no column {part} ({definition})"
        case "constraint":
            return f"table {name} lacks {part}"
        case _:
            return f"{kind} {name} is missing"


def _changed(kind: str, name: str, part: str, definition: str, found: str) -> str:
    match kind:
        case "column":
            return f"column {part} of table {name} is {_column(found)}, it should be {_column(definition)}"
        case "index":
            return f"index {name} is `{found}`, it should be `{definition}`"
        case _:
            return f"{kind} {name} is defined otherwise"


def _column(definition: str) -> str:
    return f"`{definition}`" if "not null" in definition else f"`{definition}` (may be null)"


def _taken_apart(tokens: Sequence[str]) -> Iterator[Part]:
    """The columns and constraints in the text of a CREATE TABLE; the checks of a column count as the table's."""
    if "(" not in tokens:
        return
    for item in _split(tokens[tokens.index("(") + 1 : -1]):
        if item[0] in {"check", "unique", "primary", "foreign", "constraint"}:
            yield "constraint", _text(item), ""
            continue
        column = list(item)
        while "check" in column:
            start = column.index("check")
            end = _closing(column, start + 1) + 1
            yield "constraint", _text(column[start:end]), ""
            del column[start:end]
        yield "column", column[0], _text(column[1:])


def _split(tokens: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut at the commas outside of parentheses."""
    start = depth = 0
    for place, word in enumerate(tokens):
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 0:
            yield tokens[start:place]
            start = place + 1
    yield tokens[start:]


def _closing(tokens: Sequence[str], opening: int) -> int:
    depth = 0
    for place in range(opening, len(tokens)):
        depth += (tokens[place] == "(") - (tokens[place] == ")")
        if depth == 0:
            return place
    return len(tokens) - 1


_TOKEN = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|\w+|[<>=!|]+|[^\s\w]""")


def _tokens(text: str) -> list[str]:
    """The words of a definition; case, spacing and quotes around names are ignored."""
    return [word if word.startswith("'") else word.strip('"').lower() for word in _TOKEN.findall(text)]


def _text(tokens: Sequence[str]) -> str:
    """The words joined again, for people."""
    return re.sub(r"(?<=[(.]) | (?=[),.])", "", " ".join(tokens))
