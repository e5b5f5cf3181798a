"""Types of the user's own: how values of a class that JSON cannot hold are written and read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from msgspec.inspect import CustomType, type_info

from stepwell.errors import InvalidOption

T = TypeVar("T")
KNOWN: Final[dict[type, Type[Any]]] = {}  # asked first: most programs have none, and then nothing else is done


@dataclass(frozen=True, slots=True)
class Type(Generic[T]):
    """How values of a class are stored: `encode` makes JSON of one, `decode` reads it back.

    It is known in the whole process from where it is made, so make it where the class is imported: a worker, a producer
    and a test then read and write the same. The annotation of a parameter, field or result names the class. A value
    that would not read back as it was is refused before it is written.
    """

    cls: type[T]
    encode: Callable[[T], Any]
    decode: Callable[[Any], T]

    def __post_init__(self) -> None:
        if not isinstance(self.cls, type):
            raise InvalidOption("Type", self.cls, "its first argument is a class")
        if not isinstance(type_info(self.cls), CustomType) or hasattr(self.cls, "model_dump"):
            raise InvalidOption("Type", self.cls, "stepwell stores values of this class already")
        if not callable(self.encode) or not callable(self.decode):
            raise InvalidOption("Type", self.cls, "`encode` and `decode` are functions of one value")
        KNOWN[self.cls] = self


def type_of(cls: type) -> Type[Any] | None:
    """How values of a class are stored, if the user has said it for that class or one that it is derived from."""
    for base in cls.__mro__:
        if (found := KNOWN.get(base)) is not None:
            return found
    return None


def check_types(types: Iterable[Type[Any]]) -> None:
    """Refuse what is no `Type`; those that are one are known since they were made."""
    for one in types:
        if not isinstance(one, Type):
            raise InvalidOption("types", one, "it is a list like [Type(IPv4Address, encode=str, decode=IPv4Address)]")


def encoded(own: Type[Any], value: Any) -> Any:
    """The value as JSON's types; raises if it would not read back as it was."""
    plain = own.encode(value)
    back = own.decode(plain)
    if "__eq__" in {name for cls in type(value).__mro__[:-1] for name in vars(cls)} and back != value:
        name = own.cls.__qualname__
        raise ValueError(f"the `decode` of Type({name}) made another value of what its `encode` wrote; mend the two")
    return plain
