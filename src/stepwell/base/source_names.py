"""The names that the text of a module declares: of steps, of workflows, of functions. Pure: text in, names out."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

CHILD: Final = "()"  # follows the name of a workflow in the key of a child
FUNCTION: Final = "/"  # follows the name of a function in the path of a branch
CALLS: Final = frozenset(("step", "acquire", "check_step", "wait"))  # calls whose first argument is a name in the run
DECORATORS: Final = {"step": "id", "workflow": "name"}  # with the option for the name
Spelling = tuple[str | None, ...]  # the parts of a name in order; None for a part that is only known at run time


@dataclass(frozen=True, slots=True)
class Declared:
    """The declarations of one text, in order: names, patterns of names, and qualified names of functions."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()  # regular expressions, for names that are built at run time
    functions: frozenset[str] = frozenset()


NOTHING: Final = Declared()


def declared_in(text: str) -> Declared:
    """The declarations in the text of a module."""
    reader = _Reader(ast.parse(text))
    spelt = list(reader.spelt())
    whole = [("".join(piece or "" for piece in one) + end) for one, end in spelt if None not in one]
    put_together = [_pattern(one) + re.escape(end) for one, end in spelt if None in one and _says_something(one)]
    return Declared(tuple(whole), tuple(put_together), frozenset(name for _, name in reader.functions))


class _Reader:
    """The syntax tree of a module. Walked without recursion: an expression may be nested too deep for that."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]] = []
        self._called: list[ast.Call] = []
        self._aliases: dict[str, str] = {name: name for name in (*CALLS, *DECORATORS)}
        self._texts: defaultdict[str, list[ast.expr]] = defaultdict(list)
        waiting: list[tuple[ast.AST, str]] = [(tree, "")]
        while waiting:
            node, scope = waiting.pop()
            inner = self._seen(node, scope)
            waiting += [(child, inner) for child in reversed(list(ast.iter_child_nodes(node)))]

    def spelt(self) -> Iterator[tuple[Spelling, str]]:
        """Every declared name, with the mark that follows it in a key."""
        for function, _ in self.functions:
            yield from self._decorated(function)
        for call in self._called:
            called = self._aliases.get(_last(call.func), "")
            if called in CALLS and (given := _first(call, "name", "step_id")) is not None:
                yield from ((one, "") for one in self._spellings(given))
            elif called == "workflow" and call.args:
                yield from ((one, CHILD) for one in self._spellings(call.args[0]))

    def _seen(self, node: ast.AST, scope: str) -> str:
        """Take the declarations of this node; returns the qualified name of the scope below it."""
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.functions.append((node, scope + name))
                return f"{scope}{name}.<locals>."
            case ast.ClassDef(name=name):
                return f"{scope}{name}."
            case ast.Call():
                self._called.append(node)
            case ast.ImportFrom():
                self._aliases |= {
                    one.asname: one.name for one in node.names if one.asname and one.name in self._aliases
                }
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._texts[_last(target)].append(value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                self._texts[_last(target)].append(value)
            case ast.For(target=target, iter=ast.Tuple(elts=values) | ast.List(elts=values)):
                self._texts[_last(target)] += values
            case _:
                pass
        return scope

    def _decorated(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[Spelling, str]]:
        for decorator in function.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            kind = self._aliases.get(_last(decorator if call is None else call.func), "")
            if (option := DECORATORS.get(kind)) is None:
                continue
            given = None if call is None else _first(ast.Call(call.func, [], call.keywords), option)
            spellings = [(function.name,)] if given is None else self._spellings(given)
            yield from ((one, CHILD if kind == "workflow" else "") for one in spellings)

    def _spellings(self, given: ast.expr) -> list[Spelling]:
        """The possible spellings of a name: a variable stands for every text that this file assigns to it."""
        match given:
            case ast.IfExp(body=one, orelse=other):
                return [*self._spellings(one), *self._spellings(other)]
            case ast.Name() | ast.Attribute():
                return [_spelling(text) for text in self._texts.get(_last(given), ())]
            case _:
                return [_spelling(given)]


def _spelling(given: ast.expr) -> Spelling:
    match given:
        case ast.Constant(value=str() as text):
            return (text,)
        case ast.JoinedStr(values=values):
            return tuple(piece for value in values for piece in _spelling(value))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (*_spelling(left), *_spelling(right))
        case ast.BinOp(left=ast.Constant(value=str() as text), op=ast.Mod()):
            return _around(re.split(r"%(?:\(\w*\))?[-+ #0-9.]*[a-zA-Z]", text))
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str() as text), attr="format")):
            return _around(re.split(r"\{[^{}]*\}", text))
        case _:
            return (None,)


def _around(pieces: Sequence[str]) -> Spelling:
    return tuple(piece for text in pieces for piece in (text, None))[:-1]


def _pattern(spelling: Spelling) -> str:
    return "".join(".*" if piece is None else re.escape(piece) for piece in spelling)


def _says_something(spelling: Spelling) -> bool:
    """False for a pattern that matches any name: it would declare every missing step."""
    return any(piece is not None and any(map(str.isalnum, piece)) for piece in spelling)


def _first(call: ast.Call, *names: str) -> ast.expr | None:
    """The first argument of a call, or the one with one of these keywords."""
    if call.args:
        return call.args[0]
    given: Mapping[str | None, ast.expr] = {keyword.arg: keyword.value for keyword in call.keywords}
    return next((given[name] for name in names if name in given), None)


def _last(node: ast.expr) -> str:
    """The last word of a dotted name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
