"""What this process has defined: the type of its workflows' results, and the names of its steps and workflows."""

from __future__ import annotations

import weakref
from typing import Any, Final

_results: Final[dict[str, Any]] = {}
_declared: Final[weakref.WeakKeyDictionary[object, str]] = weakref.WeakKeyDictionary()
_lasting: Final[weakref.WeakKeyDictionary[object, str]] = weakref.WeakKeyDictionary()


def know(name: str, returns: Any) -> None:
    """A workflow of this name is defined here, and returns this; the definition made last counts."""
    _results[name] = returns


def result_type(name: str) -> Any:
    """The type of what the workflow returns; Any if it says nothing, or is not defined in this process."""
    return _results.get(name, Any)


def declare(definition: object, name: str, function: object) -> None:
    """A step or a workflow has this name for as long as its definition lives; not lasting if a function made it."""
    _declared[definition] = name
    if "<locals>" not in getattr(function, "__qualname__", "<locals>"):
        _lasting[definition] = name


def declared_names(*, lasting: bool = False) -> frozenset[str]:
    """The names that are declared just now; those that last are the same in every process with the same modules."""
    while True:
        try:
            return frozenset((_lasting if lasting else _declared).values())
        except RuntimeError:  # another thread has defined something meanwhile
            continue
