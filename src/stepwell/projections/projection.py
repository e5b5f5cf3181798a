"""What a projection declares: its name, the events that it wants, and what becomes of one that it cannot handle."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeVar, get_args

from stepwell.base.names import check_name, check_whole
from stepwell.deciders.global_order import At
from stepwell.deciders.registry import Registry
from stepwell.deciders.type_names import classes_of
from stepwell.errors import InvalidOption
from stepwell.store.horizon import FeedRow
from stepwell.store.transaction import Tx

OnPoison = Literal["park", "stop"]
OPTIONS: Final = "__stepwell_projection__"
SHAPE: Final = "`async def handle(self, event, at, tx)`; without `tx` if its read model is elsewhere"
C = TypeVar("C", bound=type)


class ReadModel(Protocol):
    """An instance of a projection's class whose rows are in the store's database."""

    async def handle(self, event: Any, at: At, tx: Tx, /) -> None:
        """Take one event into the read model."""


class ReadModelElsewhere(Protocol):
    """An instance of a projection's class whose read model is not in the store's database."""

    async def handle(self, event: Any, at: At, /) -> None:
        """Take one event into the read model, perhaps for a second time."""


@dataclass(frozen=True, slots=True)
class ProjectionOptions:
    """What stands in `@projection(...)`."""

    name: str
    events: tuple[type, ...] | None
    batch: int
    on_poison: OnPoison
    attempts: int


def projection(
    name: str,
    *,
    events: Iterable[type] | None = None,
    batch: int = 100,
    on_poison: OnPoison = "park",
    attempts: int = 5,
) -> Callable[[C], C]:
    """Make a class a projection: its `handle(event, at, tx)` is called for each event of these classes, in their order.

    What `handle` writes through `tx` is committed together with the position, once for up to `batch` events (ten times
    as many while it is far behind), so each event counts exactly once. Without `events` they are the classes in the
    annotation of `handle`. A `handle(event, at)` without `tx` is for a read model elsewhere: each event comes at least
    once, and `at.position` tells those that came before.

    An event that raises is tried `attempts` times. Then, with `on_poison="park"`, its instance is set aside for this
    projection until `retry` or `skip`, and the others go on; with "stop" the projection stops before it.
    """
    check_name("projection", name)
    check_whole("batch", batch, 1, 10_000)
    check_whole("attempts", attempts, 1, 1000)
    if on_poison not in get_args(OnPoison):
        raise InvalidOption("on_poison", on_poison, "it is 'park' or 'stop'")
    wanted = None if events is None else _listed(events)

    def decorate(cls: C) -> C:
        if not isinstance(cls, type):
            raise InvalidOption("projection", cls, f"it is a class with {SHAPE}")
        setattr(cls, OPTIONS, ProjectionOptions(name, wanted, batch, on_poison, attempts))
        return cls

    return decorate


def is_projection(one: object) -> bool:
    """True for an instance of a class that is decorated with `@projection`."""
    return not isinstance(one, type) and hasattr(one, OPTIONS)


@dataclass(frozen=True, slots=True)
class Projection:
    """A projection of an engine, and what it wants of the deciders that the engine knows."""

    name: str
    options: ProjectionOptions
    classes: tuple[type, ...]  # of the events that it wants
    wanted: frozenset[tuple[str, str]]  # a decider's type, and the stored name of an event that is read as one of them
    handle: Callable[..., Any]
    begin: Callable[[Tx], Any] | None
    takes_tx: bool

    @classmethod
    def of(cls, target: Any, registry: Registry) -> Projection:
        """Read what a projection declares; InvalidOption says what is wrong."""
        options: ProjectionOptions = getattr(target, OPTIONS)
        handle = getattr(target, "handle", None)
        if not inspect.iscoroutinefunction(handle):
            raise InvalidOption("projection", type(target).__name__, f"it has {SHAPE}")
        takes = len(inspect.signature(handle).parameters)
        if takes not in (2, 3):
            raise InvalidOption("handle", f"{takes} parameters", f"it is {SHAPE}")
        begin = getattr(target, "begin", None)
        if begin is not None and not inspect.iscoroutinefunction(begin):
            raise InvalidOption("projection", type(target).__name__, "it has `async def begin(self, tx)`, or none")
        classes = options.events or _annotated(handle)
        return cls(options.name, options, classes, _wanted(classes, registry), handle, begin, takes == 3)

    @property
    def types(self) -> frozenset[str]:
        """The stored names of the events that it wants, of whichever decider."""
        return frozenset(name for _, name in self.wanted)

    def wants(self, row: FeedRow) -> bool:
        """Whether the event is one of those that it asked for."""
        return (row.instance_type, row.type) in self.wanted

    async def call(self, event: Any, at: At, tx: Tx | None) -> None:
        """Have it handle one event."""
        await (self.handle(event, at) if tx is None else self.handle(event, at, tx))


def _listed(events: Iterable[type]) -> tuple[type, ...]:
    if isinstance(events, type) or not isinstance(events, Iterable):
        raise InvalidOption("events", events, "pass a list of classes of events")
    found = tuple(events)
    if not found or not all(isinstance(one, type) for one in found):
        raise InvalidOption("events", found, "pass the classes of the events, one at least")
    return found


def _annotated(handle: Callable[..., Any]) -> tuple[type, ...]:
    """The classes in the annotation of the first parameter."""
    first = next(iter(inspect.signature(handle).parameters))
    try:
        hint = typing.get_type_hints(handle).get(first)
    except NameError as error:
        raise InvalidOption("handle", first, f"its annotation cannot be read ({error}); say `events=[...]`") from error
    if hint is None or hint is Any or hint is object:
        raise InvalidOption("handle", first, "say which events it wants: annotate it with their classes, or `events=`")
    return classes_of(hint, handle.__module__, "event")


def _wanted(classes: Iterable[type], registry: Registry) -> frozenset[tuple[str, str]]:
    wanted: set[tuple[str, str]] = set()
    for cls in classes:
        stored = {(family.type, name) for family in registry for name in family.events.stored_names(cls)}
        if not stored:
            known = ", ".join(family.type for family in registry) or "none"
            why = f"no registered decider has events of this class; there are {known}. Register the decider first"
            raise InvalidOption("events", cls, why)
        wanted |= stored
    return frozenset(wanted)
