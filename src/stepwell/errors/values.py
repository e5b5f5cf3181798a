"""Errors of names, options and values, raised before anything is written."""
# ruff: noqa: N818 - the names are the API's words; `LeaseLost` says more than `LeaseLostError`

from __future__ import annotations

from stepwell.errors.base import StepwellError, shown


class InvalidName(StepwellError, ValueError):
    """A name breaks the rule for its kind."""

    def __init__(self, kind: str, name: object, why: str) -> None:
        super().__init__(f"{shown(name)} cannot name a {kind}: {why}")
        self.kind = kind
        self.name = name
        self.why = why


class InvalidOption(StepwellError, ValueError):
    """An option has a value it cannot have."""

    def __init__(self, option: str, value: object, why: str) -> None:
        super().__init__(f"{option} cannot be {shown(value)}: {why}")
        self.option = option
        self.value = value
        self.why = why


class KeyMissing(StepwellError):
    """What is stored was encrypted with a key that this process does not have."""

    def __init__(self, key_id: str, known: tuple[str, ...]) -> None:
        has = ", ".join(known) or "none"
        super().__init__(f"the store is encrypted with the key {shown(key_id)}, and the ring has {has}; add that key")
        self.key_id = key_id


class SerializationError(StepwellError):
    """A value cannot be stored as JSON, or stored JSON does not fit the type asked for."""

    def __init__(self, source: object, *, path: str = "$", what: str = "payload") -> None:
        super().__init__(f"{what} refused at `{path}`: {source}")
        self.source = source
        self.path = path
        self.what = what


class SubjectForgotten(SerializationError):
    """What is asked for belongs to a subject that was forgotten: no process can read or add to it again."""

    def __init__(self, what: str) -> None:
        super().__init__("its subject was forgotten; nothing of it can be read or added again", what=what)


class PayloadTooLarge(SerializationError):
    """A value is larger than the store takes."""

    def __init__(self, size: int, limit: int, *, what: str = "payload") -> None:
        super().__init__(
            f"{size} bytes, the limit is {limit}; store it elsewhere and pass a reference, or raise `payload_limit`",
            what=what,
        )
        self.size = size
        self.limit = limit


class UpcastFailed(StepwellError):
    """An upcaster raised, or returned what does not fit; nothing was changed."""

    def __init__(self, what: str, name: str, version: int, why: str) -> None:
        super().__init__(f"{what} cannot be read: the upcaster of {name} {version} failed: {why}; correct it")
        self.what = what
        self.name = name
        self.version = version
        self.why = why
