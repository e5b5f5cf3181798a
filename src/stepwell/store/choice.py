"""By what runs choose among broadcasts of one name: a field of the event, compared as a digest. Plain functions.

Each field of an event has a digest, so runs that wait for one order are found by an index, whichever field they go by;
and an encrypted store shows no value, as its digests are made with a secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from enum import Enum
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

from stepwell.errors import InvalidOption
from stepwell.values.codec import decode, encode
from stepwell.values.named_codecs import json_text
from stepwell.values.versions import unstamped

EVERY: Final = "*"  # the choice of who takes every event of a name
MOST_FIELDS: Final = 64  # by which one event is found
_LONGEST: Final = 1 << 16  # bytes of a value that is chosen by


def choice_of(where: Mapping[str, Any] | None, secret: bytes) -> str:
    """The digest of what a wait asks for: one field and its value; `EVERY` without one."""
    if where is None:
        return EVERY
    if not isinstance(where, Mapping) or len(where) != 1:
        why = 'it names one field of the event and its value, {"order": 7}; look at the others when it has come'
        raise InvalidOption("where", where, why)
    [(field, value)] = where.items()
    if not isinstance(field, str) or not isinstance(value, str | int | bool | Enum | UUID | datetime | date):
        raise InvalidOption("where", where, "a field is chosen by a text, a whole number, a moment, a UUID or a truth")
    stored = json.loads(encode(value, limit=_LONGEST, what="where"))
    if not _may_be_chosen(stored):
        raise InvalidOption("where", where, "a field is chosen by a text, a whole number, a moment, a UUID or a truth")
    return _digest(field, stored, secret)


def choices_in(name: str, data: str, secret: bytes) -> list[str]:
    """All by which an event is found: `EVERY`, and its own fields that are texts, whole numbers or truths."""
    _, text = unstamped(json_text(data))
    event: Any = decode(text)
    fields = {} if not isinstance(event, dict) else {key: one for key, one in event.items() if _may_be_chosen(one)}
    if len(fields) > MOST_FIELDS:
        why = f"a run may wait by any field, and these are {len(fields)}: more than {MOST_FIELDS}; nest some of them"
        raise InvalidOption("data", name, why)
    return [EVERY, *(_digest(key, one, secret) for key, one in fields.items())]


def _may_be_chosen(value: object) -> bool:
    return isinstance(value, str | int)


def _digest(field: str, value: object, secret: bytes) -> str:
    text = json.dumps([field, value], ensure_ascii=False, separators=(",", ":"))
    return blake2b(text.encode(), key=secret, digest_size=16).hexdigest()
