"""Which names this program declares: what is decorated in this process, and what the sources of its modules say.

Asked for only when a run is about to execute something new beside what it recorded and has not asked for. The sources
are read then, each once, in a thread: the stack of whoever asks may be too deep for the parser.
"""

from __future__ import annotations

import ast
import asyncio
import re
import sys
import sysconfig
import threading
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

from stepwell.base.definitions import declared_names

_OUR_OWN: Final = str(Path(__file__).parents[1])
_LIBRARY: Final = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")})
_INSTALLED: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]")  # within the standard library's folder


@dataclass(frozen=True, slots=True)
class Program:
    """The names that this program declares, and their fingerprint."""

    names: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    functions: frozenset[str]
    code: str

    def __contains__(self, name: object) -> bool:
        """True if a step, a child or the function of a branch of this name is declared; as they stand in keys."""
        assert isinstance(name, str)
        if name in self.names or name in declared_names():
            return True
        if name.endswith(FUNCTION):
            function = name.removesuffix(FUNCTION)
            return function in self.functions or _is_loaded(function)
        return any(pattern.fullmatch(name) for pattern in self.patterns)


async def program() -> Program:
    """This program as it is now; a module that was imported since is read too."""
    return await asyncio.get_running_loop().run_in_executor(None, _sources.read)


class Sources:
    """The sources of the loaded modules, each read once."""

    def __init__(self) -> None:
        self.reads = 0  # files that were opened: nothing is read without a suspicion
        self._known: dict[str, Declared] = {}
        self._last: tuple[list[tuple[int, object]], Program] | None = None
        self._lock = threading.Lock()

    def read(self) -> Program:
        """What the modules declare that are loaded now."""
        with self._lock:
            loaded = [(id(module), vars(module).get("__file__")) for _, module in _loaded()]
            if self._last is None or self._last[0] != loaded:
                self._last = loaded, _together([self._declared(file) for file in sorted(set(_files()))])
            return self._last[1]

    def _declared(self, file: str) -> Declared:
        if file not in self._known:
            self._known[file] = self._read(file)
        return self._known[file]

    def _read(self, file: str) -> Declared:
        self.reads += 1
        try:
            with tokenize.open(file) as opened:
                text = opened.read()
            return declared_in(text)
        except Exception:  # noqa: BLE001 - gone, no text, no Python of this version, nested too deep: it says nothing
            return NOTHING


_sources: Final = Sources()


def _files() -> Iterable[str]:
    """The sources of loaded modules; no standard library, nothing of ours, no package that knows nothing of us."""
    loaded = _loaded()
    concerned = {_package(name) for name, module in loaded if any(map(_is_ours, tuple(vars(module).values())))}
    for name, module in loaded:
        file = vars(module).get("__file__")
        if not isinstance(file, str) or not file.endswith(".py") or file.startswith(_OUR_OWN):
            continue
        installed = _INSTALLED.search(file)
        if _package(name) in concerned if installed else not file.startswith(_LIBRARY):
            yield file


def _loaded() -> list[tuple[str, ModuleType]]:
    return [(name, module) for name, module in tuple(sys.modules.items()) if issubclass(type(module), ModuleType)]


def _package(module: str) -> str:
    return module.partition(".")[0]


def _is_ours(one: object) -> bool:
    """True for what came from here.

    By `type()`, since `isinstance` asks an object for its class too, and a lazy one, as Django's settings, then makes
    itself or raises.
    """
    kind = type(one)
    if issubclass(kind, ModuleType):
        return _package(vars(one).get("__name__") or "") == "stepwell"
    made = getattr(one, "__module__", None) if issubclass(kind, type | FunctionType) else kind.__module__
    return isinstance(made, str) and _package(made) == "stepwell"


def _together(each: Sequence[Declared]) -> Program:
    said = [one for one in each if one.names or one.patterns]
    names = frozenset(name for one in said for name in one.names)
    patterns = sorted({pattern for one in said for pattern in one.patterns})
    functions = frozenset(name for one in each for name in one.functions)
    # Neither the names of modules nor their order count: the same code may be a script here and a module there.
    text = repr((sorted((one.names, one.patterns) for one in said), sorted(declared_names(lasting=True))))
    code = blake2b(text.encode(), digest_size=8).hexdigest()
    return Program(names, tuple(re.compile(one, re.DOTALL) for one in patterns), functions, code)


def _is_loaded(function: str) -> bool:
    """True if a loaded module has a function of this qualified name: libraries have branches of their own."""
    first, *rest = function.split(".")
    for _, module in _loaded():
        found = vars(module).get(first)
        for name in rest:
            found = vars(found).get(name) if issubclass(type(found), type) else None
        if _qualified_name(found) == function:
            return True
    return False


def _qualified_name(one: object) -> object:
    """That of a function or class, a compiled one too; a lazy object is not asked."""
    has_one = any("__qualname__" in vars(kind) for kind in type(one).__mro__)
    return getattr(one, "__qualname__", None) if has_one else None


# ---- Which names the text of a module declares: of steps, of workflows, of functions. Pure: text in, names out.


CHILD: Final = "()"  # behind the name of a workflow, as in the key of a child
FUNCTION: Final = "/"  # behind the name of a function, as in the path of a branch
CALLS: Final = frozenset(("step", "acquire", "check_step", "wait"))  # their first argument is a name in the run
DECORATORS: Final = {"step": "id", "workflow": "name"}  # and the option that says the name
Spelling = tuple[str | None, ...]  # pieces of a name in order; None is a piece that only the program knows


@dataclass(frozen=True, slots=True)
class Declared:
    """What one text declares, in its order: names, patterns of names, and where its functions stand."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()  # regular expressions, of names that are put together
    functions: frozenset[str] = frozenset()


NOTHING: Final = Declared()


def declared_in(text: str) -> Declared:
    """What a module's text declares."""
    reader = _Reader(ast.parse(text))
    spelt = list(reader.spelt())
    whole = [("".join(piece or "" for piece in one) + end) for one, end in spelt if None not in one]
    put_together = [_pattern(one) + re.escape(end) for one, end in spelt if None in one and _says_something(one)]
    return Declared(tuple(whole), tuple(put_together), frozenset(name for _, name in reader.functions))


class _Reader:
    """One module's tree. Walked without recursion: an expression may be nested deeper than Python calls."""

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
        """Every name that is given, and what stands behind it in a key."""
        for function, _ in self.functions:
            yield from self._decorated(function)
        for call in self._called:
            called = self._aliases.get(_last(call.func), "")
            if called in CALLS and (given := _first(call, "name", "step_id")) is not None:
                yield from ((one, "") for one in self._spellings(given))
            elif called == "workflow" and call.args:
                yield from ((one, CHILD) for one in self._spellings(call.args[0]))

    def _seen(self, node: ast.AST, scope: str) -> str:
        """Note what is said at this node; where the nodes below it stand."""
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
        """How a name may be spelt: a variable as every text of this file that it is given."""
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
    """False for a name that may be any: it would declare whatever is gone."""
    return any(piece is not None and any(map(str.isalnum, piece)) for piece in spelling)


def _first(call: ast.Call, *names: str) -> ast.expr | None:
    """What a call is given first, or by one of these names."""
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
