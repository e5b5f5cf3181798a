"""Codecs by name: how a value becomes bytes where it is not stored as plain JSON, and back.

The name stands in the value, `{"$sw":{"c":"msgpack"},"d":"gaNi..."}`, so values of several codecs are read side by
side, and a program may change its codec at any time. What a codec does not take is stored as plain JSON.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from stepwell.base.names import check_name
from stepwell.errors import (
    InvalidOption,
    PayloadTooLarge,
    SerializationError,
    StepwellError,
    SubjectForgotten,
    UnknownCodec,
)
from stepwell.values.codec import decode, encode, explained, plain_of, typed_of
from stepwell.values.fields import alternatives, class_of
from stepwell.values.versions import KEY, MARK, MARKS, Stamp, found_stamp


@runtime_checkable
class Codec(Protocol):
    """Turns values into bytes and back. Its name stands in every value that it has written, so it never changes."""

    @property
    def name(self) -> str:
        """What is stored with each value."""

    def encode(self, value: Any, /) -> bytes | None:
        """The value as bytes; None if this codec does not take it, which stores it as plain JSON."""

    def decode(self, data: bytes, type_: Any, /) -> Any:
        """The value of this type; `typing.Any` where no type is named."""


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """Plain JSON, as it is stored without any codec."""

    name: str = "json"

    def encode(self, value: Any, /) -> bytes | None:
        """None: plain JSON is what a value is stored as when a codec does not take it."""
        return None

    def decode(self, data: bytes, type_: Any, /) -> Any:
        """The value of JSON text that was compressed."""
        return decode(data, type_)


@dataclass(frozen=True, slots=True)
class MessagePackCodec:
    """MessagePack: a quarter smaller than JSON, and bytes come back as bytes even where no type is named."""

    name: str = "msgpack"

    def encode(self, value: Any, /) -> bytes | None:
        """The value in MessagePack; None for what only JSON holds, such as an integer of more than 64 bits."""
        encode(value, limit=2**62)  # refuses what could not be shown, or read by another codec
        try:
            return _PACKER.encode(value)
        except (OverflowError, TypeError, ValueError):
            return None

    def decode(self, data: bytes, type_: Any, /) -> Any:
        """The value; a model is validated as from JSON."""
        return _unpacker(type_)(data)


@dataclass(frozen=True, slots=True)
class ProtobufCodec:
    """Messages of Protobuf, known by their methods `SerializeToString` and `FromString`.

    A message is stored so whatever the store's codec is, since JSON could not hold it. It has no version of ours:
    Protobuf has its own rules for fields that come and go.
    """

    name: str = "protobuf"

    def encode(self, value: Any, /) -> bytes | None:
        """The message as bytes; None for any other value."""
        return bytes(value.SerializeToString()) if is_message(value) else None

    def decode(self, data: bytes, type_: Any, /) -> Any:
        """The message of the class that is asked for; its bytes where none is."""
        found: Any = next((one for one in map(class_of, alternatives(type_)) if _has_methods(one)), None)
        if found is None and type_ not in (Any, object, bytes):
            raise SerializationError(f"it is a message of Protobuf, and {type_!r} is no class of messages")
        return data if found is None else found.FromString(data)


@dataclass(frozen=True, slots=True)
class Compressed:
    """Compresses what a codec writes, if that is more than `over` bytes and gets smaller.

    Not where another party chooses a part of the value and can see how much is stored: the length says whether that
    part is repeated in the rest.
    """

    codec: Codec
    over: int = 1024

    @property
    def name(self) -> str:
        """That of the codec: it is no codec of its own."""
        return self.codec.name

    def encode(self, value: Any, /) -> bytes | None:
        """What the codec returns; it is compressed where it is written."""
        return self.codec.encode(value)

    def decode(self, data: bytes, type_: Any, /) -> Any:
        """What the codec returns."""
        return self.codec.decode(data, type_)


FORGOTTEN: Final = "forgotten"  # what stands in the place of a value whose subject was forgotten says this codec ...
FORGOTTEN_VALUE: Final = '{"$sw":{"c":"forgotten"},"d":""}'  # ... which raises, and people see it as it is
JSON: Final = JsonCodec()
MessagePack: Final = MessagePackCodec()
Protobuf: Final = ProtobufCodec()


def register_codec(codec: Codec) -> None:
    """Let this process read values of a codec of yours, and find it by name: in `connect(codec=...)` and a store's URL.

    A codec that is given to `connect` itself is registered by that.
    """
    if not isinstance(codec, Codec) or isinstance(codec, type):
        raise InvalidOption("codec", codec, "a codec has a `name`, and methods `encode` and `decode`")
    codec = codec.codec if isinstance(codec, Compressed) else codec
    name = check_name("codec", codec.name)
    if name == FORGOTTEN:
        raise InvalidOption("codec", name, "it is the name of what stands in the place of a forgotten value")
    if type(known := _codecs.setdefault(name, codec)) is not type(codec):
        why = f"{type(known).__name__} is registered under that name; values are read by the name alone"
        raise InvalidOption("codec", name, why)


def codec_of(said: object) -> Codec | None:
    """The codec that an option names; None for plain JSON, which is no codec at work."""
    if said is None:
        return None
    if isinstance(said, str):
        if said not in _codecs:
            raise InvalidOption("codec", said, f"there are {', '.join(_codecs)}; `register_codec` adds one of yours")
        said = _codecs[said]
    register_codec(said)  # type: ignore[arg-type]
    return None if said == JSON else said  # type: ignore[return-value]


def is_message(value: object) -> bool:
    """True for a message of Protobuf."""
    return _has_methods(type(value))


def write_coded(codec: Codec, value: Any, version: int, *, limit: int, what: str) -> str | None:
    """The value as text with its codec and its version; None if it is to be written as plain JSON."""
    if value is None:
        return None
    over = codec.over if isinstance(codec, Compressed) else None
    codec = Protobuf if is_message(value) else codec
    data, name = _encoded(codec, value, what), codec.name
    if data is None:
        if over is None:
            return None
        data, name = encode(value, limit=limit, what=what).encode(), JSON.name
    stamp: dict[str, str | int] = {"c": name} if version == 1 else {"c": name, "v": version}
    if over is not None and len(data) > over and len(small := zlib.compress(data, 1)) < len(data):
        stamp["z"], whole, data = len(data), len(data), small
    elif name == JSON.name:
        return None
    else:
        whole = len(data)
    text = msgspec.json.encode({"$sw": stamp, "d": data}).decode()
    if whole > limit:
        raise PayloadTooLarge(whole, limit, what=what)
    return text


def read_coded(stamp: Stamp, data: bytes | str, type_: Any, *, what: str) -> Any:
    """The value that stands beside a stamp with a codec; `UnknownCodec` if this process has none of that name."""
    assert stamp.c is not None
    codec = _codecs.get(stamp.c)
    if stamp.c == FORGOTTEN:
        raise SubjectForgotten(what)
    if codec is None:
        raise UnknownCodec(what, stamp.c, ", ".join(_codecs))
    try:
        raw = msgspec.json.decode(data, type=bytes)
        if stamp.z is not None:
            raw = zlib.decompressobj().decompress(raw, stamp.z)  # no more than was written
        return codec.decode(raw, type_)
    except StepwellError:
        raise
    except Exception as error:
        source, path = explained(error)
        raise SerializationError(source, path=path, what=what) from error


def write_plain(value: Any, codec: Codec | None, *, limit: int, what: str) -> str:
    """A value whose version is stored elsewhere, or that has none."""
    coded = None if codec is None else write_coded(codec, value, 1, limit=limit, what=what)
    return encode(value, limit=limit, what=what) if coded is None else coded


def read_plain(text: str | bytes, type_: Any = Any, *, what: str = "payload") -> Any:
    """A value whose version is stored elsewhere, or that has none."""
    if text[: len(MARK)] in MARKS and (found := found_stamp(text)) is not None and found[0].c is not None:
        return read_coded(*found, type_, what=what)
    return decode(text, type_, what=what)


def json_text(text: str) -> str:
    """The same value without codec, as JSON as far as JSON can hold it; it keeps its version."""
    if text.startswith(MARK) and (found := found_stamp(text)) is not None and found[0].c is not None:
        plain = encode(read_coded(*found, Any, what="payload"), limit=2**62)
        return plain if found[0].version == 1 else f'{MARK}:{{"v":{found[0].version}}},"d":{plain}}}'
    return text


def shown_value(text: str | None) -> Any:
    """The value for people, as plain JSON without its version; what this process cannot read is shown as it is stored.

    It never fails: what a person asks for, and what a settle tells a dead-letter workflow, must not depend on a codec.
    """
    if text is None:
        return None
    value = decode(text)
    if KEY not in text or not isinstance(value, dict):
        return value
    shown = _shown(value)
    return {name: _shown(one) for name, one in value.items()} if shown is value else shown  # several arguments


_PACKER: Final = msgspec.msgpack.Encoder(enc_hook=plain_of)
_codecs: Final[dict[str, Codec]] = {one.name: one for one in (JSON, MessagePack, Protobuf)}


@lru_cache(maxsize=1024)
def _unpacker(type_: Any) -> Callable[[bytes], Any]:
    validate = getattr(type_, "model_validate_json", None)
    if validate is not None:
        return lambda data: validate(msgspec.json.encode(msgspec.msgpack.decode(data)))
    return msgspec.msgpack.Decoder(type_, dec_hook=typed_of).decode


def _shown(value: Any) -> Any:
    if not (isinstance(value, dict) and value.keys() == {"$sw", "d"}):
        return value
    if (found := found_stamp(msgspec.json.encode(value))) is None:
        return value
    try:
        return value["d"] if found[0].c is None else decode(encode(read_coded(*found, Any, what="payload")))
    except StepwellError:
        return value


def _has_methods(cls: type | None) -> bool:
    return hasattr(cls, "SerializeToString") and hasattr(cls, "FromString")


def _encoded(codec: Codec, value: Any, what: str) -> bytes | None:
    try:
        return codec.encode(value)
    except SerializationError as error:
        raise SerializationError(error.source, path=error.path, what=what) from error
    except StepwellError:
        raise
    except Exception as error:
        raise SerializationError(f"{codec.name}: {error}", what=what) from error
