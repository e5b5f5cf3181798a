"""What this program declares: by decorators in this process, and in the sources of its modules.

The sources are read only when a run is about to execute a new step while it has recorded others that it has not
reached. Each is read once, in a thread: the stack of the caller may be too deep for the parser.
"""

from __future__ import annotations

import asyncio
import re
import sys
import sysconfig
import threading
import tokenize
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from stepwell.base.source_names import FUNCTION, NOTHING, Declared, declared_in


class Definition(NamedTuple):
    """What a workflow returns, and the classes of its exceptions that its callers get."""

    returns: Any = Any
    raises: tuple[type[Exception], ...] = ()


UNKNOWN: Final = Definition()
_OUR_OWN: Final = str(Path(__file__).parents[1])
_LIBRARY: Final = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")})
_INSTALLED: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]")  # within the standard library's folder
_known: Final[dict[str, tuple[tuple[weakref.ref[object], Definition], ...]]] = {}  # by name, the last last
_declared: Final[weakref.WeakKeyDictionary[object, str]] = weakref.WeakKeyDictionary()
_lasting: Final[weakref.WeakKeyDictionary[object, str]] = weakref.WeakKeyDictionary()


def know(one: object, name: str, definition: Definition) -> None:
    """Register what a workflow or handler of this name returns and raises, until it is freed."""
    live = (each for each in _known.get(name, ()) if each[0]() is not None)
    _known[name] = (*live, (weakref.ref(one), definition))


def definition_of(name: str) -> Definition:
    """What the workflow returns and raises that this process has defined last with this name."""
    return next((each for one, each in reversed(_known.get(name, ())) if one() is not None), UNKNOWN)


class Definitions:
    """What workflows return and raise, for one store: as its workers and triggers have named them, else the process."""

    def __init__(self) -> None:
        self._named: dict[str, Definition] = {}

    def name(self, workflow: str, definition: Definition) -> None:
        """This store uses the workflow with this definition."""
        if definition is not UNKNOWN:
            self._named[workflow] = definition

    def of(self, workflow: str) -> Definition:
        """What the workflow of this name returns and raises."""
        return self._named.get(workflow) or definition_of(workflow)


def declare(definition: object, name: str, function: object) -> None:
    """Register the name of a step or workflow until its definition is freed; not lasting if a function defined it."""
    _declared[definition] = name
    if "<locals>" not in getattr(function, "__qualname__", "<locals>"):
        _lasting[definition] = name


def declared() -> list[object]:
    """The steps and workflows of this process."""
    while True:
        try:
            return list(_declared)
        except RuntimeError:  # another thread has defined something meanwhile
            continue


def declared_names(*, lasting: bool = False) -> frozenset[str]:
    """The names that are declared now; the lasting ones are the same in every process with the same modules."""
    while True:
        try:
            return frozenset((_lasting if lasting else _declared).values())
        except RuntimeError:  # another thread has defined something meanwhile
            continue


@dataclass(frozen=True, slots=True)
class Program:
    """The names that this program declares, and their fingerprint."""

    names: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    functions: frozenset[str]
    code: str

    def __contains__(self, name: object) -> bool:
        """True if a step, a child or the function of a branch is declared; `name` is as in keys."""
        assert isinstance(name, str)
        if name in self.names or name in declared_names():
            return True
        if name.endswith(FUNCTION):
            function = name.removesuffix(FUNCTION)
            return function in self.functions or _is_loaded(function)
        return any(pattern.fullmatch(name) for pattern in self.patterns)


async def program() -> Program:
    """The current program; modules that were imported since the last call are read too."""
    return await asyncio.get_running_loop().run_in_executor(None, _sources.read)


class Sources:
    """The sources of the loaded modules, each read once."""

    def __init__(self) -> None:
        self.reads = 0  # number of files that were opened
        self._known: dict[str, Declared] = {}
        self._last: tuple[list[tuple[int, object]], Program] | None = None
        self._lock = threading.Lock()

    def read(self) -> Program:
        """The declarations of the modules that are loaded now."""
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
    """The sources of loaded modules, without the standard library, stepwell and packages that do not use stepwell."""
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
    """True for an object of stepwell.

    By `type()`: `isinstance` also reads `__class__`, and a lazy object, as Django's settings, then loads or raises.
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
    # Without the names and the order of modules: the same code may be a script here and a module there.
    text = repr((sorted((one.names, one.patterns) for one in said), sorted(declared_names(lasting=True))))
    code = blake2b(text.encode(), digest_size=8).hexdigest()
    return Program(names, tuple(re.compile(one, re.DOTALL) for one in patterns), functions, code)


def _is_loaded(function: str) -> bool:
    """True if a loaded module has a function of this qualified name: libraries create branches too."""
    first, *rest = function.split(".")
    for _, module in _loaded():
        found = vars(module).get(first)
        for name in rest:
            found = vars(found).get(name) if issubclass(type(found), type) else None
        if _qualified_name(found) == function:
            return True
    return False


def _qualified_name(one: object) -> object:
    """The qualified name of a function or class, also of a compiled one; does not touch lazy objects."""
    has_one = any("__qualname__" in vars(kind) for kind in type(one).__mro__)
    return getattr(one, "__qualname__", None) if has_one else None
