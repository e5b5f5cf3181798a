"""The verbs that steer many runs at once: cancel, retry and delete all that fit a filter, in bounded transactions."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TypedDict, Unpack

from stepwell.errors import InvalidOption
from stepwell.names import check_filter, check_whole
from stepwell.records import RunStatus
from stepwell.store.audit import What
from stepwell.store.control import Control, cancelling
from stepwell.store.driver import Call, Row, Script
from stepwell.store.parents import lock_families, wake_parents
from stepwell.store.pieces import tell_done
from stepwell.store.repeat import repeated
from stepwell.store.runs import LAST, Runs, filter_of, status_of

CHUNK: Final = 500
UNFINISHED: Final = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED)


class RunFilter(TypedDict, total=False):
    """Which runs: what is not said is not asked. `limit` is how many at most, newest first."""

    workflow: str | None
    status: RunStatus | str | None
    key: str | None
    tag: str | None
    since: datetime | None
    until: datetime | None
    limit: int | None
    everything: bool  # has to be said where nothing else is


class Bulk(Runs, Control):
    """Runs, as those who steer many of them see them."""

    async def cancel_runs(self, *, reason: str | None = None, **which: Unpack[RunFilter]) -> int:
        """Cancel the unfinished runs that fit, as `cancel` does; how many were cancelled or asked to stop.

        The filter is that of `runs`. Without one, say `everything=True`. Runs triggered meanwhile are left alone. Each
        transaction is bounded: if one fails, what was done before stays, and the call may be made again.
        """
        said = check_filter("reason", reason)
        return await self._each(which, UNFINISHED, "finished ones stay what they are", partial(self._cancel, said))

    async def retry_runs(self, **which: Unpack[RunFilter]) -> int:
        """Execute the failed runs that fit again, as `retry` does; how many that was. See `cancel_runs`."""
        return await self._each(which, (RunStatus.ERROR,), "only what failed is tried again", self._retry)

    async def delete_runs(self, *, reason: str | None = None, **which: Unpack[RunFilter]) -> int:
        """Delete the runs that fit, as `delete` does: they can be restored until they are pruned. How many that was."""
        return await self._each(which, tuple(RunStatus), "", partial(self._delete, check_filter("reason", reason)))

    async def _each(
        self,
        which: RunFilter,
        allowed: Sequence[RunStatus],
        why: str,
        change: Callable[[Sequence[int]], Awaitable[int]],
    ) -> int:
        """Have the runs that fit changed, a page in each transaction, newest first; how many were."""
        statuses = _statuses(which, allowed, why)
        params: dict[str, Any] = filter_of(which.get("key"), which.get("tag"), which.get("since"), which.get("until"))
        limit = which.get("limit")
        left = LAST if limit is None else check_whole("limit", limit, 1, LAST)
        lines = await self._lines(which.get("workflow"), statuses)
        changed, after = 0, (LAST, LAST)
        while lines and left > 0:
            size = min(CHUNK, left)
            place = {"deleted": False, "limit": size, "after_time": after[0], "after_id": after[1]}
            rows = await self.driver.read(Call("find_runs", params | place, lines))
            found = sorted({(row["created_at"], row["id"]) for row in rows}, reverse=True)[:size]
            if not found:
                break
            changed += await change(sorted(run_id for _, run_id in found))
            tell_done(len(found))
            left, after = left - len(found), found[-1]
        return changed

    async def _cancel(self, reason: str | None, run_ids: Sequence[int]) -> int:
        woken, tries = set[int](), itertools.count()
        changed, stopped = await repeated(
            lambda: self.driver.transact(partial(self._cancelling_all, run_ids, reason, woken, again=next(tries) > 0)),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )
        self._tell_cancelled(changed, woken)
        return len(stopped)

    def _cancelling_all(
        self, run_ids: Sequence[int], reason: str | None, woken: set[int], *, again: bool
    ) -> Script[tuple[list[Row], set[int]]]:
        yield Call("lock_trees", {}, [(run_id,) for run_id in run_ids])
        found = yield Call("cancelled_before", {}, [(run_id,) for run_id in run_ids])
        before = {row["id"] for row in found}
        changed = yield from cancelling(self._params(), run_ids, reason, woken, self.audit, before=before)
        stopped = {row["id"] for row in changed}
        if again:  # a try whose reply was lost may have cancelled them: what it did counts
            rows = yield Call("turns_of", {}, [(run_id,) for run_id in run_ids])
            stopped |= {row["id"] for row in rows if row["status"] == RunStatus.CANCELLED}
        return changed, stopped & set(run_ids)

    async def _retry(self, run_ids: Sequence[int]) -> int:
        rows = await self._queues.requeue(run_ids, queue=None, error=None)
        self.tasks.hint({row["queue_id"] for row in rows})
        return len(rows)

    async def _delete(self, reason: str | None, run_ids: Sequence[int]) -> int:
        deleted, woken = await self.driver.transact(partial(self._deleting, run_ids, reason))
        self.tasks.hint(woken)
        return len(deleted)

    def _deleting(self, run_ids: Sequence[int], reason: str | None) -> Script[tuple[list[Row], set[int]]]:
        rows = [(run_id,) for run_id in run_ids]
        yield from lock_families(run_ids)
        deleted = yield Call("delete_runs", self._params(reason=reason), rows)
        yield from self.audit.of_all(self._params(), deleted, What.DELETED, reason)
        unfinished = [row for row in deleted if row["finished_at"] is None]
        woken = yield from wake_parents(self._params(), unfinished, gone=True)
        return deleted, woken


def _statuses(which: RunFilter, allowed: Sequence[RunStatus], why: str) -> Sequence[RunStatus]:
    """The statuses to look for; refuses a filter that says nothing, unless everything is meant."""
    known = RunFilter.__annotations__.keys()
    if unknown := which.keys() - known:
        raise TypeError(f"there is no filter {min(unknown)!r}; there are {', '.join(sorted(known))}")
    said = [name for name, value in which.items() if value is not None and name not in ("limit", "everything")]
    if not said and not which.get("everything"):
        raise InvalidOption("filter", None, "say which runs are meant, or `everything=True` for all of this store")
    if (status := which.get("status")) is None:
        return allowed
    if status_of(status) not in allowed:
        raise InvalidOption("status", status, why)
    return [status_of(status)]
