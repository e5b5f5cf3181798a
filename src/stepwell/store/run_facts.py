"""A run as it was read, for the judgement why it does not go on: its task, open steps and living workers. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stepwell.base.durations import datetime_of
from stepwell.base.names import is_served
from stepwell.records import RunStatus
from stepwell.store.driver import Row
from stepwell.store.limits_info import LimitedPlace
from stepwell.store.signals import names_of


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A step that a run has begun and not ended."""

    key: str
    status: RunStatus
    attempt: int
    output: Any
    error: dict[str, Any]
    names: tuple[str, ...]  # of the signals that it takes, if it waits
    input: Any = None

    @property
    def name(self) -> str:
        """The step's name, without its branch and number."""
        return self.key.rpartition("/")[2].rpartition("#")[0]

    @property
    def choice(self) -> str:
        """By which field a wait for an event chooses, in words; nothing if it takes every event of its name."""
        if not isinstance(self.input, dict):
            return ""
        return "".join(f" where {field} is {value}" for field, value in self.input.items())[:200]

    @property
    def awaits_runs(self) -> bool:
        """True if it waits for other runs: for children, for runs by their numbers, or as a step on any worker."""
        awaited = isinstance(self.output, dict) and "ids" in self.output
        return awaited or (self.name.endswith("()") and self.names == (self.name,))


@dataclass(frozen=True, slots=True)
class Server:
    """A living worker that serves a run's workflow, and how many tasks it executes."""

    name: str
    holds: int


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run as it was read, with its queue, its worker, its open steps and the workers that could execute it."""

    task: Row
    steps: tuple[OpenStep, ...]
    servers: tuple[Server, ...]
    place: LimitedPlace | None = None  # if it is ready and its queue has limits

    @property
    def error(self) -> dict[str, Any]:
        """What ended it, or its last attempt."""
        text = self.task["error"]
        error: dict[str, Any] = {} if text is None else json.loads(text)
        return error

    @property
    def until(self) -> datetime | None:
        """The moment it waits for."""
        run_at = self.task["run_at"]
        return None if run_at is None else datetime_of(run_at)

    @property
    def cleanup_until(self) -> datetime | None:
        """Until when it may clean up, if it was cancelled."""
        until = self.task["cleanup_until"]
        return None if until is None else datetime_of(until)

    @property
    def is_due(self) -> bool:
        """True if only a worker is missing; perhaps no worker has noticed the run yet."""
        run_at = self.task["run_at"]
        return bool(self.task["ready"]) or (run_at is not None and run_at <= self.task["now"])


def run_facts_of(rows: Sequence[Row], serving: Sequence[Row], place: LimitedPlace | None = None) -> RunFacts:
    """What was read: the run beside each of its open steps, and the living workers."""
    steps = tuple(_open_step(row) for row in rows if row["step_key"] is not None)
    workflow = rows[0]["workflow"]
    servers = [Server(row["name"], row["holds"]) for row in serving if is_served(workflow, json.loads(row["handlers"]))]
    return RunFacts(rows[0], steps, tuple(servers), place)


def _open_step(row: Row) -> OpenStep:
    error: dict[str, Any] = json.loads(row["step_error"] or "{}")
    output = json.loads(row["step_output"] or "null")
    names = names_of({"key": row["step_key"], "accepts": row["step_accepts"]})
    given = json.loads(row["step_input"] or "null")
    return OpenStep(row["step_key"], RunStatus(row["step_status"]), row["step_attempt"], output, error, names, given)
