"""Workflows: functions whose runs survive the processes that execute them, and how runs are triggered."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, Protocol, TypeVar, get_args, overload

from stepwell.base.backoff import Retry
from stepwell.base.durations import Duration, lease_of, seconds_of
from stepwell.base.limits import Limits, checked_limits, declared_limits
from stepwell.base.methods import SELF, bound, is_method, name_of_method, unserved_method
from stepwell.base.names import check_name, check_whole
from stepwell.base.program import Definition, declare, declared, know
from stepwell.errors import InvalidOption, RunNotFound, WorkflowNotFound
from stepwell.records import Run
from stepwell.runs.body import run_body
from stepwell.runs.branches import Branch, other_colour
from stepwell.runs.context import Context, SyncContext
from stepwell.runs.log import Attended
from stepwell.step import Step
from stepwell.store.broadcasts import Listening
from stepwell.store.emission import check_type
from stepwell.store.ends import event_type
from stepwell.store.plan import FILLED, UNFILLED, Cron, Every, Once, When
from stepwell.store.run_key import RunKey
from stepwell.store.schedules import NewSchedule
from stepwell.store.store import Store
from stepwell.trigger import SyncFace, Trigger, in_colour_of
from stepwell.values.arguments import Arguments, Write, text_by_name
from stepwell.values.lossless import refuse_unnamed
from stepwell.values.own_exceptions import check_raises, check_rebuilt
from stepwell.values.stamp import write_value
from stepwell.values.upcasters import versions_at
from stepwell.work.body import Served, told_of
from stepwell.work.current import current_branch

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
Lifecycle = Literal["succeeded", "failed", "dead_letter", "no_handler"]


class Workflow(Generic[P, R_co]):
    """A named workflow: a function, or only the name of one that others define. Calling it calls the function."""

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any] | None,
        *,
        retry: Retry | None = None,
        timeout: float | None = None,
        concurrency: int | None = None,
        dead_letter: str | None = None,
        strict: bool = False,
        cleanup: float | None = None,
        lease: float | None = None,
        lifecycle: Collection[str] = (),
        limits: Limits | None = None,
        schedule: When | Sequence[When] = (),
        of_steps: bool = False,
        raises: tuple[type[Exception], ...] = (),
    ) -> None:
        self.name = check_name("workflow", name)
        self.is_defined = fn is not None
        self.is_method = fn is not None and is_method(fn, "workflow")  # it needs an instance of its class
        self.fn: Callable[..., Any] = functools.partial(_nowhere, name) if fn is None else fn
        self.arguments = _UNKNOWN if fn is None else Arguments.of(fn, "workflow", SELF if self.is_method else None)
        self.retry = retry
        self.timeout = timeout
        self.concurrency = concurrency
        self.dead_letter = dead_letter
        self.strict = strict
        self.cleanup = cleanup
        self.lease = lease
        self.raises = _checked_raises(raises)
        self.limits = checked_limits(limits, name, self.arguments.names)
        self._of_steps = of_steps
        self.lifecycle = _checked_lifecycle(name, lifecycle)
        self.is_async = inspect.iscoroutinefunction(fn)
        declare(self, f"{self.name}()", fn)
        if fn is not None:
            functools.update_wrapper(self, fn, updated=())  # a function's own attributes are not a workflow's
            know(self, name, Definition(self.arguments.returns, raises))
            DEFINED.add(self)
        self.schedules = tuple(self.scheduled(one) for one in _listed(schedule))
        self.events: tuple[Listening, ...] = ()  # that trigger it, as `@on_event` says

    def trigger(self, *args: P.args, **kwargs: P.kwargs) -> Trigger[R_co]:
        """Ask for a run with these arguments; nothing is written before `execute`.

        Arguments that the workflow could not be called with are refused here: `TypeError`, or `SerializationError`
        where one cannot be stored, or read back as its parameter's type, or bytes, dates, tuples and the like are
        given where no type is named. By name alone there is nothing to check
        against: no argument is stored as null, one as itself, several by keyword as an object.
        """
        attempts = None if self.retry is None else self.retry.max_attempts
        if not self.is_defined:
            again = functools.partial(_untyped, self.name, args, kwargs)
            text = again(write_value)
            refuse_unnamed(args[0] if args else kwargs, what=f"argument of {self.name}")
            return Trigger(self.name, False, text, again=again, max_attempts=attempts)
        # No limit here: the store that gets it has one.
        again = functools.partial(self.arguments.encode, args, kwargs, sys.maxsize)
        text = again(write_value)
        self.arguments.decode(text)
        self.arguments.refuse_losses(args, kwargs)
        return Trigger(self.name, True, text, self.returns, self.raises, again, max_attempts=attempts)

    def scheduled(self, when: When) -> NewSchedule:
        """A schedule that triggers it with the input of `when`; a parameter `scheduled_for` gets the tick's moment."""
        fills = self.is_defined and FILLED in self.parameters and FILLED not in when.input
        given: dict[str, Any] = {**when.input, **({FILLED: UNFILLED} if fills else {})}
        return NewSchedule(when.name or self.name, _trigger(self, given), when, fills)

    def with_key(self, key: str) -> RunKey[R_co]:
        """The run of this workflow that has the key, for every verb that takes a run: `store.cancel(it)`."""
        return RunKey(self.name, key, self.returns)

    @overload
    def get_run(self, run_id: int, store: SyncFace) -> Run[R_co]: ...
    @overload
    def get_run(self, run_id: int, store: Store) -> Coroutine[Any, Any, Run[R_co]]: ...
    def get_run(self, run_id: int, store: Any) -> Any:
        """A run of this workflow as it stands; `RunNotFound` if there is none, or it is another workflow's."""
        return in_colour_of(store, functools.partial(self._get_run, run_id))

    @overload
    def find(self, key: str, store: SyncFace) -> Run[R_co] | None: ...
    @overload
    def find(self, key: str, store: Store) -> Coroutine[Any, Any, Run[R_co] | None]: ...
    def find(self, key: str, store: Any) -> Any:
        """The run of this workflow that has the key now, None if none has."""
        return in_colour_of(store, functools.partial(self._find, key))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The type of each parameter that a trigger gives."""
        return self.arguments.types

    @property
    def returns(self) -> Any:
        """The type of what it returns."""
        return self.arguments.returns

    @property
    def options(self) -> Mapping[str, Any]:
        """The other options of its definition."""
        names = ("retry", "timeout", "concurrency", "dead_letter", "strict", "cleanup", "lease", "lifecycle", "limits")
        return {name: getattr(self, name) for name in names}

    def served(self, retry: Retry, limit: int | None = None) -> Served:
        """The workflow for a worker: its own policy goes before the store's, a worker's limit before its own."""
        if not self.is_defined:
            raise InvalidOption("serves", self.name, _NO_FUNCTION)
        if self.is_method:
            raise unserved_method(self.name, self.fn)
        steps = [one.definition.returns for one in declared() if isinstance(one, Step)]
        reads = versions_at((*self.arguments.types.values(), self.arguments.returns, *steps))
        return Served(
            self.name,
            run_body(self),
            self.retry or retry,
            None,
            limit or self.concurrency,
            limits=declared_limits(self.limits, self.name, self.arguments.names, wakes_cost=self._of_steps),
            is_workflow=True,
            dead_letter=self.dead_letter,
            lifecycle=self.lifecycle,
            told=told_of(self.dead_letter, self.lifecycle),
            run_timeout=self.timeout,
            cleanup=self.cleanup,
            while_served=Attended,
            lease=self.lease,
            reads=reads,
            definition=Definition(self.returns, self.raises),
            schedules=self.schedules,
            events=self.events,
        )

    @overload
    def __get__(self: Workflow[Concatenate[Any, Q], T], of: object, owner: Any = None) -> Workflow[Q, T]: ...
    @overload  # a type checker wants two
    def __get__(self, of: object, owner: Any = None) -> Workflow[..., R_co]: ...
    def __get__(self: Any, of: object, owner: Any = None) -> Any:
        if of is None or not self.is_method:
            return self
        own = copy.copy(self)
        own.fn, own.is_method = bound(self.fn, of), False
        return own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result, branch = self.fn(*args, **kwargs), current_branch.get()
        if not (isinstance(branch, Branch) and inspect.iscoroutine(result)):
            return result
        if branch.run.is_sync:
            result.close()
            raise other_colour(branch.run, self.name)
        return branch.run.made.note(result, self.name)

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    async def _get_run(self, run_id: int, store: Store) -> Run[Any]:
        run = await store.get_run(run_id)
        if run.workflow != self.name:
            raise RunNotFound(run_id, self.name)
        return run

    async def _find(self, key: str, store: Store) -> Run[Any] | None:
        try:
            return await store.find_run(self.name, key)
        except WorkflowNotFound:
            if self.is_defined:  # its first trigger creates its definition
                return None
            raise


class _Decorator(Protocol):
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload  # of a method: what takes its instance away comes later
    def __call__(
        self, fn: Callable[Concatenate[S, Context, P], Coroutine[Any, Any, R]], /
    ) -> Workflow[Concatenate[S, P], R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[SyncContext, P], R], /) -> Workflow[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[S, SyncContext, P], R], /) -> Workflow[Concatenate[S, P], R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Workflow[P, R]: ...


@overload
def workflow(name: str, /) -> Workflow[..., Any]: ...
@overload
def workflow(fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(fn: Callable[Concatenate[S, Context, P], Coroutine[Any, Any, R]], /) -> Workflow[Concatenate[S, P], R]: ...
@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(fn: Callable[Concatenate[SyncContext, P], R], /) -> Workflow[P, R]: ...
@overload
def workflow(fn: Callable[Concatenate[S, SyncContext, P], R], /) -> Workflow[Concatenate[S, P], R]: ...
@overload
def workflow(fn: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    retry: int | Retry | None = None,
    timeout: Duration | None = None,
    concurrency: int | None = None,
    dead_letter: str | None = None,
    strict: bool = False,
    cleanup: Duration | None = None,
    lease: Duration | None = None,
    lifecycle: Collection[Lifecycle] = (),
    limits: Limits | None = None,
    schedule: When | Sequence[When] = (),
    raises: tuple[type[Exception], ...] = (),
) -> _Decorator: ...
def workflow(
    of: str | Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: int | Retry | None = None,
    timeout: Duration | None = None,
    concurrency: int | None = None,
    dead_letter: str | None = None,
    strict: bool = False,
    cleanup: Duration | None = None,
    lease: Duration | None = None,
    lifecycle: Collection[Lifecycle] = (),
    limits: Limits | None = None,
    schedule: When | Sequence[When] = (),
    raises: tuple[type[Exception], ...] = (),
) -> Any:
    """Make a function, sync or async, a workflow: `@workflow`, or `@workflow(name="zip_files", retry=5)`.

    Its parameters besides `ctx` are what a trigger gives; they and the result are stored as JSON and read back as
    their annotations say. `name` is the function's unless given. `retry` is how often a run is tried in all, three
    times unless the store says otherwise; `timeout` is how long it may take in all, from its first start, waits
    included: then it ends in ERROR. `concurrency` bounds how many run at once in one worker; `dead_letter` names a
    workflow that is told of runs that failed for good. With `strict` a run is stopped before it executes a new step
    while others that it has recorded are still unasked. `cleanup` is how long a run may go on inside of `shield()` when
    it was cancelled; `lease` how long a worker that executes it may be silent before others take over, if that is not
    the store's; `limits` bounds how many run at once over all workers. `lifecycle` names what is emitted of its runs,
    in the transaction that it tells of: "succeeded", "failed" for each attempt, "dead_letter" and "no_handler"; their
    types are `zip_files.failed.v1` and the like. `schedule` triggers it again and again: a `Cron`, `Every` or `Once`,
    or several that have names. `raises` names classes of exceptions that those who wait for a run get as they are, in
    place of `ExecutionFailed`, in every process that defines the workflow.

    A method is a workflow too, named `Billing.settle`: a worker that serves an instance of its class,
    `Worker(store, [billing])`, executes it on that instance, and only the arguments are stored.

    `workflow("zip_files")` is one that other processes define: to trigger it, and to look at its runs.
    """
    if isinstance(of, str):
        given = (name, retry, timeout, concurrency, dead_letter, cleanup, lease, limits)
        if strict or lifecycle or schedule or raises or any(one is not None for one in given):
            raise InvalidOption("workflow", of, "options belong to a definition: `@workflow(name=..., ...)`")
        return Workflow(of, None)
    if name is not None:
        check_name("workflow", name)
    if concurrency is not None:
        check_whole("concurrency", concurrency, 1, 10_000)
    if dead_letter is not None:
        check_name("workflow", dead_letter)
    policy = None if retry is None else Retry.of(retry)
    seconds = _limit_of("timeout", timeout, "a run needs some time; None is no limit")
    clean = _limit_of("cleanup", cleanup, "a cleanup needs some time; None is none")
    silent = lease_of(lease)

    def decorate(fn: Callable[..., Any]) -> Workflow[..., Any]:
        if isinstance(fn, Workflow):
            raise InvalidOption("workflow", fn.name, "it is a workflow already; give each name a function of its own")
        takes_self = is_method(fn, "workflow")
        if not callable(fn):
            raise InvalidOption("workflow", fn, "it is a function, or the name of a workflow")
        called = str(name or (name_of_method(fn) if takes_self else getattr(fn, "__name__", "")))
        if dead_letter == called:
            raise InvalidOption("dead_letter", called, "its own letter would fail and be told again, for ever")
        # fmt: off
        return Workflow(called, fn, retry=policy, timeout=seconds, concurrency=concurrency, dead_letter=dead_letter,
                        strict=bool(strict), cleanup=clean, lease=silent, lifecycle=lifecycle, limits=limits,
                        schedule=schedule, raises=raises)
        # fmt: on

    return decorate if of is None else decorate(of)


workflow_decorator = workflow


_NO_FUNCTION: Final = "no function of this process stands behind it; define it with `@workflow(name=...)`"
_UNKNOWN: Final = Arguments("?", False, (), {}, {}, frozenset(), Any, "argument")
DEFINED: Final[weakref.WeakSet[Workflow[..., Any]]] = weakref.WeakSet()


def _listed(schedule: When | Sequence[When]) -> Sequence[When]:
    """The schedules of a definition, each with a name of its own."""
    each: Sequence[When] = (schedule,) if isinstance(schedule, Cron | Every | Once) else tuple(schedule)
    if strange := [one for one in each if not isinstance(one, Cron | Every | Once)]:
        raise InvalidOption("schedule", strange[0], "it is a `Cron`, an `Every` or a `Once`")
    if len(each) > 1 and len({one.name for one in each if one.name is not None}) < len(each):
        raise InvalidOption("schedule", each[0], "of several schedules each needs a `name` of its own")
    return each


def _trigger(of: Workflow[..., Any], given: Mapping[str, Any]) -> Trigger[Any]:
    return of.trigger(**given)


def _limit_of(option: str, given: Duration | None, why: str) -> float | None:
    seconds = None if given is None else seconds_of(given, option)
    if seconds == 0:
        raise InvalidOption(option, given, why)
    return seconds


def _checked_raises(raises: tuple[type[Exception], ...]) -> tuple[type[Exception], ...]:
    for one in check_raises(raises):
        check_rebuilt(one)
    return raises


def _checked_lifecycle(workflow: str, names: Collection[str]) -> tuple[str, ...]:
    known = get_args(Lifecycle)
    if isinstance(names, str) or any(one not in known for one in names):
        raise InvalidOption("lifecycle", names, f"it is a set of {', '.join(map(repr, known))}")
    for one in names:
        check_type(event_type(workflow, one))
    return tuple(one for one in known if one in names)


def _nowhere(name: str, *_: Any, **__: Any) -> None:
    raise InvalidOption("workflow", name, _NO_FUNCTION)


def _untyped(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], write: Write) -> str:
    if len(args) > 1 or (args and kwargs):
        raise TypeError(f"workflow {name} is known by name only: give it one argument, or several by keyword")
    if args:
        return write(args[0], limit=sys.maxsize, what=f"argument of {name}")
    return text_by_name(kwargs, {}, sys.maxsize, write, f"argument of {name}") if kwargs else "null"
