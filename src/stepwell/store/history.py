"""The verb of those who ask what happened to a task."""

from __future__ import annotations

import json
from collections.abc import Sequence

from stepwell.durations import datetime_of
from stepwell.errors import RunNotFound
from stepwell.names import check_id
from stepwell.records import AuditInfo
from stepwell.store.driver import Call
from stepwell.store.opened import Opened


class History(Opened):
    """Tasks, as those who look back at them see them."""

    async def history(self, run_id: int) -> Sequence[AuditInfo]:
        """What was noted of a run, or of a message, in the order in which it happened: nothing if all went well.

        What is noted at all says `connect(audit=)`; it is kept for 30 days, and not longer than the run.
        """
        self.check()
        rows = await self.driver.read(Call("history", self._params(id=check_id(run_id))))
        if not rows:
            raise RunNotFound(run_id)
        return [
            AuditInfo(
                what=row["what"],
                at=datetime_of(row["recorded_at"]),
                worker=row["worker_id"],
                turn=row["turn"],
                attempt=row["attempt"],
                detail=None if row["detail"] is None else json.loads(row["detail"]),
            )
            for row in rows
            if row["what"] is not None
        ]
