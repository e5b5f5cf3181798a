"""CloudEvents as HTTP messages: structured, binary and batched. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never
from urllib.parse import quote

from stepwell.sinks.cloud_event import JSON, CloudEvent

Mode = Literal["structured", "binary", "batched"]
# What a header may hold as it is, by the HTTP binding: printable ASCII but space, `"` and `%`.
_BARE = "".join(chr(one) for one in range(0x21, 0x7F) if chr(one) not in '"%')


@dataclass(frozen=True, slots=True)
class Posting:
    """What is posted for one event, or for several."""

    id: str  # the same whenever the same events are posted
    headers: Mapping[str, str]
    body: bytes


def posting_of(events: Sequence[CloudEvent], mode: Mode) -> Posting:
    """The message; in every mode but batched it has one event."""
    match mode:
        case "structured":
            [event] = events
            return Posting(event.id, {"content-type": "application/cloudevents+json; charset=utf-8"}, event.json())
        case "binary":
            [event] = events
            named = {f"ce-{name}": quote(value, safe=_BARE) for name, value in event.attributes.items()}
            named["content-type"] = named.pop("ce-datacontenttype", JSON)
            return Posting(event.id, named, event.content)
        case "batched":
            body = b"[" + b",".join(one.json() for one in events) + b"]"
            kind = {"content-type": "application/cloudevents-batch+json; charset=utf-8"}
            return Posting(_id_of(events), kind, body)
        case _:
            assert_never(mode)


def _id_of(events: Sequence[CloudEvent]) -> str:
    """The id of a batch, in any order: no other events have it, so a receiver that drops what it has had loses none."""
    if len(events) == 1:
        return events[0].id
    return hashlib.blake2b("\n".join(sorted(one.id for one in events)).encode(), digest_size=16).hexdigest()
