"""Waits of a run: for a moment, for a signal, or for the first of several."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from stepwell.base.durations import Duration, microseconds_of, moment_of
from stepwell.base.events import SignalSetAside
from stepwell.base.names import REQUEST, check_name
from stepwell.errors import InvalidOption, SerializationError, UnknownRecord, UpcastFailed
from stepwell.records import RunStatus
from stepwell.runs.background_writes import note
from stepwell.runs.branches import CALLS, Branch
from stepwell.runs.cleanup import Stopped
from stepwell.runs.journal import Due, Replay, Waiting
from stepwell.runs.pause import Pause
from stepwell.runs.rename import in_order
from stepwell.runs.requests import (
    Course,
    Request,
    Wait,
    asked,
    at_stake,
    awaited,
    followed,
    recorded,
    waited_until,
)
from stepwell.runs.turn import RunTurn
from stepwell.store.rows import StepRow
from stepwell.store.wait_query import EndRace, Recorded, Stake, TakeEvent, TakeSignal
from stepwell.values.codec import decode, encode
from stepwell.values.fields import schema_of
from stepwell.values.stamp import has_version, read_value
from stepwell.values.versions import version_at
from stepwell.work.current import current_branch

NOTHING: Final = object()
Raised = type[Exception] | Exception  # a default that is raised
STOPPED: Final = "!"  # after the key of a sleep during which the run was cancelled


def sleeping(branch: Branch, until: Duration | datetime) -> Course:
    """The course of a sleep: its end is recorded when it begins, so that every replay waits for the same moment."""
    run, key = branch.run, branch.key("sleep")
    run.journal.ask(key)
    run.journal.ask(f"{key}{STOPPED}")
    place = run.journal.place(key)
    return _slept(run, key, place, until)


def _slept(run: RunTurn, key: str, place: int, until: Duration | datetime) -> Course:
    run.check()
    answer = run.journal.answer(key, None)
    if isinstance(answer, Replay):
        due = decode(answer.output or "0", int)
    else:
        run.admit(key)
        yield from in_order(run, key, answer)
        due = moment_of(until, "until") if isinstance(until, datetime) else run.now() + microseconds_of(until, "until")
        yield from recorded(run, _moment_row(run, key, place, due), has_row=False)
    stopped = f"{key}{STOPPED}"
    if run.journal.has(stopped):
        run.admit(key)
    try:
        yield from waited_until(run, key, due)
    except Stopped:
        if not run.journal.has(stopped):  # or a replay after that moment would not stop here
            place = run.journal.place(stopped)
            row = StepRow(run.task.id, run.task.generation, stopped, place, RunStatus.CANCELLED)
            yield from recorded(run, row, has_row=False)
        raise


def noted_now(branch: Branch) -> int:
    """The current time, recorded at the first call and the same on every replay."""
    run, key = branch.run, branch.key("now")
    run.check()
    run.journal.ask(key)
    answer = run.journal.answer(key, None)
    if isinstance(answer, Replay):
        return int(decode(answer.output or "0", int))
    run.admit(key)
    moment = run.now()
    row = _moment_row(run, key, run.journal.place(key), moment)
    if run.is_sync:
        followed(recorded(run, row, has_row=False))
    else:
        note(run, row)
    return moment


def _moment_row(run: RunTurn, key: str, place: int, moment: int) -> StepRow:
    return StepRow(run.task.id, run.task.generation, key, place, RunStatus.SUCCESS, output=str(moment))


def waiting_for(branch: Branch, name: str, type_: Any, timeout: Duration | None, default: Any) -> Course:
    """The course of a wait; its number is taken when the call is made."""
    if timeout is None and default is not NOTHING:
        raise InvalidOption("default", default, "it needs a `timeout` too")
    limit = None if timeout is None else microseconds_of(timeout, "timeout")
    return _waiting(branch, WantedSignal((check_name("signal", name),), type_, limit, default))


def waiting_for_request(branch: Branch, name: str, type_: Any, timeout: Duration | None) -> Course:
    """The course of a wait for a request; it returns the place of the request and its data, or None after `timeout`."""
    limit = None if timeout is None else microseconds_of(timeout, "timeout")
    return _waiting(branch, WantedRequest((REQUEST + check_name("request", name),), type_, limit, None))


def _waiting(branch: Branch, wanted: WantedSignal) -> Course:
    run, key = branch.run, branch.key(wanted.name)
    run.journal.ask(key)
    row = StepRow(run.task.id, run.task.generation, key, run.journal.place(key), RunStatus.PAUSED)
    row = msgspec.structs.replace(row, accepts=accepts(wanted.type))
    return wait_of(run, row, wanted)


@dataclass(frozen=True, slots=True)
class WantedSignal:
    """The names that a wait takes signals of, the type that it returns, and its default if none comes in time."""

    names: tuple[str, ...]
    type: Any
    limit: int | None
    default: Any
    takes_any: bool = False  # the first of several names, which it returns too

    @property
    def name(self) -> str:
        """The name, of a wait that has one; else all of them, for people."""
        return ", ".join(self.names)

    @property
    def what(self) -> str:
        """What it waits for, for people."""
        return f"signal {self.name}"

    def question(self, run: RunTurn, row: StepRow, due: int | None, *, is_new: bool) -> TakeSignal:
        """What the database is asked."""
        stake, fits = at_stake.get(), self.misfit
        return TakeSignal(run.task, row, self.names, due, is_new, *stake, misfit=fits, takes_any=self.takes_any)

    def misfit(self, name: str, data: str) -> str | None:
        """Why the data of a signal does not fit the wait; None if it does."""
        return misfit_of(self.what, self.type, data)

    def came(self, run: RunTurn, output: str | None, error: str | None) -> Any:
        """What the wait returns, from its record; a default that is an exception is raised."""
        if error is not None:
            return self.missed()
        return run.read(output, self.type, self.what)

    def missed(self) -> Any:
        """What the wait returns if no signal has come in time: its default, which may be raised."""
        if isinstance(self.default, type) and issubclass(self.default, Exception):
            raise self.default(f"no {self.what} came in time")
        if isinstance(self.default, Exception):
            raise self.default
        return None if self.default is NOTHING else self.default


class WantedRequest(WantedSignal):
    """A request that the run takes to answer it: its place among those of its name, and its data."""

    def came(self, run: RunTurn, output: str | None, error: str | None) -> Any:
        """The place and the data, from the record; None if none came in time."""
        if error is not None:
            return None
        taken = decode(output or "{}", TakenRequest)
        return taken.request, run.read(bytes(taken.data).decode(), self.type, f"request {self.name}")


class TakenRequest(msgspec.Struct, frozen=True):
    """A request as its wait has recorded it."""

    request: int
    data: msgspec.Raw


def accepts(type_: Any) -> str | None:
    """The type that a wait accepts, as stored for senders of signals: schema and name; None if it has no schema."""
    schema = schema_of(type_)
    if schema is None:
        return None
    version = {"version": version_at(type_, None)} if has_version(type_) else {}
    return encode({"schema": schema, "named": getattr(type_, "__qualname__", str(type_)), **version})


def misfit_of(what: str, type_: Any, data: str) -> str | None:
    """Why the data of a signal cannot be read as the type of the wait; None if this code, or newer code, can."""
    try:
        read_value(data, type_, what=what)
    except (UnknownRecord, UpcastFailed):
        return None  # the wait takes it, and its run waits for code that reads it
    except SerializationError as error:
        return str(error)
    return None


def told_misfits(run: RunTurn, asked: TakeSignal) -> None:
    """Report each signal that was set aside."""
    for why in asked.misfits:
        run.slot.database.telemetry.emit(SignalSetAside(run.task.id, run.workflow, *why))


def wait_of(run: RunTurn, row: StepRow, wanted: WantedSignal) -> Course:
    """Take the signal if it has come, else wait until it comes or until the deadline that was recorded first."""
    run.check()
    verdict = run.journal.answer(row.key, row.input)
    if isinstance(verdict, Waiting):
        row, is_new = verdict.row, False
    elif isinstance(verdict, Replay):
        return wanted.came(run, verdict.output, verdict.error)
    else:
        is_new = True
        run.admit(row.key)
        yield from in_order(run, row.key, verdict)
        if isinstance(verdict, Due) and (verdict.failed is not None or verdict.cancelled):
            yield Wait(run, Pause(hesitates=True))  # the workflow cancelled this wait before, and will do so again
        if wanted.limit is not None:
            row = msgspec.structs.replace(row, output=str(run.now() + wanted.limit))
    try:
        row = yield from _taken(run, row, wanted, is_new=is_new)
    except asyncio.CancelledError:
        # Cancelled by the workflow itself: record it, so that senders do not see the run waiting.
        stake, _ = at_stake.get()
        stopped = run.cleanup is not None and run.cleanup.refuses(row.key)
        if not run.unwinding and not stopped and (stake is None or stake.winner is None):
            note(run, msgspec.structs.replace(row, status=RunStatus.CANCELLED), has_row=True)
        raise
    return wanted.came(run, row.output, row.error)


def _taken(run: RunTurn, row: StepRow, wanted: WantedSignal, *, is_new: bool) -> Generator[Request, Any, StepRow]:
    """Wait until there is an answer, and record it."""
    due = None if row.output is None else decode(row.output, int)
    while True:
        question = wanted.question(run, row, due, is_new=is_new)
        answer = yield from asked(run, question)
        told_misfits(run, question)
        if isinstance(answer, Recorded):
            return answer.row
        if is_new:
            run.journal.record(row)
            is_new = False
            if isinstance(question, TakeEvent):
                continue  # what was published before the wait was committed knows nothing of it
        yield Wait(run, Pause(due, wakes=answer.wakes))


def raced(branch: Branch, contenders: Sequence[Awaitable[Any]]) -> Coroutine[Any, Any, tuple[int, Any]]:
    """Begin all contenders, or on a replay only the winner, which is recorded."""
    if not contenders:
        raise InvalidOption("contenders", (), "a race has at least one")
    for contender in contenders:
        if not inspect.isawaitable(contender):
            why = "pass calls, one by one: `race(ctx.wait(...), ctx.sleep(...))`; a child is `.wait().execute(ctx)`"
            raise InvalidOption("contenders", contender, why)
    run, key = branch.run, branch.key("race()")
    run.journal.ask(key)
    row = StepRow(run.task.id, run.task.generation, key, run.journal.place(key), RunStatus.SUCCESS)
    return _race(run, row, contenders)


async def _race(run: RunTurn, row: StepRow, contenders: Sequence[Awaitable[Any]]) -> tuple[int, Any]:
    run.check()
    verdict = run.journal.answer(row.key, None)
    if isinstance(verdict, Replay):
        winner = decode(verdict.output or "0", int)
        return winner, await _again(contenders, winner)
    try:
        run.admit(row.key)
        await awaited(run, in_order(run, row.key, verdict))
    except BaseException:
        for contender in contenders:
            _leave_out(contender)
        raise
    stake = Stake(row, {})
    tasks = [_begun(stake, place, contender) for place, contender in enumerate(contenders)]
    losers = set(tasks)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # Recorded before the workflow sees it: if two have ended, a replay must choose the same.
        first = next(place for place, task in enumerate(tasks) if task.done())
        winner = await awaited(run, _ending(run, stake, first))
        losers.discard(tasks[winner])
    finally:
        for task in losers:
            task.cancel()
    await asyncio.gather(*losers, return_exceptions=True)
    return winner, await tasks[winner]


def _begun(stake: Stake, place: int, contender: Awaitable[Any]) -> asyncio.Future[Any]:
    """Begin a contender; of the waits of a race only one may take a signal."""
    if getattr(contender, "cr_code", None) not in CALLS:
        return asyncio.ensure_future(contender)
    token = at_stake.set((stake, place))
    try:
        return asyncio.ensure_future(contender)
    finally:
        at_stake.reset(token)


def _ending(run: RunTurn, stake: Stake, place: int) -> Course:
    """Record the winner: this place, unless a wait has won meanwhile."""
    run.admit(stake.row.key)
    if stake.winner is None:
        answer = yield from asked(run, EndRace(run.task, stake.row, stake, place))
        assert isinstance(answer, Recorded)
    return stake.winner


def _again(contenders: Sequence[Awaitable[Any]], winner: int) -> asyncio.Future[Any]:
    """Begin the winner again; the others do not begin, but keep their labels."""
    begun: asyncio.Future[Any] | None = None
    for place, contender in enumerate(contenders):
        if place == winner:
            begun = asyncio.ensure_future(contender)
        else:
            _leave_out(contender)
    assert begun is not None
    return begun


def _leave_out(contender: Awaitable[Any]) -> None:
    """Skip a contender that has lost before; its records count as reached."""
    if isinstance(contender, asyncio.Future):
        contender.cancel()
        return
    if inspect.iscoroutine(contender):
        branch = current_branch.get()
        branch.run.made.forgive()  # a call may be inside
        if contender.cr_code not in CALLS:
            branch.run.journal.ask_under(branch.child(contender.__qualname__).path)
        contender.close()
