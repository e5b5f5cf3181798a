"""A function's parameters as JSON: how the arguments of workflows and steps are stored and read back.

No argument is stored as null, one as itself, several as an object by name. A first parameter called `ctx` is the
context, and is never stored.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from stepwell.errors import InvalidOption, PayloadTooLarge, SerializationError, UnknownRecord, UpcastFailed
from stepwell.values.codec import PAYLOAD_LIMIT, check_type, decode, encode
from stepwell.values.lossless import may_be_cut, refuse_cut, refuse_unnamed
from stepwell.values.named_codecs import is_message, json_text
from stepwell.values.stamp import has_version, read_value, write_value
from stepwell.values.versions import KEY, MARK, VERSION, check_place, unstamped

CONTEXT: Final = "ctx"
CONTEXTS: Final = "stepwell.runs.context"  # the module of the context classes
_EMPTY: Final = inspect.Parameter.empty


class Write(Protocol):
    """How a value becomes text: `write_value`, or `write_ordered` where texts are compared."""

    def __call__(self, value: Any, type_: Any = ..., /, *, limit: int, what: str) -> str:
        """The value as JSON text."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parameters of one function besides `ctx`, and the type of what it returns (Any if it does not say)."""

    function: str
    takes_context: bool
    names: tuple[str, ...]
    types: Mapping[str, Any]
    defaults: Mapping[str, Any]
    keywords: frozenset[str]  # keyword-only parameters
    returns: Any
    what: str  # what errors call them

    @classmethod
    def of(cls, fn: Callable[..., Any], what: str, given: str | None = None) -> Arguments:
        """Read a function's signature; refuses what could not be stored, with the reason.

        With `given` its first parameter has this name, and is no argument of a call: stepwell gives it.
        """
        whole, bound = _unbound(fn)
        name = getattr(whole, "__name__", repr(whole))
        if given is not None:
            bound |= {_first_of(fn, what, name, given)}
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise InvalidOption(what, name, "it has a `yield`: to call it would execute nothing")
        parameters = [one for one in _parameters_of(fn, what, name) if one.name not in bound]
        takes_context = bool(parameters) and parameters[0].name == CONTEXT
        parameters = parameters[1:] if takes_context else parameters
        types = _types_of(whole, what, name)
        for parameter in parameters:
            if getattr(types.get(parameter.name), "__module__", None) == CONTEXTS:
                why = (
                    f"`{parameter.name}` cannot be stored: the context is the first parameter and is called `{CONTEXT}`"
                )
                raise InvalidOption(what, name, why)
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                why = f"the arguments of `*{parameter.name}` have no names to store; give each parameter its own"
                raise InvalidOption(what, name, why)
        for part in (*(one.name for one in parameters), "return"):
            check_type(types.get(part, Any), what=f"{part} of {name}")
            check_place(types.get(part, Any), f"{part} of {name}")
        return cls(
            function=name,
            takes_context=takes_context,
            names=tuple(one.name for one in parameters),
            types={one.name: types.get(one.name, Any) for one in parameters},
            defaults={one.name: one.default for one in parameters if one.default is not _EMPTY},
            keywords=frozenset(one.name for one in parameters if one.kind is one.KEYWORD_ONLY),
            returns=types.get("return", Any),
            what=f"argument of {name}",
        )

    def encode(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], limit: int = PAYLOAD_LIMIT, write: Write = write_value
    ) -> str:
        """The arguments of a call as JSON text; TypeError if the function could not be called with them."""
        if not kwargs and len(args) == len(self.names) and not self.keywords:  # nearly every call
            if len(args) == 1:
                return write(args[0], self.types[self.names[0]], limit=limit, what=self.what)
            return self._by_name(dict(zip(self.names, args, strict=True)), limit, write) if args else "null"
        given = self._named(args, kwargs)
        if not self.names:
            return "null"
        if len(self.names) == 1:  # null would be read as None, so the default itself is stored
            [name] = self.names
            value = given[name] if name in given else self.defaults[name]
            return write(value, self.types[name], limit=limit, what=self.what)
        return self._by_name(given, limit, write)

    def _by_name(self, given: Mapping[str, Any], limit: int, write: Write) -> str:
        return text_by_name(given, self.types, limit, write, self.what)

    def refuse_losses(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Refuse an argument that would come back as something else, or without some of its fields."""
        for name, value in (*zip(self.names, args, strict=False), *kwargs.items()):
            kind: Any = type(value)
            declared = self.types.get(name, Any)
            refuse_unnamed(value, declared, what=f"{name} of {self.function}")
            if kind is not declared and may_be_cut(kind, declared):
                text = write_value(value, declared, limit=sys.maxsize, what=self.what)
                refuse_cut(value, read_value(text, declared, what=self.what), what=f"{name} of {self.function}")

    def decode(self, text: str) -> dict[str, Any]:
        """The arguments of a call by name; SerializationError if the stored value does not fit."""
        if not self.names:
            return {}
        if len(self.names) == 1:
            return {self.names[0]: self._only(text)}
        stored = self._stored(text)
        if unknown := [name for name in stored if name not in self.types]:
            why = f"{self.function} has no parameter of this name"
            raise SerializationError(why, path=f"$.{unknown[0]}", what=self.what)
        if missing := [name for name in self.names if name not in stored and name not in self.defaults]:
            raise SerializationError(f"{self.function} needs it", path=f"$.{missing[0]}", what=self.what)
        types, whose = self.types, self.function
        return {name: read_value(bytes(raw), types[name], what=f"{name} of {whose}") for name, raw in stored.items()}

    def _only(self, text: str) -> Any:
        """The only argument; a caller that triggers by name, as from a terminal, cannot know that it is the only one.

        So it may be given by name, if the value itself does not fit, or none of its fields were given.
        """
        [name] = self.names
        try:
            value = read_value(text, self.types[name], what=self.what)
        except UnknownRecord:
            raise
        except (SerializationError, UpcastFailed):
            if (given := _given_by_name(text, name)) is None:
                raise
            return read_value(given, self.types[name], what=self.what)
        if text.startswith((f'{{"{name}":', MARK)) and _passes_over(value, name):  # nearly never
            with contextlib.suppress(SerializationError, UpcastFailed):
                return read_value(_given_by_name(text, name) or text, self.types[name])
        return value

    def _stored(self, text: str) -> dict[str, msgspec.Raw]:
        """The arguments by name; a value that was stored for one parameter, or for none, is read as such.

        So a parameter with a default may be added while runs are open, or while other processes trigger without it.
        """
        if unstamped(text)[1] is not text:  # with a version, as only one value has
            return {self.names[0]: msgspec.Raw(text.encode())}
        given: Any = decode(text, what=self.what)
        if not (isinstance(given, dict) and given.keys() <= self.types.keys()):
            first, *added = self.names
            if given is None and self.defaults.keys() >= set(self.names):
                return {}
            if self.defaults.keys() >= set(added):
                return {first: msgspec.Raw(text.encode())}
        if not isinstance(given, dict):
            needed = ", ".join(name for name in self.names if name not in self.defaults)
            what = "nothing" if given is None else "one value without a name"
            raise SerializationError(f"it needs {needed}, and was given {what}", path="$", what=self.what)
        stored: dict[str, msgspec.Raw] = decode(text, dict[str, msgspec.Raw], what=self.what)
        return stored

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        positional = [name for name in self.names if name not in self.keywords]
        if len(args) > len(positional):
            raise TypeError(f"{self.function} takes {len(positional)} arguments by place, not {len(args)}")
        given = dict(zip(positional, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.types:
                raise TypeError(f"{self.function} has no parameter {name!r}")
            if name in given:
                raise TypeError(f"{self.function} was given {name!r} twice")
            given[name] = value
        if missing := [name for name in self.names if name not in given and name not in self.defaults]:
            raise TypeError(f"{self.function} needs {', '.join(missing)}")
        return given


def text_by_name(given: Mapping[str, Any], types: Mapping[str, Any], limit: int, write: Write, what: str) -> str:
    """Several arguments as an object; each has its own version and codec."""
    try:
        text = write(given, limit=limit, what=what)
    except SerializationError:
        if not any(map(is_message, given.values())):
            raise
        text = MARK
    if text.startswith(MARK):  # a codec writes each argument by itself
        each = {name: write(one, types.get(name, Any), limit=limit, what=what) for name, one in given.items()}
        return _joined(each, each, limit, what)
    has_none = KEY not in text and not any(VERSION in type(one).__dict__ for one in given.values())
    if has_none and not any(map(has_version, types.values())):
        return text
    each = {name: write(one, types.get(name, Any), limit=limit, what=what) for name, one in given.items()}
    return _joined(each, decode(text, dict[str, msgspec.Raw]), limit, what)  # the order is that of `write`


def _joined(each: Mapping[str, str], order: Iterable[str], limit: int, what: str) -> str:
    text = f"{{{','.join(f'{encode(name)}:{each[name]}' for name in order)}}}"
    if (size := len(text.encode())) > limit:
        raise PayloadTooLarge(size, limit, what=what)
    return text


def _given_by_name(text: str, name: str) -> bytes | None:
    """The one argument of an object that has no other."""
    with contextlib.suppress(SerializationError):
        stored: dict[str, msgspec.Raw] = decode(json_text(text), dict[str, msgspec.Raw])
        if stored.keys() == {name}:
            return bytes(stored[name])
    return None


def _passes_over(value: Any, name: str) -> bool:
    """True if the value lacks this name: a class whose fields all have defaults accepts any object."""
    with contextlib.suppress(SerializationError):
        return name not in decode(encode(value, limit=sys.maxsize), dict[str, msgspec.Raw])
    return False


def _unbound(fn: Callable[..., Any]) -> tuple[Callable[..., Any], frozenset[str]]:
    """The function of a partial, and the names that it binds: those are no arguments of a call."""
    bound: frozenset[str] = frozenset()
    while isinstance(fn, functools.partial):
        bound |= fn.keywords.keys()
        fn = fn.func
    return fn, bound


def _first_of(fn: Callable[..., Any], what: str, name: str, wanted: str) -> str:
    first = next(iter(_parameters_of(fn, what, name)), None)
    if first is None or first.name != wanted or first.kind is first.KEYWORD_ONLY:
        raise InvalidOption(what, name, f"its first parameter is the transaction, and is called `{wanted}`")
    return wanted


def _parameters_of(fn: Callable[..., Any], what: str, name: str) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(fn).parameters.values()
    except ValueError as error:
        why = "Python does not say what it takes; call it in a function of yours, or a lambda"
        raise InvalidOption(what, name, why) from error


def _types_of(fn: Callable[..., Any], what: str, name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except NameError as error:
        why = f"an annotation cannot be read ({error}); define the class at the top of its module"
        raise InvalidOption(what, name, why) from error
    except TypeError:  # a callable object or a builtin has no annotations
        return {}
