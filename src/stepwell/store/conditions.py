"""What may be said of new work besides how it is queued: for how long its key is taken, what an add does that finds it
taken, and until when the work is worth beginning. Checked here, and told in one value.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, TypedDict

import msgspec

from stepwell.base.durations import Duration, microseconds_of, moment_of
from stepwell.errors import InvalidOption
from stepwell.store.rows import Conditions

Unique = Literal["ever", "unfinished", "waiting"]
OnConflict = Literal["existing", "replace", "error"]
OnParentEnd = Literal["cancel", "leave"]
SHORTEST_PERIOD: Final = 1_000_000
NOTHING_SAID: Final = Conditions()
# What each of these says of the key; nothing else may be said of it beside.
_IMPLIED: Final = {
    "debounce": {"unique": "waiting", "on_conflict": "replace"},
    "newest": {"unique": "waiting", "on_conflict": "newest"},
    "once_per": {"unique": "ever", "on_conflict": "existing"},
}


class ConditionOptions(TypedDict, total=False):
    """What is said of a key that is taken, and of work that comes too late."""

    unique: Unique | None  # for how long a key is taken: "ever", unless more is said
    on_conflict: OnConflict | None  # what an add does that finds its key taken: "existing", unless more is said
    debounce: Duration | None  # it is due this long after the last add of its key, ...
    debounce_max: Duration | None  # ... at the latest this long after the first
    once_per: Duration | None  # one of its key in each period of this length
    newest: bool  # those of its key that wait are cancelled
    expires: Duration | datetime | None  # if it has not begun by then, it never does


def conditions_of(said: ConditionOptions) -> tuple[str, Conditions | None]:
    """The scope of a key, and whatever else these options say; None if that is nothing."""
    named = [name for name in _IMPLIED if said.get(name) is not None and said.get(name) is not False]
    if len(named) > 1:
        raise InvalidOption(named[1], said.get(named[1]), f"give `{named[0]}` or `{named[1]}`, not both")
    implied = _IMPLIED[named[0]] if named else {}
    unique = _chosen(said, "unique", ("ever", "unfinished", "waiting"), implied)
    on_conflict = _chosen(said, "on_conflict", ("existing", "replace", "error"), implied)
    latest, period = _latest(said), _period(said.get("once_per"))
    after, at = _expires(said.get("expires"))
    conditions = Conditions(unique == "waiting", on_conflict, latest, period, after, at)
    return "ever" if unique == "ever" else "unfinished", None if conditions == NOTHING_SAID else conditions


def with_result(said: Conditions | None, queue: object) -> Conditions:
    """The same, and that what the handler returns is kept; refused for one that takes several messages at once."""
    if getattr(queue, "batch", None) is not None:
        raise InvalidOption("result", True, "its handler takes several messages at once, and returns nothing of each")
    return msgspec.structs.replace(said or NOTHING_SAID, keeps_result=True)


def with_course(said: Conditions | None, timeout: float | None, on_parent_end: OnParentEnd | None) -> Conditions:
    """The same, and how long a run may take, and whether it ends with the run that asks for it."""
    if on_parent_end not in (None, "cancel", "leave"):
        raise InvalidOption("on_parent_end", on_parent_end, "it is 'cancel' or 'leave'")
    span = None if timeout is None else round(timeout * 1_000_000)
    return msgspec.structs.replace(said or NOTHING_SAID, timeout=span, on_parent_end=on_parent_end)


def with_deadline(said: Conditions | None, deadline: int | None) -> Conditions | None:
    """The same for a child of a run that has this deadline: it has the same, unless it is left alone."""
    if deadline is None or (said is not None and said.on_parent_end == "leave"):
        return said
    return msgspec.structs.replace(said or NOTHING_SAID, deadline_at=deadline)


def check_keyed(said: Conditions) -> None:
    """Refuse what means nothing without a key, for work that has none."""
    if said.until_begun or said.period is not None or said.on_conflict != "existing":
        raise InvalidOption(
            "key", None, "`unique`, `on_conflict`, `debounce`, `once_per` and `newest` are about a key: give one"
        )


def check_end(said: Conditions, expires: object, delay: int, run_at: int | None) -> None:
    """Refuse work that would never begin: it is due only after the moment until which it is worth beginning."""
    is_late = run_at is None and said.expires_after is not None and said.expires_after <= delay
    if is_late or (run_at is not None and said.expires_at is not None and said.expires_at <= run_at):
        raise InvalidOption("expires", expires, "the work is due only after that, and would never begin")


def _chosen(said: ConditionOptions, option: str, allowed: tuple[str, ...], implied: dict[str, str]) -> Any:
    """The value of an option, if it is one of those allowed and none that another option contradicts."""
    value = said.get(option)
    if value is None:
        return implied.get(option, allowed[0])
    if value not in allowed:
        raise InvalidOption(option, value, f"it is {', '.join(map(repr, allowed[:-1]))} or {allowed[-1]!r}")
    if implied and value != implied[option]:
        other = next(name for name, meant in _IMPLIED.items() if meant is implied)
        raise InvalidOption(option, value, f"`{other}` says what a key means; leave `{option}` out")
    return value


def _latest(said: ConditionOptions) -> int | None:
    most, debounce = said.get("debounce_max"), said.get("debounce")
    if most is None:
        return None
    if debounce is None:
        raise InvalidOption("debounce_max", most, "it bounds `debounce`: give that too")
    latest = microseconds_of(most, "debounce_max")
    if latest < microseconds_of(debounce, "debounce"):
        raise InvalidOption("debounce_max", most, f"it is at least `debounce`, {debounce}")
    return latest


def _period(once_per: Duration | None) -> int | None:
    if once_per is None:
        return None
    period = microseconds_of(once_per, "once_per")
    if period < SHORTEST_PERIOD:
        raise InvalidOption("once_per", once_per, "a period is at least a second")
    return period


def _expires(expires: Duration | datetime | None) -> tuple[int | None, int | None]:
    if isinstance(expires, datetime):
        return None, moment_of(expires, "expires")
    if expires is None:
        return None, None
    if not (after := microseconds_of(expires, "expires")):
        raise InvalidOption("expires", expires, "then it could never begin: give it some time")
    return after, None
