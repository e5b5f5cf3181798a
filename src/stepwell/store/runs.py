"""Runs: trigger them, wait for their results, find them, fork them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from stepwell.base.durations import Duration, datetime_of, seconds_of
from stepwell.base.names import check_id, check_key, check_whole
from stepwell.base.program import UNKNOWN, Definition
from stepwell.errors import InvalidOption, QueueDraining, RunNotFound, StepNotFound
from stepwell.records import Page, Run, RunId, RunStatus, StepInfo, TaskId, TaskKind
from stepwell.store.audit import By, What
from stepwell.store.dead_letters import place_of
from stepwell.store.draft import Asked
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.results import returned
from stepwell.store.rows import ANSWERED, MARK
from stepwell.store.run_filter import LAST, RunFilter, filter_of, finding, key_range, statuses_of
from stepwell.store.run_key import RunKey
from stepwell.values.headers import headers_in
from stepwell.values.lossless import refuse_unnamed
from stepwell.values.named_codecs import shown_value
from stepwell.values.stamp import write_value
from stepwell.values.versions import stamped_like

if TYPE_CHECKING:
    from stepwell.store.database import Database

R = TypeVar("R")


@dataclass(eq=False)
class Runs:
    """Triggers and finds runs."""

    _db: Database

    async def trigger(self, triggers: Iterable[Asked[R]], tx: object) -> list[RunId[R]]:
        """Write all the runs or none; return their ids, in the same order."""
        asked = list(triggers)
        drafted = self._db.new_tasks.drafted_runs(asked)
        for one in asked:
            if one.defines:
                self._db.definitions.name(one.workflow, Definition(one.returns, one.raises))
        if tx is None:
            await self._db.new_tasks.check_workflows(drafted)
        return run_ids(asked, await self._db.new_tasks.add(drafted, tx))

    async def result(self, run_id: int, as_: Any, timeout: Duration | None) -> Any:
        """What a run returned, as soon as it is finished; raises if it did not return."""
        self._db.check()
        seconds = None if timeout is None else seconds_of(timeout, "timeout")
        try:
            ending = await self._db.results.ending(int(check_id(run_id)), seconds)
        except RunNotFound:
            missing = await self._db.no_run(run_id)
            if missing.kind == TaskKind.MESSAGE:
                missing.add_note("what its handler returns is kept if it is enqueued with `result=True`")
            raise missing from None
        return returned(run_id, ending, self._db.definitions.of(ending.workflow), as_)

    async def get(self, run_id: int, *, deleted: bool = False) -> Run[Any]:
        """One run as it stands; `RunNotFound` if it is not there, or deleted, unless `deleted` is True."""
        self._db.check()
        found = await self._read([check_id(run_id)], deleted=deleted)
        if not found:
            raise await self._db.no_run(run_id)
        if isinstance(run_id, RunId) and run_id.returns is not Any:
            found[0].id.returns = run_id.returns
        return found[0]

    async def page(
        self,
        which: RunFilter,
        *,
        parent: int | None = None,
        deleted: bool = False,
        limit: int,
        after: str | None = None,
        whole: bool = True,
    ) -> Page[Run[Any]]:
        """The runs that match, newest first, or by their keys if these are asked for; `whole` with what they took and
        returned.
        """
        statuses = statuses_of(which) or tuple(RunStatus)
        ids, following = await self._places(which, statuses, parent, limit, after, deleted=deleted)
        return Page(await self._read(ids, deleted=True, whole=whole), following)

    async def numbers(
        self, which: RunFilter, statuses: Sequence[RunStatus], *, parent: int | None = None, limit: int
    ) -> Page[int]:
        """The ids of the runs that match and have one of these statuses, in the order of a page, in one statement."""
        return Page(*await self._places(which, statuses, parent, limit))

    async def _places(
        self,
        which: RunFilter,
        statuses: Sequence[RunStatus],
        parent: int | None,
        limit: int,
        after: str | None = None,
        *,
        deleted: bool = False,
    ) -> tuple[list[int], str | None]:
        """The ids of the runs that match, newest first, or by their keys; and where the next page begins."""
        size = check_whole("limit", limit, 1, 10_000) + 1
        params: dict[str, Value] = {**filter_of(which), "deleted": bool(deleted), "limit": size}
        lines = await self.lines(which.get("workflow"), statuses)
        if parent is None and (params["key"] is not None or params["prefix"] is not None):
            return await self._places_by_key(params, lines, limit, after)
        after_time, after_id = place_of(after, (LAST, LAST))
        params |= {"after_time": after_time, "after_id": after_id}
        question = finding(params, lines)
        if parent is not None:
            question = Call("find_children", {**params, "parent": check_id(parent)}, lines)
        rows = await self._db.driver.read(question) if lines else []
        places = sorted({(row["created_at"], row["id"]) for row in rows}, reverse=True)
        following = "{}-{}".format(*places[limit - 1]) if len(places) > limit else None
        return [task_id for _, task_id in places[:limit]], following

    async def find(self, workflow: str, key: str) -> Run[Any] | None:
        """The run of a workflow that has this key now, None if none has."""
        try:
            number = await self._db.run_id(RunKey(workflow, key))
        except RunNotFound:
            return None
        found = await self._read([number], deleted=False)
        return found[0] if found else None

    async def steps(self, run_id: int) -> Sequence[StepInfo]:
        """What a run has recorded, in the order in which it asked for it: in its generation, if it has restarted."""
        run = await self.get(run_id, deleted=True)
        rows = await self._db.driver.read(Call("steps_of", rows=[(int(run.id), run.generation)]))
        return [step_info(row) for row in rows if not row["key"].startswith(MARK)]

    async def lines(self, workflow: str | None, statuses: Sequence[RunStatus]) -> list[tuple[int, str]]:
        """Each workflow with each status, in the order in which a run goes through the statuses."""
        self._db.check()
        if workflow is not None:
            ids = [await self._db.workflow_id(workflow)]
        else:
            rows = await self._db.driver.read(Call("workflows_with_runs", {"tenant": self._db.options.tenant}))
            ids = [row["id"] for row in rows]
        return [(queue_id, str(status)) for queue_id in ids for status in statuses]

    async def outlines(self, ids: Sequence[int]) -> list[Run[Any]]:
        """These runs as they stand, without what they took and returned; one that is gone is left out."""
        self._db.check()
        return await self._read([check_id(one) for one in ids], deleted=True, whole=False)

    async def _places_by_key(
        self, params: dict[str, Value], lines: Sequence[tuple[int, str]], limit: int, after: str | None
    ) -> tuple[list[int], str | None]:
        """The ids of the runs with a key, or with keys that begin so, in the order of the keys, and the next place."""
        params = {**params, **key_range(params, after), "types": json.dumps(sorted({status for _, status in lines}))}
        queues = [(queue_id,) for queue_id in sorted({queue_id for queue_id, _ in lines})]
        rows = await self._db.driver.read(Call("find_runs_by_key", params, queues)) if queues else []
        places = sorted({(row["key"], -row["created_at"], -row["id"]) for row in rows})
        following = None
        if len(places) > limit:
            key, created_at, task_id = places[limit - 1]
            following = f"{-created_at}-{-task_id}-{key}"
        return [-task_id for *_, task_id in places[:limit]], following

    async def _read(self, ids: Sequence[int], *, deleted: bool, whole: bool = True) -> list[Run[Any]]:
        """These runs as they stand, in this order; one that is gone is left out."""
        if not ids:
            return []
        params: dict[str, Value] = {"tenant": self._db.options.tenant, "deleted": deleted, "whole": whole}
        rows = await self._db.driver.read(Call("runs", params, [(task_id,) for task_id in ids]))
        found = {row["id"]: run_of(row) for row in rows}
        for run in found.values():
            if (known := self._db.definitions.of(run.workflow)) is not UNKNOWN:
                run.id.returns, run.id.raises = known
        return [found[task_id] for task_id in ids if task_id in found]


def run_ids(asked: Sequence[Asked[R]], ids: Sequence[TaskId]) -> list[RunId[R]]:
    """The ids as those of runs, each with the type of its result if its trigger knew it."""
    runs: list[RunId[R]] = []
    for one, task_id in zip(asked, ids, strict=True):
        run_id: RunId[R] = RunId(task_id) if task_id.created else RunId.found(task_id)
        if one.returns is not Any:
            run_id.returns = one.returns
        if one.raises:
            run_id.raises = one.raises
        runs.append(run_id)
    return runs


def run_of(row: Any) -> Run[Any]:
    """A run; its input and output stay text until a caller reads them."""
    return Run(
        id=RunId(row["id"]),
        workflow=row["workflow"],
        status=RunStatus(row["status"]),
        key=row["key"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        priority=row["priority"],
        last_error=row["last_error"],
        tags=() if row["tags"] is None else tuple(json.loads(row["tags"])),
        parent_id=row["parent_id"],
        worker=row["owner"],
        run_at=_moment(row["run_at"]),
        created_at=datetime_of(row["created_at"]),
        updated_at=datetime_of(row["updated_at"]),
        started_at=_moment(row["started_at"]),
        paused_at=_moment(row["paused_at"]),
        finished_at=_moment(row["finished_at"]),
        deleted_at=_moment(row["deleted_at"]),
        input_text=row["input"],
        output_text=row["output"],
        error_text=row["error"],
        cause=row["cause"],
        held_at=_moment(row["held_at"]),
        progress_text=row["progress"],
        cancel_requested_at=_moment(row["cancel_requested_at"]),
        generation=row["generation"],
        headers=headers_in(row["headers"]),
    )


def step_info(row: Any) -> StepInfo:
    """A step."""
    return StepInfo(
        key=row["key"],
        name=_name_in(row["key"]),
        status=RunStatus(row["status"]),
        attempt=row["attempt"],
        input=shown_value(row["input"]),
        output=shown_value(row["output"]),
        error=shown_value(row["error"]),
        started_at=_moment(row["started_at"]),
        finished_at=_moment(row["finished_at"]),
    )


def _name_in(key: str) -> str:
    """The step's name: a key is the path of its branch, the name, and the number of the call."""
    name, _, number = key.rpartition("/")[2].rpartition("#")
    return name or number


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime_of(microseconds)


@dataclass(eq=False)
class Forks:
    """Begins runs of the same workflow that go on where other runs were, with other results if given."""

    _db: Database

    async def begin(self, run_id: int, at: str | None, outputs: Mapping[str, Any], by: By) -> RunId[Any]:
        """Begin a new run that goes on at a step of this one, with these results of earlier ones, or from its input."""
        self._db.check()
        edits = {check_key(step, "step"): self._output(step, value) for step, value in outputs.items()}
        if at is None and edits:
            raise InvalidOption("outputs", min(edits), "say `at` which step the fork goes on: earlier ones are edited")
        where = "its beginning" if at is None else check_key(at, "step")
        cause = f"fork of {check_id(run_id)} at {where}"
        said = cause if by.reason is None else f"{cause}: {by.reason}"
        [fork_id] = await self._db.ids.take(1)
        queue_id = await self._db.transact(partial(self._forking, int(run_id), fork_id, at, edits, By(by.actor, said)))
        if queue_id is None:
            raise await self._db.no_run(run_id)
        self._db.wakeups.hint({queue_id})
        forked: RunId[Any] = RunId(fork_id)
        if isinstance(run_id, RunId) and run_id.returns is not Any:
            forked.returns = run_id.returns
        return forked

    def _output(self, step: str, value: Any) -> str:
        options, what = self._db.options, f"output of {step}"
        text = write_value(value, limit=options.payload_limit, what=what, codec=options.codec)
        refuse_unnamed(value, what=what, codec=options.codec)
        return text

    def _forking(
        self, run_id: int, fork_id: int, at: str | None, edits: Mapping[str, str], by: By
    ) -> Script[int | None]:
        params = self._db.params(id=run_id, fork_id=fork_id, cause=by.reason, or_message=False)
        found = yield Call("lock_run", params)
        if not found:
            return None
        queue_id: int = found[0]["queue_id"]
        generation: int = found[0]["generation"]
        if not (yield Call("open_queue", self._db.params(queue_id=queue_id))):
            raise QueueDraining(found[0]["workflow"])
        if at is None:
            if (yield Call("fork_run", params)):
                yield Call("copy_steps", {**params, "generation": generation, "place": 0})  # none of them
                yield from self._noted(run_id, fork_id, "its beginning", by)
            return queue_id
        recorded = yield Call("steps_of", {}, [(run_id, generation)])
        steps = [row for row in recorded if not row["key"].startswith(MARK)]
        first = step_called(run_id, steps, at)
        edited: list[tuple[Value, ...]] = []
        for step, output in edits.items():
            replaced = step_called(run_id, steps, step)
            edited.append((fork_id, _before(replaced, first), stamped_like(output, replaced["output"])))
        if (yield Call("fork_run", params)):  # else an earlier try whose reply was lost did it
            yield Call("copy_steps", {**params, "generation": generation, "place": first["place"]})
            edited += yield from self._answers(run_id, fork_id, [row for row in steps if row["place"] < first["place"]])
            if edited:
                yield Call("edit_steps", {}, edited)
            yield from self._noted(run_id, fork_id, first["key"], by)
        return queue_id

    def _noted(self, run_id: int, fork_id: int, where: str, by: By) -> Script[None]:
        note = partial(self._db.audit.note, what=What.FORKED, actor=by.actor)
        notes = [note(run_id, detail=f"as run {fork_id} at {where}"), note(fork_id, detail=by.reason)]
        yield from self._db.audit.noted(self._db.params(), notes)

    def _answers(self, run_id: int, fork_id: int, steps: Sequence[Row]) -> Script[list[tuple[Value, ...]]]:
        """The results of finished children that the fork takes over, as marks: the children may be removed later."""
        ids = sorted({child for row in steps for child in _children_in(row)})
        found = (yield Call("ends_of", self._db.params(), [(child,) for child in ids])) if ids else []
        ended = {row["id"]: row for row in found if row["ended"] is not None and row["parent_id"] == run_id}
        if ended:
            yield Call("mark_run", self._db.params(), [(fork_id, 0, f"{ANSWERED}{child}") for child in ended])
        told = {
            child: {name: row[name] for name in ("ended", "output", "error", "workflow")}
            for child, row in ended.items()
        }
        return [(fork_id, f"{ANSWERED}{child}", json.dumps(end)) for child, end in told.items()]


def _children_in(step: Row) -> list[int]:
    """The runs that a call has asked for, if it is such a call. The result of a child may look like one, but is not."""
    if not step["key"].rpartition("#")[0].endswith("()") or step["status"] != "SUCCESS":
        return []
    told = json.loads(step["output"] or "null")
    is_ids = isinstance(told, list) and all(isinstance(one, int) and 0 < one < 2**63 for one in told)
    return told if is_ids else []


def step_called(run_id: int, steps: Sequence[Row], called: str) -> Row:
    """The step with this key, or the only one with this name."""
    named = [step for step in steps if step["key"].rpartition("/")[2].rpartition("#")[0] == called]
    exact = [step for step in steps if step["key"] == called]
    match exact or named:
        case [step]:
            return step
        case []:
            raise StepNotFound(run_id, called, [step["key"] for step in steps])
        case several:
            keys = ", ".join(step["key"] for step in several[:10])
            raise InvalidOption("step", called, f"run {run_id} has several of this name; say which: {keys}")


def _before(step: Row, first: Row) -> str:
    key: str = step["key"]
    if step["place"] >= first["place"] or step["status"] not in ("SUCCESS", "ERROR"):
        why = f"the fork begins at {first['key']} and executes it anew; only what had ended before can be edited"
        raise InvalidOption("outputs", key, why)
    return key
