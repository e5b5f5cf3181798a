"""The same order of sets in every process.

A set is a list in JSON, and the order of that list depends on the hash seed of the process that wrote it. Only the
value tells which lists are sets: the value and its JSON are walked side by side, so that only the order changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from stepwell.values.fields import names_in_json

_JSON: Final = msgspec.json.Encoder(order="sorted")
_SCALARS: Final = frozenset((str, int, float, bool, type(None), bytes))
_CONTAINERS: Final = frozenset((list, dict))


def ordered_text(value: Any, text: str | bytes) -> str:
    """The JSON text of the value, with its sets sorted."""
    return _JSON.encode(in_order(value, msgspec.json.decode(text))).decode()


def in_order(value: Any, plain: Any) -> Any:
    """The JSON of the value, with every list sorted that is a set in the value; `plain` itself is not changed."""
    if type(plain) is dict:
        if _CONTAINERS.isdisjoint(map(type, plain.values())):
            return plain
        return _pairs_in_order(value, plain) if isinstance(value, dict) else _fields_in_order(value, plain)
    if type(plain) is not list:
        return plain
    if isinstance(value, set | frozenset):
        return sorted(_pairwise(value, plain), key=_JSON.encode)
    if isinstance(value, list | tuple):
        return plain if _CONTAINERS.isdisjoint(map(type, plain)) else _pairwise(value, plain)
    if _is_wrapper(value):
        return in_order(value.root, plain)
    parts = [getattr(value, name, None) for name in _names_of(value).values()]
    tag = plain[: max(0, len(plain) - len(parts))]  # a struct written as a list may begin with the name of its class
    return tag + _pairwise(parts, plain[len(tag) :])


def holds_sets_in_sets(value: Any) -> bool:
    """True if a set may contain sets, whose `<` means subset, which is only a partial order."""
    level = [value]
    while level:
        if any(isinstance(node, set | frozenset) and not _is_plain(node) for node in level):
            return True
        level = [child for node in level for child in _inside(node) if type(child) not in _SCALARS]
    return False


def _pairs_in_order(value: dict[Any, Any], plain: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(plain, _pairwise(value.values(), list(plain.values())), strict=True))


def _fields_in_order(value: Any, plain: dict[str, Any]) -> dict[str, Any]:
    if _is_wrapper(value):
        return in_order(value.root, plain)  # type: ignore[no-any-return]
    names = _names_of(value)
    ordered = plain.copy()
    for key, one in plain.items():
        if type(one) not in _CONTAINERS:
            continue
        if key in names:
            ordered[key] = in_order(getattr(value, names[key], None), one)
        elif extra := getattr(value, "__pydantic_extra__", None):  # extra values of a model
            ordered[key] = in_order(extra.get(key), one)
    return ordered


def _names_of(value: Any) -> Mapping[str, str]:
    kind: Any = type(value)
    return names_in_json(kind)


def _is_wrapper(value: Any) -> bool:
    """True for a model that is written as its root value."""
    return getattr(type(value), "__pydantic_root_model__", False) is True


def _pairwise(values: Iterable[Any], plain: list[Any]) -> list[Any]:
    """Each part in order; left as it is if the user's serializer writes more or fewer parts."""
    given = list(values)
    return list(map(in_order, given, plain)) if len(given) == len(plain) else plain


def _is_plain(node: Iterable[Any]) -> bool:
    return _SCALARS.issuperset(map(type, node))


def _inside(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    if isinstance(node, list | tuple | set | frozenset):
        return node
    if hasattr(node, "model_dump"):  # its sets are sorted separately
        return ()
    return [getattr(node, name, None) for name in _names_of(node).values()]
