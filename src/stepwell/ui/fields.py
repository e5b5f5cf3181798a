"""Fields of forms made from types: of a workflow's parameters, or of the JSON schema that a wait has recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from markupsafe import escape

from stepwell.errors import StepwellError
from stepwell.operate.instance import value_as_json
from stepwell.ui.guard import Form
from stepwell.values.fields import misfit, schema_of
from stepwell.workflow import Workflow

Kind = Literal["text", "number", "whole", "choice", "switch", "moment", "day", "json"]
WHOLE: Final = ""  # the name of the only field of a value that is not an object
MOST_FIELDS: Final = 40
PREFIX: Final = "field."
MOST_EDITED: Final = 65_536  # bytes of a value, as it stands in a page, that a form offers to edit


class Unfit(StepwellError):  # noqa: N818 - what a person has typed does not fit, which is no fault
    """A field's value is not what its type says."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form: its name, its kind, what it begins with, and whether it may be left empty."""

    name: str
    kind: Kind
    value: str
    required: bool
    type: str
    choices: Sequence[str] = ()
    schema: Mapping[str, Any] | None = None
    nullable: bool = False

    @property
    def label(self) -> str:
        """What stands before it."""
        return self.name or "value"


def fields_of_schema(schema: Mapping[str, Any] | None, value: Any = None) -> list[Field]:
    """The fields of a value of this schema: one for each property of an object, else one."""
    resolved, defs = _resolved(schema or {}, (schema or {}).get("$defs", {})), (schema or {}).get("$defs", {})
    properties = resolved.get("properties")
    if isinstance(properties, Mapping) and 0 < len(properties) <= MOST_FIELDS:
        required, given = resolved.get("required", ()), value if isinstance(value, Mapping) else {}
        return [
            _field(name, one, defs, name in required, given.get(name, one.get("default")))
            for name, one in properties.items()
        ]
    return [_field(WHOLE, resolved, defs, True, value)]


def fields_of_workflow(workflow: Workflow[..., Any], given: Any = None) -> list[Field]:
    """The fields of a workflow's parameters, with their defaults, or with an input that was given before."""
    arguments = workflow.arguments
    if len(arguments.names) == 1 and not (isinstance(given, Mapping) and set(given) == set(arguments.names)):
        given = {} if given is None else {arguments.names[0]: given}
    known = given if isinstance(given, Mapping) else {}
    made = []
    for name, type_ in arguments.types.items():
        schema = schema_of(type_) or {}
        default = value_as_json(arguments.defaults[name]) if name in arguments.defaults else None
        made.append(
            _field(name, schema, schema.get("$defs", {}), name not in arguments.defaults, known.get(name, default))
        )
    return made


def fields_of_value(value: Any) -> list[Field]:
    """The fields of a workflow whose code is not here: one, with the input that a run of it had."""
    return [Field(WHOLE, "json", json.dumps(value, ensure_ascii=False, indent=2), required=False, type="JSON")]


def fits(text: str) -> bool:
    """True if a text is short enough to be edited in a form."""
    return len(text) <= MOST_EDITED and len(escape(text).encode()) <= MOST_EDITED


def value_of(fields: Iterable[Field], form: Form) -> Any:
    """The value that a form says; raises `Unfit` with the name of the field."""
    found: dict[str, Any] = {}
    for field in fields:
        text = form.get(f"{PREFIX}{field.name}", "")
        if field.kind == "switch":
            found[field.name] = text == "on"
        elif not text.strip() and not field.required:
            continue
        elif not text and field.nullable:
            found[field.name] = None
        else:
            found[field.name] = _read(field, text)
    return found.get(WHOLE) if set(found) <= {WHOLE} and found else found


def is_whole(fields: Sequence[Field]) -> bool:
    """True if a form has one field for the whole value."""
    return len(fields) == 1 and fields[0].name == WHOLE


def parsed_json(text: str, what: str) -> Any:
    """A value that a person has typed as JSON."""
    try:
        return json.loads(text or "null", parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Unfit(f"{what} is not JSON: {error}") from None


def _read(field: Field, text: str) -> Any:
    match field.kind:
        case "whole" | "number":
            value = parsed_json(text.strip(), field.label)
            if isinstance(value, bool) or not isinstance(value, int if field.kind == "whole" else (int, float)):
                raise Unfit(f"{field.label} is {'a whole' if field.kind == 'whole' else 'a'} number, not {text[:60]!r}")
        case "json":
            value = parsed_json(text, field.label)
        case "choice":
            value = next((json.loads(one) for one in field.choices if one == text), None)
            if text not in field.choices:
                raise Unfit(f"{field.label} is one of {', '.join(field.choices)}")
        case _:
            value = text
    if field.schema is not None and (why := misfit(field.schema, value)) is not None:
        raise Unfit(f"{field.label}: {why}")
    return value


def _field(name: str, schema: Mapping[str, Any], defs: Mapping[str, Any], required: bool, value: Any) -> Field:
    one, nullable = _without_null(_resolved(schema, defs), defs)
    kind, choices = _kind_of(one)
    whole = {**schema, "$defs": defs} if defs else schema
    return Field(
        name=name,
        kind=kind,
        value=_text(kind, value),
        required=required and not nullable and kind != "switch",
        type=_type_of(one, kind) + (" or null" if nullable else ""),
        choices=choices,
        schema=whole or None,
        nullable=nullable,
    )


def _kind_of(one: Mapping[str, Any]) -> tuple[Kind, Sequence[str]]:
    if "enum" in one:
        return "choice", [json.dumps(choice, ensure_ascii=False) for choice in one["enum"]]
    match one.get("type"), one.get("format"):
        case "boolean", _:
            return "switch", ()
        case "integer", _:
            return "whole", ()
        case "number", _:
            return "number", ()
        case "string", "date":
            return "day", ()
        case "string", _:
            return "text", ()
        case _:
            return "json", ()


def _type_of(one: Mapping[str, Any], kind: Kind) -> str:
    named = {"whole": "whole number", "choice": "one of", "switch": "yes or no", "day": "date", "json": "JSON"}
    described = one.get("format") or one.get("title") or one.get("type")
    return (
        named.get(kind, str(described or kind))
        if kind != "json"
        else f"JSON {one.get('title') or one.get('type') or ''}".strip()
    )


def _text(kind: Kind, value: Any) -> str:
    if value is None:
        return ""
    if kind == "json":
        return json.dumps(value, ensure_ascii=False, indent=2)
    if kind == "choice":
        return json.dumps(value, ensure_ascii=False)
    if kind == "switch":
        return "on" if value else ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _resolved(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(5):
        if (name := schema.get("$ref")) is None:
            break
        schema = defs.get(str(name).rpartition("/")[2], {})
    return schema


def _without_null(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The only alternative beside null, and whether null is one."""
    choices = schema.get("anyOf")
    if not isinstance(choices, Sequence):
        return schema, False
    others = [one for one in choices if one.get("type") != "null"]
    nullable = len(others) < len(choices)
    return (_resolved(others[0], defs), nullable) if len(others) == 1 else ({}, nullable)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")
