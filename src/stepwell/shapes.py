"""What classes are made of: pydantic models, msgspec structs, dataclasses and attrs classes, none of them imported."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, ClassVar


@lru_cache(maxsize=1024)
def fields_of(kind: type) -> tuple[str, ...] | None:
    """The names of the attributes that values of the class are stored by; None if it is no class of fields."""
    if (models := model_fields_of(kind)) is not None:
        return tuple(models)
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    if (names := getattr(kind, "__struct_fields__", None)) is not None:
        return tuple(names)
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(one.name for one in attributes)


@lru_cache(maxsize=1024)
def names_in_json(kind: type) -> Mapping[str, str]:
    """The attribute behind each key that values of the class have in JSON."""
    names = fields_of(kind) or ()
    models = pydantic_fields_of(kind) or {}
    aliases = {getattr(field, "serialization_alias", None) or name: name for name, field in models.items()}
    renamed = dict(zip(getattr(kind, "__struct_encode_fields__", ()), names, strict=False))
    return {name: name for name in names} | aliases | renamed


def model_fields_of(kind: type) -> Mapping[str, Any] | None:
    """The fields of a pydantic model, None if it is none."""
    found = getattr(kind, "model_fields", None) if hasattr(kind, "model_validate_json") else None
    return found if isinstance(found, Mapping) else None


def pydantic_fields_of(kind: type) -> Mapping[str, Any] | None:
    """The fields of what pydantic writes by its own rules where it stands in a model: also of its dataclasses."""
    found = model_fields_of(kind)
    return getattr(kind, "__pydantic_fields__", None) if found is None else found


def alternatives(annotation: Any) -> Iterator[Any]:
    """The annotation without its metadata and names, and each part of a union by itself."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from alternatives(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for one in typing.get_args(annotation):
            yield from alternatives(one)
    elif (named := getattr(annotation, "__value__", getattr(annotation, "__supertype__", None))) is not None:
        yield from alternatives(named)  # `type Money = ...`, or a NewType
    elif origin is not ClassVar:
        yield annotation


def class_of(annotation: Any) -> type | None:
    """The class that values of the annotation are of, None if it names none: `list` of `list[int]`."""
    found = typing.get_origin(annotation) or annotation
    return found if isinstance(found, type) else None
