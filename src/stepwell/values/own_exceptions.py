"""The program's own exceptions as plain data, and back: without pickle, and only of classes that were named."""

from __future__ import annotations

import inspect
import types
import typing
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from stepwell.errors import ExecutionFailed, InvalidOption, SerializationError
from stepwell.values.codec import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEPT_LIMIT: Final = 1 << 18  # bytes of the arguments, or of the fields, of an exception
PLAIN: Final = frozenset((str, int, float, bool, type(None), list, dict, object, Any))  # what JSON gives back as it was


def kept_of(error: Exception, raises: tuple[type[Exception], ...]) -> dict[str, Any]:
    """What is recorded of an exception besides its message, if it is an instance of a class in `raises`."""
    named = next((cls for cls in raises if isinstance(error, cls)), None)
    if named is None:
        return {}
    told: dict[str, Any] = {"args": _stored(list(_arguments_of(error))), "fields": _fields_of(error)}
    if type(error) not in raises:
        told["as"] = named.__name__
    return told


def rebuilt(told: Mapping[str, Any], raises: Iterable[type[Exception]]) -> Exception | None:
    """The exception that was recorded so, of a class in `raises`; None if there is none, or it cannot be built."""
    named = told.get("as", told.get("type"))
    found = (_built(cls, told) for cls in raises if cls.__name__ == named)
    return next((one for one in found if one is not None), None)


def failure_of_run(run_id: int, raises: tuple[type[Exception], ...], error: Mapping[str, Any] | None) -> Exception:
    """The failure of a run for who waits for it: of a class in its workflow's `raises`, else `ExecutionFailed`."""
    failed = ExecutionFailed(run_id, error)
    own = None if error is None else rebuilt(error, raises)
    if own is None:
        return failed
    BaseException.__setattr__(own, "__cause__", failed)  # which names the run, and how to try it again
    return own


def check_raises(raises: object) -> tuple[type[Exception], ...]:
    """The classes; raises if these are no exception classes."""
    if isinstance(raises, tuple) and all(isinstance(one, type) and issubclass(one, Exception) for one in raises):
        return raises
    raise InvalidOption("raises", raises, "it is a tuple of exception classes")


def check_rebuilt(cls: type[Exception]) -> None:
    """Refuse a class whose exceptions could not be built again from what JSON keeps of their arguments."""
    if issubclass(cls, BaseExceptionGroup):
        raise InvalidOption("raises", cls, "a group holds exceptions, which are not kept; name the class of one")
    if getattr(cls, "__abstractmethods__", None):
        raise InvalidOption("raises", cls, "it is abstract; name the classes that are raised")
    made = cls.__init__
    if not inspect.isfunction(made):
        return  # of a built-in class: it takes anything
    try:
        hints = typing.get_type_hints(made)
    except Exception:  # noqa: BLE001 - a name that is not defined yet says nothing
        return
    for name, annotation in hints.items():
        if name != "return" and not _is_plain(annotation):
            told = getattr(annotation, "__qualname__", str(annotation))
            why = f"its `{name}` is a {told}, which JSON does not give back; let it take text, numbers or lists"
            raise InvalidOption("raises", cls, why)


def _is_plain(annotation: Any) -> bool:
    """Whether JSON gives every value of this type back as it was."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal or isinstance(annotation, typing.TypeVar):
        return True
    if origin in (typing.Union, types.UnionType, list):
        return all(map(_is_plain, parts))
    if origin is dict:
        return parts[0] in (str, Any) and _is_plain(parts[1])
    return annotation in PLAIN


def _built(cls: type[Exception], told: Mapping[str, Any]) -> Exception | None:
    """The exception built again; None if that is not possible.

    By calling its class, if the result has the same message and fields. Many classes build their message from other
    arguments, or take them by keyword only: such an exception is built without calling `__init__`.
    """
    args, fields = told.get("args"), told.get("fields") or {}
    if args is None:
        return None
    with suppress(Exception):
        made = cls(*args)
        if str(made) == told.get("message") and all(vars(made).get(name) == fields[name] for name in fields):
            return made
    with suppress(Exception):
        put = cls.__new__(cls, *args)
        BaseException.__setattr__(put, "args", tuple(args))
        vars(put).update(fields)
        return put
    return None


def _arguments_of(error: Exception) -> tuple[Any, ...]:
    made: Any = error.__reduce__() if isinstance(error, OSError) else ()  # its args lack the file name
    arguments: tuple[Any, ...] = made[1] if made and made[0] is type(error) else error.args
    return arguments


def _fields_of(error: Exception) -> dict[str, Any]:
    """The attributes of the exception that JSON preserves; none if together they are too large."""
    kept: dict[str, Any] = {}
    for name, value in vars(error).items():
        with suppress(Exception):  # it cannot be stored or compared
            if not name.startswith("__") and decode(encode(value)) == value:
                kept[name] = value
    return _stored(kept) or {}


def _stored(value: Any) -> Any:
    try:
        return decode(encode(value, limit=KEPT_LIMIT))
    except SerializationError:
        return None
