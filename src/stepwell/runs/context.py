"""The context of a run: what the code of a workflow or of a step can ask of its run."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any, NoReturn, ParamSpec, TypeVar, overload

from stepwell.base.clock import chance_of
from stepwell.base.durations import Duration, datetime_of, microseconds_of
from stepwell.errors import InvalidOption, NotInRun
from stepwell.records import RunId
from stepwell.runs.answer import AnswersAsync, AnswersSync
from stepwell.runs.async_step import calling
from stepwell.runs.branches import Branch
from stepwell.runs.call import Attempt, IsStep, StepCall, current_attempt, definition_of
from stepwell.runs.caller import branch_of, made
from stepwell.runs.children import (
    called,
    checked_triggers,
    course,
    only,
    triggering,
    waiting_for_child,
    waiting_for_results,
)
from stepwell.runs.composition import ComposesAsync, ComposesSync
from stepwell.runs.emit import EmitsAsync, EmitsSync
from stepwell.runs.manual_steps import Execute, Skipped, SyncExecute, acquired
from stepwell.runs.other_run import OthersAsync, OthersSync
from stepwell.runs.pause import Unwinding
from stepwell.runs.reports import Tells, tell
from stepwell.runs.requests import followed
from stepwell.runs.sync_turn import extended_in_thread, wait_in_thread
from stepwell.runs.tags import Origin, TagsAsync, TagsSync
from stepwell.runs.turn import RunTurn
from stepwell.runs.wait import NOTHING, Raised, noted_now, raced, sleeping, waiting_for
from stepwell.runs.wait_event import WaitsAsync, WaitsSync
from stepwell.store.draft import Asked
from stepwell.store.rates import checked_units
from stepwell.values.stamp import write_value
from stepwell.work.current import current_branch

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")
R = TypeVar("R")


class Current(Origin, Tells):
    """The current run, and in the body of a step also that step."""

    def __init__(self, run: RunTurn) -> None:
        self._run = run
        self.run_id: RunId[Any] = RunId(run.task.id)
        self.workflow = run.workflow

    @property
    def id(self) -> RunId[Any]:
        """The same as `run_id`: what runs and messages are called alike."""
        return self.run_id

    @property
    def step_id(self) -> str | None:
        """The name of the current step; None in the workflow itself."""
        attempt = current_attempt()
        return None if attempt is None else attempt.call.definition.name

    @property
    def key(self) -> str:
        """An idempotency key: the same text in every attempt of this step (or run), and unique to it."""
        attempt = current_attempt()
        return self._run.task.lasting_key if attempt is None else attempt.call.lasting_key

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1: of the step in its body, of the run elsewhere."""
        attempt = current_attempt()
        return self._run.task.attempt if attempt is None else attempt.number

    def is_cancelled(self) -> bool:
        """True if the code should stop: the run was cancelled or paused, or another worker has it.

        It becomes true within a second, also in the body of a step. Inside of a shield a cancelled run goes on: False.
        """
        run, place = self._run, current_branch.get()
        key = place.call.key if isinstance(place, Attempt) else getattr(place, "path", "")
        return run.unwinding or run.is_lost or (run.cleanup is not None and run.cleanup.refuses(key))

    def progress(self, value: object) -> None:
        """Report progress: the latest value is `store.get_run(run_id).progress`. Returns before it is written.

        Any JSON value, up to 16 KiB. Also in the body of a step, and in threads that carry the run. It is the named
        value `progress`, of which only the latest is kept.
        """
        tell(self._run, value)

    def charge(self, units: int) -> None:
        """Say what this run costs in truth, in units of the rates of its queue; the last call counts."""
        run, said = self._run, checked_units(units)
        run.on_loop(lambda: run.slot.database.charges.tell(run.task.id, run.task.turn, said))

    def now(self) -> datetime:
        """The time; in workflow code the same on every replay."""
        if current_attempt() is not None:
            return datetime_of(self._run.now())
        return datetime_of(noted_now(branch_of(self._run, "now")))

    def uuid(self) -> uuid.UUID:
        """A random UUID; in workflow code the same on every replay."""
        if current_attempt() is not None:
            return uuid.uuid4()
        digest = blake2b(self._chance("uuid").encode(), digest_size=16).digest()
        return uuid.UUID(bytes=digest, version=4)

    def random(self) -> float:
        """A random number in [0, 1); in workflow code the same on every replay."""
        if current_attempt() is not None:
            return self._run.slot.database.clock.random()
        return chance_of(self._chance("random"))

    def _chance(self, name: str) -> str:
        # Not recorded: it is computed from the run and the call.
        task = self._run.task
        born = f"{task.created_at}" if task.generation == 0 else f"{task.created_at}.{task.generation}"
        return f"{task.id}/{born}/{branch_of(self._run, name).key(f':{name}')}"


class Context(ComposesAsync, AnswersAsync, OthersAsync, EmitsAsync, TagsAsync, WaitsAsync, Current):
    """The context of an async workflow."""

    @overload
    async def step(self, name: str, fn: Callable[[], object], /, *, returns: type[T]) -> T: ...
    @overload
    async def step(
        self, name: str, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def step(self, step: IsStep[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def step(self, step: IsStep[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, step: Any, /, *args: Any, returns: Any = None, **kwargs: Any) -> Awaitable[Any]:
        """Execute a step once in the life of the run: what it returned is recorded and comes back on every replay.

        After a name, pass any callable: async runs on the loop, sync in a thread. `returns` is the type of its result
        if it has no annotation. A decorated step is executed with its own options.
        """
        definition, args = definition_of(step, args, returns)
        branch = branch_of(self._run, definition.name, is_sync=False)
        call = StepCall.made(branch, definition, args, kwargs)
        return branch.run.made.note(calling(call), f"ctx.step: {definition.name}")

    async def acquire(self, step_id: str) -> Execute | Skipped[Any]:
        """Ask for a step by hand: `Skipped(value)` if it is recorded, else `Execute`, to be told what came of it."""
        return await acquired(branch_of(self._run, step_id), step_id)

    check_step = acquire

    def sleep(self, until: Duration | datetime) -> Coroutine[Any, Any, None]:
        """Wait for a span, or until a moment; the run holds nothing meanwhile and survives every restart."""
        branch = branch_of(self._run, "sleep", is_sync=False)
        return made(branch, sleeping(branch, until), "sleep")

    @overload
    async def wait(self, name: str, type: type[T], *, timeout: None = None) -> T: ...
    @overload
    async def wait(self, name: str, type: type[T], *, timeout: Duration, default: Raised) -> T: ...
    @overload
    async def wait(self, name: str, type: type[T], *, timeout: Duration, default: D) -> T | D: ...
    @overload
    async def wait(self, name: str, type: type[T], *, timeout: Duration) -> T | None: ...
    @overload
    async def wait(self, name: str, *, timeout: Duration | None = None, default: Any = NOTHING) -> Any: ...
    def wait(
        self, name: str, type: Any = Any, *, timeout: Duration | None = None, default: Any = NOTHING
    ) -> Coroutine[Any, Any, Any]:
        """Wait for a signal of this name and return its data; the run holds nothing meanwhile.

        A signal that was sent before is returned at once. With `timeout`, `default` (None) is returned if none comes
        in time; a default that is an exception, or a class of them, is raised.
        """
        branch = branch_of(self._run, "wait", is_sync=False)
        return made(branch, waiting_for(branch, name, type, timeout, default), "wait")

    def race(self, *contenders: Awaitable[T]) -> Coroutine[Any, Any, tuple[int, T]]:
        """The first of several waits, sleeps, steps and children that is over: its place, and what it returned.

        The winner is recorded. The others are cancelled; a child that lost goes on, and a signal is kept for another
        wait.
        """
        branch = branch_of(self._run, "race", is_sync=False)
        return branch.run.made.note(raced(branch, contenders), "race")

    def ask_for(self, trigger: Asked[R]) -> Coroutine[Any, Any, RunId[R]]:
        """Ask for a run as a child of this one: the same as `trigger.execute(ctx)`."""
        branch = branch_of(self._run, "trigger", is_sync=False)
        return made(branch, only(triggering(branch, [trigger], called(trigger))), "execute")

    def result_of(self, trigger: Asked[R], timeout: Duration | None = None) -> Coroutine[Any, Any, R]:
        """Ask for a child and wait for what it returns: the same as `trigger.wait(timeout).execute(ctx)`."""
        limit = None if timeout is None else microseconds_of(timeout, "timeout")
        branch = branch_of(self._run, "trigger", is_sync=False)
        return made(branch, waiting_for_child(branch, trigger, limit), "execute")

    def trigger_many(self, triggers: Iterable[Asked[R]]) -> Coroutine[Any, Any, list[RunId[R]]]:
        """Ask for runs as children of this one, all or none, once in the life of the run; their ids in order."""
        branch = branch_of(self._run, "trigger_many", is_sync=False)
        return made(branch, triggering(branch, checked_triggers(triggers), "trigger_many()"), "trigger_many")

    def results(self, run_ids: Iterable[RunId[R]]) -> Coroutine[Any, Any, list[R]]:
        """What these runs return, in order, when all have ended; the run holds nothing meanwhile.

        Raises `ExecutionFailed` or `RunCancelled` for the first that did not succeed, on every replay.
        """
        branch = branch_of(self._run, "results", is_sync=False)
        return made(branch, waiting_for_results(branch, run_ids), "results")

    def restart(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Begin this run anew with these arguments, as its next generation: what it recorded until now is forgotten.

        It is the same run: its id, key, parent, children and pending signals stay. This is one transaction, so an
        endless loop loses nothing and its records do not pile up. The code after this call is not executed, nor any
        step of another branch; do not catch the exception that it raises. A concurrent cancel wins.
        """
        raise self._run.restart(_next_input(self._run, args, kwargs))

    async def heartbeat(self) -> bool:
        """Extend the lease and say whether this claim of the run still stands; False if it may as well stop.

        The worker beats by itself. Call this before code that must not be interrupted: at most a sixth of the lease is
        over then.
        """
        return not self.is_cancelled() and await self._run.extend_lease() and not self.is_cancelled()


class SyncContext(ComposesSync, AnswersSync, OthersSync, EmitsSync, TagsSync, WaitsSync, Current):
    """The context of a sync workflow: the same calls, each of which returns when it is done."""

    @overload
    def step(self, name: str, fn: Callable[[], object], /, *, returns: type[T]) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def step(self, step: IsStep[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def step(self, step: IsStep[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, step: Any, /, *args: Any, returns: Any = None, **kwargs: Any) -> Any:
        """Execute a step once in the life of the run: what it returned is recorded and comes back on every replay."""
        definition, args = definition_of(step, args, returns)
        return followed(
            course(StepCall.made(branch_of(self._run, definition.name, is_sync=True), definition, args, kwargs))
        )

    def acquire(self, step_id: str) -> SyncExecute | Skipped[Any]:
        """Ask for a step by hand: `Skipped(value)` if it is recorded, else `Execute`, to be told what came of it."""
        found = wait_in_thread(self._run, acquired(branch_of(self._run, step_id, is_sync=True), step_id))
        return SyncExecute(self._run, found) if isinstance(found, Execute) else found

    check_step = acquire

    def sleep(self, until: Duration | datetime) -> None:
        """Wait for a span, or until a moment; the run holds nothing meanwhile and survives every restart."""
        followed(sleeping(branch_of(self._run, "sleep", is_sync=True), until))

    @overload
    def wait(self, name: str, type: type[T], *, timeout: None = None) -> T: ...
    @overload
    def wait(self, name: str, type: type[T], *, timeout: Duration, default: Raised) -> T: ...
    @overload
    def wait(self, name: str, type: type[T], *, timeout: Duration, default: D) -> T | D: ...
    @overload
    def wait(self, name: str, type: type[T], *, timeout: Duration) -> T | None: ...
    @overload
    def wait(self, name: str, *, timeout: Duration | None = None, default: Any = NOTHING) -> Any: ...
    def wait(self, name: str, type: Any = Any, *, timeout: Duration | None = None, default: Any = NOTHING) -> Any:
        """Wait for a signal of this name and return its data; the run holds nothing meanwhile."""
        return followed(waiting_for(branch_of(self._run, "wait", is_sync=True), name, type, timeout, default))

    def ask_for(self, trigger: Asked[R]) -> RunId[R]:
        """Ask for a run as a child of this one: the same as `trigger.execute(ctx)`."""
        run_id: RunId[R] = followed(
            only(triggering(branch_of(self._run, "trigger", is_sync=True), [trigger], called(trigger)))
        )
        return run_id

    def result_of(self, trigger: Asked[R], timeout: Duration | None = None) -> R:
        """Ask for a child and wait for what it returns: the same as `trigger.wait(timeout).execute(ctx)`."""
        limit = None if timeout is None else microseconds_of(timeout, "timeout")
        result: R = followed(waiting_for_child(branch_of(self._run, "trigger", is_sync=True), trigger, limit))
        return result

    def trigger_many(self, triggers: Iterable[Asked[R]]) -> list[RunId[R]]:
        """Ask for runs as children of this one, all or none, once in the life of the run; their ids in order."""
        asked = checked_triggers(triggers)
        ids: list[RunId[R]] = followed(
            triggering(branch_of(self._run, "trigger_many", is_sync=True), asked, "trigger_many()")
        )
        return ids

    def results(self, run_ids: Iterable[RunId[R]]) -> list[R]:
        """What these runs return, in order, when all have ended; the run holds nothing meanwhile."""
        results: list[R] = followed(waiting_for_results(branch_of(self._run, "results", is_sync=True), run_ids))
        return results

    def restart(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Begin this run anew with these arguments, as its next generation: what it recorded until now is forgotten."""
        run, text = self._run, _next_input(self._run, args, kwargs)

        async def on_loop() -> Unwinding:  # on the loop, where runs are given back: it happens before or after this
            return run.restart(text)

        raise wait_in_thread(run, on_loop())

    def heartbeat(self) -> bool:
        """Extend the lease and say whether this claim of the run still stands; False if it may as well stop."""
        if self.is_cancelled():
            return False
        return extended_in_thread(self._run) and not self.is_cancelled()


def sleep(until: Duration | datetime) -> Coroutine[Any, Any, None]:
    """Let the current run wait for a span, or until a moment; it holds nothing meanwhile and survives every restart."""
    return Context(current_run()).sleep(until)


@overload
async def wait(name: str, type: type[T], *, timeout: None = None) -> T: ...
@overload
async def wait(name: str, type: type[T], *, timeout: Duration, default: Raised) -> T: ...
@overload
async def wait(name: str, type: type[T], *, timeout: Duration, default: D) -> T | D: ...
@overload
async def wait(name: str, type: type[T], *, timeout: Duration) -> T | None: ...
@overload
async def wait(name: str, *, timeout: Duration | None = None, default: Any = NOTHING) -> Any: ...
def wait(
    name: str, type: Any = Any, *, timeout: Duration | None = None, default: Any = NOTHING
) -> Coroutine[Any, Any, Any]:
    """Let the current run wait for a signal of this name, and return its data; it holds nothing meanwhile."""
    branch = branch_of(current_run(), "wait", is_sync=False)
    return made(branch, waiting_for(branch, name, type, timeout, default), "wait")


def race(*contenders: Awaitable[T]) -> Coroutine[Any, Any, tuple[int, T]]:
    """The first of several waits, sleeps, steps and children that is over: its place, and what it returned."""
    return Context(current_run()).race(*contenders)


def current_run() -> RunTurn:
    """The run that executes the calling code, also in the body of a step."""
    if (attempt := current_attempt()) is not None:
        return attempt.call.run
    branch = current_branch.get()
    if isinstance(branch, Branch):
        return branch.run
    raise NotInRun(
        "no run executes this code: call it in a workflow or a step; your own threads and pools do not carry the run"
    )


def _next_input(run: RunTurn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The arguments of the next generation, checked as those of a trigger are."""
    branch_of(run, "restart")
    if run.open_requests:
        raise InvalidOption("restart", run.open_requests[0], "this request is not answered yet: leave its block first")
    run.admit("")  # a cancelled run does not restart, not even in a shield
    assert run.arguments is not None
    options = run.slot.database.options
    text = run.arguments.encode(args, kwargs, options.payload_limit, partial(write_value, codec=options.codec))
    run.arguments.decode(text)
    run.arguments.refuse_losses(args, kwargs)
    return text
