"""Decisions: the result of a decider for an input, as a value that is built up and compared like any other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, Never, Self, TypeVar, overload

from stepwell.base.durations import Duration, microseconds_of, moment_of
from stepwell.base.names import check_key, check_name
from stepwell.errors import InvalidOption
from stepwell.store.draft import Addressed, Asked
from stepwell.store.emission import check_type

E_co = TypeVar("E_co", covariant=True)
X_co = TypeVar("X_co", covariant=True)
I_co = TypeVar("I_co", covariant=True)
E2 = TypeVar("E2")
X2 = TypeVar("X2")
I2 = TypeVar("I2")
In = TypeVar("In")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Timer(Generic[I_co]):
    """An input that is due later: `after` microseconds from the decision's `now`, or `at` a moment (one of both)."""

    input: I_co
    key: str | None = None
    after: int | None = None
    at: int | None = None

    def due(self, now: int) -> int:
        """When it is due, in microseconds since 1970, for a decision that was made at `now`."""
        return self.at if self.at is not None else now + (self.after or 0)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that a decision sends, with its queue (by name, or the handler of it)."""

    queue: str | Addressed[Any]
    payload: Any


@dataclass(frozen=True, slots=True)
class Emitted:
    """An event for the outside world that a decision emits; without a subject it is about the instance."""

    type: str
    data: Any = None
    subject: str | None = None
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Decision(Generic[E_co, X_co, I_co]):
    """What happened, at least one event, and what to do about it; all of it is committed together.

    Begin with `Decision.event(...)`; each method returns a new decision. What is in `cancelled` is cancelled before
    `timers` are set, whatever the order of the calls: a timer that was set and then cancelled is in `cancelled` only.
    """

    events: tuple[E_co, ...]
    effects: tuple[X_co, ...] = ()
    timers: tuple[Timer[I_co], ...] = ()
    cancelled: tuple[str, ...] = ()
    triggers: tuple[Asked[Any], ...] = ()
    messages: tuple[Outgoing, ...] = ()
    emitted: tuple[Emitted, ...] = ()

    def __post_init__(self) -> None:
        if not self.events:
            why = "it has at least one event; an input that changes nothing is an event too, like `Ignored(why)`"
            raise InvalidOption("decision", (), why)

    # For several classes a type checker infers `object`, unless each has a type variable of its own.
    @overload
    @staticmethod
    def event(one: A, two: B, /) -> Decision[A | B, Never, Never]: ...
    @overload
    @staticmethod
    def event(one: A, two: B, three: C, /) -> Decision[A | B | C, Never, Never]: ...
    @overload
    @staticmethod
    def event(*events: E2) -> Decision[E2, Never, Never]: ...
    @staticmethod
    def event(*events: Any) -> Decision[Any, Never, Never]:
        """These events happened, in this order."""
        return Decision(events)

    @overload
    def and_event(self, one: A, two: B, /) -> Decision[E_co | A | B, X_co, I_co]: ...
    @overload
    def and_event(self, *events: E2) -> Decision[E_co | E2, X_co, I_co]: ...
    def and_event(self, *events: Any) -> Decision[Any, X_co, I_co]:
        """The same, and these events after the others."""
        return self._with(events=(*self.events, *events))

    @overload
    def with_effect(self, one: A, two: B, /) -> Decision[E_co, X_co | A | B, I_co]: ...
    @overload
    def with_effect(self, *effects: X2) -> Decision[E_co, X_co | X2, I_co]: ...
    def with_effect(self, *effects: Any) -> Decision[E_co, Any, I_co]:
        """The same, and these effects, which the decider's `handle` carries out once the events are committed."""
        return self._with(effects=(*self.effects, *effects))

    def with_timer_after(
        self, after: Duration, input: I2, *, key: str | None = None
    ) -> Decision[E_co, X_co, I_co | I2]:
        """The same, and this input is delivered to the instance after this span, counted from the decision's `now`.

        With a `key` it takes the place of the instance's pending timer of that key, and `cancel_timer` finds it.
        """
        return self._with_timer(Timer(input, _checked(key), after=microseconds_of(after, "after")))

    def with_timer_at(self, at: datetime, input: I2, *, key: str | None = None) -> Decision[E_co, X_co, I_co | I2]:
        """The same, and this input is delivered to the instance at this moment, or at once if it is past."""
        return self._with_timer(Timer(input, _checked(key), at=moment_of(at, "at")))

    def cancel_timer(self, key: str) -> Self:
        """The same, and the instance's pending timer of this key is not delivered; if there is none, nothing happens.

        The stream shows it as an event of the engine, `TimerCancelled`, which `evolve` is not given.
        """
        key = check_key(key, "timer key")
        kept = tuple(timer for timer in self.timers if timer.key != key)
        return replace(self, timers=kept, cancelled=tuple(dict.fromkeys((*self.cancelled, key))))

    def with_trigger(self, trigger: Asked[Any]) -> Self:
        """The same, and this run is asked for: it is there if the decision is."""
        if not isinstance(trigger, Asked):
            why = "pass `workflow.trigger(...)` itself; a decision waits for nothing and executes nothing"
            raise InvalidOption("trigger", trigger, why)
        return replace(self, triggers=(*self.triggers, trigger))

    @overload
    def with_message(self, queue: Addressed[In], payload: In) -> Self: ...
    @overload
    def with_message(self, queue: str, payload: Any) -> Self: ...
    def with_message(self, queue: str | Addressed[Any], payload: Any) -> Self:
        """The same, and this message is enqueued: it is there if the decision is."""
        check_name("queue", queue if isinstance(queue, str) else getattr(queue, "queue", queue))
        return replace(self, messages=(*self.messages, Outgoing(queue, payload)))

    def with_emit(self, type: str, data: Any = None, *, subject: str | None = None, ordered: bool = True) -> Self:
        """The same, and this event is emitted for the outside world: it is there if the decision is.

        Unless it has another `subject` it is about the instance, `order/42`; the events of a subject are published in
        the order of the decisions, unless `ordered` is False. See `store.emit`.
        """
        check_type(type)
        return replace(self, emitted=(*self.emitted, Emitted(type, data, subject, ordered)))

    def _with_timer(self, timer: Timer[I2]) -> Decision[E_co, X_co, I_co | I2]:
        kept = tuple(one for one in self.timers if one.key is None or one.key != timer.key)
        return self._with(timers=(*kept, timer))

    def _with(self, **parts: tuple[Any, ...]) -> Decision[Any, Any, Any]:
        """As `replace`, for a decision of other types."""
        return replace(self, **parts)


def _checked(key: str | None) -> str | None:
    return None if key is None else check_key(key, "timer key")
