"""What a schedule says: when it is due, what it triggers, and what happens when a run is late. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, Literal, get_args

import msgspec

from stepwell.base.durations import Duration, datetime_of, microseconds_of, moment_of
from stepwell.base.names import check_name, check_priority, check_tags
from stepwell.base.timetable import Timetable, plain_cron
from stepwell.errors import InvalidOption
from stepwell.values.codec import decode, encode

Overlap = Literal["skip", "buffer", "allow", "cancel"]
CatchUp = Literal["none", "last", "all"]

LONGEST_SCHEDULE_NAME: Final = 200  # with the moment of a tick it is the key of a run
FILLED: Final = "scheduled_for"  # the parameter that gets the moment of the tick
UNFILLED: Final = datetime(1970, 1, 1, tzinfo=UTC)  # what stands there before
MOST_FIRED: Final = 100  # ticks in a transaction
MOST_COUNTED_TICKS: Final = 50_000  # of those that were missed
LATE: Final = 60_000_000  # microseconds after which a tick counts as missed


@dataclass(frozen=True, kw_only=True)
class _Common:
    """What schedules have in common, whenever they are due."""

    name: str | None = None
    input: Mapping[str, Any] = field(default_factory=dict)
    overlap: Overlap = "skip"
    catch_up: CatchUp = "last"
    within: Duration | None = None
    jitter: Duration = 0
    start: datetime | None = None
    end: datetime | None = None
    pause_on_error: bool = False
    priority: int = 0
    tags: Iterable[str] = ()

    def __post_init__(self) -> None:
        self.plan()

    def plan(self) -> Plan:
        """What is stored of it, checked; without the input."""
        if self.name is not None and len(check_name("schedule", self.name)) > LONGEST_SCHEDULE_NAME:
            raise InvalidOption("name", self.name, f"it has at most {LONGEST_SCHEDULE_NAME} characters")
        made = Plan(
            overlap=self.overlap,
            catch_up=self.catch_up,
            within=None if self.within is None else microseconds_of(self.within, "within"),
            jitter=microseconds_of(self.jitter, "jitter"),
            start=None if self.start is None else moment_of(self.start, "start"),
            end=None if self.end is None else moment_of(self.end, "end"),
            pause_on_error=bool(self.pause_on_error),
            priority=check_priority(self.priority),
            tags=check_tags(self.tags),
            **self._table(),
        )
        return checked_plan(made)

    def next(self, count: int = 1, *, after: datetime | None = None) -> list[datetime]:
        """The next ticks after a moment, in UTC; after now if none is given."""
        plan, moment = self.plan(), moment_of(after or datetime.now(UTC), "after")
        return next_ticks(plan, moment, count)

    def _table(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class Cron(_Common):
    """When a clock on the wall shows what a cron expression says: `Cron("0 2 * * MON-FRI", tz="Europe/Riga")`.

    Five fields, or six with seconds first, or `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`. Where the clock
    is put forward, a fixed time that does not exist comes at the first moment that does; where it is put back, a fixed
    time comes once, and "every hour" goes on.
    """

    expression: str
    tz: str = "UTC"

    def _table(self) -> dict[str, Any]:
        if not isinstance(self.expression, str):
            raise InvalidOption("cron", self.expression, "it is text, such as '0 2 * * *'")
        return {"cron": plain_cron(self.expression), "tz": self.tz}


@dataclass(frozen=True)
class Every(_Common):
    """Every so often, counted from `anchor` (midnight UTC): `Every("15m")`. It knows no time zones."""

    span: Duration
    anchor: datetime | None = None

    def _table(self) -> dict[str, Any]:
        anchor = 0 if self.anchor is None else moment_of(self.anchor, "anchor")
        return {"every": microseconds_of(self.span, "every"), "anchor": anchor}


@dataclass(frozen=True)
class Once(_Common):
    """At one moment: `Once(datetime(2027, 1, 1, tzinfo=UTC))`."""

    moment: datetime

    def _table(self) -> dict[str, Any]:
        return {"at": moment_of(self.moment, "at")}


When = Cron | Every | Once


class Plan(Timetable, frozen=True, omit_defaults=True, kw_only=True):
    """A schedule as it is stored."""

    overlap: Overlap = "skip"
    catch_up: CatchUp = "last"
    within: int | None = None
    jitter: int = 0
    pause_on_error: bool = False
    priority: int = 0
    tags: tuple[str, ...] = ()
    max_attempts: int = 3
    input: str = "null"  # JSON text, as the store's codec wrote it
    fills: bool = False  # the moment of the tick goes into it

    def input_at(self, due: int) -> str:
        """The input of the run for a tick."""
        if not self.fills:
            return self.input
        moment = encode(datetime_of(due))
        given = decode(self.input)
        if not (isinstance(given, dict) and FILLED in given):
            return moment
        parts = decode(self.input, dict[str, msgspec.Raw])
        texts = {name: moment if name == FILLED else bytes(part).decode() for name, part in parts.items()}
        return f"{{{','.join(f'{encode(name)}:{text}' for name, text in texts.items())}}}"

    @property
    def times(self) -> tuple[object, ...]:
        """All that says when it is due."""
        return self.cron, self.tz, self.every, self.anchor, self.at, self.start, self.end

    @property
    def text(self) -> str:
        """It as JSON."""
        return encode(msgspec.to_builtins(self))

    @property
    def hash(self) -> str:
        """A short text that two plans have in common if they say the same."""
        return blake2b(self.text.encode(), digest_size=8).hexdigest()


def checked_plan(plan: Plan) -> Plan:
    """The plan, if it says what can be done."""
    if plan.overlap not in get_args(Overlap):
        raise InvalidOption("overlap", plan.overlap, "it is 'skip', 'buffer', 'allow' or 'cancel'")
    if plan.catch_up not in get_args(CatchUp):
        raise InvalidOption("catch_up", plan.catch_up, "it is 'none', 'last' or 'all'")
    if plan.catch_up == "all" and plan.overlap != "allow":
        why = "the ticks that were missed would skip each other; say overlap='allow', and limit the workflow"
        raise InvalidOption("catch_up", "all", why)
    plan.check()
    return plan


def plan_of(text: str, edited: str | None = None) -> Plan:
    """A plan as it was stored, with what an operator has changed of it."""
    changes: dict[str, Any] = decode(edited, dict[str, Any]) if edited else {}
    return msgspec.convert({**decode(text, dict[str, Any]), **changes}, Plan)


def next_ticks(plan: Timetable, after: int, count: int) -> list[datetime]:
    """The next ticks after a moment, as many as there are, at the most `count`."""
    found: list[datetime] = []
    tick = plan.following(after)
    while tick is not None and len(found) < count:
        found.append(datetime_of(tick))
        tick = plan.following(tick)
    return found


@dataclass(frozen=True, slots=True)
class DueTicks:
    """What is to be done about the ticks of a schedule that have come: the ticks to fire, and the next one.

    `missed` ticks from `first_missed` on are left out.
    """

    ticks: tuple[int, ...]
    next_at: int | None
    missed: int = 0
    first_missed: int = 0


def due_now(plan: Plan, seen: int, now: int) -> DueTicks:
    """What to do at `now` if the tick `seen` is the first that was not decided."""
    if plan.catch_up == "all":
        ticks = [seen]
        while len(ticks) < MOST_FIRED and (tick := plan.following(ticks[-1])) is not None and tick <= now:
            ticks.append(tick)
        return _without_old(plan, ticks, now, plan.following(ticks[-1]))
    newest = plan.latest(seen, now) or seen
    following = plan.following(newest)
    span = min(LATE, plan.within if plan.within is not None else LATE) if plan.catch_up == "none" else plan.within
    is_late = span is not None and now - newest > span
    missed = 0 if newest == seen else 1
    for _ in plan.between(seen, newest - 1):
        missed += 1
        if missed >= MOST_COUNTED_TICKS:
            break
    return DueTicks(() if is_late else (newest,), following, missed + is_late, seen)


def _without_old(plan: Plan, ticks: list[int], now: int, following: int | None) -> DueTicks:
    kept = [one for one in ticks if plan.within is None or now - one <= plan.within]
    return DueTicks(tuple(kept), following, len(ticks) - len(kept), ticks[0])
