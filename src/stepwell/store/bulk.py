"""Many runs at once: cancel, retry or delete all runs that match a filter, in bounded transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stepwell.base.names import check_whole
from stepwell.errors import InvalidOption, StillStopping
from stepwell.records import RunStatus
from stepwell.store.audit import By, What
from stepwell.store.control import cancelling, end_children
from stepwell.store.driver import Call, Row, Script
from stepwell.store.progress import tell_done
from stepwell.store.run_filter import LAST, RunFilter, filter_of, finding, statuses_of
from stepwell.store.settle import lock_families, wake_parents

if TYPE_CHECKING:
    from stepwell.store.database import Database

CHUNK: Final = 500
UNFINISHED: Final = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED)


@dataclass(eq=False)
class Bulk:
    """Changes all runs that match a filter."""

    _db: Database

    async def cancel(self, which: RunFilter, by: By) -> int:
        """Cancel the unfinished runs; return how many were cancelled or asked to stop."""
        return await self._each(which, UNFINISHED, "finished ones stay what they are", partial(self._cancel, by))

    async def retry(self, which: RunFilter, by: By) -> int:
        """Execute the failed runs again, or those that were cancelled if these are asked for; return how many."""
        if set(statuses_of(which)) - {RunStatus.ERROR}:
            stopped = (RunStatus.ERROR, RunStatus.CANCELLED)
            why = "only what failed or was cancelled is tried again"
            return await self._each(which, stopped, why, partial(self._retry, by))
        requeue = partial(self._db.dead_letters.requeue_runs, by)
        return await self._each(which, (RunStatus.ERROR,), "", requeue)

    async def delete(self, which: RunFilter, by: By) -> int:
        """Delete the runs so that they can be restored; return how many."""
        return await self._each(which, tuple(RunStatus), "", partial(self._delete, by))

    async def _each(
        self,
        which: RunFilter,
        allowed: Sequence[RunStatus],
        why: str,
        change: Callable[[Sequence[int]], Awaitable[int]],
    ) -> int:
        """Change the runs that match, one page in each transaction, newest first; return how many."""
        statuses = _statuses(which, allowed, why)
        params: dict[str, Any] = filter_of(which)
        limit = which.get("limit")
        left = LAST if limit is None else check_whole("limit", limit, 1, LAST)
        lines = await self._db.runs.lines(which.get("workflow"), statuses)
        changed, after = 0, (LAST, LAST)
        while lines and left > 0:
            size = min(CHUNK, left)
            place = {"deleted": False, "limit": size, "after_time": after[0], "after_id": after[1]}
            rows = await self._db.driver.read(finding(params | place, lines))
            found = sorted({(row["created_at"], row["id"]) for row in rows}, reverse=True)[:size]
            if not found:
                break
            changed += await change(sorted(run_id for _, run_id in found))
            tell_done(len(found))
            left, after = left - len(found), found[-1]
        return changed

    async def _retry(self, by: By, run_ids: Sequence[int]) -> int:
        """Let these runs go on, each with those that were cancelled with it, unless one of them is being stopped."""
        again = 0
        for run_id in run_ids:
            with suppress(StillStopping):
                again += await self._db.task_edits.retry(run_id, by)
        return again

    async def _cancel(self, by: By, run_ids: Sequence[int]) -> int:
        woken = set[int]()
        changed, stopped = await self._db.transact_again(partial(self._cancelling_all, run_ids, by, woken))
        await self._db.control.tell_cancelled(changed, woken)
        return len(stopped)

    def _cancelling_all(
        self, run_ids: Sequence[int], by: By, woken: set[int], *, again: bool
    ) -> Script[tuple[list[Row], set[int]]]:
        yield Call("lock_trees", {}, [(run_id,) for run_id in run_ids])
        found = yield Call("cancelled_before", {}, [(run_id,) for run_id in run_ids])
        before = {row["id"] for row in found}
        changed = yield from cancelling(self._db.params(), run_ids, by, woken, self._db.audit, before=before)
        stopped = {row["id"] for row in changed}
        if again:  # an earlier try whose reply was lost may have cancelled them: they count
            rows = yield Call("turns_of", {}, [(run_id,) for run_id in run_ids])
            stopped |= {row["id"] for row in rows if row["status"] == RunStatus.CANCELLED}
        return changed, stopped & set(run_ids)

    async def _delete(self, by: By, run_ids: Sequence[int]) -> int:
        deleted, woken = await self._db.driver.transact(partial(self._deleting, run_ids, by))
        self._db.wakeups.hint(woken)
        await self._db.groups.let_go(deleted)
        return len(deleted)

    def _deleting(self, run_ids: Sequence[int], by: By) -> Script[tuple[list[Row], set[int]]]:
        rows = [(run_id,) for run_id in run_ids]
        yield from lock_families(run_ids)
        deleted = yield Call("delete_runs", self._db.params(reason=by.reason), rows)
        yield from self._db.audit.of_all(self._db.params(), deleted, What.DELETED, by=by)
        unfinished = [row for row in deleted if row["finished_at"] is None]
        woken = yield from wake_parents(self._db.params(), unfinished, gone=True)
        yield from end_children(self._db.params(), unfinished, woken, self._db.audit)
        return deleted, woken


def _statuses(which: RunFilter, allowed: Sequence[RunStatus], why: str) -> Sequence[RunStatus]:
    """The statuses to look for. Refuses an empty filter, unless `everything` is set."""
    known = RunFilter.__annotations__.keys()
    if unknown := which.keys() - known:
        raise TypeError(f"there is no filter {min(unknown)!r}; there are {', '.join(sorted(known))}")
    said = [name for name, value in which.items() if value is not None and name not in ("limit", "everything")]
    if not said and not which.get("everything"):
        raise InvalidOption("filter", None, "say which runs are meant, or `everything=True` for all of this store")
    asked = statuses_of(which)
    if wrong := [one for one in asked if one not in allowed]:
        raise InvalidOption("status", wrong[0], why)
    return asked or allowed
