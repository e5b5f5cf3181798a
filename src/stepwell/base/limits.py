"""Limits of a queue over all workers, as code declares them and as people change them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from stepwell.base.names import check_whole
from stepwell.errors import InvalidOption

MOST_RUNNING: Final = 100_000
_PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}(\.[A-Za-z_][A-Za-z0-9_]{0,99}){0,9}")


@dataclass(frozen=True, slots=True)
class Limits:
    """How many tasks of a queue run at once, over all workers: `running` in all, and `per_key` of each key.

    `key` is the part of the input that is the key: `"tenant"`, or `"user.id"` of an object in it. Keys take turns, so
    one with a million waiting tasks delays no other; with `key` alone that is all. What runs counts from its claim
    until it ends, waits, or is given back.
    """

    running: int | None = None
    key: str | None = None
    per_key: int | None = None

    def __post_init__(self) -> None:
        for option in ("running", "per_key"):
            if (value := getattr(self, option)) is not None:
                check_whole(option, value, 1, MOST_RUNNING)
        if self.key is not None and (not isinstance(self.key, str) or not _PATH.fullmatch(self.key)):
            raise InvalidOption("key", self.key, "it is a name in the input, such as 'tenant' or 'user.id'")

    def path(self, of: str, parameters: Collection[str] | None) -> str | None:
        """Where the key stands in the stored input, for a workflow with these parameters or any other queue."""
        if self.key is None:
            return None
        if parameters is None:
            return f"$.{self.key}"
        first, _, rest = self.key.partition(".")
        if first not in parameters:
            why = f"{of} has no parameter {first!r}; it has {', '.join(parameters) or 'none'}"
            raise InvalidOption("key", self.key, why)
        if len(parameters) > 1:  # several are stored as an object, one as itself
            return f"$.{self.key}"
        return f"$.{rest}" if rest else "$"


def checked_limits(limits: object, of: str, parameters: Collection[str] | None) -> Limits | None:
    """The limits, if they are some that a workflow with these parameters, or any other queue, may have."""
    if limits is None:
        return None
    if not isinstance(limits, Limits):
        raise InvalidOption("limits", limits, "pass stepwell.Limits(...)")
    limits.path(of, parameters)
    return limits


def declared_limits(limits: Limits | None, of: str, parameters: Collection[str] | None) -> dict[str, Any] | None:
    """What is said, by name, as it is stored; nothing of what is not."""
    if limits is None:
        return None
    said = {**asdict(limits), "path": limits.path(of, parameters)}
    return {name: value for name, value in said.items() if value is not None}


def limits_of(said: Mapping[str, Any]) -> Limits:
    """The limits that were said by name."""
    known = Limits.__dataclass_fields__
    return Limits(**{name: value for name, value in said.items() if name in known})
