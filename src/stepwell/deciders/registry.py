"""Families: a registered decider with the classes that it declares, and decisions as they are stored."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from stepwell.base.backoff import Retry
from stepwell.base.durations import Duration, microseconds_of, timeout_of
from stepwell.base.names import check_key, check_name, check_whole
from stepwell.decider import ENGINE_EVENTS, KEY, ROUTE, AfterFailure, Decider
from stepwell.deciders.snapshots import States
from stepwell.deciders.type_names import Kinds, Written, classes_of
from stepwell.decision import Decision, Emitted, Outgoing
from stepwell.errors import DeciderNotFound, DuplicateDecider, InvalidOption
from stepwell.store.draft import Asked
from stepwell.store.emission import Emission, emission_of
from stepwell.store.inline import InlineFold
from stepwell.values.codec import PAYLOAD_LIMIT, encode_ordered, payload_hash
from stepwell.values.headers import SUBJECT, headers_text
from stepwell.values.named_codecs import Codec
from stepwell.values.versions import version_of

AnyDecider = Decider[Any, Any, Any, Any]
MOST_REMEMBERED: Final = 10_000
NO_EFFECT: Final = "write `Never` instead if there are none"


class WrittenTimer(NamedTuple):
    """A timer as it is stored; `due` is in microseconds since 1970."""

    input: Written
    key: str | None
    due: int


@dataclass(frozen=True, slots=True)
class WrittenDecision:
    """A decision as it is stored: `cancelled` timers go before `timers` are set."""

    events: tuple[Written, ...]
    effects: tuple[Written, ...]
    timers: tuple[WrittenTimer, ...]
    cancelled: tuple[str, ...]
    triggers: tuple[Asked[Any], ...]
    messages: tuple[Outgoing, ...]
    emissions: tuple[Emission, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A decider and the classes of its inputs, events and effects; mistakes in its declaration are found by `of`."""

    decider: AnyDecider
    type: str
    inputs: Kinds
    events: Kinds  # the engine's own events too
    effects: Kinds
    states: States
    takes_now: bool
    dedupe: int | None  # microseconds for which equal inputs without a key count once ...
    dedupe_last: int | None  # ... and how many of them, the last ones, are remembered for an instance; None for all
    retry: Retry  # of effects
    timeout: float | None  # seconds for an attempt of an effect
    after_failure: AfterFailure
    observe: bool  # whether it is recorded what becomes of its inputs
    secret: bytes = dataclasses.field(default=b"", repr=False)  # of an encrypted store: its fingerprints are keyed
    forgettable: bool = False  # whether each instance is a subject that may be forgotten
    inline: list[InlineFold] = dataclasses.field(default_factory=list)  # projections that its decisions write

    @classmethod
    def of(cls, decider: AnyDecider, codec: Codec | None = None) -> Family:
        """Read what a decider declares; InvalidOption says what is wrong and what to write instead."""
        if not isinstance(decider, Decider):
            raise InvalidOption("decider", decider, "it is an instance of a subclass of `Decider`: `Orders()`")
        name = type(decider).__name__
        type_ = check_name("decider", getattr(decider, "type", None) or _refuse_type(name))
        state, *parts = _declared(type(decider))
        module = type(decider).__module__
        inputs, events, effects = (
            classes_of(annotation, module, part) for part, annotation in zip(_PARTS, parts, strict=True)
        )
        if not (inputs and events):
            raise InvalidOption("decider", name, "it has inputs and events: `Decider[State, Input, Event, Effect]`")
        _check_routes(decider, inputs)
        if effects and type(decider).handle is Decider.handle:
            raise InvalidOption("decider", name, f"it has effects, so it needs `async def handle`; {NO_EFFECT}")
        happened = Kinds("event", type_, events, ENGINE_EVENTS, codec)
        return cls(
            decider,
            type_,
            Kinds("input", type_, inputs, codec=codec),
            happened,
            Kinds("effect", type_, effects, codec=codec),
            States.of(decider, state, happened.routes.links),
            _takes_now(decider.decide),
            _window(decider),
            _dedupe_last(decider),
            Retry.of(decider.retry),
            timeout_of(decider.timeout),
            _after_failure(decider),
            bool(decider.observe),
            forgettable=bool(decider.forgettable),
        )

    @property
    def reads(self) -> tuple[str, ...]:
        """What a worker registers: every stored name that can be read, and its newest version; nothing if all are 1."""
        routes = [kinds.routes for kinds in (self.inputs, self.events, self.effects)]
        if not any(one.is_used for one in routes):
            return ()
        return tuple(f"{self.type}/{name}@{newest}" for one in routes for name, newest in one.newest.items())

    def identify(self, input: Any) -> str:
        """The id of the instance that the input is for."""
        self.inputs.name(input)
        return check_key(self.decider.identify(input), f"instance of {self.type}")

    def headers_of(self, id: str, headers: str | None) -> str | None:
        """The headers of what is written for an instance: they say whose it is, if it may be forgotten."""
        return headers_text({SUBJECT: f"{self.type}/{id}"}, headers) if self.forgettable else headers

    def key_of(self, input: Any) -> str | None:
        """The input's own idempotency key, None if it has none."""
        key = self.decider.key_of(input)
        return None if key is None else check_key(key, f"input of {self.type}")

    def fingerprint(self, input: Any) -> str:
        """The same key for equal inputs, in every process; in an encrypted store only with its key."""
        name, version = self.inputs.name(input), version_of(type(input))
        text = encode_ordered([name, version, input], limit=sys.maxsize, what=f"input {name} of {self.type}")
        return f"content:{payload_hash(text, self.secret)}"

    def decide(self, state: Any, input: Any, now: datetime) -> Decision[Any, Any, Any]:
        """The decision of the decider; raises if it returns anything else."""
        decide: Callable[..., Any] = self.decider.decide
        decision = decide(state, input, now) if self.takes_now else decide(state, input)
        if not isinstance(decision, Decision):
            why = f"`{type(self.decider).__name__}.decide` answers a `Decision`, for every input and state"
            raise InvalidOption("decision", decision, why)
        return decision

    def written(
        self, decision: Decision[Any, Any, Any], id: str, now: int, *, limit: int = PAYLOAD_LIMIT
    ) -> WrittenDecision:
        """What an instance decided at `now`, as it is stored; refused if a part of it could not be read back."""
        if own := [event for event in decision.events if isinstance(event, ENGINE_EVENTS)]:
            raise InvalidOption("event", own[0], "the engine writes this one itself, for `cancel_timer(key)`")
        return WrittenDecision(
            tuple([self.events.write(event, limit=limit) for event in decision.events]),
            tuple([self.effects.write(effect, limit=limit) for effect in decision.effects]),
            tuple(
                [
                    WrittenTimer(self._own(timer.input, id, limit), timer.key, timer.due(now))
                    for timer in decision.timers
                ]
            ),
            decision.cancelled,
            decision.triggers,
            decision.messages,
            tuple([self._emission(one, id, limit) for one in decision.emitted]),
        )

    def evolved(self, state: Any, events: Iterable[Any]) -> Any:
        """The state after these events; those of the engine change nothing."""
        for event in events:
            if not isinstance(event, ENGINE_EVENTS):
                state = self.decider.evolve(state, event)
        return state

    def _emission(self, one: Emitted, id: str, limit: int) -> Emission:
        subject = f"{self.type}/{id}" if one.subject is None else one.subject
        return emission_of(one.type, one.data, limit=limit, subject=subject, ordered=one.ordered)

    def _own(self, input: Any, id: str, limit: int) -> Written:
        written = self.inputs.write(input, limit=limit)
        if (other := self.identify(written.value)) != id:
            why = f"a timer's input comes back to the instance that set it, {self.type} {id}, not to {other}"
            raise InvalidOption("timer", input, why)
        return written


class Registry:
    """The deciders of one engine: each type once, and each class of inputs for one decider only."""

    def __init__(self, codec: Codec | None = None, secret: bytes = b"") -> None:
        self._codec, self._secret = codec, secret
        self._by_type: dict[str, Family] = {}
        self._by_input: dict[type, Family] = {}

    def register(
        self,
        decider: AnyDecider,
        *,
        keep: float | None = None,
        retry: int | Retry | None = None,
        timeout: Duration | None = None,
        observe: bool | None = None,
    ) -> Family:
        """Add a decider; DuplicateDecider if its type or one of its inputs has one already.

        `keep` is how many seconds the store keeps receipts, None for ever; one that needs them longer is refused.
        `retry`, `timeout` and `observe` replace the decider's own.
        """
        family = dataclasses.replace(Family.of(decider, self._codec), secret=self._secret)
        if retry is not None:
            family = dataclasses.replace(family, retry=Retry.of(retry))
        if timeout is not None:
            family = dataclasses.replace(family, timeout=timeout_of(timeout))
        if observe is not None:
            family = dataclasses.replace(family, observe=bool(observe))
        if family.dedupe is not None and keep is not None and family.dedupe > keep * 1_000_000:
            why = f"the store keeps receipts for {keep:g} s; say less, or open it with a longer `keep`"
            raise InvalidOption("dedupe", decider.dedupe, why)
        name = _named(family)
        if (first := self._by_type.get(family.type)) is not None:
            advice = "register each decider once, or give one of them another `type`"
            raise DuplicateDecider("the type", family.type, _named(first), name, advice)
        for cls in family.inputs.classes:
            if (first := self._by_input.get(cls)) is not None:
                advice = "an input has to tell its decider: make a class for each of them"
                raise DuplicateDecider("the input", cls.__name__, _named(first), name, advice)
        self._by_type[family.type] = family
        self._by_input.update(dict.fromkeys(family.inputs.classes, family))
        return family

    def of_type(self, type: str) -> Family:
        """The family of a type; DeciderNotFound if it is not registered."""
        if (family := self._by_type.get(type)) is None:
            raise DeciderNotFound(type, tuple(self._by_type))
        return family

    def known(self, type: str) -> Family | None:
        """The family of a type, if it is registered."""
        return self._by_type.get(type)

    def of_input(self, input: object) -> Family:
        """The family that the input's class belongs to."""
        if (family := self._by_input.get(type(input))) is None:
            known = ", ".join(cls.__name__ for cls in self._by_input) or "none"
            raise InvalidOption("input", input, f"no registered decider has inputs of this class; there are {known}")
        return family

    def of_decider(self, decider: type[AnyDecider]) -> Family:
        """The family of a decider's class."""
        found = self._by_type.get(getattr(decider, "type", ""))
        if found is None or not isinstance(found.decider, decider):
            raise DeciderNotFound(getattr(decider, "type", decider.__name__), tuple(self._by_type))
        return found

    def __iter__(self) -> Iterator[Family]:
        return iter(self._by_type.values())

    def __len__(self) -> int:
        return len(self._by_type)


_PARTS: Final = ("input", "event", "effect")
_METHODS: Final = (("evolve", 0), ("decide", 1), ("evolve", 1), ("handle", 0))  # where an annotation says each part
_UNSAID: Final = "its classes are its type's: `class Orders(Decider[State, Input, Event, Effect])`"


def _refuse_type(name: str) -> str:
    raise InvalidOption("type", None, f'{name} needs a stable name for its instances: `type = "order"`')


def _declared(cls: type) -> tuple[Any, ...]:
    """State, Input, Event and Effect: as the class's bases say, or else as its methods' annotations do."""
    said = _arguments(cls)
    if said is not None and not any(isinstance(one, TypeVar) and one.__bound__ is None for one in said):
        return said
    return tuple(_annotated(cls, method, place) for method, place in _METHODS)


def _arguments(cls: type) -> tuple[Any, ...] | None:
    """What stands in `Decider[...]`, through classes in between that are generic themselves."""
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = typing.get_origin(base) or base
        if origin is Decider:
            return typing.get_args(base) or None
        if isinstance(origin, type) and issubclass(origin, Decider):
            return _substituted(_arguments(origin), origin, typing.get_args(base))
    return None


def _substituted(said: tuple[Any, ...] | None, origin: Any, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    if said is None or not given:
        return said
    values = dict(zip(origin.__parameters__, given, strict=False))

    def filled(one: Any) -> Any:
        if isinstance(one, TypeVar):
            return values.get(one, one)
        parameters = getattr(one, "__parameters__", ())
        return one[tuple(values.get(parameter, parameter) for parameter in parameters)] if parameters else one

    return tuple(filled(one) for one in said)


def _annotated(cls: type, method: str, place: int) -> Any:
    function = getattr(cls, method)
    if function is getattr(Decider, method):
        return typing.Never if method == "handle" else Any
    try:
        hints = typing.get_type_hints(function)
    except NameError as error:
        raise InvalidOption("decider", cls.__name__, f"an annotation cannot be read ({error}); {_UNSAID}") from error
    names = list(inspect.signature(function).parameters)[1:]
    if place >= len(names) or (hint := hints.get(names[place])) is None:
        raise InvalidOption("decider", cls.__name__, f"`{method}` does not say what it takes; {_UNSAID}")
    return hint


def _check_routes(decider: AnyDecider, inputs: tuple[type, ...]) -> None:
    for cls in inputs:
        key, route = getattr(cls, KEY, None), getattr(cls, ROUTE, decider.route)
        if type(decider).identify is Decider.identify and (route is None or route not in _fields(cls)):
            why = f"{cls.__name__} has no field of this name; name the field that holds the id, or override `identify`"
            raise InvalidOption("route", route, why)
        if key is not None and key not in _fields(cls):
            raise InvalidOption(KEY, key, f"{cls.__name__} has no field of this name")


def _fields(cls: Any) -> frozenset[str]:
    for attribute in ("__dataclass_fields__", "__struct_fields__", "model_fields"):
        if (fields := getattr(cls, attribute, None)) is not None:
            return frozenset(fields)
    return frozenset()


def _window(decider: AnyDecider) -> int | None:
    if decider.dedupe is None:
        return None
    if (window := microseconds_of(decider.dedupe, "dedupe")) <= 0:
        raise InvalidOption("dedupe", decider.dedupe, "it is a span like '10m', or None to take every input for itself")
    return window


def _dedupe_last(decider: AnyDecider) -> int | None:
    if decider.dedupe_last is None:
        return None
    if decider.dedupe is None:
        raise InvalidOption("dedupe_last", decider.dedupe_last, "it goes with `dedupe`, the time for which they count")
    return check_whole("dedupe_last", decider.dedupe_last, 1, MOST_REMEMBERED)


def _after_failure(decider: AnyDecider) -> AfterFailure:
    if decider.after_failure not in ("wait", "continue"):
        why = "the inputs behind one that failed 'wait' for it, or they 'continue'"
        raise InvalidOption("after_failure", decider.after_failure, why)
    return decider.after_failure


def _takes_now(decide: Callable[..., Any]) -> bool:
    try:
        inspect.signature(decide).bind(None, None, None)
    except TypeError:
        return False
    return True


def _named(family: Family) -> str:
    cls = type(family.decider)
    return f"{cls.__module__}.{cls.__qualname__}"
