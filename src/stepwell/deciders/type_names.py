"""How inputs, events and effects are stored: by a name and a version, never by the module of a class.

A decider declares its classes; a stored name is looked up among those only.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Final, ForwardRef, NamedTuple, Never, NoReturn, TypeVar

from stepwell.errors import InvalidOption, SerializationError, SubjectForgotten
from stepwell.values.codec import PAYLOAD_LIMIT, check_type, decode, encode
from stepwell.values.lossless import refuse_unnamed
from stepwell.values.named_codecs import FORGOTTEN_VALUE, Codec, read_plain, write_plain
from stepwell.values.upcasters import STATE, Routes, made_of
from stepwell.values.versions import NAME, check_place, name_of, version_of

RESERVED: Final = "stepwell."  # what the names of the engine's own events begin with


class Written(NamedTuple):
    """A value as it is stored, and `value` as it is read back: `evolve` gets the latter, so that a replay is equal."""

    type: str
    version: int
    text: str
    value: Any


class Kinds:
    """The classes that a decider declares for its inputs, its events, or its effects."""

    def __init__(
        self,
        part: str,
        of: str,
        classes: Iterable[type],
        known: Iterable[type] = (),
        codec: Codec | None = None,
    ) -> None:
        self._codec = codec
        self.part = part  # "input", "event" or "effect", for messages
        self.of = of  # the decider's type
        self.by_name: Mapping[str, type] = _by_name(part, of, (*classes, *known))
        self._written: Mapping[type, tuple[str, int]] = {
            cls: (name, version_of(cls)) for name, cls in self.by_name.items()
        }
        self.routes = Routes(part, of, self.by_name)  # from what is stored to these classes

    @property
    def classes(self) -> tuple[type, ...]:
        """The classes, including those of the engine."""
        return tuple(self._written)

    def stored_names(self, cls: type) -> tuple[str, ...]:
        """The names under which values are stored that are read as this class; none if it is not declared."""
        return self.routes.names_of(cls) if cls in self._written else ()

    def name(self, value: object) -> str:
        """The name that the value's class is stored under; InvalidOption if the decider does not declare the class."""
        return self._found(value)[0]

    def write(self, value: object, *, limit: int = PAYLOAD_LIMIT) -> Written:
        """The value as it is stored; refused, before anything is written, if it could not be read back."""
        name, version = self._found(value)
        what = f"{self.part} {name} of {self.of}"
        text = write_plain(value, self._codec, limit=limit, what=what)
        refuse_unnamed(value, type(value), what=what)
        return Written(name, version, text, read_plain(text, type(value), what=what))

    def read(self, name: str, version: int, text: str, *, what: str = "") -> Sequence[Any]:
        """The stored value, upcast if it is older; none if it was dropped, and several if an event was split.

        `what` names it in errors, like "event 7 of order 123".
        """
        what = what or f"{self.part} {name} of {self.of}"
        if text == FORGOTTEN_VALUE:
            raise SubjectForgotten(what)
        cls = self.by_name.get(name)
        if cls is not None and version == self._written[cls][1]:
            return (read_plain(text, cls, what=what),)
        found = self.routes.follow((name, version), read_plain(text, what=what), what)
        return [made_of(data, cls, what, (name, version)) for cls, data in found]

    def read_named(self, payload: Any) -> Any:
        """The value of `{"Create": {"order_id": "123"}}`: the name of a class, and its fields."""
        if not (isinstance(payload, Mapping) and len(payload) == 1):
            why = f'say which {self.part} it is: {{"{self._first()}": {{...}}}}; there are {self._names()}'
            raise SerializationError(why, what=f"{self.part} of {self.of}")
        [(name, fields)] = payload.items()
        if not isinstance(name, str) or name not in self.by_name:
            raise SerializationError(f"{self.of} declares {self._names()}", path=f"$.{name}", what=self.part)
        what = f"{self.part} {name} of {self.of}"
        return decode(encode(fields, limit=sys.maxsize, what=what), self.by_name[name], what=what)

    def _found(self, value: object) -> tuple[str, int]:
        found = self._written.get(type(value))
        if found is None:
            why = f"it is no {self.part} of {self.of}, which declares {self._names()}"
            raise InvalidOption(self.part, value, why)
        return found

    def _names(self) -> str:
        return ", ".join(name for name in self.by_name if not name.startswith(RESERVED)) or "none"

    def _first(self) -> str:
        return next(iter(self.by_name), "Name")


def classes_of(annotation: Any, module: str, option: str) -> tuple[type, ...]:
    """The classes of a union; InvalidOption if one of them cannot be stored under a name."""
    match annotation:
        case None | types.NoneType:
            return ()
        case str():
            return classes_of(_resolved(annotation, module, option), module, option)
        case ForwardRef():
            return classes_of(annotation.__forward_arg__, module, option)
        case TypeVar() if annotation.__bound__ is not None:
            return classes_of(annotation.__bound__, module, option)
    if annotation is Never or annotation is NoReturn:
        return ()
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = (classes_of(one, module, option) for one in typing.get_args(annotation))
        return tuple(dict.fromkeys(cls for part in parts for cls in part))
    if typing.get_origin(annotation) is typing.Annotated:
        return classes_of(typing.get_args(annotation)[0], module, option)
    if (alias := getattr(annotation, "__value__", None)) is not None:  # `type Input = Create | Pay`
        return classes_of(alias, module, option)
    return (_storable(annotation, option),)


def _storable(cls: Any, option: str) -> type:
    if not isinstance(cls, type) or typing.get_origin(cls) is not None:
        raise InvalidOption(option, cls, f"{_ONES}; write them out: `{option.capitalize()} = Create | Pay`")
    if not (is_dataclass(cls) or hasattr(cls, "__struct_fields__") or hasattr(cls, "model_validate_json")):
        raise InvalidOption(option, cls, f"{_ONES}; make it one, or name the union of its subclasses instead")
    check_type(cls, what=f"{option} {cls.__name__}")
    if option != STATE:
        check_place(cls, f"{option} {cls.__name__}")
    return cls


_ONES: Final = "each is a dataclass, a msgspec struct or a pydantic model"


def _resolved(name: str, module: str, option: str) -> Any:
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__={"x": name}), vars(sys.modules[module]))["x"]
    except NameError as error:
        why = f"it cannot be read ({error}); define the classes before the decider, at the top of the module"
        raise InvalidOption(option, name, why) from error


def _by_name(part: str, of: str, classes: Iterable[type]) -> dict[str, type]:
    named: dict[str, type] = {}
    for cls in classes:
        name = name_of(cls)
        if name.startswith(RESERVED) and cls.__module__.partition(".")[0] != "stepwell":
            raise InvalidOption(NAME, name, f"names that begin with `{RESERVED}` are the engine's own")
        if (first := named.setdefault(name, cls)) is not cls:
            why = f"{_place(first)} and {_place(cls)} are both {part}s of {of}; give one of them another `{NAME}`"
            raise InvalidOption(NAME, name, why)
    return named


def _place(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
