"""A task before it is written: checked and encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, Unpack, overload

import msgspec

from stepwell.base.durations import Duration, microseconds_of, moment_of, timeout_of
from stepwell.base.names import check_key, check_max_attempts, check_name, check_priority, check_tags, check_whole
from stepwell.base.rates import MOST_UNITS
from stepwell.errors import InvalidOption, PayloadTooLarge, SerializationError
from stepwell.records import TaskKind
from stepwell.store.conditions import (
    ConditionOptions,
    OnParentEnd,
    check_end,
    check_keyed,
    conditions_of,
    with_course,
    with_result,
)
from stepwell.store.rows import NewTask
from stepwell.store.transaction import headers_here
from stepwell.values.arguments import Write
from stepwell.values.codec import encode, payload_hash, value_hash
from stepwell.values.headers import Headers, headers_text
from stepwell.values.lossless import refuse_cut, refuse_unnamed
from stepwell.values.named_codecs import Codec
from stepwell.values.stamp import (
    hash_with_version,
    read_value,
    write_ordered,
    write_value,
    write_values,
)

In_contra = TypeVar("In_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
RequireWorker = Literal["ignore", "warn", "error"]
STRICTEST_LAST: Final[tuple[RequireWorker, ...]] = ("ignore", "warn", "error")


class Addressed(Protocol[In_contra]):
    """A handler, as far as it names a queue and how often its messages are tried."""

    @property
    def queue(self) -> str:
        """The queue it serves."""

    @property
    def max_attempts(self) -> int | None:
        """How often its messages are tried in all; None is the store's policy."""

    def accepts(self, payload: In_contra, /) -> None:
        """Does nothing at run time: tells a type checker which payloads are allowed; `enqueue` checks them."""


@dataclass(frozen=True, slots=True)
class Asked(Generic[R_co]):
    """A requested run: its workflow, its input, and how it is queued."""

    workflow: str
    defines: bool  # requested through the workflow itself, which creates its definition; a bare name must be known
    input: str  # JSON text, checked against the workflow's parameters if they are known
    returns: Any = Any
    raises: tuple[type[Exception], ...] = ()  # of which its callers get the exceptions as they are
    again: Callable[[Write], str] | None = field(default=None, repr=False, compare=False)  # encodes the input once more
    key: str | None = None
    priority: int = 0
    delay: Duration | None = None
    run_at: datetime | None = None
    max_attempts: int | None = None
    tags: Iterable[str] = ()
    limit_key: str | None = None
    cost: int | None = None
    require_worker: RequireWorker | None = None
    said: ConditionOptions = field(default_factory=ConditionOptions, hash=False)  # of its key, and of coming too late
    headers: Headers | None = None
    timeout: Duration | None = None  # in all, from its first start
    on_parent_end: OnParentEnd | None = None  # whether it ends with the run that asks for it


def ordered_input(asked: Asked[Any]) -> str:
    """The input as text that is the same in every process; the stored text need not be, since sets have no order."""
    with suppress(SerializationError):
        if asked.again is not None and asked.again(write_value) == asked.input:
            return asked.again(write_ordered)
    return asked.input  # its arguments have changed since


def recoded(asked: Asked[Any], codec: Codec) -> str:
    """The input as the store's codec writes it; plain JSON if the workflow is known by name only.

    Then only the workflow itself knows whether an object is its one argument, or several by name.
    """
    with suppress(SerializationError):
        if asked.defines and asked.again is not None and asked.again(write_value) == asked.input:
            return asked.again(partial(write_value, codec=codec))
    return asked.input


@dataclass(frozen=True, slots=True)
class Drafted:
    """Tasks of one kind, ready to be written except for the numbers of their queues."""

    kind: TaskKind
    tasks: Sequence[NewTask]
    queues: Mapping[str, bool]  # by name; True: create a missing queue, False: refuse it
    required: Mapping[str, RequireWorker] = field(default_factory=dict)  # by name: what to do without a living worker

    def carrying(self, headers: str | None) -> Drafted:
        """The same tasks with these headers, where they have none."""
        if headers is None:
            return self
        return replace(self, tasks=[msgspec.structs.replace(one, headers=one.headers or headers) for one in self.tasks])

    def led_to(self) -> Drafted:
        """The same tasks as results of pending work: they are accepted by a queue that is being drained."""
        return replace(self, tasks=[msgspec.structs.replace(task, inside=True) for task in self.tasks])


class Draft:
    """What the tasks of one call have in common, checked once."""

    def __init__(
        self,
        queue: str | Addressed[Any],
        *,
        payload_limit: int,
        default_attempts: int,
        codec: Codec | None = None,
        kind: TaskKind = TaskKind.MESSAGE,
        priority: int = 0,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        tags: Iterable[str] = (),
        limit_key: str | None = None,
        cost: int | None = None,
        result: bool = False,
        headers: Headers | None = None,
        timeout: Duration | None = None,
        on_parent_end: OnParentEnd | None = None,
        **said: Unpack[ConditionOptions],
    ) -> None:
        if delay is not None and run_at is not None:
            raise InvalidOption("delay", delay, "give `delay` or `run_at`, not both")
        if (debounce := said.get("debounce")) is not None and (delay is not None or run_at is not None):
            raise InvalidOption("debounce", debounce, "it says when the work is due: leave `delay` and `run_at` out")
        self._kind = kind
        self._queue = check_name("queue", queue if isinstance(queue, str) else getattr(queue, "queue", queue))
        self._defines_queue = not isinstance(queue, str)
        attempts = max_attempts if max_attempts is not None or isinstance(queue, str) else queue.max_attempts
        self._max_attempts = check_max_attempts(default_attempts if attempts is None else attempts)
        self._type: Any = Any if isinstance(queue, str) else getattr(queue, "payload_type", Any)
        self._payload_limit = payload_limit
        self._codec = codec
        self._priority = check_priority(priority)
        wait, named = (delay, "delay") if debounce is None else (debounce, "debounce")
        self._delay = 0 if wait is None else microseconds_of(wait, named)
        self._run_at = None if run_at is None else moment_of(run_at)
        checked = () if isinstance(tags, tuple) and not tags else check_tags(tags)
        self._tags = encode(checked) if checked else None
        self._scope, self._conditions = conditions_of(said) if said else ("ever", None)
        if result:
            self._conditions = with_result(self._conditions, queue)
        if timeout is not None or on_parent_end is not None:
            self._conditions = with_course(self._conditions, timeout_of(timeout), on_parent_end)
        if self._conditions is not None:
            check_end(self._conditions, said.get("expires"), self._delay, self._run_at)
        self._limit_key = None if limit_key is None else check_key(limit_key, "limit_key")
        self._cost = None if cost is None else check_whole("cost", cost, 1, MOST_UNITS)
        self._headers = headers_text(headers, headers_here())

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
        if keys is None and self._conditions is not None:
            check_keyed(self._conditions)
        texts = write_values(payloads, self._type, limit=self._payload_limit, codec=self._codec)
        for payload, text in zip(payloads, texts, strict=True):
            self._check(payload, text)
        if keys is None:
            tasks: Sequence[NewTask] = Alike(self._of(""), texts)
        else:
            each = zip(texts, keys, payloads, strict=True)
            hashed = [(text, key, hash_with_version(value_hash(payload, text), text)) for text, key, payload in each]
            tasks = [self._of(text, check_key(key), its_hash) for text, key, its_hash in hashed]
        return Drafted(self._kind, tasks, {self._queue: self._defines_queue})

    def one(self, payload: Any, key: str | None) -> Drafted:
        """The task for one payload, with its key if it has one."""
        text = write_value(payload, self._type, limit=self._payload_limit, codec=self._codec)
        self._check(payload, text)
        hashed = None if key is None else hash_with_version(value_hash(payload, text), text)
        if key is None and self._conditions is not None:
            check_keyed(self._conditions)
        task = self._of(text, None if key is None else check_key(key), hashed)
        return Drafted(self._kind, [task], {self._queue: self._defines_queue})

    def run(self, asked: Asked[Any]) -> NewTask:
        """The task for a run, whose input is JSON text already."""
        key, text = asked.key, asked.input if self._codec is None else recoded(asked, self._codec)
        if len(asked.input) > self._payload_limit // 4 and (size := len(asked.input.encode())) > self._payload_limit:
            raise PayloadTooLarge(size, self._payload_limit, what="input")
        if key is None:
            if self._conditions is not None:
                check_keyed(self._conditions)
            return self._of(text)
        ordered = ordered_input(asked)
        return self._of(text, check_key(key), hash_with_version(payload_hash(ordered), ordered))

    def _check(self, payload: Any, text: str) -> None:
        """Refuse a payload that the handler could not read, or would read as another value."""
        refuse_unnamed(payload, self._type, what="payload", codec=self._codec)
        if self._type is not Any:
            what = f"payload of {self._queue}"
            refuse_cut(payload, read_value(text, self._type, what=what), what=what)

    def _of(self, text: str, key: str | None = None, hashed: str | None = None) -> NewTask:
        """The task, without the number of its queue."""
        if self._conditions is not None and self._conditions.period is not None:
            hashed = None  # the first of a period counts, whatever the others say
        # fmt: off
        return NewTask(self._kind, 0, self._queue, text, self._priority, self._delay, self._run_at, self._max_attempts,
                       key, self._scope, hashed, self._tags, limit_key=self._limit_key, cost=self._cost,
                       conditions=self._conditions, headers=self._headers)
        # fmt: on


def together(drafts: Sequence[Drafted]) -> Drafted:
    """Several drafts of runs as one; the tasks keep their order."""
    queues: dict[str, bool] = {}
    required: dict[str, RequireWorker] = {}
    for one in drafts:
        for name, defines in one.queues.items():
            queues[name] = queues.get(name, False) or defines
        for name, policy in one.required.items():
            required[name] = max(required.get(name, policy), policy, key=STRICTEST_LAST.index)
    return Drafted(TaskKind.RUN, [task for one in drafts for task in one.tasks], queues, required)


def drafted_runs(
    asked: Sequence[Asked[Any]],
    *,
    payload_limit: int,
    default_attempts: int,
    codec: Codec | None = None,
    is_inside: bool = False,
) -> Drafted:
    """The requested runs, of one workflow or several, in their order; `is_inside` if another run asks for them."""
    tasks: list[NewTask] = []
    queues: dict[str, bool] = {}
    required: dict[str, RequireWorker] = {}
    for one in asked:
        if not isinstance(one, Asked):
            raise InvalidOption("triggers", one, "pass triggers, as `workflow.trigger(...)` makes them")
        policy: RequireWorker = one.require_worker or "warn"
        if policy not in STRICTEST_LAST:
            raise InvalidOption("require_worker", policy, "it is 'ignore', 'warn' or 'error'")
        if one.on_parent_end is not None and not is_inside:
            raise InvalidOption("on_parent_end", one.on_parent_end, "no run asks for it: execute it with `ctx`")
        name = one.workflow
        draft = Draft(
            name,
            kind=TaskKind.RUN,
            payload_limit=payload_limit,
            default_attempts=default_attempts,
            codec=codec,
            priority=one.priority,
            delay=one.delay,
            run_at=one.run_at,
            max_attempts=one.max_attempts,
            tags=one.tags,
            limit_key=one.limit_key,
            cost=one.cost,
            headers=one.headers,
            timeout=one.timeout,
            on_parent_end=one.on_parent_end,
            **one.said,
        )
        tasks.append(draft.run(one))
        queues[name] = queues.get(name, False) or one.defines
        required[name] = max(required.get(name, policy), policy, key=STRICTEST_LAST.index)
    return Drafted(TaskKind.RUN, tasks, queues, required)


class Alike(Sequence[NewTask]):
    """Thousands of tasks that differ only in their input, stored as one task and a list of texts.

    A task is made when it is read.
    """

    def __init__(self, like: NewTask, inputs: Sequence[str]) -> None:
        self.like = like
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    @overload
    def __getitem__(self, place: int) -> NewTask: ...
    @overload
    def __getitem__(self, place: slice) -> Alike: ...
    def __getitem__(self, place: int | slice) -> NewTask | Alike:
        if isinstance(place, slice):
            return Alike(self.like, self.inputs[place])
        return msgspec.structs.replace(self.like, input=self.inputs[place])


def examples(tasks: Sequence[NewTask]) -> Sequence[NewTask]:
    """Tasks that show all values of these except for their inputs: one is enough if they are alike."""
    return [tasks.like] if isinstance(tasks, Alike) else tasks


def inputs(tasks: Sequence[NewTask]) -> Sequence[str]:
    """The input of each."""
    return tasks.inputs if isinstance(tasks, Alike) else [task.input for task in tasks]
