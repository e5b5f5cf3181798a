"""The verbs of workflows and their runs, for those who trigger, find and retry them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar, overload

import msgspec

from stepwell.durations import moment_of
from stepwell.errors import InvalidOption
from stepwell.names import check_filter, check_id, check_key, check_name, check_whole
from stepwell.records import MARK, Page, Run, RunId, RunStatus, StepInfo, TaskId, WorkflowInfo
from stepwell.store.draft import Asked, Drafted, drafted_runs
from stepwell.store.driver import Call, Value
from stepwell.store.queues import place_of
from stepwell.store.run_rows import run_of, step_info
from stepwell.store.writing import Writing

R = TypeVar("R")
LAST: Final = 2**62  # later than any moment, and above any id


class Children(msgspec.Struct, frozen=True):
    """Runs that another run asks for, ready to be written: with their ids, and the queues that get them."""

    drafted: Drafted
    ids: Sequence[int]
    queues: frozenset[int]


class Runs(Writing):
    """Workflows and runs."""

    async def create_workflow(self, name: str) -> None:
        """Make a workflow and its queue, both or neither; does nothing if they are there."""
        await self.define(name)

    async def workflows(self) -> Sequence[WorkflowInfo]:
        """Every workflow, by name."""
        self.check()
        return await self._workflows.all()

    async def get_workflow(self, name: str) -> WorkflowInfo:
        """One workflow; `WorkflowNotFound` if there is none of this name."""
        self.check()
        return await self._workflows.get(check_name("workflow", name))

    async def delete_workflow(self, name: str) -> None:
        """Remove a workflow and its queue; refused with the counts while it has runs or living workers."""
        self.check()
        await self._queues.delete(check_name("workflow", name), of_workflow=True)
        self._workflows.forget(name)

    async def trigger(self, trigger: Asked[R], *, tx: object = None) -> RunId[R]:
        """Write a run; when this returns it is durable and will be executed. The same as `trigger.execute(store)`."""
        [run_id] = await self.trigger_many([trigger], tx=tx)
        return run_id

    async def trigger_many(self, triggers: Iterable[Asked[R]], *, tx: object = None) -> list[RunId[R]]:
        """Write all the runs or none, of one workflow or several, in one transaction (yours, with `tx`).

        Their ids come in the same order. A run that its key had already named comes back with `created` False.
        """
        asked = list(triggers)
        drafted = self.drafted_runs(asked)
        if tx is None:
            await self._check_workflows(drafted)
        return run_ids(asked, await self._add(drafted, tx))

    @overload
    async def get_run(self, run_id: RunId[R], *, deleted: bool = False) -> Run[R]: ...
    @overload
    async def get_run(self, run_id: int, *, deleted: bool = False) -> Run[Any]: ...
    async def get_run(self, run_id: int, *, deleted: bool = False) -> Run[Any]:
        """One run as it stands; `RunNotFound` if it is not there, or deleted, unless `deleted` is True."""
        self.check()
        found = await self._read_runs([check_id(run_id)], deleted=deleted)
        if not found:
            raise await self._no_run(run_id)
        if isinstance(run_id, RunId) and run_id.returns is not Any:
            found[0].id.returns = run_id.returns
        return found[0]

    get_workflow_run = get_run

    async def runs(
        self,
        workflow: str | None = None,
        *,
        status: RunStatus | str | None = None,
        key: str | None = None,
        tag: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        parent: int | None = None,
        deleted: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Run[Any]]:
        """Runs, newest first: of one workflow, status, key, tag or parent, or triggered in a span of time, if given.

        `after` is the `next` of the page before. Workflow, status and time are found by an index; for a key or a tag
        the runs that fit the rest are looked through, so give those as well where there are many.
        """
        after_time, after_id = place_of(after, (LAST, LAST))
        params: dict[str, Value] = {
            **filter_of(key, tag, since, until),
            "deleted": bool(deleted),
            "limit": check_whole("limit", limit, 1, 10_000) + 1,
            "after_time": after_time,
            "after_id": after_id,
        }
        statuses = list(RunStatus) if status is None else [status_of(status)]
        lines = await self._lines(workflow, statuses)
        if parent is None:
            return await self._page(Call("find_runs", params, lines), limit)
        return await self._page(Call("find_children", {**params, "parent": check_id(parent)}, lines), limit)

    async def find_run(self, workflow: str, key: str) -> Run[Any] | None:
        """The run of a workflow that has this key now, None if none has.

        With `unique="unfinished"` that is one that is not finished, with `unique="ever"` whatever became of it.
        """
        params: dict[str, Value] = {"queue_id": await self.workflow_id(workflow), "key": check_key(key)}
        rows = await self.driver.read(Call("run_of_key", params))
        found = await self._read_runs([row["id"] for row in rows], deleted=False)
        return found[0] if found else None

    async def steps(self, run_id: int) -> Sequence[StepInfo]:
        """What a run has recorded, in the order in which it asked for it: in its generation, if it has restarted."""
        run = await self.get_run(run_id, deleted=True)
        rows = await self.driver.read(Call("steps_of", rows=[(int(run.id), run.generation)]))
        return [step_info(row) for row in rows if not row["key"].startswith(MARK)]

    async def retry(self, run_id: int) -> bool:
        """Execute a failed run again, with all its attempts: False if it did not fail, or its key was taken meanwhile.

        It is the same run. What its steps recorded stays, but for the step whose failure ended it: that is done again.
        """
        self.check()
        rows = await self._queues.retry(check_id(run_id))
        self.tasks.hint({row["queue_id"] for row in rows})
        return bool(rows)

    async def draft_children(self, asked: Sequence[Asked[Any]], parent_id: int) -> Children:
        """Runs that another run asks for, checked, encoded and numbered; nothing is written yet."""
        drafted = self.drafted_runs(asked)
        await self._check_workflows(drafted)
        queues = [await self._number(drafted, name, create=create) for name, create in drafted.queues.items()]
        if delays := [task.delay for task in drafted.tasks if task.delay]:
            self.tasks.alarm.set(min(delays) / 1_000_000)
        tasks = [msgspec.structs.replace(task, parent_id=parent_id, inside=True) for task in drafted.tasks]
        children = dataclasses.replace(drafted, tasks=tasks, required={})  # that was seen to already
        return Children(children, await self.ids.take(len(tasks)), frozenset(queues))

    def drafted_runs(self, asked: Sequence[Asked[Any]]) -> Drafted:
        """Runs checked and encoded; nothing is written yet."""
        limit, attempts = self.options.payload_limit, self.options.retry.max_attempts
        return drafted_runs(asked, payload_limit=limit, default_attempts=attempts)

    async def _check_workflows(self, drafted: Drafted) -> None:
        """Refuse what has to be refused before anything is written: an unknown name first, then a missing worker."""
        self.check()
        for name, defines in drafted.queues.items():
            if not defines:
                await self.workflow_id(name)
        await self._living.check(drafted.required)

    async def _lines(self, workflow: str | None, statuses: Sequence[RunStatus]) -> list[tuple[int, str]]:
        """Each workflow with each status, in the order in which a run goes through them."""
        self.check()
        if workflow is not None:
            ids = [await self.workflow_id(workflow)]
        else:
            rows = await self.driver.read(Call("workflows_with_runs", {"tenant": self.options.tenant}))
            ids = [row["id"] for row in rows]
        return [(queue_id, str(status)) for queue_id in ids for status in statuses]

    async def _page(self, finding: Call, limit: int) -> Page[Run[Any]]:
        rows = await self.driver.read(finding) if finding.rows else []
        places = sorted({(row["created_at"], row["id"]) for row in rows}, reverse=True)
        found = await self._read_runs([task_id for _, task_id in places[:limit]], deleted=True)
        return Page(found, next="{}-{}".format(*places[limit - 1]) if len(places) > limit else None)

    async def _read_runs(self, ids: Sequence[int], *, deleted: bool) -> list[Run[Any]]:
        """These runs as they stand, in this order; one that is gone is left out."""
        if not ids:
            return []
        params: dict[str, Value] = {"tenant": self.options.tenant, "deleted": deleted}
        rows = await self.driver.read(Call("runs", params, [(task_id,) for task_id in ids]))
        found = {row["id"]: run_of(row) for row in rows}
        return [found[task_id] for task_id in ids if task_id in found]


def run_ids(asked: Sequence[Asked[R]], ids: Sequence[TaskId]) -> list[RunId[R]]:
    """The numbers as those of runs, each with the type of its result where its trigger knew it."""
    runs: list[RunId[R]] = []
    for one, task_id in zip(asked, ids, strict=True):
        run_id: RunId[R] = RunId(task_id) if task_id.created else RunId.found(task_id)
        if one.returns is not Any:
            run_id.returns = one.returns
        runs.append(run_id)
    return runs


def filter_of(key: str | None, tag: str | None, since: datetime | None, until: datetime | None) -> dict[str, Value]:
    """Which runs are looked for, checked, as `find_runs` takes it."""
    return {
        "key": check_filter("key", key),
        "tag": check_filter("tag", tag),
        "since": 0 if since is None else moment_of(since, "since"),
        "until": LAST if until is None else moment_of(until, "until"),
    }


def status_of(status: RunStatus | str) -> RunStatus:
    """The status, if it is one."""
    try:
        return RunStatus(status)
    except ValueError:
        raise InvalidOption("status", status, f"it is one of {', '.join(RunStatus)}") from None
