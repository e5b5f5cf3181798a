"""The verbs of those who change the course of runs: cancel them."""

from __future__ import annotations

import itertools
import json
from functools import partial

from stepwell.errors import RunNotFound
from stepwell.names import check_filter, check_id
from stepwell.records import CancelAnswer, RunStatus
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.opened import Opened
from stepwell.store.repeat import repeated


class Control(Opened):
    """Runs, as those who steer them see them."""

    async def cancel(self, run_id: int, *, reason: str | None = None) -> CancelAnswer:
        """Let a run not go on: CANCELLED at once if nobody executes it, else REQUESTED, and its worker stops it soon.

        After either it ends CANCELLED, whatever comes in late, and so do the runs it asked for. TOO_LATE, which counts
        as false, if it was finished before. A worker of this store hears of the request at once, others with their
        next heartbeat; a body in a thread cannot be stopped and goes on, but nothing of it is recorded any more.
        """
        self.check()
        said, tries = check_filter("reason", reason), itertools.count()
        changed = await repeated(
            lambda: self.driver.transact(partial(self._cancelling, check_id(run_id), said, again=next(tries) > 0)),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )
        if changed is None:
            raise RunNotFound(run_id)
        self.results.finished([row["id"] for row in changed if row["status"] == RunStatus.CANCELLED])
        self.tasks.cancelled({row["id"] for row in changed if row["status"] != RunStatus.CANCELLED})
        status = next((row["status"] for row in changed if row["id"] == run_id), None)
        if status is None:
            return CancelAnswer.TOO_LATE
        return CancelAnswer.CANCELLED if status == RunStatus.CANCELLED else CancelAnswer.REQUESTED

    def _cancelling(self, run_id: int, reason: str | None, *, again: bool) -> Script[list[Row] | None]:
        """Cancel a run and, level by level, what it asked for; what was changed, None if there is no such run."""
        message = "cancelled" if reason is None else f"cancelled: {reason}"
        error = json.dumps({"type": "Cancelled", "message": reason or "no reason was given"})
        params: dict[str, Value] = {"now": self.clock.now(), "tenant": self.options.tenant, "id": run_id}
        found = yield Call("lock_run", params)
        if not found:
            return None
        if again and found[0]["status"] == RunStatus.CANCELLED:
            return list(found)  # by the try before this one, whose reply was lost: what it answered is true
        changed: list[Row] = []
        level: list[tuple[Value, ...]] = [(run_id,)]
        while level:
            changed += yield Call("cancel_tasks", {**params, "error": error, "last_error": message}, level)
            level = [(row["id"],) for row in (yield Call("unfinished_children", {}, level))]
            level = [row for row in level if all(row[0] != one["id"] for one in changed)]
        return changed
