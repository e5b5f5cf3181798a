"""The deciders and engines in the modules of an application."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator
from types import ModuleType
from typing import Any, TypeGuard

from stepwell.decider import Decider
from stepwell.deciders.service import Service
from stepwell.errors import InvalidOption
from stepwell.store.store import Store

AnyDecider = Decider[Any, Any, Any, Any]


def deciders_in(modules: Iterable[ModuleType], known: Collection[str] = ()) -> Iterator[AnyDecider]:
    """The deciders in these modules, and one of each class that they define without an instance; not the `known` types.

    A class that lacks a method or its `type` is a base class and is left out.
    """
    modules = list(modules)
    values = [each for module in modules for each in vars(module).values()]
    made = {id(each): each for each in values if isinstance(each, Decider) and _type_of(each) not in known}
    yield from made.values()
    besides = {*known, *map(_type_of, made.values())}
    for module in modules:
        classes = dict.fromkeys(each for each in vars(module).values() if is_decider(each, module))
        yield from (make(each) for each in classes if each.type not in besides)


def engines_in(modules: Iterable[ModuleType], store: Store) -> list[Service]:
    """The engines of this store in these modules; those of other stores are left out."""
    values = [each for module in modules for each in vars(module).values()]
    return [each for each in values if isinstance(each, Service) and each.store is store]


def is_decider(one: object, module: ModuleType) -> TypeGuard[type[AnyDecider]]:
    """True for a Decider class of the module that has all of its methods and its type."""
    if not (inspect.isclass(one) and issubclass(one, Decider) and one.__module__ == module.__name__):
        return False
    return not inspect.isabstract(one) and hasattr(one, "type")


def make(cls: type[AnyDecider]) -> AnyDecider:
    """A decider of the class; InvalidOption if its constructor needs arguments."""
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        name = cls.__name__
        why = f"it cannot be made without arguments ({error}); make one in its module: `{name.lower()} = {name}(...)`"
        raise InvalidOption("decider", name, why) from error
    return cls()


def _type_of(decider: AnyDecider) -> str:
    return getattr(decider, "type", "")  # a missing type is refused, with the reason, when it is registered
