"""Waits of a run for events that are broadcast: `wait_event`."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from stepwell.base.durations import Duration, microseconds_of
from stepwell.base.names import EVENT
from stepwell.errors import InvalidOption
from stepwell.records import RunStatus
from stepwell.runs.branches import Branch
from stepwell.runs.caller import branch_of, made
from stepwell.runs.requests import Course, at_stake, followed
from stepwell.runs.turn import RunTurn
from stepwell.runs.wait import NOTHING, Raised, WantedSignal, accepts, wait_of
from stepwell.store.broadcasts import check_event
from stepwell.store.rows import StepRow
from stepwell.store.wait_query import TakeEvent
from stepwell.values.codec import encode

D = TypeVar("D")
T = TypeVar("T")


class WaitsAsync:
    """`ctx.wait_event` of an async workflow."""

    _run: RunTurn

    @overload
    async def wait_event(
        self, name: str, type: type[T], *, where: Mapping[str, Any] | None = None, replay: Duration | None = None
    ) -> T: ...
    @overload
    async def wait_event(
        self,
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
        self,
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
        self,
        name: str,
        type: type[T],
        *,
        where: Mapping[str, Any] | None = None,
        replay: Duration | None = None,
        timeout: Duration,
    ) -> T | None: ...
    @overload
    async def wait_event(
        self,
        name: str,
        *,
        where: Mapping[str, Any] | None = None,
        replay: Duration | None = None,
        timeout: Duration | None = None,
        default: Any = NOTHING,
    ) -> Any: ...
    def wait_event(
        self,
        name: str,
        type: Any = Any,
        *,
        where: Mapping[str, Any] | None = None,
        replay: Duration | None = None,
        timeout: Duration | None = None,
        default: Any = NOTHING,
    ) -> Coroutine[Any, Any, Any]:
        """Wait for an event of this name that is broadcast, and return its data; the run holds nothing meanwhile.

        With `where`, one field and its value, only for an event that has them. An event that was published since the
        run was triggered is returned at once; with `replay`, one that was published so long before this wait began,
        0 for none. The waits of a run for one name and `where` take each event once, in the order in which they were
        published. `timeout` and `default` are as for `wait`.
        """
        branch = branch_of(self._run, "wait_event", is_sync=False)
        course = waiting_for_event(branch, name, type, where=where, replay=replay, timeout=timeout, default=default)
        return made(branch, course, "wait_event")


class WaitsSync:
    """`ctx.wait_event` of a sync workflow."""

    _run: RunTurn

    @overload
    def wait_event(
        self, name: str, type: type[T], *, where: Mapping[str, Any] | None = None, replay: Duration | None = None
    ) -> T: ...
    @overload
    def wait_event(
        self,
        name: str,
        type: type[T],
        *,
        where: Mapping[str, Any] | None = None,
        replay: Duration | None = None,
        timeout: Duration,
    ) -> T | None: ...
    @overload
    def wait_event(
        self,
        name: str,
        type: Any = ...,
        *,
        where: Mapping[str, Any] | None = None,
        replay: Duration | None = None,
        timeout: Duration | None = None,
        default: Any = NOTHING,
    ) -> Any: ...
    def wait_event(
        self,
        name: str,
        type: Any = Any,
        *,
        where: Mapping[str, Any] | None = None,
        replay: Duration | None = None,
        timeout: Duration | None = None,
        default: Any = NOTHING,
    ) -> Any:
        """Wait for an event of this name that is broadcast, and return its data; the run holds nothing meanwhile."""
        branch = branch_of(self._run, "wait_event", is_sync=True)
        course = waiting_for_event(branch, name, type, where=where, replay=replay, timeout=timeout, default=default)
        return followed(course)


@dataclass(frozen=True, slots=True)
class WantedEvent(WantedSignal):
    """The event that a wait takes: its name, the digest of what it chooses by, and how far back it looks."""

    event: str = ""
    choice: str = ""
    replay: int | None = None

    @property
    def what(self) -> str:
        """What it waits for, for people."""
        return f"event {self.event}"

    def question(self, run: RunTurn, row: StepRow, due: int | None, *, is_new: bool) -> TakeEvent:
        """What the database is asked."""
        stake, place = at_stake.get()
        return TakeEvent(
            run.task,
            row,
            self.names,
            due,
            is_new,
            stake,
            place,
            misfit=self.misfit,
            event=self.event,
            choice=self.choice,
            replay=self.replay,
        )


def waiting_for_event(
    branch: Branch,
    name: str,
    type_: Any,
    *,
    where: Mapping[str, Any] | None,
    replay: Duration | None,
    timeout: Duration | None,
    default: Any,
) -> Course:
    """The course of a wait for an event; what it chooses by is recorded with it."""
    if timeout is None and default is not NOTHING:
        raise InvalidOption("default", default, "it needs a `timeout` too")
    limit = None if timeout is None else microseconds_of(timeout, "timeout")
    back = None if replay is None else microseconds_of(replay, "replay")
    label, run = EVENT + check_event(name), branch.run
    choice = run.slot.database.broadcasts.choice(where)
    wanted = WantedEvent((label,), type_, limit, default, event=name, choice=choice, replay=back)
    key = branch.key(label)
    run.journal.ask(key)
    place, given = run.journal.place(key), None if where is None else encode(where)
    row = StepRow(run.task.id, run.task.generation, key, place, RunStatus.PAUSED, input=given, accepts=accepts(type_))
    return wait_of(run, row, wanted)
