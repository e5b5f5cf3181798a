"""A CloudEvent (1.0): what is published, and its form as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from stepwell.base.durations import datetime_of
from stepwell.store.emission import StoredEvent
from stepwell.store.rows import Claimed

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """An event as the outside world gets it: the same `id` in every attempt, and for every receiver."""

    id: str
    source: str
    type: str
    time: datetime  # when it was emitted
    content: bytes = field(repr=False)  # the data, as JSON
    subject: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 1  # of this outbox: receivers do not see it

    @property
    def data(self) -> Any:
        """What was emitted, as plain JSON values."""
        return msgspec.json.decode(self.content)

    @property
    def attributes(self) -> dict[str, str]:
        """All of it but the data, by the names of CloudEvents."""
        required = {"specversion": "1.0", "id": self.id, "source": self.source, "type": self.type}
        told = required | {"time": self.time.isoformat().replace("+00:00", "Z"), "datacontenttype": JSON}
        if self.subject is not None:
            told["subject"] = self.subject
        return {**told, **self.extensions}

    def json(self) -> bytes:
        """The event in CloudEvents' JSON format, which is also the body of a structured message."""
        return msgspec.json.encode({**self.attributes, "data": msgspec.Raw(self.content)})


def cloud_event(task: Claimed, source: str, position: int | None) -> CloudEvent:
    """The event of a task that an outbox has claimed; `position` is its place in the order of its subject."""
    stored = msgspec.json.decode(task.input or "", type=StoredEvent)
    extensions = dict(stored.extensions)
    if stored.subject is not None and stored.ordered:
        extensions["partitionkey"] = stored.subject
    if position is not None:
        extensions["sequence"] = f"{position:019d}"
    return CloudEvent(
        id=stored.id,
        source=source,
        type=stored.type,
        time=datetime_of(stored.time or task.created_at),
        content=bytes(stored.data),
        subject=stored.subject,
        extensions=extensions,
        attempt=task.attempt,
    )
