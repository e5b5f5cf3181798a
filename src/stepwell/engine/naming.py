"""What a step is called and how: a definition from whatever was given to `ctx.step`."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from stepwell.arguments import Arguments
from stepwell.codec import check_type
from stepwell.engine.calls import Definition
from stepwell.errors import InvalidName, InvalidOption
from stepwell.names import LONGEST_NAME

_LAMBDA: Final = "<lambda>"
_read: Final[weakref.WeakKeyDictionary[Callable[..., Any], Arguments]] = weakref.WeakKeyDictionary()


def definition_of(step: Any, args: tuple[Any, ...], returns: Any) -> tuple[Definition, tuple[Any, ...]]:
    """The step that is meant, and the arguments it is called with."""
    if not isinstance(step, str):
        definition = getattr(step, "definition", None)
        if not isinstance(definition, Definition):
            raise InvalidOption("step", step, "it is a name followed by a function, or a function decorated with @step")
        return definition, args
    name = checked_step(step)
    if not args or not callable(args[0]):
        raise InvalidOption("step", step, 'a name is followed by what to call: `ctx.step("fetch", fetch, url)`')
    fn, *rest = args
    decorated = getattr(fn, "definition", None)
    if isinstance(decorated, Definition):
        declared = decorated.returns if returns is None else _checked(returns)
        return replace(decorated, name=name, returns=declared), tuple(rest)
    is_async = inspect.iscoroutinefunction(fn)
    if not rest and getattr(fn, "__name__", None) == _LAMBDA:
        return Definition(name, fn, None, Any if returns is None else _checked(returns), is_async=is_async), ()
    arguments = _arguments_of(fn)
    declared = arguments.returns if returns is None else _checked(returns)
    taken = arguments if arguments.names or rest else None
    return Definition(name, fn, taken, declared, is_async=is_async), tuple(rest)


def checked_step(name: object) -> str:
    """The name, if a step may have it: printable text without the marks that stand between the parts of a key."""
    if not isinstance(name, str):
        raise InvalidName("step", name, f"a name is text, not {type(name).__name__}")
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or "/" in name or "#" in name:
        raise InvalidName("step", name, f"it has 1 to {LONGEST_NAME} printable characters, none of them / or #")
    return name


def _checked(returns: Any) -> Any:
    check_type(returns, what="returns")
    return returns


def _arguments_of(fn: Callable[..., Any]) -> Arguments:
    try:
        known = _read.get(fn)
    except TypeError:  # not every callable can be kept a weak reference to
        return Arguments.of(fn, "step")
    if known is None:
        known = _read[fn] = Arguments.of(fn, "step")
    return known
