"""The context of the calling code, where none was passed to it: of a run, or of the message that a handler handles."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Coroutine, Mapping
from datetime import datetime
from typing import Any, NoReturn, TypeVar, overload

from stepwell.base.durations import Duration, datetime_of
from stepwell.errors import NotInRun
from stepwell.records import TaskKind
from stepwell.runs.caller import branch_of, made
from stepwell.runs.context import Context, SyncContext, current_run
from stepwell.runs.reports import Progress, progress_text
from stepwell.runs.wait import NOTHING, Raised
from stepwell.runs.wait_event import waiting_for_event
from stepwell.store.rates import checked_units
from stepwell.store.rows import Claimed
from stepwell.store.transaction import Executing, executing
from stepwell.values.headers import Headers, headers_in
from stepwell.work.current import HIDDEN, current_branch

D = TypeVar("D")
T = TypeVar("T")


def current() -> Context:
    """The context of the run that executes the calling code, in a workflow or the body of a step.

    In a handler it is that of the message: `id`, `key`, `attempt`, `is_cancelled()`, `progress()`, `charge()`
    and `heartbeat()`. What only a run can do raises `NotInRun` there.
    """
    message: Any = _current_message(MessageContext)
    return Context(current_run()) if message is None else message


def current_in_thread() -> SyncContext:
    """The same for the sync face, whose calls return when they are done."""
    message: Any = _current_message(SyncMessageContext)
    return SyncContext(current_run()) if message is None else message


@overload
async def wait_event(
    name: str, type: type[T], *, where: Mapping[str, Any] | None = None, replay: Duration | None = None
) -> T: ...
@overload
async def wait_event(
    name: str,
    type: type[T],
    *,
    where: Mapping[str, Any] | None = None,
    replay: Duration | None = None,
    timeout: Duration,
    default: Raised,
) -> T: ...
@overload
async def wait_event(
    name: str,
    type: type[T],
    *,
    where: Mapping[str, Any] | None = None,
    replay: Duration | None = None,
    timeout: Duration,
    default: D,
) -> T | D: ...
@overload
async def wait_event(
    name: str,
    type: type[T],
    *,
    where: Mapping[str, Any] | None = None,
    replay: Duration | None = None,
    timeout: Duration,
) -> T | None: ...
@overload
async def wait_event(
    name: str,
    *,
    where: Mapping[str, Any] | None = None,
    replay: Duration | None = None,
    timeout: Duration | None = None,
    default: Any = NOTHING,
) -> Any: ...
def wait_event(
    name: str,
    type: Any = Any,
    *,
    where: Mapping[str, Any] | None = None,
    replay: Duration | None = None,
    timeout: Duration | None = None,
    default: Any = NOTHING,
) -> Coroutine[Any, Any, Any]:
    """Let the current run wait for an event that is broadcast, and return its data; see `Context.wait_event`."""
    branch = branch_of(current_run(), "wait_event", is_sync=False)
    course = waiting_for_event(branch, name, type, where=where, replay=replay, timeout=timeout, default=default)
    return made(branch, course, "wait_event")


class Handled:
    """The message that a handler handles."""

    def __init__(self, task: Claimed, place: Executing, progress: Progress) -> None:
        self.id = task.id
        self.message_key = task.key
        self.attempt = task.attempt
        self.max_attempts = task.max_attempts
        self._task = task
        self._place = place
        self._progress = progress

    @property
    def key(self) -> str:
        """An idempotency key: the same text in every attempt of this message, and unique to it."""
        return self._task.lasting_key

    @property
    def headers(self) -> Headers:
        """The texts that travel with this message: what it was enqueued with, and what that inherited."""
        return headers_in(self._task.headers)

    def is_cancelled(self) -> bool:
        """True if the code should stop: the message was cancelled, its time is over, or another worker has it.

        It becomes true within a second. Code on the loop is stopped then; a thread cannot be, so it has to ask.
        """
        return self._place.is_over(self.id)

    def progress(self, value: object) -> None:
        """Report progress, any JSON value up to 16 KiB: the latest is `store.get(id).progress`."""
        text, loop = progress_text(value), self._place.database.loop
        if _is_here(loop):
            self._progress.write(text)
        else:
            loop.call_soon_threadsafe(self._progress.write, text)

    def charge(self, units: int) -> None:
        """Say what this message costs in truth, in units of the rates of its queue; the last call counts.

        What it costs more holds others back, what it costs less lets them go on sooner. Returns before it is written.
        """
        database = self._place.database
        told = (self.id, self._task.turn, checked_units(units))
        if _is_here(database.loop):
            database.charges.tell(*told)
        else:
            database.loop.call_soon_threadsafe(database.charges.tell, *told)

    def now(self) -> datetime:
        """The time."""
        told, task = self._place.database.clock.now(), self._task
        passed = int((time.monotonic() - task.asked_at) * 1_000_000)
        return datetime_of(task.claimed_at + passed if told is None else told)

    def uuid(self) -> uuid.UUID:
        """A random UUID."""
        return uuid.uuid4()

    def random(self) -> float:
        """A random number in [0, 1)."""
        return self._place.database.clock.random()

    async def _extend_lease(self) -> bool:
        session = self._place.session
        return not self.is_cancelled() and await session.renew(session.lease / 6) and not self.is_cancelled()

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(Context, name) and not name.startswith("_"):
            raise NotInRun(f"message {self.id} is handled here, and `{name}` needs a run: trigger a workflow for it")
        raise AttributeError(name)


class MessageContext(Handled):
    """The message of an async handler."""

    def heartbeat(self) -> Coroutine[Any, Any, bool]:
        """Extend the lease and say whether the worker still has the message; False if the code may as well stop."""
        return self._extend_lease()


class SyncMessageContext(Handled):
    """The message of a sync handler."""

    def heartbeat(self) -> bool:
        """Extend the lease and say whether the worker still has the message; False if the code may as well stop."""
        loop = self._place.database.loop
        if _is_here(loop):
            raise NotInRun("stepwell.sync's heartbeat() would wait for its own loop: use `stepwell.current()`")
        return asyncio.run_coroutine_threadsafe(self._extend_lease(), loop).result()


def _is_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _current_message(face: type[Handled]) -> Handled | None:
    """The message that the calling code handles; None if it handles none."""
    turns = executing.get()
    place = None if turns is None else turns.place
    if turns is None or place is None or current_branch.get() is not HIDDEN:
        return None
    task = turns.tasks[0]
    if task.kind is not TaskKind.MESSAGE:
        return None
    if len(turns.tasks) > 1:
        raise NotInRun("a batch of messages is handled here: what `current()` tells is of one message")
    if turns.progress is None:
        turns.progress = Progress(place.database, task, lambda: place.is_over(task.id))
    return face(task, place, turns.progress)
