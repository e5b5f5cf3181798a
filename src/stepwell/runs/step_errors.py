"""The errors of steps that gave up, recorded so that every replay raises the same exception as the first run."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from stepwell.errors import SerializationError, StepFailed
from stepwell.runs.call import StepDefinition
from stepwell.values.codec import decode, encode
from stepwell.work.outcome import GAVE_UP, RECORDED

KEPT_LIMIT: Final = 1 << 18  # bytes of the arguments, or of the fields, of an exception
PASSED_ON: Final = ("type", "message", "code", "args", "fields", "as")  # to the run that called the step


def kept_of(error: Exception, raises: tuple[type[Exception], ...]) -> dict[str, Any]:
    """What is recorded of an exception besides its message, if it is an instance of a class in `raises`."""
    named = next((cls for cls in raises if isinstance(error, cls)), None)
    if named is None:
        return {}
    told: dict[str, Any] = {"args": _stored(list(_arguments_of(error))), "fields": _fields_of(error)}
    if type(error) not in raises:
        told["as"] = named.__name__
    return told


def failure_of(definition: StepDefinition, key: str, error: str) -> Exception:
    """The exception of a step that gave up, from its record: of a class in `raises`, else `StepFailed`."""
    told: dict[str, Any] = decode(error)
    kind, message = str(told.get("type", "error")), str(told.get("message", ""))
    named = told.get("as", kind)
    found = [_built(cls, told) for cls in definition.raises if cls.__name__ == named]
    failure = next((one for one in found if one is not None), None) or StepFailed(key, kind, message, told)
    BaseException.__setattr__(failure, GAVE_UP, key)  # also on one that is frozen
    BaseException.__setattr__(failure, RECORDED, {name: told[name] for name in PASSED_ON if name in told})
    return failure


def _built(cls: type[Exception], told: dict[str, Any]) -> Exception | None:
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
