"""Other runs that a run talks to: it signals, cancels and asks them, each call once in the life of the run.

A call is a step whose body is a verb of the store, with a key that is the same in every attempt: a repetition after a
lost worker or a lost reply changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar, overload

from stepwell.base.backoff import Retry
from stepwell.base.durations import Duration, microseconds_of
from stepwell.errors import (
    Paused,
    RequestRefused,
    RequestUnanswered,
    RunNotFound,
    SerializationError,
    Timeout,
    WorkflowNotFound,
)
from stepwell.records import CancelAnswer, SignalAnswer
from stepwell.runs.branches import Branch
from stepwell.runs.call import StepCall, StepDefinition
from stepwell.runs.caller import branch_of, made
from stepwell.runs.reports import keep_checkpoint, kept_checkpoint
from stepwell.runs.requests import Course, followed
from stepwell.runs.steps import course_of
from stepwell.runs.turn import RunTurn
from stepwell.store.run_key import RunKey, WhichRun
from stepwell.values.stamp import write_ordered

T = TypeVar("T")
LOOK_FOR: Final = 1.0  # seconds that an asking run holds its place for an answer; ...
LOOK_AGAIN: Final = 5.0  # ... then it waits so long until it looks again
Verb = Callable[[RunTurn, str], Coroutine[Any, Any, Any]]  # it is given the run that calls, and a key for the call
TOLD: Final = (RequestRefused, RequestUnanswered, RunNotFound, SerializationError, Timeout, WorkflowNotFound)
PATIENT: Final = Retry(10, permanent=TOLD)


class OthersAsync:
    """What an async workflow does with other runs."""

    _run: RunTurn

    def signal(self, run: WhichRun, name: str, data: Any = None, *, key: str | None = None) -> Awaitable[SignalAnswer]:
        """Send a signal to another run, once in the life of this one; see `store.signal`."""
        branch = branch_of(self._run, "signal", is_sync=False)
        return made(branch, _signalling(branch, run, name, data, key), "signal")

    def cancel(self, run: WhichRun, *, reason: str | None = None) -> Awaitable[CancelAnswer]:
        """Cancel another run; see `store.cancel`."""
        branch = branch_of(self._run, "cancel", is_sync=False)
        return made(branch, _cancelling(branch, run, reason), "cancel")

    @overload
    def ask(
        self, run: WhichRun, name: str, data: Any, as_: type[T], *, timeout: Duration | None = None
    ) -> Awaitable[T]: ...
    @overload
    def ask(self, run: WhichRun, name: str, data: Any = None, *, timeout: Duration | None = None) -> Awaitable[Any]: ...
    def ask(
        self,
        run: WhichRun,
        name: str,
        data: Any = None,
        as_: Any = Any,
        *,
        timeout: Duration | None = None,
    ) -> Awaitable[Any]:
        """Make a request of another run, once in the life of this one, and return its reply; see `store.ask`.

        This run holds no place of a worker while the answer takes long.
        """
        branch = branch_of(self._run, "ask", is_sync=False)
        return made(branch, _asking(branch, run, NewRequest(name, data, as_), timeout), "ask")


class OthersSync:
    """What a sync workflow does with other runs."""

    _run: RunTurn

    def signal(self, run: WhichRun, name: str, data: Any = None, *, key: str | None = None) -> SignalAnswer:
        """Send a signal to another run, once in the life of this one; see `store.signal`."""
        branch = branch_of(self._run, "signal", is_sync=True)
        answer: SignalAnswer = followed(_signalling(branch, run, name, data, key))
        return answer

    def cancel(self, run: WhichRun, *, reason: str | None = None) -> CancelAnswer:
        """Cancel another run; see `store.cancel`."""
        answer: CancelAnswer = followed(_cancelling(branch_of(self._run, "cancel", is_sync=True), run, reason))
        return answer

    @overload
    def ask(self, run: WhichRun, name: str, data: Any, as_: type[T], *, timeout: Duration | None = None) -> T: ...
    @overload
    def ask(self, run: WhichRun, name: str, data: Any = None, *, timeout: Duration | None = None) -> Any: ...
    def ask(
        self,
        run: WhichRun,
        name: str,
        data: Any = None,
        as_: Any = Any,
        *,
        timeout: Duration | None = None,
    ) -> Any:
        """Make a request of another run, once in the life of this one, and return its reply; see `store.ask`."""
        branch = branch_of(self._run, "ask", is_sync=True)
        return followed(_asking(branch, run, NewRequest(name, data, as_), timeout))


def _signalling(branch: Branch, run: WhichRun, name: str, data: Any, key: str | None) -> Course:
    signals = branch.run.slot.database.signals

    async def send(_: RunTurn, own_key: str) -> SignalAnswer:
        return await signals.send_once(run, name, data, own_key if key is None else key)

    return course_of_verb(branch, branch.key("signal()"), _given(run, name), SignalAnswer, send)


def _cancelling(branch: Branch, run: WhichRun, reason: str | None) -> Course:
    database = branch.run.slot.database

    async def cancel(own: RunTurn, _: str) -> CancelAnswer:
        by = database.by(f"run {own.task.id}", reason)
        return await database.control.cancel(await database.run_id(run), by)

    return course_of_verb(branch, branch.key("cancel()"), _given(run), CancelAnswer, cancel)


class NewRequest(NamedTuple):
    """A request that a run makes of another, and the type of its reply."""

    name: str
    data: Any
    as_: Any


def _asking(branch: Branch, run: WhichRun, new: NewRequest, timeout: Duration | None) -> Course:
    limit, step = None if timeout is None else microseconds_of(timeout, "timeout"), branch.key("ask()")

    async def ask(own: RunTurn, key: str) -> Any:
        due = _due_of(own, step, limit)
        left = LOOK_FOR if due is None else min(LOOK_FOR, max(0, due - own.now()) / 1_000_000)
        asks = own.slot.database.asks
        try:
            return await asks.ask(run, *new, timeout=left, key=key, check=True)
        except Timeout:
            if due is not None and due <= own.now():
                raise
            rest = LOOK_AGAIN if due is None else min(LOOK_AGAIN, (due - own.now()) / 1_000_000)
            raise Paused(f"it has asked {new.name} of another run", resume_after=max(rest, 0.001)) from None

    return course_of_verb(branch, step, _given(run, new.name), new.as_, ask)


def course_of_verb(branch: Branch, key: str, given: str, returns: Any, verb: Verb) -> Course:
    """The course of a step whose body is this verb; what it is given is only compared."""
    run, name = branch.run, key.rpartition("/")[2].rpartition("#")[0]
    run.journal.ask(key)
    lasting = blake2b(f"{run.task.lasting_key}/{key}".encode(), digest_size=16).hexdigest()
    body = partial(verb, run, f"~{lasting}")
    definition = StepDefinition(name, body, None, returns, retry=PATIENT, raises=TOLD, is_async=True)
    return course_of(StepCall(run, key, run.journal.place(key), definition, (), {}, given))


def _due_of(run: RunTurn, step: str, limit: int | None) -> int | None:
    """When an answer is too late, as the first attempt has noted it."""
    if limit is None:
        return None
    noted = kept_checkpoint(run, step)
    if noted is None:
        noted = str(run.now() + limit)
        keep_checkpoint(run, step, noted)
    return int(noted)


def _given(run: WhichRun, *of: Any) -> str:
    target = [run.workflow, run.key] if isinstance(run, RunKey) else int(run)
    return write_ordered([target, *of])
