"""Limits of a queue over all workers, as code declares them and as people change them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from stepwell.base.names import check_whole
from stepwell.base.rates import Rate
from stepwell.errors import InvalidOption

MOST_RUNNING: Final = 100_000
AfterDead = Literal["skip", "stop"]
PATHS: Final = {"key": "path", "cost": "cost_path"}  # what names a part of the input, and as what its place is stored
WAKES_COST: Final = "wakes_cost"  # as what is stored that a run that goes on costs again
_PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}(\.[A-Za-z_][A-Za-z0-9_]{0,99}){0,9}")


@dataclass(frozen=True, slots=True)
class Limits:
    """How many tasks of a queue run at once, over all workers: `running` in all, and `per_key` of each key.

    `key` is the part of the input that is the key: `"tenant"`, or `"user.id"` of an object in it. Keys take turns, so
    one with a million waiting tasks delays no other; with `key` alone that is all. What runs counts from its claim
    until it ends, waits, or is given back.

    `rate` is how many begin in any period of that length, as `"50/s"` or a `Rate`, and `key_rate` how many of each key.
    `cost` is the part of the input that says how many units of a rate a task costs; without it each costs 1. A retry
    costs as much again; a run that goes on after a sleep or a wait costs nothing.

    With `ordered` the tasks of a key are executed one after the other, in the order of their commits: none begins
    before the one before it has ended, with all its retries, sleeps and waits. Those behind a dead letter go on
    (`after_dead` "skip") or wait until it is requeued or dropped ("stop").
    """

    running: int | None = None
    key: str | None = None
    per_key: int | None = None
    rate: Rate | str | None = None
    key_rate: Rate | str | None = None
    cost: str | None = None
    ordered: bool = False
    after_dead: AfterDead = "skip"

    def __post_init__(self) -> None:
        for option in ("running", "per_key"):
            if (value := getattr(self, option)) is not None:
                check_whole(option, value, 1, MOST_RUNNING)
        for option in ("rate", "key_rate"):
            if (said := getattr(self, option)) is not None:
                object.__setattr__(self, option, Rate.of(option, said))
        for option in ("key", "cost"):
            path = getattr(self, option)
            if path is not None and (not isinstance(path, str) or not _PATH.fullmatch(path)):
                raise InvalidOption(option, path, "it is a name in the input, such as 'tenant' or 'user.id'")
        if not isinstance(self.ordered, bool):
            raise InvalidOption("ordered", self.ordered, "it is True or False")
        if self.after_dead not in get_args(AfterDead):
            raise InvalidOption("after_dead", self.after_dead, "it is 'skip' or 'stop'")
        if self.after_dead != "skip" and not self.ordered:
            raise InvalidOption(
                "after_dead", self.after_dead, "only what is in order waits for a dead letter: say `ordered=True`"
            )

    def path(self, option: str, of: str, parameters: Collection[str] | None) -> str | None:
        """Where the key or cost stands in the stored input, for a workflow with these parameters or any other queue."""
        said: str | None = getattr(self, option)
        if said is None:
            return None
        if parameters is None:
            return f"$.{said}"
        first, _, rest = said.partition(".")
        if first not in parameters:
            why = f"{of} has no parameter {first!r}; it has {', '.join(parameters) or 'none'}"
            raise InvalidOption(option, said, why)
        if len(parameters) > 1:  # several are stored as an object, one as itself
            return f"$.{said}"
        return f"$.{rest}" if rest else "$"


def checked_limits(limits: object, of: str, parameters: Collection[str] | None) -> Limits | None:
    """The limits, if they are some that a workflow with these parameters, or any other queue, may have."""
    if limits is None:
        return None
    if not isinstance(limits, Limits):
        raise InvalidOption("limits", limits, "pass stepwell.Limits(...)")
    for option in PATHS:
        limits.path(option, of, parameters)
    return limits


def declared_limits(
    limits: Limits | None, of: str, parameters: Collection[str] | None, *, wakes_cost: bool = False
) -> dict[str, Any] | None:
    """What is said, by name, as it is stored; nothing of what is not; and whether a run that goes on costs again."""
    if limits is None:
        return None
    said = {name: getattr(limits, name) for name in Limits.__dataclass_fields__}
    if not limits.ordered:
        said |= {"ordered": None, "after_dead": None}
    said |= {path: limits.path(option, of, parameters) for option, path in PATHS.items()}
    said |= {WAKES_COST: True} if wakes_cost else {}
    return {name: storable(value) for name, value in said.items() if value is not None}


def limits_of_steps(limits: Limits, parameters: Collection[str]) -> Limits:
    """The same limits for the queue of a step with these parameters, whose arguments are a part of the input there."""
    key, cost = (limits.path(option, "", parameters) for option in PATHS)
    return replace(limits, key=key and f"arguments{key[1:]}", cost=cost and f"arguments{cost[1:]}")


def storable(value: Any) -> Any:
    """What is said of limits, as JSON has it: a rate as text."""
    return str(value) if isinstance(value, Rate) else value


def meters_of(said: Mapping[str, Any]) -> dict[str, int | None]:
    """The numbers of the rates that were said by name, as a limiter has them."""
    numbers: dict[str, int | None] = {}
    for option, prefix in (("rate", ""), ("key_rate", "key_")):
        meter = Rate.of(option, said[option]).meter if said.get(option) is not None else None
        for name, column in (("count", option), ("period", f"{prefix}period"), ("burst", f"{prefix}burst")):
            numbers[column] = None if meter is None else getattr(meter, name)
    return numbers


def order_of(said: Mapping[str, Any]) -> AfterDead | None:
    """What the others of a key do when one is dead, by what was said by name; None if they have no order."""
    if not said.get("ordered"):
        return None
    return "stop" if said.get("after_dead") == "stop" else "skip"


def limits_of(said: Mapping[str, Any]) -> Limits:
    """The limits that were said by name."""
    known = Limits.__dataclass_fields__.keys() - (() if said.get("ordered") else {"after_dead"})
    return Limits(**{name: value for name, value in said.items() if name in known})
