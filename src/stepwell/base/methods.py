"""Methods that are steps, workflows or handlers: how they are told from functions, named, and bound to an instance."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any, Final

from stepwell.errors import InvalidOption

SELF: Final = "self"  # the first parameter of a method


def is_method(fn: object, what: str) -> bool:
    """Whether a function that is decorated in the body of a class takes its instance; refuses what never will."""
    name = getattr(fn, "__name__", repr(fn))
    if isinstance(fn, staticmethod | classmethod):
        why = "it has no instance: leave @staticmethod or @classmethod out and give it `self`, or make it a function"
        raise InvalidOption(what, name, why)
    if not inspect.isfunction(fn):
        return False
    first = fn.__code__.co_varnames[:1] if fn.__code__.co_argcount else ()
    if first == ("cls",):
        raise InvalidOption(what, name, "a class cannot be stored, nor served: give it `self`, or make it a function")
    if first != (SELF,):
        return False
    if owner_of(fn) is None:
        raise InvalidOption(what, name, "it takes `self` and stands in no class: define it there, or leave `self` out")
    return True


def owner_of(fn: object) -> str | None:
    """The name of the class in whose body a function stands; None if it stands in none."""
    owner, _, _ = str(getattr(fn, "__qualname__", "")).rpartition(".")
    return None if not owner or owner.endswith("<locals>") else owner.rpartition(".")[2]


def name_of_method(fn: Callable[..., Any]) -> str:
    """The name of a method with that of its class: `Billing.charge`, the same for every instance and subclass."""
    return f"{owner_of(fn)}.{fn.__name__}"


def refuse_method(*, takes_self: bool, **options: object) -> None:
    """Refuse options that only functions may have."""
    for name, value in options.items():
        if takes_self and value is not None:
            raise InvalidOption(name, value, "a method has none: make it a function that is given what it needs")


def unserved_method(name: str, fn: object) -> InvalidOption:
    """The error for a method that is served without an instance."""
    why = f"it is a method: serve an instance of its class, `Worker(store, [{owner_of(fn)}(...)])`"
    return InvalidOption("serves", name, why)


def bound(fn: Callable[..., Any], instance: object) -> Callable[..., Any]:
    """The function with its instance."""
    return MethodType(fn, instance)


def members_of(instance: object) -> Iterator[tuple[str, Any]]:
    """What stands in the classes of an instance, by name, as it stands there; not what a subclass replaces."""
    seen: set[str] = set()
    for cls in type(instance).__mro__:
        for name, member in vars(cls).items():
            if name not in seen:
                seen.add(name)
                yield name, member
