"""What this process has defined: the type of its workflows' results, and the names of its steps and workflows."""

from __future__ import annotations

import weakref
from typing import Any, Final

_results: Final[dict[str, Any]] = {}
_declared: Final[weakref.WeakKeyDictionary[object, str]] = weakref.WeakKeyDictionary()
_lasting: Final[weakref.WeakKeyDictionary[object, str]] = weakref.WeakKeyDictionary()


def know(name: str, returns: Any) -> None:
    """Register the result type of a workflow; the last definition of a name counts."""
    _results[name] = returns


def result_type(name: str) -> Any:
    """The result type of the workflow; Any if it has no annotation, or is not defined in this process."""
    return _results.get(name, Any)


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
