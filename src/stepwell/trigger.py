"""Triggers: a requested run before it is written; and its result, if the caller waits for it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Generic, Protocol, Self, TypeVar, Unpack, overload, runtime_checkable

from stepwell.base.durations import Duration, seconds_of
from stepwell.base.names import check_tags
from stepwell.errors import InvalidOption
from stepwell.records import RunId
from stepwell.runs.branches import Branch
from stepwell.runs.context import Context, SyncContext, current_run
from stepwell.store.conditions import ConditionOptions, OnParentEnd
from stepwell.store.draft import Asked, RequireWorker
from stepwell.store.results import returned
from stepwell.store.store import Store
from stepwell.values.headers import Headers, headers_text
from stepwell.work.current import current_branch

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


@runtime_checkable
class SyncFace(Protocol):
    """A store whose verbs return when they are done: one of `stepwell.sync.connect`."""

    @property
    def async_store(self) -> Store:
        """The store behind it."""

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work on the loop of the async store."""

    def trigger(self, trigger: Asked[R], *, tx: object = None) -> RunId[R]:
        """Write a run."""


class TriggerOptions(ConditionOptions, total=False):
    """How a run is queued."""

    key: str | None
    priority: int
    delay: Duration | None
    run_at: datetime | None
    max_attempts: int | None
    tags: Iterable[str]
    limit_key: str | None
    cost: int | None
    require_worker: RequireWorker | None
    headers: Headers | None
    timeout: Duration | None
    on_parent_end: OnParentEnd | None


SAID: Final = frozenset(ConditionOptions.__annotations__)
OPTIONS: Final = frozenset(TriggerOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class Trigger(Asked[R_co]):
    """A run that is asked for; `execute` writes it, each time a new one."""

    def options(self, **options: Unpack[TriggerOptions]) -> Self:
        """The same trigger with these options; an option that is not given stays.

        `key` names the run: a second trigger with it finds the first, and with another input raises
        `IdempotencyConflict`; `unique="unfinished"` frees the key when the run is finished, `"waiting"` when it begins.
        `on_conflict`, `debounce`, `once_per` and `newest` say what else a trigger does that finds its key taken; a run
        that has not begun by `expires` is cancelled. A higher `priority` runs first. `delay` or `run_at` is when it is
        due. `max_attempts` is how often it is tried in all. `limit_key` is whose limits it counts to, and `cost` how
        many units of a rate it costs, if its input does not say that; of a workflow without limits neither counts.
        `require_worker` says what to do if no living worker serves the workflow: "warn" (and write it), "error" (and
        write nothing) or "ignore". `headers` are texts, such as a tenant, that travel with the run and with what
        it leads to. `timeout` is how long this run may take in all, from its first start, in place of what its
        workflow says. Of a child, `on_parent_end` says what it does when the run that asks for it ends: "cancel" is
        to be cancelled, "leave" to go on whatever becomes of that run, even beyond its deadline; without it, the child
        is cancelled if that run is cancelled or out of time, and goes on otherwise.
        """
        if unknown := options.keys() - OPTIONS:
            raise TypeError(f"a trigger has no option {min(unknown)!r}; there are {', '.join(sorted(OPTIONS))}")
        if "tags" in options:
            options["tags"] = check_tags(options["tags"])
        headers_text(options.get("headers"))
        given: dict[str, Any] = dict(options)
        if said := {name: given.pop(name) for name in SAID & given.keys()}:
            given["said"] = {**self.said, **said}
        return replace(self, **given)

    def wait(self, timeout: Duration | None = None) -> Waited[R_co]:
        """The same trigger, whose `execute` waits for what the run returns, for this long in all."""
        return Waited(self, None if timeout is None else seconds_of(timeout, "timeout"))

    @overload
    def execute(self, on: SyncFace | SyncContext, *, tx: object = None) -> RunId[R_co]: ...
    @overload
    def execute(self, on: Store | Context | None = None, *, tx: object = None) -> Coroutine[Any, Any, RunId[R_co]]: ...
    def execute(self, on: Any = None, *, tx: object = None) -> Any:
        """Write the run: when it is done the run is durable and will be executed. Returns its number.

        With `tx`, your own connection in a transaction, the run is there if that commits and never was if it does not.
        With the context of a run (or without, inside one) it becomes its child, once in the life of that run.
        """
        if isinstance(on := _place(on, self.workflow), Context | SyncContext):
            if tx is not None:
                raise InvalidOption("tx", tx, "a child is recorded by its run; pass the store to join a transaction")
            return on.ask_for(self)
        return checked_store(on).trigger(self, tx=tx)


@dataclass(frozen=True, slots=True)
class Waited(Generic[R_co]):
    """A trigger whose `execute` waits for the result."""

    trigger: Trigger[R_co]
    seconds: float | None = None

    def timeout(self, seconds: Duration) -> Self:
        """The same, waiting for this long in all; then `Timeout` is raised, and the run goes on."""
        return replace(self, seconds=seconds_of(seconds, "timeout"))

    @overload
    def execute(self, on: SyncFace | SyncContext) -> R_co: ...
    @overload
    def execute(self, on: Store | Context | None = None) -> Coroutine[Any, Any, R_co]: ...
    def execute(self, on: Any = None) -> Any:
        """Write the run and return what it returns, or raise `ExecutionFailed`, `RunCancelled` or `Timeout`.

        With the context of a run (or nothing, inside one) it is a child: the run holds nothing while it waits.
        """
        if isinstance(on := _place(on, self.trigger.workflow), Context | SyncContext):
            return on.result_of(self.trigger, self.seconds)
        return in_colour_of(on, self._execute)

    async def _execute(self, store: Store) -> R_co:
        begun = time.monotonic()
        run_id = await store.trigger(self.trigger)
        left = None if self.seconds is None else max(0.0, self.seconds - (time.monotonic() - begun))
        # A run with a key may have existed before, and have ended.
        result: R_co = returned(
            run_id,
            await store.database.results.ending(run_id, left, is_new=self.trigger.key is None),
            store.database.definitions.of(self.trigger.workflow),
        )
        return result


def _place(on: object, workflow: str) -> object:
    """Where a run is requested; refused if every replay would request it again, or if the code would not await it."""
    branch = current_branch.get()
    if on is None:
        if isinstance(branch, Branch) and branch.run.is_sync:
            raise InvalidOption("on", on, f"in a sync workflow pass its context: `{workflow}.trigger().execute(ctx)`")
        return Context(current_run())
    if isinstance(branch, Branch) and not isinstance(on, Context | SyncContext):
        why = "in a workflow every replay would write another run: pass `ctx`, for a child, or do it in a step"
        raise InvalidOption("on", on, why)
    return on


def in_colour_of(on: object, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T | Coroutine[Any, Any, T]:
    """Do the work with a store, and return what its verbs return: a coroutine, or the result."""
    match checked_store(on):
        case Store() as store:
            return work(store)
        case face:
            return face.wait_for(functools.partial(work, face.async_store))


def checked_store(on: object) -> Store | SyncFace:
    """The store; raises if it is none."""
    if not isinstance(on, Store | SyncFace):
        raise InvalidOption("on", on, "pass an open store, of `stepwell.connect` or `stepwell.sync.connect`")
    return on
