"""What a projection declares: its name, the events that it wants, and what becomes of one that it cannot handle."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeVar, get_args

from stepwell.base.names import check_name, check_sql_name, check_whole
from stepwell.deciders.global_order import At
from stepwell.deciders.registry import Registry
from stepwell.deciders.type_names import classes_of
from stepwell.errors import InvalidOption
from stepwell.store.horizon import FeedRow
from stepwell.store.projections import HeldProjection
from stepwell.store.transaction import Tx

OnPoison = Literal["park", "stop"]
OPTIONS: Final = "__stepwell_projection__"
SHAPE: Final = "`async def handle(self, event, at, tx)`; without `tx` if its read model is elsewhere"
C = TypeVar("C", bound=Callable[..., Any])
Parts = Sequence[tuple[At, Any]]


class ReadModel(Protocol):
    """An instance of a projection's class whose rows are in the store's database."""

    async def handle(self, event: Any, at: At, tx: Tx, /) -> None:
        """Take one event into the read model."""


class ReadModelElsewhere(Protocol):
    """An instance of a projection's class whose read model is not in the store's database."""

    async def handle(self, event: Any, at: At, /) -> None:
        """Take one event into the read model, perhaps for a second time."""


RowFunction = Callable[[Any, Any], Any] | Callable[[Any, Any, At], Any]


@dataclass(frozen=True, slots=True)
class ProjectionOptions:
    """What stands in `@projection(...)`."""

    name: str
    events: tuple[type, ...] | None
    batch: int
    on_poison: OnPoison
    attempts: int
    tables: tuple[str, ...]
    rows: type | None
    key: Callable[..., Any] | None
    on_swap: Callable[[Tx], Awaitable[None]] | None


def projection(
    name: str,
    *,
    events: Iterable[type] | None = None,
    rows: type | None = None,
    key: Callable[..., Any] | None = None,
    tables: Iterable[str] = (),
    batch: int = 100,
    on_poison: OnPoison = "park",
    attempts: int = 5,
    on_swap: Callable[[Tx], Awaitable[None]] | None = None,
) -> Callable[[C], C]:
    """Make a class a projection: its `handle(event, at, tx)` is called for each event of these classes, in their order.

    What `handle` writes through `tx` is committed together with the position, once for up to `batch` events (ten times
    as many while it is far behind), so each event counts exactly once. Without `events` they are the classes in the
    annotation of `handle`. A `handle(event, at)` without `tx` is for a read model elsewhere: each event comes at least
    once, and `at.position` tells those that came before.

    With `rows`, a dataclass, it decorates a pure function `(row | None, event) -> row | None`. Stepwell makes a table
    of the name, one row for each key: the id of the event's instance, or what `key(event)` returns.

    An event that raises is tried `attempts` times. Then, with `on_poison="park"`, its instance is set aside for this
    projection until `retry` or `skip`, and the others go on; with "stop" the projection stops before it.

    A class that names its `tables`, and writes to `tx.table(name)`, can be rebuilt beside the live one. `on_swap(tx)`
    is called in the transaction that swaps the two, to make views of yours again.
    """
    check_name("projection", name)
    check_whole("batch", batch, 1, 10_000)
    check_whole("attempts", attempts, 1, 1000)
    if on_poison not in get_args(OnPoison):
        raise InvalidOption("on_poison", on_poison, "it is 'park' or 'stop'")
    wanted = None if events is None else _listed(events)
    named = _tables(name, tables, rows)
    if key is not None and rows is None:
        raise InvalidOption("key", key, "it says to which row an event belongs: it goes with `rows=`")

    def decorate(decorated: C) -> C:
        if isinstance(decorated, type) is not (rows is None) or not callable(decorated):
            shape = f"it is a class with {SHAPE}" if rows is None else "with `rows=` it is a function of row and event"
            raise InvalidOption("projection", decorated, shape)
        options = ProjectionOptions(name, wanted, batch, on_poison, attempts, named, rows, key, on_swap)
        setattr(decorated, OPTIONS, options)
        return decorated

    return decorate


def is_projection(one: object) -> bool:
    """True for a function that is decorated with `@projection`, or an instance of a class that is."""
    return not isinstance(one, type) and hasattr(one, OPTIONS)


def options_of(one: object) -> ProjectionOptions:
    """What stands in its `@projection(...)`."""
    options: ProjectionOptions = getattr(one, OPTIONS)
    return options


def events_of(options: ProjectionOptions, function: Callable[..., Any], parameter: str) -> tuple[type, ...]:
    """The classes of events that it wants: those it names, or those in the annotation of a parameter."""
    if options.events is not None:
        return options.events
    try:
        hint = typing.get_type_hints(function).get(parameter)
    except NameError as error:
        why = f"its annotation cannot be read ({error}); say `events=[...]`"
        raise InvalidOption("handle", parameter, why) from error
    if hint is None or hint is Any or hint is object:
        why = "say which events it wants: annotate it with their classes, or `events=`"
        raise InvalidOption("handle", parameter, why)
    return classes_of(hint, function.__module__, "event")


def wanted_of(classes: Iterable[type], registry: Registry) -> frozenset[tuple[str, str]]:
    """Under which names, of which deciders, events are stored that are read as one of these classes."""
    wanted: set[tuple[str, str]] = set()
    for cls in classes:
        stored = {(family.type, name) for family in registry for name in family.events.stored_names(cls)}
        if not stored:
            known = ", ".join(family.type for family in registry) or "none"
            why = f"no registered decider has events of this class; there are {known}. Register the decider first"
            raise InvalidOption("events", cls, why)
        wanted |= stored
    return frozenset(wanted)


@dataclass(frozen=True, slots=True)
class Projection:
    """A projection of an engine, and what it wants of the deciders that the engine knows."""

    name: str
    options: ProjectionOptions
    classes: tuple[type, ...]  # of the events that it wants
    wanted: frozenset[tuple[str, str]]  # a decider's type, and the stored name of an event that is read as one of them
    handle: Callable[[Parts, Tx | None], Awaitable[None]]
    begin: Callable[[Tx, HeldProjection], Awaitable[None]] | None
    takes_tx: bool
    tables: str  # the names of its tables as JSON, each with its shape, as they are noted in the database
    makes_tables: bool  # it makes them itself, of a dataclass: a build of another shape is not for this code

    @property
    def types(self) -> frozenset[str]:
        """The stored names of the events that it wants, of whichever decider."""
        return frozenset(name for _, name in self.wanted)

    @classmethod
    def of(cls, target: Any, registry: Registry) -> Projection:
        """Read what the class of a projection declares; InvalidOption says what is wrong."""
        options, handle, begin = options_of(target), getattr(target, "handle", None), getattr(target, "begin", None)
        if not inspect.iscoroutinefunction(handle):
            raise InvalidOption("projection", type(target).__name__, f"it has {SHAPE}")
        takes = len(inspect.signature(handle).parameters)
        if takes not in (2, 3):
            raise InvalidOption("handle", f"{takes} parameters", f"it is {SHAPE}")
        if begin is not None and not inspect.iscoroutinefunction(begin):
            raise InvalidOption("projection", type(target).__name__, "it has `async def begin(self, tx)`, or none")
        if options.tables and (begin is None or takes == 2):
            why = "a projection that names them makes them in `begin(tx)` and writes them in `handle(event, at, tx)`"
            raise InvalidOption("tables", options.tables, why)
        classes = events_of(options, handle, next(iter(inspect.signature(handle).parameters)))
        model = _Model(handle, begin)
        return cls(
            name=options.name,
            options=options,
            classes=classes,
            wanted=wanted_of(classes, registry),
            handle=model.handle,
            begin=None if begin is None else model.begin,
            takes_tx=takes == 3,
            tables=json.dumps(dict.fromkeys(options.tables, "")),
            makes_tables=False,
        )

    def asked_for(self, parts: Iterable[tuple[At, Any]]) -> Parts:
        """Of the parts of events those that it asked for: one that was split may have parts of other classes."""
        return [(at, value) for at, value in parts if isinstance(value, self.classes)]

    def wants(self, row: FeedRow) -> bool:
        """Whether the event is one of those that it asked for."""
        return (row.instance_type, row.type) in self.wanted


@dataclass(frozen=True, slots=True)
class _Model:
    """The methods of an instance of a projection's class."""

    one: Callable[..., Awaitable[None]]
    prepare: Callable[[Tx], Awaitable[None]] | None

    async def handle(self, parts: Parts, tx: Tx | None) -> None:
        for at, event in parts:
            await (self.one(event, at) if tx is None else self.one(event, at, tx))

    async def begin(self, tx: Tx, held: HeldProjection) -> None:
        assert self.prepare is not None
        await self.prepare(tx)


def _listed(events: Iterable[type]) -> tuple[type, ...]:
    if isinstance(events, type) or not isinstance(events, Iterable):
        raise InvalidOption("events", events, "pass a list of classes of events")
    found = tuple(events)
    if not found or not all(isinstance(one, type) for one in found):
        raise InvalidOption("events", found, "pass the classes of the events, one at least")
    return found


def _tables(name: str, tables: Iterable[str], rows: type | None) -> tuple[str, ...]:
    if rows is not None:
        if tuple(tables):
            raise InvalidOption("tables", tables, "with `rows=` the table is made of the dataclass, under the name")
        return (check_sql_name("projection", name),)
    if isinstance(tables, str):
        raise InvalidOption("tables", tables, "pass a list of names")
    return tuple(check_sql_name("table", one) for one in tables)
