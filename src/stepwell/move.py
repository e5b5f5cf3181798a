"""Moves: the work of another library, brought into a store with its times, states and recorded steps."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from stepwell.base.names import check_identifier, check_name, check_whole
from stepwell.records import RunStatus, TaskKind
from stepwell.store.arrivals import Arrival, ArrivedStep, pgqrs_at
from stepwell.store.store import Store
from stepwell.values.named_codecs import Codec
from stepwell.values.stamp import write_value
from stepwell.values.versions import stamped

NO_LIMIT: Final = 2**40  # what was stored there is stored here
_Place = tuple[str, TaskKind, RunStatus]
STATUSES: Final = {"SUCCESS": RunStatus.SUCCESS, "ERROR": RunStatus.ERROR, "PAUSED": RunStatus.PAUSED}


@dataclass(frozen=True, slots=True)
class MoveCount:
    """How many tasks of a queue stand here in a status."""

    queue: str
    kind: TaskKind
    status: RunStatus
    tasks: int
    steps: int


async def move_from_pgqrs(
    store: Store,
    source: str,
    *,
    schema: str = "public",
    name: str = "pgqrs",
    max_attempts: int = 5,
    dry_run: bool = False,
    anyway: bool = False,
) -> list[MoveCount]:
    """Move messages, runs and steps from a database of pgqrs 0.15; returns how many stand here in which status.

    What is not done there is taken first, in one transaction: archived, no consumer of pgqrs gets it. Then everything
    is copied. Each task has the key `NAME/ID OF ITS MESSAGE`, so it arrives once: a move that was interrupted is called
    again. What pgqrs has delivered `max_attempts` times and would never deliver again is a dead letter here.

    It is refused while workers of pgqrs are at work, unless `anyway`. With `dry_run` it only counts.
    """
    check_identifier(schema)
    check_name("source", name)
    check_whole("max_attempts", max_attempts, 1, 2**31)
    async with pgqrs_at(source, schema) as pgqrs:
        has_taken, names = await pgqrs.has_taken(), await pgqrs.queues()
        for queue in names:
            check_name("queue", queue)
        move = _Move(store, name, max_attempts)
        if not dry_run:
            await move.prepare(names)
            await pgqrs.take(anyway=anyway)
        async for page in pgqrs.pages(taken=has_taken or not dry_run):
            arrivals = move.arrivals(page.messages, page.steps)
            if not dry_run:
                await store.database.arrivals.add(arrivals, move.queues)
                await pgqrs.arrived(page)
            move.count(arrivals)
    return move.counts


class _Move:
    """One move: where its tasks go, and how many there are."""

    def __init__(self, store: Store, name: str, most: int) -> None:
        self._db = store.database
        self._name = name
        self._most = most
        self._tasks: Counter[_Place] = Counter()
        self._steps: Counter[_Place] = Counter()
        self.queues: dict[str, int] = {}

    @property
    def counts(self) -> list[MoveCount]:
        """What was counted, by queue, kind and status."""
        return [MoveCount(*place, tasks, self._steps[place]) for place, tasks in sorted(self._tasks.items())]

    async def prepare(self, names: Mapping[str, bool]) -> None:
        """Create the queues and workflows that are not there."""
        for queue, of_workflow in names.items():
            of = self._db.workflow_id if of_workflow else self._db.queue_id
            self.queues[queue] = await of(queue, create=True)

    def arrivals(self, messages: Sequence[Any], steps: Iterable[Any]) -> list[Arrival]:
        """A page of messages as tasks, each with the steps of its run."""
        recorded: dict[int, list[Any]] = {}
        for step in steps:
            recorded.setdefault(step["run_id"], []).append(step)
        codec = self._db.options.codec
        return [_arrival(one, recorded.get(one["run_id"], ()), self._name, self._most, codec) for one in messages]

    def count(self, arrivals: Iterable[Arrival]) -> None:
        """Count these."""
        for one in arrivals:
            place = (one.queue, one.kind, one.status)
            self._tasks[place] += 1
            self._steps[place] += len(one.steps)


def _arrival(one: Any, steps: Sequence[Any], name: str, most: int, codec: Codec | None) -> Arrival:
    """A message of pgqrs, or the run that it is for, as a task."""
    status, why = _status(one, most)
    error = None if status is not RunStatus.ERROR else why or _error(one["error"])
    finished = max(_known(one, "completed_at", "archived_at", "updated_at"), one["created_at"])
    ended = status in (RunStatus.SUCCESS, RunStatus.ERROR)
    attempt, due = one["reads"], one["created_at"] if one["due_at"] is None else one["due_at"]
    pause = _pause(one) if status is RunStatus.PAUSED else None
    last_error = None if error is None else error["message"]
    return Arrival(
        queue=one["queue"],
        kind=TaskKind.RUN if one["is_run"] else TaskKind.MESSAGE,
        status=status,
        key=f"{name}/{one['id']}",
        run_at=due if pause is None else max(due, pause[0]),
        turn=max(attempt, 1 if steps else 0),
        attempt=attempt,
        max_attempts=max(most, attempt),
        created_at=one["created_at"],
        updated_at=finished if ended else _known(one, "updated_at", "claimed_at", "created_at"),
        claimed_at=one["claimed_at"],
        started_at=one["started_at"],
        paused_at=None if pause is None else one["paused_at"],
        finished_at=finished if ended else None,
        last_error=last_error if pause is None else pause[1],
        error=None if error is None else json.dumps(error),
        input=_input(one, codec),
        output=_coded(one["output"], codec) if status is RunStatus.SUCCESS and one["is_run"] else None,
        steps=[_step(step, codec) for step in steps],
    )


def _status(one: Any, most: int) -> tuple[RunStatus, dict[str, Any] | None]:
    """Where it stands here; with a reason of our own if it is a dead letter that pgqrs had no error for."""
    told = STATUSES.get(one["status"])
    if told in (RunStatus.SUCCESS, RunStatus.ERROR):
        return told, None
    if one["is_open"]:
        if one["reads"] < most:
            return told or RunStatus.PENDING, None
        return RunStatus.ERROR, _told(f"pgqrs has delivered it {one['reads']} times")
    if one["status"] is not None:
        return RunStatus.ERROR, _told("pgqrs has archived its message before it ended")
    # Its consumer archives a message in time; pgqrs itself archives what it gives up.
    given_up = one["reads"] >= most and (not one["has_consumer"] or one["archived_at"] >= (one["due_at"] or 0))
    if given_up or one["is_run"]:
        return RunStatus.ERROR, _told(f"pgqrs has given it up after {one['reads']} deliveries")
    return RunStatus.SUCCESS, None


def _pause(one: Any) -> tuple[int, str | None]:
    """Until when a run is paused, and why."""
    told = json.loads(one["error"] or "{}")
    told = told if isinstance(told, dict) else {}
    seconds = told.get("resume_after")
    lasts = int(1_000_000 * seconds) if isinstance(seconds, int | float) else 0
    return _known(one, "paused_at") + lasts, told.get("message")


def _input(one: Any, codec: Codec | None) -> str:
    """The payload; of a run what stands under `input`, as pgqrs gives it to the workflow. A run's is never coded."""
    if not one["is_run"]:
        return _coded(one["payload"], codec) or "null"
    payload: Any = msgspec.json.decode(one["payload"], type=dict[str, msgspec.Raw] | msgspec.Raw)
    given = payload["input"] if isinstance(payload, dict) and "input" in payload else None
    return stamped(one["payload"] if given is None else bytes(given).decode(), 1)


def _step(step: Any, codec: Codec | None) -> ArrivedStep:
    status = STATUSES.get(step["status"], RunStatus.RUNNING)
    attempt, ended = step["retries"] + 1, step["completed_at"]
    error = None
    if status is RunStatus.ERROR:
        error = _error(step["error"])
        if step["retry_at"] is not None:  # it is to be tried again then
            ended = step["started_at"] or step["created_at"] if ended is None else ended
            status, attempt = RunStatus.PENDING, max(1, step["retries"])
            error["retry_after"] = max(0.0, (step["retry_at"] - ended) / 1_000_000)
    if status is RunStatus.PAUSED:
        status = RunStatus.RUNNING  # pgqrs asks a step that paused its run again
    done = status is RunStatus.SUCCESS
    return ArrivedStep(
        key=f"{step['name']}#1",
        status=status,
        attempt=attempt,
        started_at=step["started_at"],
        finished_at=None if status is RunStatus.RUNNING else ended or step["created_at"],
        output=(_coded(step["output"], codec) or "null") if done else None,
        error=None if error is None else json.dumps(error),
    )


def _error(text: str | None) -> dict[str, Any]:
    """An error of pgqrs as it is stored here."""
    told = None if text is None else json.loads(text)
    if not isinstance(told, dict):
        return _told("it failed" if told is None else str(told))
    said = told.get("message", told.get("error"))
    kind = told.get("code") or told.get("type") or "Error"
    return {"type": str(kind), "message": _text(text if said is None else said)}


def _text(said: Any) -> str:
    """A message; pgqrs has some of them as JSON within JSON."""
    if isinstance(said, str) and said.startswith('"'):
        with contextlib.suppress(ValueError):
            return str(json.loads(said))
    return str(said)


def _told(message: str) -> dict[str, Any]:
    return {"type": "Error", "message": message}


def _coded(text: str | None, codec: Codec | None) -> str | None:
    """JSON text as the store writes it; without a codec it stays as it is, digit by digit."""
    if text is None or codec is None:
        return None if text is None else stamped(text, 1)
    return write_value(msgspec.json.decode(text), limit=NO_LIMIT, codec=codec)


def _known(one: Any, *names: str) -> int:
    """The first of these moments that is known."""
    found: int = next((one[name] for name in names if one[name] is not None), one["created_at"])
    return found
