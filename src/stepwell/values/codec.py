"""Values to JSON text and back, strictly: a value reads back as it was given, or is refused before any write.

msgspec does the work; a value with pydantic's methods goes through those, without an import of pydantic. Nothing here
chooses a class by a name found in data.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import msgspec

from stepwell.errors import PayloadTooLarge, SerializationError, UnknownRecord
from stepwell.values.fields import fields_of
from stepwell.values.lossless import loss_of
from stepwell.values.own_types import KNOWN, encoded, type_of
from stepwell.values.set_order import holds_sets_in_sets, in_order, ordered_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PAYLOAD_LIMIT: Final = 1_048_576
DEEPEST: Final = 200

T = TypeVar("T")


def encode(value: Any, *, limit: int = PAYLOAD_LIMIT, what: str = "payload") -> str:
    """The value as JSON text of at most `limit` bytes, or SerializationError with the path of what is wrong.

    Integers keep every digit. Sets, tuples, UUIDs, dates and keys that are not text come back as themselves only
    where the reader names their type.
    """
    if value is None:  # the result of most steps and handlers
        return "null"
    try:
        data = _ENCODER.encode(value)
        text = data.decode()
    except Exception as error:
        raise _refusal(value, error, what) from error
    if len(data) <= min(2 * DEEPEST, limit) and not _is_suspicious(data):
        return text  # nearly every value, at a third of the cost of the checks below
    return _checked(value, data, text, limit, what)


def encode_ordered(value: Any, *, limit: int = PAYLOAD_LIMIT, what: str = "payload") -> str:
    """Like `encode`, with the same text for the same value in every process: sets and keys are sorted.

    It reads back like the text of `encode`, from which it differs only in that order.
    """
    if value is None:
        return "null"
    try:
        data = _ORDERED.encode(value)
        text = data.decode()
    except Exception:  # noqa: BLE001 - it cannot be encoded, or only not sorted: `encode` says which
        return _ordered_by_walk(value, limit, what)  # it may hold enums in a set, say, or keys that are not text
    if len(data) <= min(2 * DEEPEST, limit) and b"[[" not in data and not _is_suspicious(data):
        return text
    if b"[[" in data and holds_sets_in_sets(value):
        return _ordered_by_walk(value, limit, what)
    return _checked(value, data, text, limit, what)


def _ordered_by_walk(value: Any, limit: int, what: str) -> str:
    return ordered_text(value, encode(value, limit=limit, what=what))


def _is_suspicious(data: bytes) -> bool:
    """Whether the text needs a closer check: it has a NUL, a null, or a key that ends like a number.

    Three searches: for two hundred bytes, one expression for all three takes three times as long.
    """
    return b"null" in data or b"\\u0000" in data or _NUMBERED_KEY.search(data) is not None


def _checked(value: Any, data: bytes, text: str, limit: int, what: str) -> str:
    if len(data) > limit:
        raise PayloadTooLarge(len(data), limit, what=what)
    if _is_doubtful(value, data):
        _inspect(value, what)
    return text


def encode_many(values: Sequence[Any], *, limit: int = PAYLOAD_LIMIT, what: str = "payload") -> list[str]:
    """Each value as `encode` returns it, at a third of the cost if none of them needs a closer check."""
    data, texts = b"", []
    with suppress(Exception):  # one of them cannot be encoded; the error is raised below
        data = _ENCODER.encode_lines(values)
        texts = data.decode().split("\n")[:-1]  # JSON escapes line breaks within strings
    if len(texts) != len(values):
        return [encode(value, limit=limit, what=what) for value in values]
    longest = max(map(len, texts), default=0)
    if longest <= min(2 * DEEPEST, limit) // 4 and not _is_suspicious(data):
        return texts
    # Not encoded again: a model may read an iterator, which works only once.
    pairs = zip(values, texts, strict=True)
    return ["null" if one is None else _checked(one, text.encode(), text, limit, what) for one, text in pairs]


@overload
def decode(text: str | bytes, type_: type[T], *, what: str = ...) -> T: ...
@overload
def decode(text: str | bytes, type_: Any = ..., *, what: str = ...) -> Any: ...
def decode(text: str | bytes, type_: Any = Any, *, what: str = "payload") -> Any:
    """The stored JSON as a value of this type, or SerializationError if it does not fit."""
    try:
        return _reader(type_)(text)
    except Exception as error:
        source, path = explained(error)
        raise SerializationError(source, path=path, what=what) from error


def names_unknown_class(error: SerializationError) -> bool:
    """True if what did not fit names a class, by the tag of a union, or a version that the type does not have."""
    if isinstance(error, UnknownRecord):
        return True
    cause = error.__cause__
    if isinstance(cause, msgspec.MsgspecError):
        return str(cause).startswith("Invalid value ")  # what it says of tags; of enums, "Invalid enum value"
    told = getattr(cause, "errors", None)
    return callable(told) and any(one["type"] == "union_tag_invalid" for one in told(include_url=False))


def check_type(type_: Any, *, what: str = "type") -> None:
    """Refuse a type that JSON cannot represent without loss, so that a definition fails when it is declared."""
    try:
        _reader(type_)
    except Exception as error:
        raise SerializationError(f"{error}; {_UNION}" if "union" in str(error) else error, what=what) from error
    if (why := loss_of(type_)) is not None:
        raise SerializationError(why, what=what)


def payload_hash(text: str | bytes, secret: bytes = b"") -> str:
    """A short stable hash of JSON text that does not depend on the order of keys, keyed if there is a secret."""
    return _digest(_CANONICAL.encode(msgspec.json.decode(text)), secret)


def value_hash(value: Any, text: str = "") -> str:
    """The `payload_hash` of a value, not depending on the order of sets either; of its text if it is no JSON."""
    try:
        data = _CANONICAL.encode(value)
    except TypeError:  # a set of several types has no order of its own
        try:
            return payload_hash(ordered_text(value, _ENCODER.encode(value)))
        except TypeError:
            return payload_hash(text)
    if b"[[" in data and holds_sets_in_sets(value):
        return payload_hash(ordered_text(value, _ENCODER.encode(value)))
    return _digest(data)


def plain_of(value: Any) -> Any:
    """A plain value for types that msgspec does not know: pydantic models, the user's own types, and subclasses of str
    and numbers.
    """
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        # Validation expects aliases; round_trip leaves out computed fields, which validation would refuse.
        return dump(mode="json", by_alias=True, round_trip=True)
    if KNOWN and (own := type_of(type(value))) is not None:
        return encoded(own, value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    hint = " (is an `await` missing?)" if hasattr(value, "__await__") else ""
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} is not a type that JSON can hold{hint}")


def _ordered_of(value: Any) -> Any:
    """Like `plain_of`, with the sets of a model sorted, which it dumps as lists."""
    plain = plain_of(value)
    return in_order(value, plain) if isinstance(plain, dict | list) else plain


def typed_of(type_: Any, plain: Any) -> Any:
    """The reverse of `plain_of`."""
    validate = getattr(type_, "model_validate_json", None)
    if validate is not None:
        try:
            # Validated as JSON: only there does a strict model accept text for a date or bytes.
            return validate(_ENCODER.encode(plain))
        except ValueError as error:
            raise ValueError(_told_by_model(error)) from error
    if KNOWN and isinstance(type_, type) and (own := type_of(type_)) is not None:
        return own.decode(plain)
    if type_ is object:
        return plain
    for base in (str, int, float):
        if isinstance(type_, type) and issubclass(type_, base) and isinstance(plain, base):
            return type_(plain)
    raise TypeError(f"{type_!r} cannot be read from JSON; say how with `stepwell.Type`")


_UNION: Final = (
    "JSON does not say which class it was: make them msgspec structs with `tag=True`, or one class with both"
)
_ENCODER: Final = msgspec.json.Encoder(enc_hook=plain_of)
_ORDERED: Final = msgspec.json.Encoder(enc_hook=_ordered_of, order="deterministic")
_CANONICAL: Final = msgspec.json.Encoder(enc_hook=_ordered_of, order="sorted")
_PACKER: Final = msgspec.msgpack.Encoder(enc_hook=plain_of)
_TEXT: Final = frozenset((str,))
_CONTAINERS: Final = frozenset((dict, list, tuple))
_NUMBERED_KEY: Final = re.compile(rb'":(?<=[0-9]":)')
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")


@lru_cache(maxsize=1024)
def _reader(type_: Any) -> Callable[[str | bytes], Any]:
    validate: Callable[[str | bytes], Any] | None = getattr(type_, "model_validate_json", None)
    return validate or msgspec.json.Decoder(type_, dec_hook=typed_of).decode


def _digest(data: bytes, secret: bytes = b"") -> str:
    return blake2b(data, digest_size=16, key=secret).hexdigest()


def _is_doubtful(value: Any, data: bytes) -> bool:
    """True if the bytes may contain what `_inspect` refuses; cheap, and never False if they do."""
    return (
        b"\\u0000" in data
        or (b"null" in data and _may_hold_nan(value))
        # A key that ends like a number may be a number, beside the same key as text.
        or (b'0":' in data.translate(_DIGITS) and _may_be_misshapen(value))
        or (len(data) > 2 * DEEPEST and data.count(b"[") + data.count(b"{") > DEEPEST and _may_be_misshapen(value))
    )


def _may_hold_nan(value: Any) -> bool:
    # JSON has no NaN and msgspec writes null for it, MessagePack has: a double (0xcb) whose exponent is all ones
    # starts with 7f or ff. This finds it at a tenth of the cost of a walk over the value.
    try:
        packed = _PACKER.encode(value)
    except (OverflowError, TypeError, ValueError):  # beyond the limits of MessagePack, as for integers
        return True
    return b"\xcb\x7f" in packed or b"\xcb\xff" in packed


def _may_be_misshapen(value: Any) -> bool:
    """True if containers are nested too deep or a key is not text; level by level, ten times as fast as `_inspect`."""
    level = [msgspec.to_builtins([value], enc_hook=plain_of)]
    for _ in range(DEEPEST + 1):
        keys = chain.from_iterable(node for node in level if type(node) is dict)
        if not _TEXT.issuperset(map(type, keys)):
            return True
        children = chain.from_iterable(node.values() if type(node) is dict else node for node in level)
        level = [child for child in children if type(child) in _CONTAINERS]
        if not level:
            return False
    return True


_Place = tuple[Any, str]  # the place of the parent (or None) and the last part of the path


def _inspect(value: Any, what: str) -> None:
    """Refuse NUL, NaN, infinities, keys that read alike, and what is nested too deep."""
    pending: list[tuple[Any, _Place, int]] = [(msgspec.to_builtins(value, enc_hook=plain_of), (None, "$"), 0)]
    while pending:
        node, place, depth = pending.pop()
        if (why := _complaint(node, depth)) is not None:
            raise SerializationError(why, path=_path(place), what=what)
        if isinstance(node, dict):
            pending.extend((child, (place, f".{key}"), depth + 1) for key, child in node.items())
        elif isinstance(node, list | tuple):
            pending.extend((child, (place, f"[{index}]"), depth + 1) for index, child in enumerate(node))


def _complaint(node: Any, depth: int) -> str | None:
    if isinstance(node, str):
        return "text with a NUL character" if "\0" in node else None
    if isinstance(node, float):
        return None if math.isfinite(node) else f"{node} is no JSON number; use None or text"
    if not isinstance(node, dict | list | tuple):
        return None
    if depth >= DEEPEST:
        return f"nested deeper than {DEEPEST}"
    if isinstance(node, dict):
        keys = [key if isinstance(key, str) else _ENCODER.encode(key).decode().strip('"') for key in node]
        if any("\0" in key for key in keys):
            return "a key with a NUL character"
        if len(set(keys)) < len(keys):
            return "two keys that are the same text in JSON, like 1 and '1'"
    return None


def _path(place: _Place | None) -> str:
    parts: list[str] = []
    while place is not None:
        place, part = place
        parts.append(part)
    return ascii("".join(reversed(parts)))[1:-1]


def _refusal(value: Any, error: Exception, what: str) -> SerializationError:
    """Descend to the innermost value that cannot be encoded, and return the reason."""
    path = "$"
    for _ in range(DEEPEST):
        inner = next(((label, child, fault) for label, child in _children(value) if (fault := _fault(child))), None)
        if inner is None:
            break
        label, value, error = inner
        path += ascii(label)[1:-1]
    return SerializationError(_reason(error), path=path, what=what)


def _fault(value: Any) -> Exception | None:
    try:
        _ENCODER.encode(value).decode()
    except Exception as error:  # noqa: BLE001 - a model's own serializer may raise anything
        return error
    return None


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f".{key!s}", child) for key, child in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{index}]", child) for index, child in enumerate(value))
    elif not isinstance(value, type):
        kind: Any = type(value)
        for name in fields_of(kind) or ():
            yield f".{name}", getattr(value, name, None)


def _reason(error: Exception) -> str:
    match error:
        case RecursionError():
            return f"nested deeper than {DEEPEST}, or it contains itself"
        case UnicodeEncodeError():
            return "text with a lone surrogate, which is no Unicode"
        case TypeError():
            return f"{error}; use JSON types, a dataclass, a msgspec struct or a pydantic model"
        case _:
            return f"{type(error).__name__}: {_told_by_model(error)}"


def explained(error: Exception) -> tuple[str, str]:
    """The reason and the path of a mismatch; the message of msgspec ends with the path."""
    if not isinstance(error, msgspec.MsgspecError):
        return _told_by_model(error), "$"
    source, _, path = str(error).partition(" - at `")
    return source, path.rstrip("`") or "$"


def _told_by_model(error: Exception) -> str:
    """The error of a model without the invalid values, which may be secret."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return str(error)
    complaints = errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in complaints)
