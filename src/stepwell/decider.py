"""Deciders: event-sourced workflows. What is asked is an input, what happened are events, what is to be done effects.

A decider is pure but for `handle`: it is called with values and answers values, and can be tested by calling it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar
from uuid import UUID

from stepwell.base.backoff import Retry
from stepwell.base.durations import Duration
from stepwell.base.names import check_key
from stepwell.decision import Decision
from stepwell.errors import InvalidOption

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - it stands beside S, E and X in every signature of a decider
E = TypeVar("E")
X = TypeVar("X")
AfterFailure = Literal["wait", "continue"]


@dataclass(frozen=True, slots=True)
class EffectContext:
    """What the handler of an effect may know: the attempt, the effect, and the instance."""

    key: str  # the same in every attempt of this effect, and of no other: pass it to external systems
    attempt: int  # from 1
    type: str
    id: str
    created_at: datetime
    effect_id: int
    headers: Mapping[str, str] = field(default_factory=dict)  # of the input that led to it


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to an input; `first` and `last` are the numbers of its events, None if it has none.

    `duplicate`: it was decided before, and these are the events of then. `completed`: the instance has ended, and
    nothing was decided.
    """

    outcome: Literal["applied", "duplicate", "completed"]
    first: int | None = None
    last: int | None = None

    @property
    def version(self) -> int | None:
        """The version of the instance right after the input: the next one's `expected_version`; None if it had ended.

        That of a duplicate is the version right after the first one, so it vouches for no event that came later.
        """
        return self.last


@dataclass(frozen=True, slots=True)
class TimerCancelled:
    """An event of the engine: a decision cancelled the pending timer of this key. `evolve` is not given it."""

    __stepwell_name__: ClassVar[str] = "stepwell.TimerCancelled"
    key: str


class Decider(ABC, Generic[S, I, E, X]):
    """A type of event-sourced instances: `class Orders(Decider[State, Input, Event, Effect])`.

    Input, Event and Effect are unions of dataclasses, msgspec structs or pydantic models (`Never` if there are no
    effects). They are stored under their class's name, or `__stepwell_name__`, with `__stepwell_version__`. `route`
    names the field that holds the instance's id, in every input; where that does not do, override `identify`.

    With `dedupe`, an input without a key is a duplicate if it equals one that its instance decided less than that long
    ago; inputs from timers and effects are not counted. `dedupe_last` is how many of them, the last ones, an instance
    remembers at most; None for all of that time.

    `retry` is how often an effect is tried in all, `timeout` ends an attempt of `handle`, `observe` records each input
    with how it was answered; `register` may say otherwise.

    `after_failure` says what happens to the submitted inputs behind one that fails: they "wait" until it is decided or
    dropped, or they "continue", and it comes back outside the order.

    With `forgettable`, each instance is a subject of its own in an encrypted store, `store.forget_subject("order/7")`:
    then it has ended, and none of its events can be read again.
    """

    type: ClassVar[str]
    route: ClassVar[str | None] = None
    dedupe: ClassVar[Duration | None] = None
    dedupe_last: ClassVar[int | None] = None
    retry: ClassVar[int | Retry] = 5
    timeout: ClassVar[Duration | None] = None
    after_failure: ClassVar[AfterFailure] = "wait"
    forgettable: ClassVar[bool] = False
    observe: ClassVar[bool] = False

    def identify(self, input: I) -> str:
        """The id of the instance that the input is for: the value of its `route` field."""
        field: str | None = getattr(type(input), ROUTE, self.route)
        if field is None:
            why = "give the decider `route = ...`, the field that holds the instance's id, or override `identify`"
            raise InvalidOption("route", type(input).__name__, why)
        return _text_of(getattr(input, field), f"instance ({type(input).__name__}.{field})")

    def key_of(self, input: I) -> str | None:
        """The input's own idempotency key, None if it has none: the value of the field named in `__stepwell_key__`."""
        field: str | None = getattr(type(input), KEY, None)
        if field is None or (key := getattr(input, field)) is None:
            return None
        return _text_of(key, f"input ({type(input).__name__}.{field})")

    @abstractmethod
    def initial(self) -> S:
        """The state of an instance before its first event."""

    @abstractmethod
    def evolve(self, state: S, event: E) -> S:
        """The state after the event; pure, and never refuses what has happened."""

    @abstractmethod
    def decide(self, state: S, input: I, now: datetime) -> Decision[E, X, I]:
        """The decision on the input; pure: time is `now`, and all else it needs is in the state and the input."""

    def is_terminal(self, state: S) -> bool:
        """True if the instance has ended: later inputs are answered `completed` and its timers are removed."""
        return False

    async def handle(self, effect: X, ctx: EffectContext) -> I | None:
        """Carry the effect out, at least once; an input that is returned is decided, exactly once."""
        raise NotImplementedError(f"{type(self).__name__} has effects and no `handle`")

    def on_dead_letter(self, effect: X, error: str) -> I | None:
        """The input that tells the instance that an effect was given up, None to tell it nothing."""
        return None


ROUTE: Final = "__stepwell_route__"
KEY: Final = "__stepwell_key__"

ENGINE_EVENTS: Final[tuple[type[Any], ...]] = (TimerCancelled,)


def _text_of(value: object, kind: str) -> str:
    """Ids and keys are text; a number or UUID is read as its text, anything else is refused."""
    if isinstance(value, int | UUID) and not isinstance(value, bool):
        value = str(value)
    return check_key(value, kind)
