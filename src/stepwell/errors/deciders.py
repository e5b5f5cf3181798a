"""Errors of deciders and of what they have stored."""
# ruff: noqa: N818 - the names are the API's words; `LeaseLost` says more than `LeaseLostError`

from __future__ import annotations

from stepwell.errors.base import StepwellError, shown
from stepwell.errors.values import SerializationError


class DeciderNotFound(StepwellError):
    """No decider of this type is registered, or has left anything in the store."""

    def __init__(self, type: str, known: tuple[str, ...] = ()) -> None:
        there_are = f"there are {', '.join(known)}" if known else "there is none"
        said = f"no decider of type {shown(type)} is known here, {there_are}"
        super().__init__(f"{said}; register it with `engine.register(...)`")
        self.type = type


UnknownWorkflowType = DeciderNotFound


class DuplicateDecider(StepwellError):
    """Two deciders were registered for one type, or for one class of inputs."""

    def __init__(self, what: str, name: str, first: str, second: str, advice: str) -> None:
        super().__init__(f"{what} {shown(name)} belongs to {first} and is to belong to {second}; {advice}")
        self.name = name
        self.first = first
        self.second = second


class UnknownRecord(SerializationError):
    """A stored value is of a class or version that this code does not have; other code may.

    Or an event does not fit its class any more.
    """

    def __init__(self, what: str, name: str, version: int, known: str) -> None:
        super().__init__(
            f"it was stored as {shown(name)[1:-1]}, version {version}, and {known}; run the code that wrote it, "
            "or declare the class again, with `@upcast` for its older versions",
            what=what,
        )
        self.name = name
        self.version = version
