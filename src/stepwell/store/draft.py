"""What a message is to be, checked and encoded before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

from stepwell.codec import encode, encode_many, value_hash
from stepwell.durations import Duration, microseconds_of, moment_of
from stepwell.errors import InvalidOption
from stepwell.names import check_key, check_max_attempts, check_name, check_priority, check_tags
from stepwell.records import NewTask, TaskKind

In_contra = TypeVar("In_contra", contravariant=True)
Unique = Literal["ever", "unfinished"]


class Addressed(Protocol[In_contra]):
    """Something that names a queue and how often its messages are tried: a handler."""

    @property
    def queue(self) -> str:
        """The queue it serves."""

    @property
    def max_attempts(self) -> int | None:
        """How often its messages are tried in all; None leaves it to the store."""

    def accepts(self, payload: In_contra, /) -> None:
        """Nothing at run time; tells a type checker what a payload may be."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """Messages of one queue, ready to be written but for the queue's number."""

    queue: str
    defines_queue: bool  # asked for through a handler, which makes its queue; a bare name must be known
    tasks: list[NewTask]


class Draft:
    """What the messages of one call have in common, checked once."""

    def __init__(
        self,
        queue: str | Addressed[Any],
        *,
        payload_limit: int,
        default_attempts: int,
        priority: int = 0,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        tags: Iterable[str] = (),
        unique: Unique = "ever",
    ) -> None:
        if delay is not None and run_at is not None:
            raise InvalidOption("delay", delay, "give `delay` or `run_at`, not both")
        if unique not in ("ever", "unfinished"):
            raise InvalidOption("unique", unique, "it is 'ever' or 'unfinished'")
        self._queue = check_name("queue", queue if isinstance(queue, str) else getattr(queue, "queue", queue))
        self._defines_queue = not isinstance(queue, str)
        said = max_attempts if max_attempts is not None or isinstance(queue, str) else queue.max_attempts
        self._max_attempts = check_max_attempts(default_attempts if said is None else said)
        self._payload_limit = payload_limit
        self._priority = check_priority(priority)
        self._delay = 0 if delay is None else microseconds_of(delay, "delay")
        self._run_at = None if run_at is None else moment_of(run_at)
        checked = check_tags(tags)
        self._tags = encode(checked) if checked else None
        self._unique = unique

    def each(self, payloads: Iterable[Any], keys: Sequence[str] | None) -> Drafted:
        """The tasks for several payloads, each with its key if there are keys."""
        if isinstance(payloads, str | bytes | Mapping) or not isinstance(payloads, Iterable):
            why = "several payloads are a list, or another iterable, of them; for one message use `enqueue`"
            raise InvalidOption("payloads", payloads, why)
        payloads = list(payloads)
        if keys is not None and (isinstance(keys, str | bytes) or not isinstance(keys, Sequence)):
            raise InvalidOption("keys", keys, "keys are texts in the order of the payloads: pass a list")
        if keys is not None and len(keys) != len(payloads):
            raise InvalidOption("keys", keys, f"that is {len(keys)} for {len(payloads)} payloads; give each its key")
        named: Sequence[str | None] = keys if keys is not None else [None] * len(payloads)
        texts = encode_many(payloads, limit=self._payload_limit)
        tasks = [self._of(*each) for each in zip(payloads, texts, named, strict=True)]
        return Drafted(self._queue, self._defines_queue, tasks)

    def _of(self, payload: Any, text: str, key: str | None) -> NewTask:
        """The task for one payload, its queue's number still open."""
        return NewTask(
            TaskKind.MESSAGE,
            0,
            self._queue,
            text,
            self._priority,
            self._delay,
            self._run_at,
            self._max_attempts,
            None if key is None else check_key(key),
            self._unique,
            None if key is None else value_hash(payload),
            self._tags,
        )
