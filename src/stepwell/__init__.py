"""Durable queues, durable workflows and event-sourced deciders in the database you already have.

Everything public stands in `api` and is imported when the first of it is asked for, so that `stepwell --help`, which
needs none of it, answers at once. The modules beside it are the nouns that users import, one file each; how they work
stands in the packages. A module that has nothing public must not be at this level.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.api import *  # noqa: F403


class _Package(ModuleType):
    """This package: what is public is in `api`; a module of the same name never hides it."""

    def __getattr__(self, name: str) -> Any:
        # Not `from stepwell import api`: that would first ask this package for an attribute `api`. What Python itself
        # asks every module for (`__path__`, `__wrapped__`, ...) is no reason to import anything.
        if name in _ASKED_FOR or not name.startswith("__"):
            public = vars(import_module("stepwell.api"))
            if name in public:
                self.__dict__[name] = public[name]
                return public[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=self)

    def __setattr__(self, name: str, value: object) -> None:
        # When `stepwell/step.py` is imported, Python sets `stepwell.step` to that module: it is to stay the decorator.
        if not (isinstance(value, ModuleType) and name in _HIDDEN):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


_ASKED_FOR = frozenset({"__all__", "__version__"})
_HIDDEN = frozenset({"connect", "consumer", "step", "workflow"})
sys.modules[__name__].__class__ = _Package
