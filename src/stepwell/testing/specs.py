"""Specs: a decider's behaviour as given, when, then; without a store, a worker or a clock."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, NamedTuple, TypeVar

from stepwell.base.durations import Duration, datetime_of, microseconds_of, moment_of
from stepwell.decider import Decider
from stepwell.deciders.registry import Family, WrittenDecision, WrittenTimer
from stepwell.deciders.type_names import Kinds, Written
from stepwell.decision import Outgoing
from stepwell.errors import InvalidOption
from stepwell.store.draft import Asked
from stepwell.values.codec import encode

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - as in `Decider`
E = TypeVar("E")
X = TypeVar("X")

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
MOST_TIMERS: Final = 1_000  # in one `after`: a timer that is due at once and sets itself again would never end


def given(decider: Decider[S, I, E, X], *events: E) -> Spec[S, I, E, X]:
    """An instance to which these events have happened: `given(Orders(), Created(1900)).when(Pay("7")).then(Paid())`.

    The decider is called as an engine calls it, and its decision is encoded and read back as by a store, so that what
    cannot be stored is refused here too. The spec also checks that the decider is pure: `decide` is called twice,
    and neither `decide` nor `evolve` may change its state. A spec is immutable; each method returns a new one.
    """
    family = Family.of(decider)
    read = [family.events.write(event).value for event in events]
    state: S = _evolved(family, decider.initial(), read)
    return Spec(family, state, moment_of(BEGINNING), (f"given\n{_shown(events)}",))


class PendingTimer(NamedTuple):
    """A pending timer, as messages show it."""

    key: str | None
    after: timedelta


@dataclass(frozen=True)
class Spec(Generic[S, I, E, X]):
    """An instance of a decider at one moment, and what the last `when` or `after` led to. Made by `given`."""

    family: Family
    state: S
    time: int
    told: tuple[str, ...]  # the story so far, for messages
    decided: tuple[WrittenDecision, ...] | None = None  # None before the first input
    pending: tuple[WrittenTimer, ...] = ()

    def when(self, input: I, *, now: datetime | None = None) -> Spec[S, I, E, X]:
        """Send the input to the instance, at the time `now` if given; an instance that has ended decides nothing."""
        time = self.time if now is None else moment_of(now, "now")
        return _delivered(replace(self, time=time, decided=()), input, f"when {input!r}")

    def after(self, span: Duration) -> Spec[S, I, E, X]:
        """Let this much time pass: due timers that were set since `given` are delivered in order."""
        until = self.time + microseconds_of(span, "span")
        spec = replace(self, decided=(), told=(*self.told, f"after {span}"))
        while due := min((timer for timer in spec.pending if timer.due <= until), key=_due, default=None):
            if len(_asked(spec)) == MOST_TIMERS:
                raise AssertionError(_story(self, f"after {span}: over {MOST_TIMERS} timers; each sets another?"))
            rest = tuple(timer for timer in spec.pending if timer is not due)
            spec = replace(spec, pending=rest, time=max(spec.time, due.due))
            spec = _delivered(spec, due.input.value, f"the timer delivers {due.input.value!r}")
        return replace(spec, time=until)

    def then(self, *events: E) -> Spec[S, I, E, X]:
        """Exactly these events happened, in this order; an instance that has ended has none."""
        found = [event for one in _asked(self) for event in one.events]
        return self._compare_written("events", self.family.events, events, found)

    def then_effects(self, *effects: X) -> Spec[S, I, E, X]:
        """Exactly these effects are requested."""
        found = [effect for one in _asked(self) for effect in one.effects]
        return self._compare_written("effects", self.family.effects, effects, found)

    def then_timers(self, *spans: Duration, **timers: Duration) -> Spec[S, I, E, X]:
        """Exactly these timers are pending, of those set since `given`, each due after this span from now.

        By key, `then_timers(payment="1h")`; those without a key by their spans alone.
        """
        keyed = [*((None, span) for span in spans), *timers.items()]
        expected = [PendingTimer(key, timedelta(microseconds=microseconds_of(span))) for key, span in keyed]
        found = [PendingTimer(timer.key, timedelta(microseconds=timer.due - self.time)) for timer in self.pending]
        return self._compare("pending timers", sorted(expected, key=_by_key), sorted(found, key=_by_key))

    def then_cancelled(self, *keys: str) -> Spec[S, I, E, X]:
        """The timers of exactly these keys are cancelled."""
        return self._compare("cancelled timers", keys, [key for one in _asked(self) for key in one.cancelled])

    def then_triggers(self, *triggers: Asked[Any]) -> Spec[S, I, E, X]:
        """Exactly these runs are triggered."""
        return self._compare("triggers", triggers, [trigger for one in _asked(self) for trigger in one.triggers])

    def then_messages(self, *messages: tuple[Any, Any]) -> Spec[S, I, E, X]:
        """Exactly these messages are enqueued, each a pair of queue (or handler) and payload."""
        found = [message for one in _asked(self) for message in one.messages]
        return self._compare("messages", [Outgoing(*message) for message in messages], found)

    def then_state(self, check: Callable[[S], object]) -> Spec[S, I, E, X]:
        """The check returns true for the state."""
        if not check(self.state):
            raise AssertionError(_story(self, f"then the state is not as expected:\n    {self.state!r}"))
        return self

    def _compare_written(
        self, what: str, kinds: Kinds, expected: Sequence[Any], found: Sequence[Written]
    ) -> Spec[S, I, E, X]:
        """True if they are stored alike: values that cannot be compared are compared by their JSON."""
        wanted = [kinds.write(value) for value in expected]
        pairs = zip(wanted, found, strict=False)
        if len(wanted) == len(found) and all(one.value == other.value or one[:3] == other[:3] for one, other in pairs):
            return self
        return self._refuse(what, [one.value for one in wanted], [one.value for one in found])

    def _compare(self, what: str, expected: Sequence[Any], found: Sequence[Any]) -> Spec[S, I, E, X]:
        return self if list(expected) == list(found) else self._refuse(what, expected, found)

    def _refuse(self, what: str, expected: Sequence[Any], found: Sequence[Any]) -> Spec[S, I, E, X]:
        lines = f"then expected {what}\n{_shown(expected)}\nbut there are\n{_shown(found)}"
        raise AssertionError(_story(self, f"{lines}\nand the state is\n    {self.state!r}"))


def _delivered(spec: Spec[S, I, E, X], input: I, told: str) -> Spec[S, I, E, X]:
    """The spec after an input, with its decision added."""
    family = spec.family
    spec = replace(spec, told=(*spec.told, told))
    read = family.inputs.write(input).value
    family.key_of(read)  # refuses a bad one as an engine does
    if family.decider.is_terminal(spec.state):
        return replace(spec, told=(*spec.told, "    (the instance has ended and decides nothing)"))
    written = _decided(spec, read)
    if _as_stored(written) != _as_stored(_decided(spec, read)):
        raise AssertionError(_story(spec, "`decide` is not pure: asked twice it gave two answers"))
    state = _evolved(family, spec.state, [event.value for event in written.events])
    replaced = {*written.cancelled, *(timer.key for timer in written.timers if timer.key is not None)}
    kept = (*(timer for timer in spec.pending if timer.key not in replaced), *written.timers)
    pending = () if family.decider.is_terminal(state) else kept
    return replace(spec, state=state, decided=(*_asked(spec), written), pending=pending)


def _decided(spec: Spec[Any, Any, Any, Any], input: Any) -> WrittenDecision:
    before = copy.deepcopy(spec.state)
    decision = spec.family.decide(spec.state, input, datetime_of(spec.time))
    if _differ(before, spec.state):
        raise AssertionError(_story(spec, "`decide` changed the state it was given; that is for `evolve` to do"))
    return spec.family.written(decision, spec.family.identify(input), spec.time)


def _evolved(family: Family, state: Any, events: Iterable[Any]) -> Any:
    """The state after the events; checks that each is a new one."""
    for event in events:
        before = copy.deepcopy(state)
        after = family.decider.evolve(state, event)
        if _differ(before, state):
            raise AssertionError(f"`evolve` changed the state it was given, for {event!r}; let it answer a new one")
        if _differ(after, family.decider.evolve(before, event)):
            raise AssertionError(f"`evolve` is not pure: given {event!r} twice it gave two states")
        state = after
    return state


def _differ(one: Any, other: Any) -> bool:
    """True if the two differ, as far as their class can compare."""
    return _compares(type(one)) and bool(one != other)


def _compares(cls: type) -> bool:
    return any("__eq__" in vars(base) for base in cls.__mro__ if base is not object)


def _as_stored(written: WrittenDecision) -> object:
    """The parts of a decision that can be compared for any classes."""
    messages = [(message.queue, encode(message.payload)) for message in written.messages]
    timers = [(timer.input[:3], timer.key, timer.due) for timer in written.timers]
    parts = [one[:3] for one in (*written.events, *written.effects)]
    return parts, timers, written.cancelled, written.triggers, messages


def _asked(spec: Spec[Any, Any, Any, Any]) -> tuple[WrittenDecision, ...]:
    if spec.decided is None:
        raise InvalidOption("then", spec.told[-1], "there was no input yet: call `.when(input)` first")
    return spec.decided


def _story(spec: Spec[Any, Any, Any, Any], end: str) -> str:
    return "\n".join((type(spec.family.decider).__name__, *spec.told, end))


def _shown(values: Sequence[Any]) -> str:
    return "\n".join(f"    {value!r}" for value in values) or "    (none)"


def _due(timer: WrittenTimer) -> int:
    return timer.due


def _by_key(timer: PendingTimer) -> tuple[str, timedelta]:
    return timer.key or "", timer.after
