"""What a step gave up with, recorded so that the same exception is raised on the first run and on every replay."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from stepwell.errors import SerializationError, StepFailed
from stepwell.runs.call import StepDefinition
from stepwell.values.codec import decode, encode
from stepwell.work.outcome import GAVE_UP, RECORDED

KEPT_LIMIT: Final = 1 << 18  # bytes of what an exception was given, or holds
PASSED_ON: Final = ("type", "message", "code", "args", "fields", "as")  # to the run that asked for the step


def kept_of(error: Exception, raises: tuple[type[Exception], ...]) -> dict[str, Any]:
    """What is recorded of an exception besides its message, if its class is among `raises` or below one of them."""
    named = next((cls for cls in raises if isinstance(error, cls)), None)
    if named is None:
        return {}
    told: dict[str, Any] = {"args": _stored(list(_arguments_of(error))), "fields": _fields_of(error)}
    if type(error) not in raises:
        told["as"] = named.__name__
    return told


def failure_of(definition: StepDefinition, key: str, error: str) -> Exception:
    """The exception of a step that gave up, from what is recorded: of a class of `raises`, else `StepFailed`."""
    told: dict[str, Any] = decode(error)
    kind, message = str(told.get("type", "error")), str(told.get("message", ""))
    named = told.get("as", kind)
    found = [_built(cls, told) for cls in definition.raises if cls.__name__ == named]
    failure = next((one for one in found if one is not None), None) or StepFailed(key, kind, message, told)
    BaseException.__setattr__(failure, GAVE_UP, key)  # also on one that is frozen
    BaseException.__setattr__(failure, RECORDED, {name: told[name] for name in PASSED_ON if name in told})
    return failure


def _built(cls: type[Exception], told: dict[str, Any]) -> Exception | None:
    """The exception once more; None if it cannot be.

    By its class, if that makes the same of what it was given. Many make their message of other arguments, or take them
    by name only: such a one is put together without asking the class.
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
    made: Any = error.__reduce__() if isinstance(error, OSError) else ()  # it has more than it shows: the file
    arguments: tuple[Any, ...] = made[1] if made and made[0] is type(error) else error.args
    return arguments


def _fields_of(error: Exception) -> dict[str, Any]:
    """What the exception holds by name, as far as it comes back as itself, and all of it fits."""
    kept: dict[str, Any] = {}
    for name, value in vars(error).items():
        with suppress(Exception):  # it cannot be stored, or not be compared
            if not name.startswith("__") and decode(encode(value)) == value:
                kept[name] = value
    return _stored(kept) or {}


def _stored(value: Any) -> Any:
    try:
        return decode(encode(value, limit=KEPT_LIMIT))
    except SerializationError:
        return None
