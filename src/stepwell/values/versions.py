"""The version of a stored value: `{"$sw":{"v":2},"d":...}` where it is not 1, and nothing at all where it is.

The codec stands in the same place, where the value is not plain JSON. Only the outermost value has a version: the
argument, the result, the message, the signal. A value without one is of version 1, so everything that was written
before versions were used can be read.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec

from stepwell.base.names import check_name, check_whole
from stepwell.errors import InvalidOption
from stepwell.values.fields import alternatives, class_of, fields_of

NAME: Final = "__stepwell_name__"
VERSION: Final = "__stepwell_version__"
MARK: Final = '{"$sw"'
KEY: Final = '"$sw"'
MARKS: Final = frozenset((MARK, MARK.encode()))
NEWEST: Final = 2**31 - 1
# The arguments of a call that was recorded elsewhere, by who did not keep them: whatever is asked may be the same.
UNKNOWN: Final = '{"$sw":{"v":0},"d":null}'


class Stamp(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What stands beside a value: its version if that is not 1, its codec if it is not plain JSON."""

    v: int | None = None
    c: str | None = None
    z: int | None = None  # how long it is when it is not compressed

    @property
    def version(self) -> int:
        """The version of the value."""
        return self.v or 1


class Stamped(
    msgspec.Struct, rename={"stamp": "$sw", "data": "d", "kind": "type"}, forbid_unknown_fields=True, omit_defaults=True
):
    """A value with its version; a sealed one may say its type or id beside it, for SQL."""

    stamp: Stamp
    data: msgspec.Raw
    kind: str | None = None
    id: str | None = None


def version_of(cls: type) -> int:
    """The version that is stored with values of the class: its own `__stepwell_version__`, or 1."""
    return check_whole(f"{VERSION} of {cls.__name__}", vars(cls).get(VERSION, 1), 1, NEWEST)


def name_of(cls: type) -> str:
    """The name that values of the class are stored under: its own `__stepwell_name__`, or the class's."""
    return check_name(f"class ({NAME})", vars(cls).get(NAME, cls.__name__))


@lru_cache(maxsize=1024)
def class_at(type_: Any) -> type | None:
    """The class with fields that a place of this type holds; None if it holds any other value, or a union of classes.

    InvalidOption if one class of a union has a version: JSON does not say which class it was.
    """
    classes = {found: None for one in alternatives(type_) if fields_of(found := class_of(one) or object) is not None}
    if len(classes) > 1 and (several := [cls for cls in classes if version_of(cls) > 1]):
        why = "a value of a union does not say of which class the version is; give the class a place of its own"
        raise InvalidOption(f"{VERSION} of {several[0].__name__}", version_of(several[0]), why)
    return next(iter(classes)) if len(classes) == 1 else None


def version_at(type_: Any, value: object) -> int:
    """The version of a value that is written at a place of this type."""
    cls = None if type_ is Any else class_at(type_)
    version = 1 if cls is None else version_of(cls)
    return version if version > 1 else version_of(type(value))


def stamped(text: str, version: int) -> str:
    """The text with its version; a value of version 1 that looks like one with a version is marked too."""
    return text if version == 1 and not text.startswith(MARK) else f'{MARK}:{{"v":{version}}},"d":{text}}}'


def unstamped(text: str | bytes) -> tuple[int, str | bytes]:
    """The version of a value, and its text; that of a codec is base64."""
    if text[: len(MARK)] in MARKS and (found := found_stamp(text)) is not None:
        return found[0].version, found[1]
    return 1, text


def found_stamp(text: str | bytes) -> tuple[Stamp, bytes] | None:
    """What stands beside a value, and its text; None for an object that an earlier release has stored as it was."""
    with suppress(msgspec.MsgspecError):
        found = _STAMPED.decode(text)
        if found.stamp.v is not None or found.stamp.c is not None:
            return found.stamp, bytes(found.data)
    return None


def stamped_like(text: str, other: str | None) -> str:
    """The text with the version of another, whose place it takes; one that has a version keeps it."""
    version, _ = unstamped(other or "null")
    if version == 1:
        return text
    if not text.startswith(MARK):
        return stamped(text, version)
    found = found_stamp(text)
    if found is None or found[0].v is not None:
        return text
    return msgspec.json.encode(Stamped(msgspec.structs.replace(found[0], v=version), msgspec.Raw(found[1]))).decode()


def may_be_equal(recorded: str | None, asked: str | None) -> bool:
    """False if two calls differ: arguments are compared with those of their own version only."""
    if recorded == UNKNOWN:
        return True
    if recorded is None or asked is None or not (KEY in recorded or KEY in asked):
        return False
    return _alike(msgspec.json.decode(recorded), msgspec.json.decode(asked), depth=2)


def are_same_payload(one: str | None, other: str | None) -> bool:
    """True unless the hashes are of the same versions and differ."""
    if one == other:
        return True
    return one is not None and other is not None and one.rpartition(":")[0] != other.rpartition(":")[0]


def split(value: Any) -> tuple[int, Any]:
    """The version of a decoded value, and the value."""
    match value:
        case {"$sw": {"v": int(version)}, "d": data} if len(value) == 2:
            return version, data
        case {"$sw": {"c": str()}, "d": data} if len(value) == 2:
            return 1, data
    return 1, value


def check_place(type_: Any, what: str) -> None:
    """Refuse a version that would never be read: that of a class inside of another, or in a list."""
    outermost = class_at(type_)
    for cls in _classes_in(type_, set()):
        if cls is not outermost and version_of(cls) > 1:
            why = f"it is inside of {what}, and only the outermost value has a version: give that one the version"
            raise InvalidOption(f"{VERSION} of {cls.__name__}", version_of(cls), why)


_STAMPED: Final = msgspec.json.Decoder(Stamped)


def _classes_in(type_: Any, seen: set[type]) -> Iterator[type]:
    for one in alternatives(type_):
        for inner in typing.get_args(one):
            yield from _classes_in(inner, seen)
        cls = class_of(one)
        if cls is None or cls in seen or fields_of(cls) is None:
            continue
        seen.add(cls)
        yield cls
        hints: Mapping[str, Any] = {}
        with suppress(Exception):  # what cannot be read is refused where it is declared
            hints = typing.get_type_hints(cls)
        for name in fields_of(cls) or ():
            yield from _classes_in(hints.get(name, types.NoneType), seen)


def _alike(recorded: Any, asked: Any, depth: int) -> bool:
    (before, old), (now, new) = split(recorded), split(asked)
    if before != now or old == new:
        return True
    if depth and isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return all(_alike(old[name], new[name], depth - 1) for name in old)
    if depth and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return all(_alike(one, other, depth - 1) for one, other in zip(old, new, strict=True))
    return False
