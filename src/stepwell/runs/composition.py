"""What a run puts together of its calls: their results as they come, and the next signal of several names."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar, overload

import msgspec

from stepwell.base.durations import Duration, microseconds_of
from stepwell.base.names import check_name
from stepwell.errors import InvalidOption
from stepwell.records import RunStatus
from stepwell.runs.branches import Branch
from stepwell.runs.caller import branch_of, made
from stepwell.runs.journal import Replay
from stepwell.runs.rename import in_order
from stepwell.runs.requests import Course, awaited, followed, recorded
from stepwell.runs.sync_turn import wait_in_thread
from stepwell.runs.turn import RunTurn
from stepwell.runs.wait import NOTHING, Raised, WantedSignal, accepts, misfit_of, wait_of
from stepwell.store.rows import StepRow
from stepwell.store.signals import RECEIVED
from stepwell.values.codec import decode, encode

T = TypeVar("T")
D = TypeVar("D")
T_co = TypeVar("T_co", covariant=True)
COMPLETED: Final = "as_completed()"
MOST_NAMES: Final = 100


class ComposesAsync:
    """`ctx.as_completed` and `ctx.receive` of an async workflow."""

    _run: RunTurn

    def as_completed(self, *calls: Awaitable[T]) -> AsyncIterator[tuple[int, T]]:
        """Begin these steps, waits, sleeps and children, and give what each returned as it ends, with its place.

        The order is recorded: every replay gives the same. What one of them raises is raised at its turn; the others go
        on, and `anext` gives the next. After a `break` the rest goes on too, at the latest until the workflow returns.
        """
        branch = branch_of(self._run, "as_completed", is_sync=False)
        for call in calls:
            if not inspect.isawaitable(call):
                why = "pass calls, one by one: `as_completed(charge(a), charge(b))`; a child is `.wait().execute(ctx)`"
                raise InvalidOption("calls", call, why)
        return Completed(branch.run, [asyncio.ensure_future(call) for call in calls])

    @overload
    def receive(self, types: Mapping[str, Any], *, timeout: None = None) -> Coroutine[Any, Any, tuple[str, Any]]: ...
    @overload
    def receive(
        self, types: Mapping[str, Any], *, timeout: Duration, default: Raised
    ) -> Coroutine[Any, Any, tuple[str, Any]]: ...
    @overload
    def receive(
        self, types: Mapping[str, Any], *, timeout: Duration, default: D
    ) -> Coroutine[Any, Any, tuple[str, Any] | D]: ...
    @overload
    def receive(
        self, types: Mapping[str, Any], *, timeout: Duration
    ) -> Coroutine[Any, Any, tuple[str, Any] | None]: ...
    def receive(
        self, types: Mapping[str, Any], *, timeout: Duration | None = None, default: Any = NOTHING
    ) -> Coroutine[Any, Any, Any]:
        """Wait for the next signal of any of these names, each with its type; return its name and its data.

        Of those that were sent before, the one that came first is taken, whatever its name. With `timeout`, `default`
        (None) is returned if none comes in time; a default that is an exception, or a class of them, is raised.
        """
        branch = branch_of(self._run, "receive", is_sync=False)
        return made(branch, _receiving(branch, types, timeout, default), "receive")


class ComposesSync:
    """`ctx.as_completed` and `ctx.receive` of a sync workflow."""

    _run: RunTurn

    def as_completed(self, *steps: Begun[T]) -> Iterator[tuple[int, T]]:
        """Give what each of these steps, begun with `step.start(...)`, returned as it ends, with its place.

        The order is recorded, and what one of them raises is raised at its turn.
        """
        branch_of(self._run, "as_completed", is_sync=True)
        tasks = [getattr(one, "task", None) for one in steps]
        for step, task in zip(steps, tasks, strict=True):
            if not isinstance(task, asyncio.Task):
                raise InvalidOption("steps", step, "pass steps that have begun: `charge.start(order)`")
        return SyncCompleted(self._run, [task for task in tasks if task is not None])

    @overload
    def receive(self, types: Mapping[str, Any], *, timeout: None = None) -> tuple[str, Any]: ...
    @overload
    def receive(self, types: Mapping[str, Any], *, timeout: Duration, default: Raised) -> tuple[str, Any]: ...
    @overload
    def receive(self, types: Mapping[str, Any], *, timeout: Duration, default: D) -> tuple[str, Any] | D: ...
    @overload
    def receive(self, types: Mapping[str, Any], *, timeout: Duration) -> tuple[str, Any] | None: ...
    def receive(self, types: Mapping[str, Any], *, timeout: Duration | None = None, default: Any = NOTHING) -> Any:
        """Wait for the next signal of any of these names, each with its type; return its name and its data."""
        return followed(_receiving(branch_of(self._run, "receive", is_sync=True), types, timeout, default))


class Begun(Protocol[T_co]):
    """A step of a sync workflow that goes on beside it."""

    @property
    def task(self) -> asyncio.Task[Any]:
        """The task that executes it."""

    def result(self) -> T_co:
        """Wait for it."""


class Completion:
    """Calls that have begun, given one by one as they end; which one was next is recorded, unless only one was left."""

    def __init__(self, run: RunTurn, tasks: Sequence[asyncio.Future[Any]]) -> None:
        self._run = run
        self._tasks = tasks
        self._left = set(range(len(tasks)))
        self._ended: list[int] = []  # in the order of their ends
        self._run.on_loop(self._follow)

    def _follow(self) -> None:
        for place, task in enumerate(self._tasks):
            task.add_done_callback(partial(self._note, place))

    def _note(self, place: int, _: asyncio.Future[Any]) -> None:
        self._ended.append(place)

    async def _next(self, key: str | None) -> int:
        """The place of the next one, which has ended."""
        place = min(self._left) if key is None else await self._recorded(key)
        await asyncio.wait([self._tasks[place]])
        self._left.discard(place)
        return place

    async def _recorded(self, key: str) -> int:
        run = self._run
        run.check()
        verdict = run.journal.answer(key, given := str(len(self._tasks)))
        if isinstance(verdict, Replay):
            return int(decode(verdict.output or "0", int))
        run.admit(key)
        await awaited(run, in_order(run, key, verdict))
        while not (ended := [place for place in self._ended if place in self._left]):
            await asyncio.wait([self._tasks[place] for place in self._left], return_when=asyncio.FIRST_COMPLETED)
        run.admit(key)
        place = run.journal.place(key)
        chosen = StepRow(run.task.id, run.task.generation, key, place, RunStatus.SUCCESS)
        row = msgspec.structs.replace(chosen, input=given, output=str(ended[0]))
        await awaited(run, recorded(run, row, has_row=False))  # before the workflow sees which one it is
        return ended[0]

    def _key(self) -> str | None:
        """The key of the record of the next one; the last one needs none."""
        branch = branch_of(self._run, "as_completed", is_sync=self._run.is_sync)
        if len(self._left) == 1:
            return None
        self._run.journal.ask(key := branch.key(COMPLETED))
        return key


class Completed(Completion, Generic[T_co]):
    """The results of calls of an async workflow, as they end."""

    def __aiter__(self) -> Completed[T_co]:
        return self

    async def __anext__(self) -> tuple[int, T_co]:
        if not self._left:
            raise StopAsyncIteration
        place = await self._next(self._key())
        return place, self._tasks[place].result()


class SyncCompleted(Completion, Generic[T_co]):
    """The results of background steps of a sync workflow, as they end."""

    def __iter__(self) -> SyncCompleted[T_co]:
        return self

    def __next__(self) -> tuple[int, T_co]:
        if not self._left:
            raise StopIteration
        place = wait_in_thread(self._run, self._next(self._key()))
        return place, self._tasks[place].result()


def _receiving(branch: Branch, types: Mapping[str, Any], timeout: Duration | None, default: Any) -> Course:
    """The course of a wait for signals of several names, with one record."""
    if not isinstance(types, Mapping) or not 1 <= len(types) <= MOST_NAMES:
        why = f'it gives 1 to {MOST_NAMES} names of signals their types: `ctx.receive({{"edit": str, "approve": str}})`'
        raise InvalidOption("types", types, why)
    if timeout is None and default is not NOTHING:
        raise InvalidOption("default", default, "it needs a `timeout` too")
    limit = None if timeout is None else microseconds_of(timeout, "timeout")
    names = tuple(check_name("signal", name) for name in types)
    run, key = branch.run, branch.key(RECEIVED)
    run.journal.ask(key)
    row = StepRow(run.task.id, run.task.generation, key, run.journal.place(key), RunStatus.PAUSED)
    told = {name: None if (text := accepts(types[name])) is None else decode(text) for name in names}
    row = msgspec.structs.replace(row, accepts=encode({"signals": told}))
    return wait_of(run, row, WantedSignals(names, dict(types), limit, default, takes_any=True))


class WantedSignals(WantedSignal):
    """The next signal of several names: its name, and its data as the type of that name."""

    def misfit(self, name: str, data: str) -> str | None:
        """Why the data of a signal of this name does not fit the wait; None if it does."""
        return misfit_of(f"signal {name}", self.type.get(name, Any), data)

    def came(self, run: RunTurn, output: str | None, error: str | None) -> Any:
        """The name and the data, from the record."""
        if error is not None:
            return self.missed()
        taken = decode(output or "{}", TakenSignal)
        return taken.name, run.read(bytes(taken.data).decode(), self.type.get(taken.name, Any), f"signal {taken.name}")


class TakenSignal(msgspec.Struct, frozen=True):
    """A signal as a wait for several names has recorded it."""

    name: str
    data: msgspec.Raw
