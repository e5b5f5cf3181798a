"""Children: runs that a run triggers, and waits for without taking a place of a worker.

They are added and their numbers recorded in one transaction, so each is triggered once. When the last one that a run
needs ends, the transaction that ends it makes the run ready.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from stepwell.errors import (
    ExecutionFailed,
    InvalidOption,
    RunCancelled,
    RunNotFound,
    SerializationError,
    Timeout,
    UnknownRecord,
    UpcastFailed,
)
from stepwell.records import RunId, RunStatus
from stepwell.runs.branches import Branch
from stepwell.runs.call import StepCall, failure_of
from stepwell.runs.doubt import course_at_most_once
from stepwell.runs.journal import GaveUp, Replay, Verdict, Waiting
from stepwell.runs.pause import Pause
from stepwell.runs.rename import cleared, in_order
from stepwell.runs.requests import Adding, Course, Wait, asked
from stepwell.runs.steps import course_of
from stepwell.runs.turn import RunTurn
from stepwell.store.draft import Asked, ordered_input
from stepwell.store.rows import StepRow
from stepwell.store.wait_query import AddChildren, Answered, End, LookAtChildren, Recorded, Waits
from stepwell.values.codec import decode, encode
from stepwell.values.own_exceptions import failure_of_run
from stepwell.values.stamp import read_value
from stepwell.work.outcome import GAVE_UP

LOOK_AGAIN: Final = 5_000_000  # microseconds between looks at runs that are not its children


def triggering(branch: Branch, triggers: Sequence[Asked[Any]], name: str) -> Course:
    """The course of triggering children; it returns their ids, in order."""
    row = _row_of(branch, name, triggers)
    return _trigger(branch.run, row, triggers)


def waiting_for_child(branch: Branch, trigger: Asked[Any], limit: int | None) -> Course:
    """The course of triggering a child and waiting for its result, with one record for both."""
    row = _row_of(branch, called(trigger), [trigger])
    return _child(branch.run, row, trigger, limit)


def spawned(call: StepCall) -> Course:
    """The course of a step that any worker of its queue may execute: a child whose only step it is."""
    definition, run = call.definition, call.run
    named = f'"step":{json.dumps(definition.name)},"key":{json.dumps(call.lasting_key)}'
    given = f'{{{named},"arguments":{call.input or "null"}}}'
    trigger: Asked[Any] = Asked(definition.queue or "", True, given, definition.returns)
    row = StepRow(run.task.id, run.task.generation, call.key, call.place, RunStatus.SUCCESS, input=call.input)
    try:
        return (yield from _child(run, row, trigger, None))
    except RunCancelled:
        raise
    except ExecutionFailed as failed:
        told = failed.error or {}
        raise failure_of(definition, call.key, encode(told.get("step_error", told))) from None


def waiting_for_results(branch: Branch, run_ids: Iterable[int]) -> Course:
    """The course of waiting for several runs; it returns their results, in order."""
    if not isinstance(run_ids, Iterable):
        raise InvalidOption("run_ids", run_ids, "pass a list of them; for one, `trigger(...).wait().execute(ctx)`")
    ids = list(run_ids)
    key = branch.key("results()")
    run = branch.run
    run.journal.ask(key)
    given = json.dumps([int(one) for one in ids])
    row = StepRow(run.task.id, run.task.generation, key, run.journal.place(key), RunStatus.PAUSED, input=given)
    return _results(run, row, ids)


def only(course: Course) -> Course:
    """The course of triggering one child; it returns its id."""
    [run_id] = yield from course
    return run_id


def called(trigger: Asked[Any]) -> str:
    """The name of the call of a child: no step or wait can have it, since signals are sent to those by name."""
    return f"{trigger.workflow}()"


def checked_triggers(triggers: Iterable[Asked[Any]]) -> list[Asked[Any]]:
    """The triggers; raises if these are none."""
    asked_for = list(triggers)
    for one in asked_for:
        if not isinstance(one, Asked):
            raise InvalidOption("triggers", one, "pass triggers, as `workflow.trigger(...)` makes them")
    return asked_for


def _row_of(branch: Branch, name: str, triggers: Sequence[Asked[Any]]) -> StepRow:
    run, key = branch.run, branch.key(name)
    run.journal.ask(key)
    given = [ordered_input(one) for one in triggers]
    text = given[0] if len(given) == 1 else f"[{','.join(given)}]"
    return StepRow(run.task.id, run.task.generation, key, run.journal.place(key), RunStatus.SUCCESS, input=text)


def _trigger(run: RunTurn, row: StepRow, triggers: Sequence[Asked[Any]]) -> Course:
    verdict = _verdict(run, row)
    if isinstance(verdict, Replay):
        output = verdict.output
    else:
        yield from cleared(run, row.key, verdict)
        answer = yield from _added(run, row, triggers, partial(_numbered, row))
        output = answer.row.output
    ids = decode(output or "[]", list[int])
    return [_run_id(child, trigger) for child, trigger in zip(ids, triggers, strict=True)]


def _child(run: RunTurn, row: StepRow, trigger: Asked[Any], limit: int | None) -> Course:
    verdict = _verdict(run, row)
    if isinstance(verdict, Replay):
        return _result(run, verdict.output, trigger.returns, row.key)
    needed: int | None = None
    if isinstance(verdict, Waiting):
        row = verdict.row
    else:
        yield from cleared(run, row.key, verdict)
        due = None if limit is None else run.now() + limit
        paused = msgspec.structs.replace(row, status=RunStatus.PAUSED)
        answer = yield from _added(run, row, [trigger], partial(_awaited, paused, due))
        row, needed = answer.row, answer.needed
    [child], due = _waited_for(row)
    making = partial(_returned, row, trigger.returns)
    ended = yield from _until_ended(run, row, [child], due, making, needed=needed, is_new=False)
    if ended.status is RunStatus.SUCCESS:
        return _result(run, ended.output, trigger.returns, row.key)
    raise _failure_of(run, row.key, ended.error or "{}")


def _results(run: RunTurn, row: StepRow, ids: Sequence[int]) -> Course:
    verdict = _verdict(run, row)
    types = [one.returns if isinstance(one, RunId) else Any for one in ids]
    if isinstance(verdict, Replay):
        outputs = decode(verdict.output or "[]", list[msgspec.Raw])
    else:
        yield from in_order(run, row.key, verdict)
        making = partial(_all_returned, row, types, run.slot.database.options.payload_limit)
        is_new = not isinstance(verdict, Waiting)
        ended = yield from _until_ended(run, row, [int(one) for one in ids], None, making, is_new=is_new)
        if ended.status is not RunStatus.SUCCESS:
            raise _failure_of(run, row.key, ended.error or "{}")
        outputs = decode(ended.output or "[]", list[msgspec.Raw])
    return [_typed(run, bytes(output).decode(), type_, row.key) for output, type_ in zip(outputs, types, strict=True)]


def _verdict(run: RunTurn, row: StepRow) -> Verdict:
    run.check()
    verdict = run.journal.answer(row.key, row.input)
    if isinstance(verdict, GaveUp):
        raise _failure_of(run, row.key, verdict.error)
    if not isinstance(verdict, Replay):
        run.admit(row.key)
    return verdict


def _added(
    run: RunTurn, row: StepRow, triggers: Sequence[Asked[Any]], recorded: Callable[[Sequence[int]], StepRow]
) -> Any:
    run.enter(row.key)  # numbering them may take long, and the run must not be given back meanwhile
    try:
        new = yield Adding(run, triggers)
    finally:
        run.leave(row.key)
    run.slot.ends_children |= any(trigger.on_parent_end == "cancel" for trigger in triggers)
    answer: Answered = yield from asked(run, AddChildren(run.task, row, new.drafted, new.ids, new.queues, recorded))
    assert isinstance(answer, Recorded)
    return answer


def _until_ended(
    run: RunTurn,
    row: StepRow,
    ids: Sequence[int],
    due: int | None,
    recorded: Callable[[Sequence[End] | None], StepRow],
    *,
    needed: int | None = None,
    is_new: bool,
) -> Any:
    """Wait until these runs have ended or `due` has passed, record that, and return the row."""
    if needed is not None:
        yield Wait(run, Pause(due, needed=needed))
    while True:
        answer = yield from asked(run, LookAtChildren(run.task, row, ids, due, is_new, recorded))
        if isinstance(answer, Recorded):
            return answer.row
        if is_new:
            run.journal.record(row)
            is_new = False
        yield Wait(run, _pause_for(run, answer, due))


def _pause_for(run: RunTurn, waits: Waits, due: int | None) -> Pause:
    if not waits.foreign:
        return Pause(due, needed=waits.needed)
    again = run.now() + LOOK_AGAIN
    return Pause(again if due is None else min(due, again))


def _numbered(row: StepRow, ids: Sequence[int]) -> StepRow:
    return msgspec.structs.replace(row, output=json.dumps([int(child) for child in ids]))


def _awaited(row: StepRow, due: int | None, ids: Sequence[int]) -> StepRow:
    return msgspec.structs.replace(row, output=json.dumps({"ids": [int(child) for child in ids], "until": due}))


def _waited_for(row: StepRow) -> tuple[list[int], int | None]:
    told = decode(row.output or "{}")
    return told["ids"], told["until"]


def _returned(row: StepRow, type_: Any, ends: Sequence[End] | None) -> StepRow:
    """The row of a child that has ended, or has not ended in time."""
    if ends is None:
        ids, _ = _waited_for(row)
        told = {"type": "Timeout", "message": f"run {ids[0]} was not finished in time; it goes on", "run_id": ids[0]}
        return msgspec.structs.replace(row, status=RunStatus.ERROR, output=None, error=encode(told))
    [end] = ends
    if end.status is RunStatus.SUCCESS:
        return _misfit(row, ends, [type_]) or msgspec.structs.replace(
            row, status=RunStatus.SUCCESS, output=end.output, error=None
        )
    return msgspec.structs.replace(row, status=RunStatus.ERROR, output=None, error=_told_of(end))


def _misfit(row: StepRow, ends: Sequence[End], types: Sequence[Any]) -> StepRow | None:
    """The row of runs whose result this code could never read: an error, so that every replay raises the same.

    So a result that is recorded as a success was read once, and one that cannot be read later is for other code.
    """
    for end, type_ in zip(ends, types, strict=True):
        try:
            if end.output is not None:
                read_value(end.output, type_, what=f"result of {row.key}")
        except (UnknownRecord, UpcastFailed):
            continue  # newer code reads it: the run waits for that, and nothing is recorded as its failure
        except SerializationError as error:
            told = {"type": "Misfit", "message": str(error.source), "path": error.path, "run_id": end.id}
            return msgspec.structs.replace(row, status=RunStatus.ERROR, output=None, error=encode(told))
    return None


def _all_returned(row: StepRow, types: Sequence[Any], limit: int, ends: Sequence[End] | None) -> StepRow:
    """The row of several runs that have ended: their results, or the failure of the first that failed."""
    assert ends is not None
    if failed := next((end for end in ends if end.status is not RunStatus.SUCCESS), None):
        return msgspec.structs.replace(row, status=RunStatus.ERROR, output=None, error=_told_of(failed))
    text = f"[{','.join(end.output or 'null' for end in ends)}]"
    if len(text) > limit:
        why = f"the results of {len(ends)} runs are {len(text)} bytes together; return references, or wait for fewer"
        told = {"type": "PayloadTooLarge", "message": why, "run_id": ends[0].id}
        return msgspec.structs.replace(row, status=RunStatus.ERROR, output=None, error=encode(told))
    if misfit := _misfit(row, ends, types):
        return misfit
    return msgspec.structs.replace(row, status=RunStatus.SUCCESS, output=text, error=None)


def _told_of(end: End) -> str:
    told = decode(end.error or "{}") or {}
    workflow = {"workflow": end.workflow} if "args" in told else {}  # it raises the program's own exceptions
    return encode({**told, "run_id": end.id, "ended": str(end.status), **workflow})


def _failure_of(run: RunTurn, key: str, error: str) -> Exception:
    """The exception of a child that failed, was cancelled or took too long; the same on every replay."""
    told: dict[str, Any] = decode(error)
    run_id = int(told.pop("run_id", 0))
    ended, workflow = told.pop("ended", None), str(told.pop("workflow", ""))
    failure: Exception
    if told.get("type") == "Timeout" and ended is None:
        failure = Timeout(str(told.get("message", "")))
    elif told.get("type") in ("PayloadTooLarge", "Misfit") and ended is None:
        path = str(told.get("path", "$"))
        failure = SerializationError(str(told.get("message", "")), path=path, what=f"result of {key}")
    elif told.get("type") == "RunNotFound":
        failure = RunNotFound(run_id)
    elif ended == RunStatus.CANCELLED:
        failure = RunCancelled(run_id, told)
    else:
        failure = failure_of_run(run_id, run.slot.database.definitions.of(workflow).raises, told)
    BaseException.__setattr__(failure, GAVE_UP, key)  # also on one that is frozen
    return failure


def _run_id(child: int, trigger: Asked[Any]) -> RunId[Any]:
    run_id: RunId[Any] = RunId(child)
    if trigger.returns is not Any:
        run_id.returns = trigger.returns
    return run_id


def _result(run: RunTurn, output: str | None, type_: Any, key: str) -> Any:
    """The result of a child; None, whatever its type, if an earlier release continued it as another run."""
    return None if output is None else run.read(output, type_, f"result of {key}")


def _typed(run: RunTurn, output: str, type_: Any, key: str) -> Any:
    return None if output == "null" else run.read(output, type_, f"result of {key}")


def course(call: StepCall) -> Course:
    """The course of a call: its body is executed here, or by a worker of the queue that the step names."""
    if call.definition.at_most_once:
        return course_at_most_once(call)
    return course_of(call) if call.definition.queue is None else spawned(call)
