"""The verbs of those who change the course of a run: cancel it, pause it, let it go on; and why it does not."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence

from stepwell.names import check_filter, check_id
from stepwell.records import CancelAnswer, RunStatus, Wish
from stepwell.store.audit import Audit, Note, What
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.living import living
from stepwell.store.opened import Opened
from stepwell.store.parents import wake_parents
from stepwell.store.repeat import repeated
from stepwell.store.why import Why, standing_of, why


class Control(Opened):
    """Runs, as those who steer them see them."""

    async def cancel(self, run_id: int, *, reason: str | None = None) -> CancelAnswer:
        """Let a run not go on: CANCELLED at once if nobody executes it, else REQUESTED, and its worker stops it soon.

        After either it ends CANCELLED, whatever comes in late, and so do the runs it asked for. TOO_LATE, which counts
        as false, if it was finished before. Its worker hears of the request with the next record of a step, so that
        each branch begins at most one more, and otherwise within a second; a body in a thread cannot be stopped and
        goes on: what it returns is recorded, so that people know what was done, and changes nothing. A run that may
        clean up (`@workflow(cleanup=)`) does so first, until that time is over; if nobody executes it, a worker has to
        claim it for that: REQUESTED.
        """
        said, tries, woken = check_filter("reason", reason), itertools.count(), set[int]()
        changed = await self._steered(
            lambda: self._cancelling(check_id(run_id), said, woken, again=next(tries) > 0), run_id
        )
        self._tell_cancelled(changed, woken)
        status = next((row["status"] for row in changed if row["id"] == run_id), None)
        if status is None:
            return CancelAnswer.TOO_LATE
        return CancelAnswer.CANCELLED if status == RunStatus.CANCELLED else CancelAnswer.REQUESTED

    async def pause(self, run_id: int, *, reason: str | None = None) -> bool:
        """Hold a run back until `unpause`; False if it is finished, or is being cancelled.

        One that nobody executes is PAUSED at once. The worker of another stops it as it does for `cancel`, and gives
        its attempt back: what its steps recorded stays, and the step that is under way will be executed again. If it
        comes to its end before it is stopped, that does not count: let go, it comes to the same end. Nothing makes it
        go on meanwhile: signals are kept, and a moment it sleeps for passes. Its children are not held back.
        """
        said = check_filter("reason", reason)
        tries = itertools.count()
        held = await self._steered(lambda: self._holding(check_id(run_id), said, again=next(tries) > 0), run_id)
        self.tasks.wished(Wish.PAUSE, {row["id"]: row["turn"] for row in held if row["status"] == RunStatus.RUNNING})
        return bool(held)

    async def unpause(self, run_id: int) -> bool:
        """Let a run that was held back go on where it was; False if nobody holds it back, or it is finished."""
        tries = itertools.count()
        let_go = await self._steered(lambda: self._letting_go(check_id(run_id), again=next(tries) > 0), run_id)
        self.tasks.hint({row["queue_id"] for row in let_go})
        return bool(let_go)

    async def why(self, run_id: int) -> Why:
        """Why a run stands where it stands: a reason for programs, words for people, and what happens next."""
        self.check()
        params = {"now": self.clock.now(), "beat_now": self.clock.beat_now(), "tenant": self.options.tenant}
        rows = await self.driver.read(Call("standing", {**params, "id": check_id(run_id)}))
        if not rows:
            raise await self._no_run(run_id)
        serving = await self.driver.read(Call("serving_now", params)) if rows[0]["finished_at"] is None else []
        return why(standing_of(rows, living(serving, self.driver.guards)))

    async def _steered(self, script: Callable[[], Script[list[Row] | None]], run_id: int) -> list[Row]:
        """What a script has changed; it may be repeated, and there has to be such a run."""
        self.check()
        changed = await repeated(
            lambda: self.driver.transact(script),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )
        if changed is None:
            raise await self._no_run(run_id)
        return changed

    def _holding(self, run_id: int, reason: str | None, *, again: bool) -> Script[list[Row] | None]:
        found = yield Call("lock_run", self._params(id=run_id))
        if not found:
            return None
        held = yield Call("hold_run", self._params(id=run_id, reason=reason))
        yield from requesting(Wish.PAUSE, held)
        if not again or found[0]["held_at"] is None:  # else by the try before this one, whose reply was lost
            yield from self.audit.of_all(self._params(), held, What.PAUSED, reason)
        return held

    def _letting_go(self, run_id: int, *, again: bool) -> Script[list[Row] | None]:
        found = yield Call("lock_run", self._params(id=run_id))
        if not found:
            return None
        let_go = yield Call("let_go_run", self._params(id=run_id))
        if found[0]["owner"] is not None:  # which may not have heard of the pause yet
            place = {"worker": found[0]["owner"], "id": run_id, "turn": found[0]["turn"], "request": str(Wish.PAUSE)}
            yield Call("take_back_request", place)
        yield from self.audit.of_all(self._params(), let_go, What.UNPAUSED)
        if again and not let_go and found[0]["finished_at"] is None:
            return list(found)  # by the try before this one, whose reply was lost
        return let_go

    def _cancelling(self, run_id: int, reason: str | None, woken: set[int], *, again: bool) -> Script[list[Row] | None]:
        yield Call("lock_trees", {}, [(run_id,)])
        found = yield Call("lock_run", self._params(id=run_id))
        if not found:
            return None
        if again and found[0]["status"] == RunStatus.CANCELLED:
            return list(found)  # by the try before this one, whose reply was lost: what it answered is true
        before = set() if found[0]["cancel_requested_at"] is None else {run_id}
        return (yield from cancelling(self._params(), [run_id], reason, woken, self.audit, before=before))

    def _tell_cancelled(self, changed: Iterable[Row], woken: set[int]) -> None:
        """Say what was cancelled to whoever waits for it, and to the workers that are to stop it."""
        changed = list(changed)
        self.results.finished([row["id"] for row in changed if row["status"] == RunStatus.CANCELLED])
        self.tasks.wished(
            Wish.CANCEL, {row["id"]: row["turn"] for row in changed if row["status"] == RunStatus.RUNNING}
        )
        self.tasks.hint(woken)


def requesting(wish: Wish, rows: Iterable[Row]) -> Script[None]:
    """Ask the workers of these tasks, of those that have one, to stop them; after the statement that locked them."""
    if turns := [(row["owner"], row["id"], row["turn"]) for row in rows if row["owner"] is not None]:
        yield Call("request_control", {"request": str(wish)}, turns)


def cancelling(
    params: dict[str, Value],
    run_ids: Sequence[int],
    reason: str | None,
    woken: set[int],
    audit: Audit,
    *,
    before: set[int],
) -> Script[list[Row]]:
    """Cancel runs and, level by level, what they asked for; what was changed. `woken` gets the queues of what is ready.

    Those cancelled `before` are asked again, but not what they asked for: that was cancelled with them, and what they
    have asked for since is part of their cleanup.
    """
    message = "cancelled" if reason is None else f"cancelled: {reason}"
    error = json.dumps({"type": "Cancelled", "message": reason or "no reason was given"})
    changed: dict[int, Row] = {}
    level: list[tuple[Value, ...]] = [(run_id,) for run_id in sorted(run_ids)]
    while level:
        rows = yield Call("cancel_tasks", {**params, "error": error, "last_error": message}, level)
        changed |= {row["id"]: row for row in rows}
        yield from requesting(Wish.CANCEL, rows)
        # What was finished before is left alone, and so is what it asked for.
        stopped = [(row["id"],) for row in rows if row["id"] not in before]
        children = (yield Call("unfinished_children", {}, stopped)) if stopped else []
        before = {row["id"] for row in children if row["requested"]}
        level = [(row["id"],) for row in children if row["id"] not in changed]
    ended = [row for row in changed.values() if row["status"] == RunStatus.CANCELLED]
    if ended:
        yield Call("end_steps", params, [(row["id"], row["status"]) for row in ended])
    woken |= {row["queue_id"] for row in changed.values() if row["ready"]}
    yield from audit.noted(params, [_cancel_note(row, run_ids, reason) for row in changed.values()])
    woken |= yield from wake_parents(params, ended)
    return list(changed.values())


def _cancel_note(row: Row, run_ids: Sequence[int], reason: str | None) -> Note:
    what = What.CANCELLED if row["status"] == RunStatus.CANCELLED else What.CANCEL_REQUESTED
    said = reason if row["id"] in run_ids else f"with run {row['parent_id']}"
    return Note(row["id"], what, said, answer=row["status"])  # asked again after a lost reply, it is noted once
