"""The source of a workflow or step, with what a run has done of it at its lines, and where it failed."""

from __future__ import annotations

import ast
import inspect
import io
import keyword
import textwrap
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Final

from stepwell.base.names import REQUEST
from stepwell.operate.status import glyph_of
from stepwell.records import RunStatus, StepInfo
from stepwell.step import Step
from stepwell.ui.failure import Failure
from stepwell.ui.timeline import WORDS
from stepwell.workflow import Workflow

MOST_LINES: Final = 400
NAMED_BY_TEXT: Final = ("step", "wait", "request", "sleep")  # methods of a context whose first argument is the name
KINDS: Final = {tokenize.STRING: "j-text", tokenize.NUMBER: "j-number", tokenize.COMMENT: "dim"}
Piece = tuple[str, str]  # the kind of a token, empty for none, and its text


@dataclass(frozen=True, slots=True)
class Source:
    """A function as it is written; `calls` are the names of the steps that a line calls, as records have them."""

    name: str
    file: str
    first: int
    lines: Sequence[Sequence[Piece]]
    texts: Sequence[str]
    calls: Mapping[int, frozenset[str]]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class SourceMark:
    """A recorded step at the line that calls it; of many of one name, the last."""

    glyph: str
    word: str
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line with its number; `state` says what became of it, `failed` where the error left it."""

    number: int
    pieces: Sequence[Piece]
    marks: Sequence[SourceMark]
    state: str


@dataclass(frozen=True, slots=True)
class SourceView:
    """A function as a page shows it; `differs` if the error left a line that reads otherwise here."""

    name: str
    place: str
    lines: Sequence[SourceLine]
    is_cut: bool
    differs: bool


@lru_cache(maxsize=256)
def source_of(fn: Callable[..., Any]) -> Source | None:
    """The source of a function as it was when it was first asked for; None where there is none to be read."""
    try:
        lines, first = inspect.getsourcelines(fn)
        file = inspect.getsourcefile(fn) or ""
    except (OSError, TypeError):
        return None
    text = textwrap.dedent("".join(lines))
    texts = text.splitlines()[:MOST_LINES]
    calls = {first + line - 1: names for line, names in _calls(text, fn).items()}
    return Source(fn.__name__, file, first, _painted(text)[:MOST_LINES], texts, calls, len(lines) > MOST_LINES)


def view_of(source: Source, steps: Sequence[StepInfo], failure: Failure | None) -> SourceView:
    """The source with the steps that a run has recorded, and with the line that its failure left."""
    by_name: dict[str, list[StepInfo]] = defaultdict(list)
    for step in steps:
        by_name[step.name].append(step)
    left = _left(source, failure)
    lines = []
    for at, pieces in enumerate(source.lines):
        number = source.first + at
        marks = [_mark(by_name[name]) for name in sorted(source.calls.get(number, ())) if name in by_name]
        words = {mark.word for mark in marks}
        order = ("failed", "running", "waiting", "queued", "succeeded")
        state = "failed" if number == left else next((word for word in order if word in words), "")
        lines.append(SourceLine(number, pieces, marks, state))
    place = f"{'/'.join(PurePath(source.file).parts[-2:])}:{source.first}"
    return SourceView(source.name, place, lines, source.is_cut, differs=left == 0)


def _left(source: Source, failure: Failure | None) -> int | None:
    """The line of this function that a failure left last; 0 if it reads otherwise here, None if it left none."""
    for frame in reversed(failure.frames if failure else ()):
        at = frame.line - source.first
        same_file = PurePath(frame.file).parts[-2:] == PurePath(source.file).parts[-2:]
        if same_file and frame.name.rpartition(".")[2] == source.name:
            reads_so = 0 <= at < len(source.texts) and frame.code in ("", source.texts[at].strip())
            return frame.line if reads_so else 0
    return None


def _mark(steps: Sequence[StepInfo]) -> SourceMark:
    failed = [step for step in steps if step.status is RunStatus.ERROR]
    one = (failed or [step for step in steps if not step.status.finished] or list(steps))[-1]
    return SourceMark(glyph_of(one.status), WORDS[one.status], one.key, len(steps))


def _calls(text: str, fn: Callable[..., Any]) -> Mapping[int, frozenset[str]]:
    """The names that the calls of each line have in the records of a run, by the line from the first on."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    known = {**getattr(fn, "__globals__", {}), **_closure(fn)}
    found: dict[int, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found[node.lineno].update(_names_of(node, known))
    return {line: frozenset(names) for line, names in found.items() if names}


def _closure(fn: Callable[..., Any]) -> Mapping[str, Any]:
    code, cells = getattr(fn, "__code__", None), getattr(fn, "__closure__", None)
    filled = zip(code.co_freevars if code else (), cells or (), strict=False)
    return {name: cell.cell_contents for name, cell in filled if _is_filled(cell)}


def _is_filled(cell: Any) -> bool:
    try:
        return bool(cell.cell_contents) or True
    except ValueError:
        return False


def _names_of(call: ast.Call, known: Mapping[str, Any]) -> Iterator[str]:
    """What a call is named in the records: itself, if it calls a step or workflow, and the step that it is given."""
    function = call.func
    yield from _recorded(_object(function, known))
    if isinstance(function, ast.Name) and function.id == "sleep":
        yield "sleep"
    if isinstance(function, ast.Attribute) and function.attr in NAMED_BY_TEXT:
        if function.attr == "sleep":
            yield "sleep"
        elif call.args and isinstance(call.args[0], ast.Constant):
            given = str(call.args[0].value)
            yield REQUEST + given if function.attr == "request" else given
    for argument in call.args:
        yield from _recorded(_object(argument, known))
        if isinstance(argument, ast.Call) and isinstance(argument.func, ast.Attribute):  # flow.trigger(...)
            yield from _recorded(_object(argument.func.value, known))
    if isinstance(function, ast.Attribute):
        yield from _recorded(_object(function.value, known))


def _recorded(one: Any) -> Iterator[str]:
    if isinstance(one, Step):
        yield one.id
    elif isinstance(one, Workflow):
        yield f"{one.name}()"


def _object(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """What a name, or a name within a module, stands for; None for anything else."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and inspect.ismodule(module := _object(node.value, known)):
        return vars(module).get(node.attr)
    return None


def _painted(text: str) -> list[list[Piece]]:
    """The lines as pieces, so that keywords, texts, numbers and comments differ; plain where it cannot be read."""
    lines = text.splitlines()
    painted: list[list[Piece]] = [[] for _ in lines]
    reached = [0] * len(lines)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            is_word = token.type == tokenize.NAME and keyword.iskeyword(token.string)
            kind = "j-key" if is_word else KINDS.get(token.type, "")
            for row in range(token.start[0] - 1, min(token.end[0], len(lines))) if kind else ():
                begin = token.start[1] if row == token.start[0] - 1 else 0
                end = token.end[1] if row == token.end[0] - 1 else len(lines[row])
                painted[row] += [("", lines[row][reached[row] : begin]), (kind, lines[row][begin:end])]
                reached[row] = end
    except (tokenize.TokenError, SyntaxError):
        pass
    for row, line in enumerate(lines):
        painted[row].append(("", line[reached[row] :]))
    return [[piece for piece in pieces if piece[1]] for pieces in painted]
