"""Excerpts: parts of what is stored, for lists and pages, without payloads but for the one step that is asked for."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from stepwell.base.count import Count, limit_of
from stepwell.base.durations import datetime_of
from stepwell.base.names import EVENT, REQUEST, check_id, check_whole
from stepwell.errors import InvalidOption
from stepwell.records import AuditInfo, AuditNote, Page, Run, RunStatus, StepInfo, TaskKind
from stepwell.store.driver import Call, Value
from stepwell.store.rows import IN_DOUBT
from stepwell.store.run_filter import LAST
from stepwell.store.runs import step_info
from stepwell.store.signals import accepted_by, names_of
from stepwell.values.named_codecs import shown_value

if TYPE_CHECKING:
    from stepwell.store.database import Database

READ: Final = 50_000  # runs that a search by tag reads
SEARCHED: Final = 100_000  # tasks that failed last, in which a text is searched
MOST_SPANS: Final = 48  # steps of one run in a list
MINUTE: Final = 60_000_000
Sort = Literal["ready", "waiting", "finished"]


@dataclass(frozen=True, slots=True)
class StepCounts:
    """How many steps a run has recorded, in all and by status, and the place of the first that failed."""

    total: int
    by_status: Mapping[RunStatus, int]
    first_failed: int | None


@dataclass(frozen=True, slots=True)
class Awaited:
    """What an open call of a run waits for, of this type if the call says one.

    That is a signal (or resume) or a request of this name, or that a person says what became of the step of this key.
    """

    key: str
    name: str
    type: str | None
    schema: Mapping[str, Any] | None
    kind: Literal["signal", "request", "doubt"] = "signal"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step with all that it has recorded; `accepts` is the JSON schema of what it waits for, if it says one."""

    step: StepInfo
    place: int
    accepts: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class StepSpan:
    """When a step began and ended, and how."""

    key: str
    status: RunStatus
    attempt: int
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class SettledSpan:
    """What was settled in a span of time that begins at `since`; the lengths are averages in seconds.

    `in_line` is how many of it waited at once, on average: how long they waited in all, over the length of the span.
    """

    since: datetime
    succeeded: int
    failed: int
    retried: int
    waited: float
    took: float
    in_line: float


@dataclass(frozen=True, slots=True)
class DeadError:
    """How many dead letters of a queue failed of an error of this type."""

    queue: str
    type: str
    count: int


@dataclass(frozen=True, slots=True)
class TaskExcerpt:
    """A task in a list; `input` is the beginning of its JSON."""

    id: int
    kind: TaskKind
    status: RunStatus
    priority: int
    run_at: datetime | None
    attempt: int
    max_attempts: int
    key: str | None
    last_error: str | None
    created_at: datetime
    finished_at: datetime | None
    input: str | None


@dataclass(eq=False)
class Excerpts:
    """Reads excerpts of one store."""

    _db: Database

    async def steps(self, run: Run[Any], *, skip: int, limit: int) -> Sequence[StepInfo]:
        """Steps of a run without payloads, in the order in which it asked for them."""
        rows = await self._read("step_outline", **_of(run), skip=skip, limit=limit)
        return [step_info(row) for row in rows]

    async def step_counts(self, run: Run[Any]) -> StepCounts:
        """How many steps a run has recorded, by status."""
        rows = await self._read("step_counts", **_of(run))
        by_status = {RunStatus(row["status"]): int(row["counted"]) for row in rows}
        failed = next((row["first_place"] for row in rows if row["status"] == RunStatus.ERROR), None)
        return StepCounts(sum(by_status.values()), by_status, failed)

    async def before(self, run: Run[Any], place: int) -> int:
        """How many steps a run has asked for before the one at this place."""
        [row] = await self._read("steps_before", **_of(run), place=place)
        return int(row["counted"])

    async def step(self, run: Run[Any], key: str) -> StepRecord | None:
        """One step with all that it has recorded; None if the run has recorded no such step."""
        rows = await self._read("step", **_of(run), key=key)
        if not rows:
            return None
        accepts = rows[0]["accepts"]
        schema = None if accepts is None else json.loads(accepts).get("schema")  # of several signals, none is its own
        return StepRecord(step_info(rows[0]), rows[0]["place"], schema)

    async def spans(self, runs: Sequence[Run[Any]]) -> Mapping[int, Sequence[StepSpan]]:
        """When the steps of these runs began and ended: of each run the first ones."""
        rows = [(int(run.id), run.generation) for run in runs]
        found: dict[int, list[StepSpan]] = defaultdict(list)
        if rows:
            for row in await self._db.driver.read(Call("step_spans", {"most": MOST_SPANS}, rows)):
                span = StepSpan(
                    row["key"],
                    RunStatus(row["status"]),
                    row["attempt"],
                    _moment(row["started_at"]),
                    _moment(row["finished_at"]),
                )
                found[row["run_id"]].append(span)
        return found

    async def awaited(self, run: Run[Any]) -> Sequence[Awaited]:
        """What a run waits for just now that a person can give: signals, requests, decisions; not events, nor runs."""
        rows = await self._read("paused_steps", **_of(run))
        waiting = (row for row in rows if not (row["output"] or "").startswith("{"))  # else it waits for runs
        return [awaited for row in waiting for awaited in _awaited(row)]

    async def failed_with(self, text: str, *, limit: int, after: str | None = None) -> Page[Run[Any]]:
        """Runs whose last error has this text, among the newest 100,000 tasks that failed; the last to fail first."""
        time, task_id, _ = _place(after)
        place: dict[str, Value] = {"after_time": time, "after_id": task_id, "most": SEARCHED, "limit": limit + 1}
        rows = await self._read("runs_failed_with", text=f"%{_literal(text.lower())}%", **place)
        runs = await self._db.runs.outlines([row["id"] for row in rows[:limit]])
        last = rows[limit - 1] if len(rows) > limit else None
        return Page(runs, None if last is None else f"{last['finished_at']}-{last['id']}")

    async def searched_since(self, workflow: str | None) -> datetime | None:
        """From when on a search looks that reads each run, so that these are about 50,000; None if there are fewer."""
        lines = await self._db.runs.lines(workflow, list(RunStatus))
        most = READ // max(1, len({queue_id for queue_id, _ in lines}))
        rows = await self._db.driver.read(Call("searched_runs", {"most": most}, lines)) if lines else []
        since = max((row["since"] for row in rows if row["since"] is not None), default=None)
        return None if since is None else datetime_of(since)

    async def notes(self, *, limit: int, after: str | None = None) -> Page[AuditNote]:
        """What was noted of all tasks and of the store, the newest first."""
        check_whole("limit", limit, 1, 10_000)
        time, task_id, place = _place(after)
        where: dict[str, Value] = {"after_time": time, "after_id": task_id, "after_place": place, "limit": limit + 1}
        rows = await self._read("recent_notes", **where)
        last = rows[limit - 1] if len(rows) > limit else None
        then = None if last is None else f"{last['recorded_at']}-{last['task_id']}-{last['place']}"
        return Page([_noted(row) for row in rows[:limit] if row["own"]], then)

    async def settled(self, since: datetime, *, width: int, queue: str | None = None) -> Sequence[SettledSpan]:
        """What was settled since a moment, in spans of `width` minutes; spans in which nothing was are left out."""
        queue_id = None if queue is None else await self._db.queue_id(queue)
        begin = int(since.timestamp()) * 1_000_000
        rows = await self._read("settled_by_time", since=begin, width=width, queue_id=queue_id)
        return [_settled(row, width) for row in rows]

    async def run_counts(self, workflow: str | None = None) -> Mapping[tuple[str, RunStatus], Count]:
        """How many runs there are of each workflow and status, counted to 10,000."""
        self._db.check()
        rows = await self._read("workflow_queues")
        names = {row["id"]: row["name"] for row in rows if workflow in (None, row["name"])}
        limit = limit_of(exact=False)
        asked = [(queue_id, str(status)) for queue_id in names for status in RunStatus]
        counted = await self._db.driver.read(Call("live_runs", self._db.params(most=limit), asked)) if asked else []
        return {
            (names[row["queue_id"]], RunStatus(row["status"])): Count.of(row["counted"], row["looked_at"], limit - 1)
            for row in counted
        }

    async def dead_by_error(self, queue: str | None, *, most: int, limit: int) -> tuple[Sequence[DeadError], int]:
        """How many of the oldest dead letters failed of what, and how many were looked at: `most`, or all there are."""
        queue_id = None if queue is None else await self._db.queue_id(queue)
        rows = await self._read("dead_by_error", queue_id=queue_id, most=most, limit=limit)
        found = [DeadError(row["queue"], row["type"] or "unknown", row["counted"]) for row in rows]
        return found, rows[0]["looked_at"] if rows else 0

    async def tasks(self, queue: str, sort: Sort, *, limit: int) -> Sequence[TaskExcerpt]:
        """The first tasks of a queue that are ready, that wait, or that finished last."""
        queue_id = await self._db.queue_id(queue)
        rows = await self._read(f"{sort}_in", queue_id=queue_id, limit=limit)
        return [_task(row) for row in rows]

    async def _read(self, statement: str, **params: Value) -> Sequence[Any]:
        self._db.check()
        return await self._db.driver.read(Call(statement, self._db.params(**params)))


def _of(run: Run[Any]) -> dict[str, Value]:
    return {"id": int(check_id(run.id)), "generation": run.generation}


def _awaited(row: Any) -> Iterator[Awaited]:
    told = shown_value(row["error"])
    for name in names_of(row):
        accepts = accepted_by(row, name) or {}
        type_, schema = accepts.get("named"), accepts.get("schema")
        if isinstance(told, dict) and told.get("type") == IN_DOUBT:
            yield Awaited(row["key"], told["step"], type_, schema, "doubt")
        elif name.startswith(REQUEST):
            yield Awaited(row["key"], name.removeprefix(REQUEST), type_, schema, "request")
        elif not name.startswith(EVENT):  # which goes to all who wait
            yield Awaited(row["key"], name, type_, schema)


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime_of(microseconds)


def _literal(text: str) -> str:
    """A text for LIKE that means itself."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _place(after: str | None) -> tuple[int, int, int]:
    if after is None:
        return LAST, LAST, LAST
    parts = after.split("-")
    if not (2 <= len(parts) <= 3 and all(part.isdigit() and len(part) < 19 for part in parts)):
        raise InvalidOption("after", after, "pass the `next` of the page before, as it is")
    time, task_id, *place = map(int, parts)
    return time, task_id, place[0] if place else 0


def _noted(row: Any) -> AuditNote:
    note = AuditInfo(
        what=row["what"],
        at=datetime_of(row["recorded_at"]),
        worker=row["worker_id"],
        turn=None,
        attempt=row["attempt"],
        detail=None if row["detail"] is None else json.loads(row["detail"]),
        actor=row["actor"],
    )
    kind = None if row["kind"] is None else TaskKind(row["kind"])
    return AuditNote(row["task_id"] or None, kind, row["queue"], row["key"], note)


def _settled(row: Any, width: int) -> SettledSpan:
    ended = max(1, row["succeeded"] + row["failed"])
    return SettledSpan(
        since=datetime_of(row["span"] * width * MINUTE),
        succeeded=row["succeeded"],
        failed=row["failed"],
        retried=row["retried"],
        waited=row["wait_us"] / ended / 1e6,
        took=row["run_us"] / max(1, row["turns"]) / 1e6,
        in_line=row["wait_us"] / (width * MINUTE),
    )


def _task(row: Any) -> TaskExcerpt:
    return TaskExcerpt(
        id=row["id"],
        kind=TaskKind(row["kind"]),
        status=RunStatus(row["status"]),
        priority=row["priority"],
        run_at=_moment(row["run_at"]),
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        key=row["key"],
        last_error=row["last_error"],
        created_at=datetime_of(row["created_at"]),
        finished_at=_moment(row["finished_at"]),
        input=row["input"],
    )
