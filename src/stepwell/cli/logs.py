"""Log lines as JSON, one object a line: what log collectors read."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from stepwell.engine.branches import Branch, current_branch
from stepwell.engine.calls import Attempt

NAMES: Final = ("run", "workflow", "step", "attempt", "task", "queue", "worker")


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, logger, message, the run, step and attempt it is of, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_at_work(),
            **{name: one for name in NAMES if (one := getattr(record, name, None)) is not None},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _at_work() -> dict[str, Any]:
    """The run, step and attempt whose code writes the line; nothing where no run's does."""
    found = current_branch.get()
    if isinstance(found, Attempt):
        run = found.call.run
        return {"run": int(run.task.id), "workflow": run.workflow, "step": found.call.key, "attempt": found.number}
    if isinstance(found, Branch):
        run = found.run
        return {"run": int(run.task.id), "workflow": run.workflow, "attempt": run.task.attempt}
    return {}
