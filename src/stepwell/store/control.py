"""Changing the course of a run: cancel it, pause it, accept a change of its code; and why it does not go on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from stepwell.base.names import check_id
from stepwell.records import CancelAnswer, RunStatus
from stepwell.store.audit import Audit, By, Note, What
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.rows import ACCEPTED, HELD, NEVER, Wish
from stepwell.store.run_facts import run_facts_of
from stepwell.store.settle import wake_parents
from stepwell.store.why import Why, why
from stepwell.store.workflows import living

if TYPE_CHECKING:
    from stepwell.store.database import Database

MOST_LET_GO: Final = 500
MOST_EXPIRED: Final = 500


@dataclass(eq=False)
class Control:
    """Changes the course of runs."""

    _db: Database

    async def cancel(self, run_id: int, by: By) -> CancelAnswer:
        """Cancel a run or a message, or ask its worker to stop it."""
        woken = set[int]()
        changed = await self._steered(partial(self._cancelling, check_id(run_id), by, woken))
        await self.tell_cancelled(changed, woken)
        status = next((row["status"] for row in changed if row["id"] == run_id), None)
        if status is None:
            return CancelAnswer.TOO_LATE
        return CancelAnswer.CANCELLED if status == RunStatus.CANCELLED else CancelAnswer.REQUESTED

    async def expire(self) -> tuple[bool, set[int]]:
        """Cancel tasks that were not begun in time, a bounded number at once; whether any was, and what that woke."""
        params, woken = self._db.params(limit=MOST_EXPIRED), set[int]()
        ids = [row["id"] for row in await self._db.driver.read(Call("expired", params))]
        if not ids:
            return False, woken
        ended = await self._db.driver.transact(partial(self._expiring, ids, woken))
        await self.tell_cancelled(ended, woken)
        return bool(ended), woken

    async def pause(self, run_id: int, by: By) -> bool:
        """Hold a run back; False if it is finished, or is being cancelled."""
        held = await self._steered(partial(self._holding, check_id(run_id), by))
        running = {row["id"]: row["turn"] for row in held if row["status"] == RunStatus.RUNNING}
        self._db.tasks.wished(Wish.PAUSE, running)
        return bool(held)

    async def unpause(self, run_id: int, by: By) -> bool:
        """Let a paused run go on; False if it is not paused, or is finished."""
        let_go = await self._steered(partial(self._letting_go, check_id(run_id), by))
        self._db.wakeups.hint({row["queue_id"] for row in let_go})
        return bool(let_go)

    async def accept(self, run_id: int, by: By) -> bool:
        """Let a run go on that is held for its code; False if it is not held for that."""
        self._db.check()
        accepting = partial(self._accepting, check_id(run_id), by)
        let_go = await self._db.transact_again(accepting)
        if let_go is None:
            raise await self._db.no_run(run_id)
        self._db.wakeups.hint({row["queue_id"] for row in let_go})
        return bool(let_go)

    async def why(self, run_id: int) -> Why:
        """Why a run or an input stands where it stands: for programs, in words, and what happens next."""
        self._db.check()
        params = self._db.params(beat_now=self._db.clock.beat_now())
        rows = await self._db.driver.read(Call("standing", {**params, "id": check_id(run_id)}))
        if not rows:
            raise await self._db.no_run(run_id)
        serving = await self._db.driver.read(Call("serving_now", params)) if rows[0]["finished_at"] is None else []
        limited = rows[0]["ready"] and rows[0]["limited"]
        place = await self._db.limiters.place_of(rows[0]["id"]) if limited else None
        return why(run_facts_of(rows, living(serving, self._db.driver.guards), place))

    async def any_held(self, queue_ids: Collection[int]) -> bool:
        """True if a run of these queues is held for its code."""
        rows = [(queue_id,) for queue_id in queue_ids]
        return bool(rows) and bool(await self._db.driver.read(Call("any_held", self._db.params(never=NEVER), rows)))

    async def let_go_held(self, queue_ids: Collection[int], code: str) -> int:
        """Let runs go on that are held for other code than the one with this fingerprint; return how many."""
        let_go = await self._db.driver.transact(partial(self._letting_go_held, queue_ids, code))
        self._db.wakeups.hint({row["queue_id"] for row in let_go})
        return len(let_go)

    async def tell_cancelled(self, changed: Sequence[Row], woken: set[int]) -> None:
        """Tell the callers that wait for these runs that they are cancelled, and the workers that they have to stop."""
        self._db.results.finished([row["id"] for row in changed if row["status"] == RunStatus.CANCELLED])
        running = {row["id"]: row["turn"] for row in changed if row["status"] == RunStatus.RUNNING}
        self._db.tasks.wished(Wish.CANCEL, running)
        self._db.wakeups.hint(woken)
        await self._db.groups.let_go(row for row in changed if row["status"] == RunStatus.CANCELLED)

    async def _steered(self, script: partial[Script[list[Row] | None]]) -> list[Row]:
        """The rows that a script has changed of the run that is its first argument; raises if there is no such run."""
        self._db.check()
        changed = await self._db.transact_again(script)
        if changed is None:
            raise await self._db.no_run(script.args[0])
        return changed

    def _cancelling(self, run_id: int, by: By, woken: set[int], *, again: bool) -> Script[list[Row] | None]:
        yield Call("lock_trees", {}, [(run_id,)])
        found = yield Call("lock_run", self._db.params(id=run_id, or_message=True))
        if not found:
            return None
        if again and found[0]["status"] == RunStatus.CANCELLED:
            return list(found)  # an earlier try whose reply was lost did it: its answer is true
        before = set() if found[0]["cancel_requested_at"] is None else {run_id}
        return (yield from cancelling(self._db.params(), [run_id], by, woken, self._db.audit, before=before))

    def _expiring(self, ids: Sequence[int], woken: set[int]) -> Script[list[Row]]:
        params, rows = self._db.params(), [(task_id,) for task_id in ids]
        yield Call("lock_trees", {}, rows)
        late = [row["id"] for row in (yield Call("lock_expired", params, rows))]
        by = By(reason="it expired before it had begun")
        return (yield from cancelling(params, late, by, woken, self._db.audit, before=set())) if late else []

    def _holding(self, run_id: int, by: By, *, again: bool) -> Script[list[Row] | None]:
        found = yield Call("lock_run", self._db.params(id=run_id, or_message=False))
        if not found:
            return None
        held = yield Call("hold_run", self._db.params(id=run_id, reason=by.reason))
        yield from requesting(Wish.PAUSE, held)
        if not again or found[0]["held_at"] is None:  # else an earlier try whose reply was lost did it
            yield from self._db.audit.of_all(self._db.params(), held, What.PAUSED, by=by)
        return held

    def _letting_go(self, run_id: int, by: By, *, again: bool) -> Script[list[Row] | None]:
        found = yield Call("lock_run", self._db.params(id=run_id, or_message=False))
        if not found:
            return None
        let_go = yield Call("let_go_run", self._db.params(id=run_id))
        if found[0]["owner"] is not None:  # which may not know of the pause yet
            place = {"worker": found[0]["owner"], "id": run_id, "turn": found[0]["turn"], "request": str(Wish.PAUSE)}
            yield Call("take_back_request", place)
        yield from self._db.audit.of_all(self._db.params(), let_go, What.UNPAUSED, by=by)
        if again and not let_go and found[0]["finished_at"] is None:
            return list(found)  # an earlier try whose reply was lost did it
        return let_go

    def _accepting(self, run_id: int, by: By, *, again: bool) -> Script[list[Row] | None]:
        params = self._db.params(id=run_id, never=NEVER, or_message=False)
        found = yield Call("lock_run", params)
        if not found:
            return None
        generation: int = found[0]["generation"]
        held = yield Call("hold_of", params)
        names = json.loads(held[0]["error"] or "{}").get("names", ()) if held else ()
        if not names:
            steps = (yield Call("steps_of", {}, [(run_id, generation)])) if again else ()
            # An earlier try whose reply was lost did it.
            return list(found) if any(step["key"].startswith(ACCEPTED) for step in steps) else []
        yield Call("mark_run", params, [(run_id, generation, ACCEPTED + name) for name in names])
        let_go = yield Call("let_go_accepted", params)
        detail = ", ".join(names) if by.reason is None else f"{', '.join(names)}: {by.reason}"
        yield from self._db.audit.of_all(params, [{"id": run_id}], What.ACCEPTED, detail, by=by)
        return let_go

    def _letting_go_held(self, queue_ids: Collection[int], code: str) -> Script[list[Row]]:
        params = self._db.params(never=NEVER, mark=HELD + code, limit=MOST_LET_GO)
        let_go = yield Call("let_go_held", params, [(queue_id,) for queue_id in queue_ids])
        yield from self._db.audit.of_all(
            params, let_go, What.UNPAUSED, f"a worker with other code, {code}, may have it"
        )
        return let_go


def requesting(wish: Wish, rows: Iterable[Row]) -> Script[None]:
    """Ask the workers that execute these tasks to stop them; after the statement that locked the tasks."""
    if turns := [(row["owner"], row["id"], row["turn"]) for row in rows if row["owner"] is not None]:
        yield Call("request_control", {"request": str(wish)}, turns)


def cancelling(
    params: dict[str, Value],
    run_ids: Sequence[int],
    by: By,
    woken: set[int],
    audit: Audit,
    *,
    before: set[int],
) -> Script[list[Row]]:
    """Cancel runs and, level by level, their children; return the changed rows. `woken` gets the queues of ready tasks.

    Runs cancelled `before` are asked again, but not their children: those were cancelled with them, and children that
    they have added since are part of their cleanup.
    """
    message = "cancelled" if by.reason is None else f"cancelled: {by.reason}"
    error = json.dumps({"type": "Cancelled", "message": by.reason or "no reason was given"})
    changed: dict[int, Row] = {}
    level: list[tuple[Value, ...]] = [(run_id,) for run_id in sorted(run_ids)]
    while level:
        rows = yield Call("cancel_tasks", {**params, "error": error, "last_error": message}, level)
        changed |= {row["id"]: row for row in rows}
        yield from requesting(Wish.CANCEL, rows)
        # Runs that were finished before stay as they are, and so do their children.
        stopped = [(row["id"],) for row in rows if row["id"] not in before]
        children = (yield Call("unfinished_children", {}, stopped)) if stopped else []
        before = {row["id"] for row in children if row["requested"]}
        level = [(row["id"],) for row in children if row["id"] not in changed]
    ended = [row for row in changed.values() if row["status"] == RunStatus.CANCELLED]
    if ended:
        yield Call("end_steps", params, [(row["id"], row["status"], None) for row in ended])
    woken |= {row["queue_id"] for row in changed.values() if row["ready"]}
    yield from audit.noted(params, [_cancel_note(row, run_ids, by, audit) for row in changed.values()])
    woken |= yield from wake_parents(params, ended)
    return list(changed.values())


def end_children(
    params: dict[str, Value], ended: Iterable[Row], woken: set[int], audit: Audit, *, timed_out: bool = False
) -> Script[list[Row]]:
    """Cancel the runs that end with these, which have ended, were deleted, or are gone; return the changed rows.

    Those of a run whose time was over (`timed_out`) end with it, unless they are to be left alone.
    """
    parents = [(row["id"], int(timed_out)) for row in ended if timed_out or row["ends_children"]]
    if not parents:
        return []
    children = yield Call("children_to_end", {}, parents)
    before = {row["id"] for row in children if row["requested"]}
    by = By(reason="the run that asked for it has ended")
    ids = [row["id"] for row in children]
    return (yield from cancelling(params, ids, by, woken, audit, before=before)) if ids else []


def cancelled_together(params: dict[str, Value], level: Sequence[Row]) -> Script[list[Row]]:
    """These runs, which were cancelled, and level by level those that were cancelled with them.

    Not those of a run that was to clean up: it begins anew, and asks for others.
    """
    tree: list[Row] = []
    while level:
        tree += level
        going_on = [(row["id"],) for row in level if row["cleanup_until"] is None]
        level = (yield Call("cancelled_with", params, going_on)) if going_on else []
    return tree


def _cancel_note(row: Row, run_ids: Sequence[int], by: By, audit: Audit) -> Note:
    what = What.CANCELLED if row["status"] == RunStatus.CANCELLED else What.CANCEL_REQUESTED
    said = by.reason if row["id"] in run_ids else f"with run {row['parent_id']}"
    return audit.note(row["id"], what, said, answer=row["status"], actor=by.actor)  # a repeated request is noted once
