"""Snapshots: how the state of an instance is stored, and when a stored state may be used.

A snapshot only saves reading events. It is not used if other code wrote it, and not written if it would not read back
as the same state.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from types import CodeType
from typing import Any

import msgspec

from stepwell.decider import Decider
from stepwell.deciders.type_names import Kinds, classes_of
from stepwell.errors import InvalidOption, SerializationError
from stepwell.values.codec import PAYLOAD_LIMIT, check_type, decode, encode
from stepwell.values.upcasters import STATE, Upcaster
from stepwell.values.versions import version_of


@dataclass(frozen=True, slots=True)
class States:
    """The states of a decider's instances as text; `fingerprint` identifies the code that wrote a snapshot."""

    fingerprint: str
    type: Any  # how a state is read
    kinds: Kinds | None  # for a union of classes, which are stored with their names

    @classmethod
    def of(cls, decider: Decider[Any, Any, Any, Any], type_: Any, upcasters: Sequence[Upcaster] = ()) -> States:
        """The snapshots of a decider whose state is of this type; none are stored if JSON cannot hold the type.

        `upcasters` are those of its events: a state that was computed through another one is not used.
        """
        kinds = _kinds(decider, type_)
        return cls(_fingerprint(decider, type_, upcasters), None if kinds else _readable(type_), kinds)

    def write(self, state: Any, *, limit: int = PAYLOAD_LIMIT) -> str | None:
        """The state as text; None if it would not read back as the same, or is larger than the limit."""
        try:
            text = self._text(state, limit)
            return text if text is not None and self.read(text) == state else None
        except (SerializationError, InvalidOption):
            return None

    def read(self, text: str) -> Any:
        """The state that code with the same fingerprint has written."""
        if self.kinds is None:
            return decode(text, self.type, what="snapshot")
        name, fields = decode(text, tuple[str, msgspec.Raw], what="snapshot")
        return decode(bytes(fields), self.kinds.by_name[name], what="snapshot")

    def _text(self, state: Any, limit: int) -> str | None:
        if self.kinds is not None:
            return encode((self.kinds.name(state), state), limit=limit, what="snapshot")
        return None if self.type is None else encode(state, limit=limit, what="snapshot")


def _kinds(decider: Decider[Any, Any, Any, Any], type_: Any) -> Kinds | None:
    try:
        classes = classes_of(type_, type(decider).__module__, STATE)
        return Kinds(STATE, decider.type, classes) if classes else None
    except (InvalidOption, SerializationError):
        return None


def _readable(type_: Any) -> Any:
    """The type, if JSON can be read as it without ambiguity; None if not."""
    try:
        check_type(type_)
    except SerializationError:
        return None
    return None if type_ is Any or type_ is object else type_


def _fingerprint(decider: Decider[Any, Any, Any, Any], type_: Any, upcasters: Sequence[Upcaster]) -> str:
    """A hash that changes with the code of `initial`, `evolve` and upcasters, and with `__stepwell_version__`.

    It does not include functions that they call: change the version for those.
    """
    cls = type(decider)
    functions = [*(getattr(cls, name) for name in ("initial", "evolve")), *(link.fn for link in upcasters)]
    codes = (getattr(function, "__code__", None) for function in functions)
    parts = [str(version_of(cls)), *_shape(type_), *(part for code in codes if code for part in _parts(code))]
    parts += [f"{link.name} {link.version} {link.led_to}" for link in upcasters]
    return blake2b("\0".join(parts).encode(errors="replace"), digest_size=8).hexdigest()


def _shape(type_: Any) -> Iterator[str]:
    """The type and its fields, as far as they are known."""
    for one in typing.get_args(type_) or (type_,):
        yield repr(one)
        with suppress(TypeError):  # a type that msgspec cannot describe, of pydantic for one
            yield msgspec.json.encode(msgspec.json.schema(one), order="sorted").decode()


def _parts(code: CodeType) -> Iterator[str]:
    """The code without its location: no line numbers and no file names."""
    yield code.co_code.hex()
    yield " ".join((*code.co_names, *code.co_varnames, *code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)
        elif isinstance(constant, frozenset):
            yield " ".join(sorted(map(repr, constant)))  # a set's own order differs from process to process
        else:
            yield repr(constant)
