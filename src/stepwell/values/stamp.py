"""Values of the user as they are stored and read: with the version of their class, and upcast if it is older.

Arguments, results, signals and messages go through here; what stepwell itself stores goes through the codec alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from stepwell.errors import PayloadTooLarge, SerializationError
from stepwell.values.codec import (
    PAYLOAD_LIMIT,
    decode,
    encode,
    encode_many,
    encode_ordered,
)
from stepwell.values.lossless import refuse_cut, refuse_unnamed
from stepwell.values.named_codecs import Codec, Protobuf, is_message, read_coded, write_coded
from stepwell.values.upcasters import upcasted
from stepwell.values.versions import (
    KEY,
    MARK,
    MARKS,
    VERSION,
    Stamp,
    class_at,
    found_stamp,
    split,
    stamped,
    version_at,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")


def write_value(
    value: Any,
    type_: Any = Any,
    /,
    *,
    limit: int = PAYLOAD_LIMIT,
    what: str = "payload",
    codec: Codec | None = None,
) -> str:
    """The value as `encode` returns it, with its version: that of the class at a place of this type, or of its own.

    With a codec, as that returns it; a message of Protobuf always as its own bytes.
    """
    if codec is not None and (coded := _coded(codec, value, type_, limit, what)) is not None:
        return coded
    try:
        text = encode(value, limit=limit, what=what)
    except SerializationError:
        if not is_message(value):
            raise
        return _message(value, limit, what)
    if VERSION not in type(value).__dict__ and not has_version(type_) and not text.startswith(MARK):
        return text  # nearly every value
    return _stamped(text, type_, value, limit, what)


def write_result(returned: Any, returns: Any, *, what: str, limit: int, codec: Codec | None) -> str:
    """What a body returned, as it is kept; refused is what could not be read back as its type."""
    text = write_value(returned, returns, limit=limit, what=what, codec=codec)
    refuse_unnamed(returned, returns, what=what, codec=codec)
    if returns is not Any and type(returned) is not returns:
        refuse_cut(returned, read_value(text, returns, what=what), what=what)  # raises if it could not be read back
    return text


def write_ordered(value: Any, type_: Any = Any, /, *, limit: int = PAYLOAD_LIMIT, what: str = "payload") -> str:
    """The value as `encode_ordered` returns it, with its version."""
    try:
        text = encode_ordered(value, limit=limit, what=what)
    except SerializationError:
        if not is_message(value):
            raise
        return _message(value, limit, what)
    if VERSION not in type(value).__dict__ and not has_version(type_) and not text.startswith(MARK):
        return text
    return _stamped(text, type_, value, limit, what)


def write_values(
    values: Sequence[Any], type_: Any = Any, /, *, limit: int = PAYLOAD_LIMIT, codec: Codec | None = None
) -> list[str]:
    """Each value as `write_value` returns it, at the cost of `encode_many` if none of them has a version or a codec."""
    try:
        texts = [] if codec is not None else encode_many(values, limit=limit)
    except SerializationError:
        if not any(map(is_message, values)):
            raise
        texts = []
    if len(texts) < len(values):
        return [write_value(value, type_, limit=limit, codec=codec) for value in values]
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
    found = found_stamp(text) if text[: len(MARK)] in MARKS else None
    if found is not None and found[0].c is not None:
        return _read_coded(*found, type_, what)
    version, data = (1, text) if found is None else (found[0].version, found[1])
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


def _coded(codec: Codec, value: Any, type_: Any, limit: int, what: str) -> str | None:
    version = 1 if value is None else version_at(type_, value)
    return write_coded(codec, value, version, limit=limit, what=what)


def _message(value: Any, limit: int, what: str) -> str:
    """A message of Protobuf as text; asked for what is no JSON, so that all other values cost nothing."""
    text = write_coded(Protobuf, value, 1, limit=limit, what=what)
    assert text is not None
    return text


def _read_coded(stamp: Stamp, data: bytes, type_: Any, what: str) -> Any:
    cls = class_at(type_)
    if cls is None or stamp.version == version_of(cls) or stamp.c == Protobuf.name:
        return read_coded(stamp, data, type_, what=what)
    return upcasted(type_, stamp.version, read_coded(stamp, data, Any, what=what), what)


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
