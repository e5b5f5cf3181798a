"""The fields of classes: pydantic models, structs, dataclasses and attrs classes; and the JSON schema of a type."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

import msgspec

SCHEMA_LIMIT: Final = 4_096
_OF_JSON: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


@lru_cache(maxsize=1024)
def fields_of(kind: type) -> tuple[str, ...] | None:
    """The attributes by which values of the class are stored; None if the class has no fields."""
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
    """The attribute of each JSON key of the class."""
    names = fields_of(kind) or ()
    models = pydantic_fields_of(kind) or {}
    aliases = {getattr(field, "serialization_alias", None) or name: name for name, field in models.items()}
    renamed = dict(zip(getattr(kind, "__struct_encode_fields__", ()), names, strict=False))
    return {name: name for name in names} | aliases | renamed


def model_fields_of(kind: type) -> Mapping[str, Any] | None:
    """The fields of a pydantic model; None for any other class."""
    found = getattr(kind, "model_fields", None) if hasattr(kind, "model_validate_json") else None
    return found if isinstance(found, Mapping) else None


def pydantic_fields_of(kind: type) -> Mapping[str, Any] | None:
    """The fields of a class that pydantic serializes within a model: models, and pydantic's dataclasses."""
    found = model_fields_of(kind)
    return getattr(kind, "__pydantic_fields__", None) if found is None else found


def alternatives(annotation: Any) -> Iterator[Any]:
    """The annotation without metadata and aliases, and each part of a union."""
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
    """The class of the annotation, as `list` for `list[int]`; None if it has none."""
    found = typing.get_origin(annotation) or annotation
    return found if isinstance(found, type) else None


@lru_cache(maxsize=1024)
def schema_of(annotation: Any) -> Mapping[str, Any] | None:
    """The JSON schema of the annotation; None if it is unknown, or accepts anything."""
    if annotation is Any or annotation is object:
        return None
    try:
        schema = msgspec.json.schema(annotation)  # refuses pydantic models, whose validators may accept anything
    except Exception:  # noqa: BLE001 - a type that says nothing of itself is not checked before it is read
        return None
    return schema if len(msgspec.json.encode(schema)) <= SCHEMA_LIMIT else None


def misfit(schema: Mapping[str, Any], value: Any) -> str | None:
    """Why a JSON value certainly does not fit the schema; None if it may fit: the reader decides."""
    return _misfit(schema, value, "$", schema.get("$defs", {}))


def _misfit(schema: Mapping[str, Any], value: Any, path: str, defs: Mapping[str, Any]) -> str | None:
    if (name := schema.get("$ref")) is not None:
        return _misfit(defs.get(name.rpartition("/")[2], {}), value, path, defs)
    if (choices := schema.get("anyOf")) is not None:
        found = [_misfit(one, value, path, defs) for one in choices]
        return found[0] if all(one is not None for one in found) else None
    if "enum" in schema:
        return None if value in schema["enum"] else f"expected one of {schema['enum']} at `{path}`"
    kind = schema.get("type")
    if not isinstance(kind, str) or schema.get("format") == "decimal":
        return None
    if not isinstance(value, _OF_JSON[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return f"expected {kind} at `{path}`"
    if isinstance(value, list) and isinstance(inner := schema.get("items"), Mapping):
        parts = ((inner, one, f"{path}[{index}]") for index, one in enumerate(value))
    elif isinstance(value, dict):
        if missing := [name for name in schema.get("required", ()) if name not in value]:
            return f"missing `{missing[0]}` at `{path}`"
        known = schema.get("properties", {})
        parts = ((known[name], one, f"{path}.{name}") for name, one in value.items() if name in known)
    else:
        return None
    return next((why for part in parts if (why := _misfit(*part, defs)) is not None), None)
