"""Durable queues, durable workflows and event-sourced deciders in the database you already have.

All public names stand in `api`, which is imported when the first of them is used, so that `stepwell --help`, which
needs none of them, answers at once. The modules beside it are the nouns that users import, one file each; the packages
hold their implementation. A module that has nothing public must not be at this level.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.api import *  # noqa: F403


class _Package(ModuleType):
    """This package: its public names are in `api`; a module of the same name never hides one."""

    def __getattr__(self, name: str) -> Any:
        # Not `from stepwell import api`: that would first ask this package for an attribute `api`. The attributes that
        # Python itself reads of every module (`__path__`, `__wrapped__`, ...) are no reason to import anything.
        if name in _ASKED_FOR or not name.startswith("__"):
            public = vars(import_module("stepwell.api"))
            if name in public:
                self.__dict__[name] = public[name]
                return public[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=self)

    def __setattr__(self, name: str, value: object) -> None:
        # When `stepwell/step.py` is imported, Python sets `stepwell.step` to that module: it has to stay the decorator.
        if not (isinstance(value, ModuleType) and name in _HIDDEN):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


_ASKED_FOR = frozenset({"__all__", "__version__"})
_HIDDEN = frozenset({"connect", "consumer", "step", "workflow"})
sys.modules[__name__].__class__ = _Package
