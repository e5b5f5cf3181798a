"""What a type would silently lose in JSON, found when the type is declared.

pydantic may write a model differently from how it reads it: secrets as asterisks, without excluded fields, and under
names that it does not read. A field with the user's own serializer is not checked.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from stepwell.errors import SerializationError
from stepwell.values.fields import alternatives, class_of, fields_of, model_fields_of, pydantic_fields_of
from stepwell.values.own_types import KNOWN, type_of

if typing.TYPE_CHECKING:
    from stepwell.values.named_codecs import Codec

_SECRETS: Final = frozenset(("SecretStr", "SecretBytes", "Secret"))
_SERIALIZERS: Final = frozenset(("PlainSerializer", "WrapSerializer"))
_SCHEMA: Final = "__get_pydantic_core_schema__"
_Seen = set[tuple[type, bool]]
_NATIVE: Final = frozenset((str, int, float, bool, type(None)))
_TEXT: Final = frozenset((str,))
_UNNAMED: Final = (bytes, bytearray, memoryview, Decimal, date, time, timedelta, UUID, tuple, Enum)
_ANYTHING: Final = frozenset((Any, object, dict, list, tuple, set, frozenset, Mapping))  # without their arguments


@lru_cache(maxsize=1024)
def loss_of(type_: Any) -> str | None:
    """Why values of the type would not read back as they are, and what to do; None if they would."""
    return next(_losses(type_, "it", False, set()), None)


@lru_cache(maxsize=4096)
def may_be_cut(kind: type, declared: Any) -> bool:
    """True if values of the class may read back as a base class, with other fields."""
    classes = [found for one in alternatives(declared) if (found := class_of(one)) is not None]
    return kind not in classes and any(_is_cut(kind, one) for one in classes)


def refuse_cut(value: object, back: object, *, what: str) -> None:
    """Refuse a value that was read back as a base class, with other fields."""
    kind, read = type(value), type(back)
    if kind is not read and _is_cut(kind, read):
        why = f"a {kind.__qualname__} would come back as {read.__qualname__}, without its own fields"
        todo = f"annotate {kind.__qualname__}, or convert it to {read.__qualname__}"
        raise SerializationError(f"{why}; {todo}", what=what)


def refuse_unnamed(value: Any, declared: Any = Any, *, what: str, codec: Codec | None = None) -> None:
    """Refuse bytes, dates, tuples and the like where no type is named for them: they would come back as text or lists.

    The fields of a class name their types, and a codec may keep them. A value that has only JSON's own types costs next
    to nothing.
    """
    kind = type(value)
    if kind in _NATIVE or not _is_open(declared):
        return
    if kind is dict and _NATIVE.issuperset(map(type, value.values())) and _TEXT.issuperset(map(type, value)):
        return
    pending = [(value, declared, "$")]
    while pending:
        one, annotation, path = pending.pop()
        if type(one) in _NATIVE:
            continue
        fitting = [part for part in alternatives(annotation) if _fits(one, part)]
        if not fitting or not _is_open(fitting[0]):
            continue  # a value that does not fit is refused where it is read
        if fitting[0] in (Any, object) and _is_unnamed(one):
            if codec is not None and _is_kept(value, codec):
                return
            raise _refusal(one, path, what)
        pending.extend(_parts(one, fitting[0], path, what))


def _is_unnamed(value: object) -> bool:
    """True if a value would come back as text, a list or whatever else JSON has for it."""
    if KNOWN and type_of(type(value)) is not None:
        return True
    return isinstance(value, _UNNAMED) and not isinstance(value, str | int | float)


def _is_kept(value: Any, codec: Codec) -> bool:
    with suppress(Exception):  # what cannot be read back is not kept
        return (data := codec.encode(value)) is not None and bool(codec.decode(data, Any) == value)
    return False


def _refusal(one: object, path: str, what: str) -> SerializationError:
    kind = type(one).__qualname__
    why = f"nothing says that this is a {kind}, so it would come back as text or a list; convert it first, or let"
    return SerializationError(
        f"{why} a dataclass, a model or an annotation of the receiver say so", path=path, what=what
    )


def _parts(value: Any, declared: Any, path: str, what: str) -> Iterator[tuple[Any, Any, str]]:
    """The parts of a value, each with its declared type and its path."""
    arguments = typing.get_args(declared)
    if (hints := _hints_of(type(value) if declared in (Any, object) else class_of(declared))) and not arguments:
        is_mapping = isinstance(value, Mapping)
        for name, hint in hints.items():
            yield (value.get(name) if is_mapping else getattr(value, name, None)), hint, f"{path}.{name}"
    elif isinstance(value, Mapping):
        keys, inner = arguments if len(arguments) == 2 else (Any, Any)
        for key, child in value.items():
            if keys in (Any, object) and not isinstance(key, str):
                raise _refusal(key, f"{path}.{key!a}", what)
            yield child, inner, f"{path}.{ascii(key)[1:-1]}"
    elif isinstance(value, list | tuple | AbstractSet):
        is_row = isinstance(value, tuple) and len(arguments) == len(value) and Ellipsis not in arguments
        for index, child in enumerate(value):
            yield child, arguments[index] if is_row else (arguments or (Any,))[0], f"{path}[{index}]"


def _fits(value: Any, declared: Any) -> bool:
    if declared is Any:
        return True
    if typing.is_typeddict(declared):
        return isinstance(value, dict)
    cls = class_of(declared)
    with suppress(TypeError):  # for instance a protocol, whose parts are unknown
        return cls is not None and isinstance(value, cls)
    return False


def _is_open(declared: Any) -> bool:
    """True if a part of the type is not declared: Any, or a container without the type of its elements."""
    try:
        return _opens(declared)
    except TypeError:  # its metadata cannot be hashed
        return False


@lru_cache(maxsize=1024)
def _opens(declared: Any) -> bool:
    seen: set[Any] = set()
    pending = [declared]
    while pending:
        for one in alternatives(pending.pop()):
            if one in _ANYTHING:
                return True
            if one not in seen:
                seen.add(one)
                pending.extend(part for part in typing.get_args(one) if part is not Ellipsis)
                pending.extend(_hints_of(class_of(one)).values())
    return False


@lru_cache(maxsize=1024)
def _hints_of(cls: type | None) -> Mapping[str, Any]:
    """The types of the fields that are stored of a class."""
    hints = {} if cls is None else _hints(cls)
    stored = None if cls is None else fields_of(cls)
    return hints if stored is None else {name: hint for name, hint in hints.items() if name in stored}


def _is_cut(kind: Any, read: Any) -> bool:
    fields = fields_of(read)
    return fields is not None and issubclass(kind, read) and set(fields) != set(fields_of(kind) or ())


def _losses(annotation: Any, place: str, in_model: bool, seen: _Seen) -> Iterator[str]:
    """What a part of a type loses; `in_model` if pydantic writes it."""
    for cls in _classes_in(annotation):
        if (cls, in_model) in seen:
            continue
        if in_model and _is_secret(cls):
            yield (
                f"{place} is a {cls.__name__}, which pydantic writes as asterisks; give it a serializer of its own, "
                "`@field_serializer`, if the secret may stand in the database, or store where to find it instead"
            )
            continue
        seen.add((cls, in_model))
        models = pydantic_fields_of(cls) if in_model else _dumped_fields(cls)
        if models is not None:
            yield from _lost_of_model(cls, models, seen)
        else:
            for name, hint in _hints(cls).items():
                yield from _losses(hint, f"{cls.__name__}.{name}", in_model, seen)


def _lost_of_model(cls: type, fields: Mapping[str, Any], seen: _Seen) -> Iterator[str]:
    decorators, config = getattr(cls, "__pydantic_decorators__", None), _config_of(cls)
    if getattr(decorators, "model_serializers", None):
        return
    own = {name for one in getattr(decorators, "field_serializers", {}).values() for name in one.info.fields}
    checks = getattr(decorators, "model_validators", {}).values()
    translates = any(one.info.mode != "after" for one in checks)  # it may read anything that is written
    written = {name: getattr(field, "serialization_alias", None) or name for name, field in fields.items()}
    for name, field in fields.items():
        place = f"{cls.__name__}.{name}"
        if getattr(field, "exclude", None):
            yield (
                f"{place} has `exclude=True`, so it is not stored and would come back as its default, or not at all; "
                "store it, or make it a private attribute"
            )
        elif not translates and not getattr(cls, "__pydantic_root_model__", False):
            yield from _misread(place, name, _looked_for(name, field, config), written)
        if not ({name, "*"} & own or config.get("json_encoders") or _has_serializer(getattr(field, "metadata", ()))):
            yield from _lost_bytes(place, field.annotation, config)
            yield from _losses(field.annotation, place, True, seen)


def _misread(place: str, name: str, keys: list[tuple[str, bool]], written: Mapping[str, str]) -> Iterator[str]:
    """A field is read from the first of its keys that exists, and that must be the key that is written."""
    there = set(written.values())
    found = next(((key, whole) for key, whole in keys if key in there), None)
    if found != (written[name], True):
        read = ", ".join(dict.fromkeys(repr(key) for key, _ in keys))
        yield (
            f"{place} is written as {written[name]!r} and read as {read}; give it one `alias` for both, "
            "or let the model read what it writes: AliasChoices, or `validate_by_name=True` if it is the field's name"
        )


def _looked_for(name: str, field: Any, config: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """The keys that validation reads, in its order; False for one of which it reads only a part."""
    alias = getattr(field, "validation_alias", None)
    if alias is None:
        return [(name, True)]
    keys: list[tuple[str, bool]] = []
    if config.get("validate_by_alias") is not False:
        for one in getattr(alias, "choices", (alias,)):
            path = getattr(one, "path", (one,))
            keys.append((str(path[0]), len(path) == 1))
    if config.get("validate_by_name") or config.get("populate_by_name"):
        keys.append((name, True))
    return keys


def _lost_bytes(place: str, annotation: Any, config: Mapping[str, Any]) -> Iterator[str]:
    written, read = (config.get(f"{way}_json_bytes") or "utf8" for way in ("ser", "val"))
    if written != read and bytes in _classes_in(annotation):
        yield f"{place} is written as {written} and read as {read}; set `val_json_bytes={written!r}` in the model too"


def _dumped_fields(cls: type) -> Mapping[str, Any] | None:
    """The fields of a model that pydantic writes, not the user's own `model_dump`."""
    written_by = getattr(getattr(cls, "model_dump", None), "__module__", None) or ""
    return model_fields_of(cls) if written_by.startswith("pydantic") else None


def _config_of(cls: type) -> Mapping[str, Any]:
    found = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None)
    return found if isinstance(found, Mapping) else {}


def _is_secret(cls: type) -> bool:
    for base in cls.__mro__:
        if base.__module__.startswith("pydantic.") and base.__name__ in _SECRETS:
            return True
        if _SCHEMA in vars(base):  # a subclass with its own serializer
            return False
    return False


def _has_serializer(metadata: Any) -> bool:
    """True if one of the annotations may change how the value is written."""
    for one in metadata:
        is_pydantic = type(one).__module__.startswith("pydantic")
        if type(one).__name__ in _SERIALIZERS if is_pydantic else hasattr(one, _SCHEMA):
            return True
    return False


def _classes_in(annotation: Any) -> Iterator[type]:
    """Every class that an annotation names, except those with their own serializer."""
    if typing.get_origin(annotation) is typing.Annotated:
        inner, *metadata = typing.get_args(annotation)
        if not _has_serializer(metadata):
            yield from _classes_in(inner)
        return
    for one in alternatives(annotation):
        if one is not annotation:
            yield from _classes_in(one)
            continue
        if (cls := class_of(one)) is not None:
            yield cls
        for argument in typing.get_args(one):
            yield from _classes_in(argument)


def _hints(cls: type) -> dict[str, Any]:
    """The types of the fields of a class, as far as they are known."""
    if fields_of(cls) is not None or hasattr(cls, "__required_keys__") or hasattr(cls, "_fields"):
        with suppress(Exception):  # an unknown name: msgspec reports it where it matters
            return typing.get_type_hints(cls, include_extras=True)
    return {}
