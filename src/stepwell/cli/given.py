"""What a command line gives as input: `name=text`, `name:=json`, `@file.json`, `-`, or one value as it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stepwell.cli.exits import USAGE, Stop


def parsed(given: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """What was given by place (none or one value) and by name."""
    if not any(_name_of(one) for one in given):
        if len(given) > 1:
            raise Stop(USAGE, f"{given[1]!r} is neither name=text nor name:=json, and only one value can stand alone")
        return [whole(one) for one in given], {}
    named: dict[str, Any] = {}
    for one in given:
        name = _name_of(one)
        if not name:
            raise Stop(USAGE, f"{one!r} is neither name=text nor name:=json")
        if name in named:
            raise Stop(USAGE, f"{name} is given twice")
        named[name] = _value(one, name)
    return [], named


def fitted(values: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """Texts as their parameters want them: what is not for a text, a number for one, is read as JSON if it is that."""
    return {name: _fitted(value, types.get(name, str)) for name, value in values.items()}


def _fitted(value: Any, type_: Any) -> Any:
    if not isinstance(value, str) or type_ is str:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _name_of(text: str) -> str:
    """The name before the first `=`; "" if what stands there cannot be a parameter's."""
    name = text.partition("=")[0].removesuffix(":")
    return name if "=" in text and name.isidentifier() else ""


def _value(text: str, name: str) -> Any:
    value = text[len(name) :]
    if value.startswith("="):
        return value[1:]
    return _json(value[2:], f"{name}:= takes JSON")


def whole(text: str) -> Any:
    """One value that is the whole input: JSON if it is that, else a text."""
    if text == "-":
        return _json(sys.stdin.read(), "standard input is to hold JSON")
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            return _json(path.read_text(encoding="utf-8"), f"{path} is to hold JSON")
        except OSError as error:
            raise Stop(USAGE, f"cannot read {path}: {error.strerror}") from error
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(text: str, rule: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Stop(USAGE, f"{rule}: {error}") from error
