"""Values of the user as they are stored and read: with the version of their class, and upcast if it is older.

Arguments, results, signals and messages go through here; what stepwell itself stores goes through the codec alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from stepwell.errors import PayloadTooLarge
from stepwell.values.codec import PAYLOAD_LIMIT, decode, encode, encode_many, encode_ordered
from stepwell.values.upcasters import upcasted
from stepwell.values.versions import (
    KEY,
    MARK,
    MARKS,
    VERSION,
    class_at,
    split,
    stamped,
    unstamped,
    version_at,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")


def write_value(value: Any, type_: Any = Any, /, *, limit: int = PAYLOAD_LIMIT, what: str = "payload") -> str:
    """The value as `encode` returns it, with its version: that of the class at a place of this type, or of its own."""
    text = encode(value, limit=limit, what=what)
    if VERSION not in type(value).__dict__ and not has_version(type_) and not text.startswith(MARK):
        return text  # nearly every value
    return _stamped(text, type_, value, limit, what)


def write_ordered(value: Any, type_: Any = Any, /, *, limit: int = PAYLOAD_LIMIT, what: str = "payload") -> str:
    """The value as `encode_ordered` returns it, with its version."""
    text = encode_ordered(value, limit=limit, what=what)
    if VERSION not in type(value).__dict__ and not has_version(type_) and not text.startswith(MARK):
        return text
    return _stamped(text, type_, value, limit, what)


def write_values(values: Sequence[Any], type_: Any = Any, /, *, limit: int = PAYLOAD_LIMIT) -> list[str]:
    """Each value as `write_value` returns it, at the cost of `encode_many` if none of them has a version."""
    texts = encode_many(values, limit=limit)
    kinds = set(map(type, values))
    has_none = not has_version(type_) and not any(VERSION in kind.__dict__ for kind in kinds)
    if has_none and (dict not in kinds or not any(text.startswith(MARK) for text in texts)):
        return texts
    pairs = zip(values, texts, strict=True)
    return [_stamped(text, type_, value, limit, "payload") for value, text in pairs]


@overload
def read_value(text: str | bytes, type_: type[T], *, what: str = ...) -> T: ...
@overload
def read_value(text: str | bytes, type_: Any = ..., *, what: str = ...) -> Any: ...
def read_value(text: str | bytes, type_: Any = Any, *, what: str = "payload") -> Any:
    """The stored value as this type, upcast if it is of an older version; `UnknownRecord` if it is of a newer one.

    Where no class is asked for, it is returned as it was written.
    """
    if text[: len(MARK)] not in MARKS and not has_version(type_):
        return decode(text, type_, what=what)
    if type_ is msgspec.Raw:  # as it stands, to be read later
        return decode(text, type_, what=what)
    version, data = unstamped(text)
    cls = class_at(type_)
    if cls is None or version == version_of(cls) or data in ("null", b"null"):
        return decode(data, type_, what=what)
    return upcasted(type_, version, decode(data, what=what), what)


def hash_with_version(hashed: str, text: str) -> str:
    """The hash of a payload, after the versions in its text: `2:ab12`; without one if all are 1."""
    if KEY not in text:
        return hashed
    found = ",".join(f"{place}={version}" if place else str(version) for place, version in _versions(text))
    return f"{found}:{hashed}" if found else hashed


def _stamped(text: str, type_: Any, value: Any, limit: int, what: str) -> str:
    """The text with its version; None has none."""
    if value is None:
        return text
    marked = stamped(text, version_at(type_, value))
    if marked is not text and (size := len(marked.encode())) > limit:
        raise PayloadTooLarge(size, limit, what=what)
    return marked


@lru_cache(maxsize=1024)
def has_version(type_: Any) -> bool:
    """True if the class at a place of this type has a version that is not 1."""
    return type_ is not Any and (cls := class_at(type_)) is not None and version_of(cls) > 1


def _versions(text: str) -> Iterator[tuple[str, int]]:
    version, value = split(msgspec.json.decode(text))
    if version > 1:
        yield "", version
    elif isinstance(value, dict):
        for name, one in sorted(value.items()):
            if (found := split(one)[0]) > 1:
                yield name, found
