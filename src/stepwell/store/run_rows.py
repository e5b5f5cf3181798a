"""Rows of runs and steps as the values that people get."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from stepwell.durations import datetime_of
from stepwell.records import Run, RunId, RunStatus, StepInfo


def run_of(row: Any) -> Run[Any]:
    """A run; what it took and gave stays text until somebody asks for it."""
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
    )


def step_info(row: Any) -> StepInfo:
    """A step."""
    return StepInfo(
        key=row["key"],
        name=_name_in(row["key"]),
        status=RunStatus(row["status"]),
        attempt=row["attempt"],
        input=_value(row["input"]),
        output=_value(row["output"]),
        error=_error(row["error"]),
        started_at=_moment(row["started_at"]),
        finished_at=_moment(row["finished_at"]),
    )


def _error(text: str | None) -> Any:
    """What went wrong; which type a wait takes is not told as an error."""
    told = _value(text)
    if not isinstance(told, dict) or "accepts" not in told:
        return told
    return {name: one for name, one in told.items() if name not in ("accepts", "named")} or None


def _name_in(key: str) -> str:
    """The step's name: a key is the path of its branch, the name, and the number of the call."""
    name, _, number = key.rpartition("/")[2].rpartition("#")
    return name or number


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime_of(microseconds)


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)
