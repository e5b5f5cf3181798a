"""An event for the outside world before it is written: checked and encoded, and who takes it. Plain values."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict, Unpack

import msgspec

from stepwell.base.names import LONGEST_NAME, check_key, check_name
from stepwell.errors import InvalidName, InvalidOption
from stepwell.records import TaskKind
from stepwell.store.draft import Drafted
from stepwell.store.rows import NewTask
from stepwell.values.codec import encode

QUEUE: Final = "outbox."  # the queue of an outbox begins so, and ends with its name ...
KEPT: Final = "outbox:"  # ... and that of events which no outbox takes ends with their type
LONGEST_TYPE: Final = LONGEST_NAME - len(KEPT)
_EXTENSION: Final = re.compile("[a-z0-9]{1,20}")
# What CloudEvents gives a meaning of its own, and what stepwell writes itself.
_TAKEN: Final = frozenset(
    [
        "id",
        "source",
        "specversion",
        "type",
        "datacontenttype",
        "dataschema",
        "subject",
        "time",
        "data",
        "partitionkey",
        "sequence",
    ]
)


class EventOptions(TypedDict, total=False):
    """What else may be said of an event; the default is none of it."""

    subject: str | None  # what it is about, such as `order/42`
    ordered: bool  # it comes after those of its subject that were emitted before it
    extensions: Mapping[str, str] | None  # attributes of your own, such as `traceparent`


class StoredEvent(msgspec.Struct, omit_defaults=True):
    """An event as its tasks store it."""

    id: str  # one for all outboxes, in every attempt
    type: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    subject: str | None = None
    ordered: bool = False  # after those of its subject that were emitted before it
    extensions: dict[str, str] = {}
    time: int | None = None  # when it was emitted, if that is not when its task was written


@dataclass(frozen=True, slots=True)
class Route:
    """An outbox: its queue, and which types of events it takes."""

    queue: str
    types: tuple[str, ...]
    after_dead: str = "stop"
    max_attempts: int = 1
    queue_id: int = 0

    def takes(self, type: str) -> bool:
        """Whether events of this type are for it."""
        return any(type == one or (one.endswith("*") and type.startswith(one[:-1])) for one in self.types)


@dataclass(frozen=True, slots=True)
class Emission:
    """What `emit` was given."""

    type: str
    data: str  # JSON
    subject: str | None = None
    ordered: bool = False
    extensions: Mapping[str, str] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    time: int | None = None
    headers: str | None = None  # as JSON; its tasks have them

    def drafted(self, routes: Iterable[Route]) -> Drafted:
        """The tasks for it: one for each outbox that takes it, or one that is kept until an outbox does.

        What is kept stands in no ordered group: it is ordered when it is moved, with other types of its subject.
        """
        stored = StoredEvent(
            self.id,
            self.type,
            msgspec.Raw(self.data.encode()),
            self.subject,
            self.ordered,
            dict(self.extensions),
            self.time,
        )
        text, group = _JSON.encode(stored).decode(), self.subject if self.ordered else None
        tasks = [
            NewTask(
                TaskKind.OUTBOX,
                0,
                one.queue,
                text,
                max_attempts=one.max_attempts,
                group_key=group,
                headers=self.headers,
            )
            for one in routes
            if one.takes(self.type)
        ]
        if not tasks:
            tasks = [NewTask(TaskKind.OUTBOX, 0, kept := f"{KEPT}{self.type}", text, headers=self.headers)]
            return Drafted(TaskKind.OUTBOX, tasks, {kept: True})
        return Drafted(TaskKind.OUTBOX, tasks, {task.queue: False for task in tasks})

    @classmethod
    def again(cls, stored: str, time: int, headers: str | None = None) -> Emission:
        """What was emitted at this time, to be written for an outbox."""
        one = msgspec.json.decode(stored, type=StoredEvent)
        data = bytes(one.data).decode()
        return cls(one.type, data, one.subject, one.ordered, one.extensions, one.id, one.time or time, headers)


_JSON: Final = msgspec.json.Encoder()


def emission_of(type: str, data: Any, *, limit: int, **options: Unpack[EventOptions]) -> Emission:
    """An event, checked and encoded."""
    known = EventOptions.__annotations__
    if unknown := options.keys() - known.keys():
        raise TypeError(f"emit takes no option {min(unknown)!r}; it takes {', '.join(known)}")
    subject, ordered = options.get("subject"), bool(options.get("ordered", False))
    if subject is not None:
        check_key(subject, "subject")
    elif ordered:
        raise InvalidOption("ordered", ordered, "events go in order by their subject: give `subject`")
    text = encode(data, limit=limit, what=f"data of the event {type}")
    return Emission(check_type(type), text, subject, ordered, checked_extensions(options.get("extensions") or {}))


def check_type(type: object) -> str:
    """The type, if an event may have it: a name, and not too long for that of a queue."""
    if len(name := check_name("event type", type)) > LONGEST_TYPE:
        raise InvalidName("event type", type, f"it has at most {LONGEST_TYPE} characters")
    return name


def check_types(types: object) -> tuple[str, ...]:
    """The types that an outbox takes: names, beginnings of names such as `order.*`, or `*` for all."""
    found = [types] if isinstance(types, str) else list(types) if isinstance(types, Iterable) else []
    if not found:
        raise InvalidOption("types", types, 'name the types of events that it takes: "order.*", or "*" for all')
    for one in found:
        if one != "*":
            check_type(one[:-1] if isinstance(one, str) and one.endswith("*") else one)
    return tuple(dict.fromkeys(found))


def checked_extensions(extensions: Mapping[str, str]) -> dict[str, str]:
    """Attributes of the user's own, if CloudEvents allows them."""
    for name, value in extensions.items():
        if not isinstance(name, str) or not _EXTENSION.fullmatch(name) or name in _TAKEN:
            why = f"{name!r} is none: 1 to 20 small letters and digits, and no name that CloudEvents uses itself"
            raise InvalidOption("extensions", extensions, why)
        check_key(value, f"extension {name}")
    return dict(extensions)


def together(emissions: Sequence[Emission], routes: Sequence[Route]) -> Drafted:
    """The tasks of several events."""
    drafted = [one.drafted(routes) for one in emissions]
    queues = {name: create for one in drafted for name, create in one.queues.items()}
    return Drafted(TaskKind.OUTBOX, [task for one in drafted for task in one.tasks], queues)


def kept_only(emission: Emission) -> Drafted:
    """The queue of an event that no outbox takes, without the event."""
    return Drafted(TaskKind.OUTBOX, (), emission.drafted(()).queues)
