"""Durable queues and durable workflows in the database you already have.

Everything public stands in `api` and is imported when the first of it is asked for, so that `stepwell --help`, which
needs none of it, answers at once.
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
        # Not `from stepwell import api`: that would first ask this package for an attribute `api`.
        value = vars(import_module("stepwell.api")).get(name) if name in _DUNDERS or name[:2] != "__" else None
        if value is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # When `stepwell/step.py` is imported, Python sets `stepwell.step` to that module: it is to stay the decorator.
        if not (isinstance(value, ModuleType) and name in _HIDDEN):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


_DUNDERS = frozenset({"__all__", "__version__"})
_HIDDEN = frozenset({"admin", "consumer", "step", "workflow"})
sys.modules[__name__].__class__ = _Package
