"""Steps: functions whose results a run records, so that no replay calls them again."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, overload

from stepwell.base.backoff import Retry
from stepwell.base.compat import mark_as_async
from stepwell.base.durations import Duration, timeout_of
from stepwell.base.limits import Limits, checked_limits
from stepwell.base.methods import SELF, bound, is_method, name_of_method, refuse_method
from stepwell.base.names import check_name
from stepwell.base.program import declare
from stepwell.errors import InvalidOption, NotInRun
from stepwell.runs.async_step import calling
from stepwell.runs.branches import Branch, is_serving
from stepwell.runs.call import StepCall, StepDefinition, checked_step
from stepwell.runs.children import course
from stepwell.runs.requests import awaited, followed
from stepwell.runs.sync_turn import wait_in_thread
from stepwell.runs.turn import RunTurn
from stepwell.store.joins.source import check_source
from stepwell.values.arguments import Arguments
from stepwell.values.own_exceptions import check_raises
from stepwell.work.current import current_branch
from stepwell.work.processes import Executor, check_executor

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
UNSAID: Final[Any] = object()
TX: Final = "tx"  # the first parameter of a step that gets a transaction


class Step(Generic[P, R_co]):
    """A function whose result is recorded when a run calls it; elsewhere a call is a plain call of the function."""

    def __init__(self, fn: Callable[P, R_co], definition: StepDefinition) -> None:
        self.fn = fn
        self.definition = definition
        self.id = definition.name
        self.is_method = False  # it needs an instance of its class
        functools.update_wrapper(self, fn, updated=())
        declare(self, self.id, fn)
        if definition.is_async:  # frameworks ask: one that is taken for a plain function is called and never awaited
            mark_as_async(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        if self.is_method:
            on: R_co = self._called_on(*args, **kwargs)
            return on
        branch = current_branch.get()
        if not isinstance(branch, Branch):
            if branch is None and is_serving():
                raise NotInRun(
                    f"step {self.id} was called beside a running worker but by no run: threads and pools do not carry "
                    f"the run. To call it as a plain function say `{self.id}.local(...)`"
                )
            return self._called_outside(*args, **kwargs)
        self._check_place(branch)
        call = StepCall.made(branch, self.definition, args, kwargs)
        if branch.run.is_sync:
            result: R_co = followed(course(call))
            return result
        coroutine: Any = branch.run.made.note(calling(call), self.id)
        coroutine.__qualname__ = self.id  # the name in Python's warning if no code awaits it
        return coroutine  # type: ignore[no-any-return]

    def options(
        self, *, timeout: Duration | None = UNSAID, retry: int | Retry | None = UNSAID, queue: str | None = UNSAID
    ) -> Step[P, R_co]:
        """The same step, called with other options: `charge.options(timeout="5s", retry=1)(order)`.

        An option that is not given stays. It is the same step all the same: its name, and what is recorded of it. Where
        it has a `queue`, the workers of that limit it and try it again as its definition says.
        """
        return StepWithOptions(self, _checked_options(self.definition, timeout, retry, queue))

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself; nothing is recorded."""
        return self.fn(*args, **kwargs)

    def start(self, *args: P.args, **kwargs: P.kwargs) -> BackgroundStep[R_co]:
        """In a sync workflow, begin the step in the background; `.result()` waits for what it returns."""
        branch = current_branch.get()
        if not isinstance(branch, Branch) or not branch.run.is_sync:
            why = "that is for sync workflows; in an async one use `asyncio.create_task(step(...))` or `asyncio.gather`"
            raise NotInRun(f"step {self.id} cannot begin in the background here: {why}")
        return begun_in_background(StepCall.made(branch, self.definition, args, kwargs))

    def __repr__(self) -> str:
        return f"<step {self.id}>"

    def __get__(self: Step[Concatenate[Any, Q], T], instance: object, owner: type | None = None) -> Step[Q, T]:
        of: Any = self
        if instance is None and of.is_method:
            return of  # type: ignore[no-any-return]
        if not of.is_method:
            why = "it takes no `self`: give it one, or make it a function outside of the class"
            raise InvalidOption("step", of.id, why)
        fn = bound(of.fn, instance)
        own = copy.copy(of)
        own.fn, own.is_method, own.definition = fn, False, dataclasses.replace(of.definition, fn=fn)
        return own  # type: ignore[no-any-return]

    def _called_on(self, *args: Any, **kwargs: Any) -> Any:
        """Call the step of the instance that is given first, as Python calls a method on its class."""
        if not args:
            raise TypeError(f"step {self.id} is a method: call it on an instance of its class")
        step: Any = self
        return step.__get__(args[0])(*args[1:], **kwargs)

    def _called_outside(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.fn(*args, **kwargs)

    def _check_place(self, branch: Branch) -> None:
        """Refuse a sync step in an async workflow and the reverse, and a call from a task that has no label."""
        run = branch.run
        if run.is_sync == self.definition.is_async:
            kind = "an async step in a sync workflow" if run.is_sync else "a sync step, which would block the loop,"
            how = f"ctx.step({self.id}, ...)" if run.is_sync else f"await ctx.step({self.id}, ...)"
            where = "sync.current()" if run.is_sync else "current()"
            why = f"{kind} is called through the context: `{how}`, with `ctx` as first parameter or `stepwell.{where}`"
            raise InvalidOption("step", self.id, why)
        branch.check_caller(self.id)


class TransactionalStep(Step[P, R_co]):
    """A step whose function gets a transaction first, which a call leaves out: the run that calls it gives one."""

    def local(self, *args: Any, **kwargs: Any) -> R_co:
        """Call the function itself, with a transaction of yours as its first argument; nothing is recorded."""
        return self.fn(*args, **kwargs)

    def _called_outside(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        raise NotInRun(f"step {self.id} gets its transaction from a run: here say `{self.id}.local(tx, ...)`")


class StepWithOptions(Step[P, R_co]):
    """A step that is called with other options than those of its definition."""

    def __init__(self, step: Step[P, R_co], options: dict[str, Any]) -> None:
        self._step, self._options = step, options
        self._put: StepDefinition | None = None
        self.fn, self.id, self.is_method = step.fn, step.id, step.is_method
        functools.update_wrapper(self, step.fn, updated=())
        if step.definition.is_async:
            mark_as_async(self)

    @property
    def definition(self) -> StepDefinition:  # as the step is now: a test may have faked it
        """What it is, with its options."""
        return replace(self._step.definition, **self._options) if self._put is None else self._put

    @definition.setter
    def definition(self, definition: StepDefinition) -> None:
        self._put = definition

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself; nothing is recorded."""
        return self._step.local(*args, **kwargs)

    def __get__(self: Any, instance: object, owner: type | None = None) -> Any:
        if instance is None and self.is_method:
            return self
        return StepWithOptions(self._step.__get__(instance, owner), self._options)

    def _called_outside(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self._step._called_outside(*args, **kwargs)  # noqa: SLF001 - its own


def _checked_options(of: StepDefinition, timeout: Any, retry: Any, queue: Any) -> dict[str, Any]:
    """The options that are given, as a definition has them."""
    options: dict[str, Any] = {}
    if timeout is not UNSAID:
        options["timeout"] = timeout_of(timeout)
    if retry is not UNSAID:
        options["retry"] = None if retry is None else Retry.of(retry)
    if queue is not UNSAID:
        options["queue"] = None if queue is None else check_name("queue", queue)
    found = replace(of, **options)
    if found.queue is not None and (timeout is not UNSAID or retry is not UNSAID):
        why = f"workers of the queue {found.queue} execute it: they take `timeout` and `retry` from its definition"
        raise InvalidOption("timeout" if timeout is not UNSAID else "retry", of.name, why)
    given = options.get("retry")
    _check_combination(of.tx, found.queue, given, at_most_once=of.at_most_once, reconcile=of.reconcile)
    return options


@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    id: str | None = None,
    retry: int | Retry | None = None,
    timeout: Duration | None = None,
    queue: str | None = None,
    limits: Limits | None = None,
    raises: tuple[type[Exception], ...] = (),
    at_most_once: bool = False,
    reconcile: Callable[..., Any] | None = None,
    executor: Executor = "thread",
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
@overload
def step(
    *,
    tx: Literal[True] | object,
    id: str | None = None,
    retry: int | Retry | None = None,
    timeout: Duration | None = None,
    raises: tuple[type[Exception], ...] = (),
) -> Callable[[Callable[Concatenate[Any, P], R]], TransactionalStep[P, R]]: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    id: str | None = None,
    retry: int | Retry | None = None,
    timeout: Duration | None = None,
    queue: str | None = None,
    limits: Limits | None = None,
    raises: tuple[type[Exception], ...] = (),
    tx: object = None,
    at_most_once: bool = False,
    reconcile: Callable[..., Any] | None = None,
    executor: Executor = "thread",
) -> Any:
    """Make a function, sync or async, a step of the workflows that call it.

    Its arguments and its result are stored as JSON; the annotation of what it returns is the type it comes back as.
    `id` keeps its identity over a rename. `retry` is how often it is tried in all, three times unless the store says
    otherwise; `timeout` ends an attempt. When it gives up it raises `StepFailed`, or an exception of a class named in
    `raises` or below one, on the first run as on every replay.

    With `queue` it is executed by any worker that serves it (`Worker(store, [the_step])`), as a child of the run that
    calls it, which holds nothing meanwhile. `limits` bounds how many of that queue are executed at once and how many
    begin in a period, over all workers (`Limits`); steps that share a queue share them.

    With `executor="process"` a sync body that computes is called in another process, so that it keeps nothing else of
    the worker waiting; that process is killed when the step takes too long or its run is cancelled.

    With `tx` its first parameter is a transaction, which the call leaves out. What the body writes in it and the result
    are committed together, once: `tx=True` is the store's own transaction (`Tx`), anything else opens one of yours, on
    the store's database: a `sessionmaker`, an engine, a pool, Django's `connection`, or a function that connects.

    With `at_most_once` the body never begins a second time by itself: what it raises is final, and after a crash in it
    `reconcile`, called with the same arguments, returns a `Reconciliation`; if there is none, or it does not know, the
    run waits for `store.resolve`.

    A method is a step too, of the instance that it is called on: only its arguments are stored, and its name is that of
    the class and its own, `Billing.charge`.
    """
    if queue is not None:
        check_name("queue", queue)
    elif limits is not None:
        why = "only a step with `queue` has any: others are executed inside of their run, by its worker"
        raise InvalidOption("limits", limits, why)
    policy = Retry.of(1) if at_most_once else None if retry is None else Retry.of(retry)
    seconds = timeout_of(timeout)
    check_raises(raises)
    _check_combination(tx, queue, retry, at_most_once=at_most_once, reconcile=reconcile)
    if tx is not None and executor != "thread":
        raise InvalidOption("tx", tx, "a step in another process has none")

    def decorate(fn: Callable[..., Any]) -> Step[..., Any]:
        if isinstance(fn, Step):
            raise InvalidOption("step", fn.id, "it is a step already")
        if hasattr(fn, "served"):
            raise InvalidOption("step", fn, "it is a workflow or a handler; a step is a plain function")
        takes_self = is_method(fn, "step")
        refuse_method(takes_self=takes_self, tx=tx, executor=None if executor == "thread" else executor)
        name = checked_step(id or (name_of_method(fn) if takes_self else getattr(fn, "__name__", "")))
        arguments = Arguments.of(fn, "step", SELF if takes_self else None if tx is None else TX)
        is_async = inspect.iscoroutinefunction(fn)
        in_process = check_executor("step", fn, executor)
        definition = StepDefinition(
            name,
            fn,
            arguments,
            arguments.returns,
            policy,
            seconds,
            raises,
            is_async,
            queue,
            tx,
            at_most_once,
            reconcile,
            in_process,
            limits=checked_limits(limits, name, arguments.names),
        )
        made = Step(fn, definition) if tx is None else TransactionalStep(fn, definition)
        made.is_method = takes_self
        return made

    return decorate if fn is None else decorate(fn)


def _check_combination(
    tx: object, queue: str | None, retry: int | Retry | None, *, at_most_once: bool, reconcile: object
) -> None:
    if tx is not None and queue is not None:
        raise InvalidOption("tx", tx, "a step of a `queue` has none")
    if tx is not None and tx is not True:
        check_source(tx)
    if at_most_once and (tx is not None or queue is not None or retry is not None):
        raise InvalidOption("at_most_once", at_most_once, "such a step has no `tx`, no `queue` and no `retry`")
    if reconcile is not None and not at_most_once:
        raise InvalidOption("reconcile", reconcile, "it is for steps with `at_most_once=True`")


class BackgroundStep(Generic[R_co]):
    """A step of a sync workflow that runs beside it, in a thread of its own."""

    def __init__(self, run: RunTurn, task: asyncio.Task[Any]) -> None:
        self._run = run
        self.task = task

    def result(self) -> R_co:
        """Wait for the step and return what it returned, or raise as the step itself would."""
        result: R_co = wait_in_thread(self._run, _result_of(self.task))
        return result


def begun_in_background(call: StepCall) -> BackgroundStep[Any]:
    """Begin the step; it belongs to the run, which does not end before it."""
    return BackgroundStep(call.run, wait_in_thread(call.run, _begin(call)))


async def _begin(call: StepCall) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(awaited(call.run, course(call)))
    call.run.joined(task, call.key)
    return task


async def _result_of(task: asyncio.Task[Any]) -> Any:
    await asyncio.wait([task])
    return task.result()
