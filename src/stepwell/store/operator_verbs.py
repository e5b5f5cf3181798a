"""The verbs of a store for operators: look at it, measure, steer, restore, remove.

They are apart from `Store`, which has the verbs that applications call, because one file would be too long to read.
Each verb is a line or a few over the service that does the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from stepwell.base.count import Count
from stepwell.base.durations import Duration, microseconds_of
from stepwell.base.names import check_id, check_name
from stepwell.records import (
    Aside,
    AuditInfo,
    DeadLetter,
    Health,
    Maintenance,
    Page,
    QueueInfo,
    QueueStats,
    SignalAnswer,
    StoredVersion,
    TaskKind,
    Unserved,
    WorkerInfo,
    WorkflowInfo,
)
from stepwell.store.groups import GroupStats
from stepwell.store.horizon import Appender
from stepwell.store.metrics import DeadCount, Metrics, QueueMetrics
from stepwell.store.run_filter import RunFilter
from stepwell.store.run_key import WhichRun
from stepwell.store.why import Why

if TYPE_CHECKING:
    from stepwell.store.database import Database


class OperatorVerbs:
    """Queues, tasks, runs and workers as operators see them."""

    database: Database

    async def queues(self) -> Sequence[QueueInfo]:
        """Every queue, by name."""
        self.database.check()
        return await self.database.queues.all()

    async def counts(self, queue: str, *, exact: bool = False) -> dict[str, Count]:
        """How many messages of a queue have each status; a status that none has is left out.

        Of each sort at most 10,000 are counted, unless `exact` numbers are asked for: a larger one is a floor (`10k+`).
        """
        await self.database.queue_id(queue)
        return {str(status): count for status, count in (await self.database.queues.counts(queue, exact=exact)).items()}

    async def ordered_groups(self) -> Sequence[GroupStats]:
        """How much waits in order, for how long, and what stands still, of each queue that has ordered groups.

        The inputs that were submitted to an instance are such a group.
        """
        self.database.check()
        return await self.database.groups.stats()

    async def pause_queue(self, queue: str, *, reason: str | None = None, actor: str | None = None) -> None:
        """Stop claims from the queue until it is resumed; tasks that are being executed go on."""
        self.database.check()
        await self.database.queues.pause(check_name("queue", queue), self.database.by(actor, reason), paused=True)

    async def resume_queue(self, queue: str, *, actor: str | None = None) -> None:
        """Allow claims from the queue again."""
        self.database.check()
        await self.database.queues.pause(check_name("queue", queue), self.database.by(actor), paused=False)
        self.database.wakeups.hint({await self.database.queue_id(queue)})

    async def purge(self, queue: str, *, reason: str | None = None, actor: str | None = None) -> int:
        """Delete the queue's messages of every status, except those that a worker is executing; return how many."""
        await self.database.queue_id(queue)
        return await self.database.queues.purge(queue, self.database.by(actor, reason))

    async def delete_queue(self, queue: str, *, actor: str | None = None) -> None:
        """Delete a queue; refused with the counts while it has messages, living workers or a workflow."""
        self.database.check()
        await self.database.queues.delete(check_name("queue", queue), self.database.by(actor))

    async def drain_queue(self, queue: str, *, wait: Duration = 0, actor: str | None = None) -> int:
        """Close the queue to new messages while workers finish those that it has; return how many are left.

        Enqueueing to it raises `QueueDraining`. What pending work leads to is accepted and counts: children of runs,
        and the effects, timers, messages and runs that a decider's pending tasks lead to. The two queues of a decider
        are drained together, whichever is named. Waits up to `wait` until none is left; 0 means that it is drained.
        """
        self.database.check()
        return await self.database.admission.worked_off(check_name("queue", queue), wait, self.database.by(actor))

    async def reopen_queue(self, queue: str, *, actor: str | None = None) -> None:
        """Let a queue that is being drained accept messages again."""
        self.database.check()
        await self.database.admission.drain(check_name("queue", queue), self.database.by(actor), draining=False)

    async def unserved(self) -> Sequence[Unserved]:
        """The queues with unfinished messages that no living worker serves, by name; `waiting` is counted to 10,000."""
        self.database.check()
        return await self.database.admission.unserved()

    async def workflows(self) -> Sequence[WorkflowInfo]:
        """Every workflow, by name."""
        self.database.check()
        return await self.database.workflows.all()

    async def get_workflow(self, name: str) -> WorkflowInfo:
        """One workflow; `WorkflowNotFound` if there is none of this name."""
        self.database.check()
        return await self.database.workflows.get(check_name("workflow", name))

    async def delete_workflow(self, name: str, *, actor: str | None = None) -> None:
        """Remove a workflow and its queue; refused with the counts while it has runs or living workers."""
        self.database.check()
        await self.database.queues.delete(check_name("workflow", name), self.database.by(actor), of_workflow=True)
        self.database.workflows.names.forget(name)

    async def delete(self, task: WhichRun, reason: str | None = None, *, actor: str | None = None) -> bool:
        """Delete a task so that it can be restored, until it is pruned; False if it is not there, or deleted already.

        Its status stays, no worker claims it any more, and its key is free at once. A task that is being executed may
        finish, and its outcome is recorded.
        """
        self.database.check()
        by = self.database.by(actor, reason)
        return await self.database.admission.delete(check_id(await self.database.run_id(task)), by)

    async def restore(self, task_id: int, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Bring back a deleted task as it was; False if it is gone, or was not deleted.

        Raises `KeyTaken`, with the other task's id, if another task has its key now.
        """
        self.database.check()
        restored = await self.database.admission.restore(check_id(task_id), self.database.by(actor, reason))
        if restored is not None and restored["ready"]:
            self.database.wakeups.hint({restored["queue_id"]})
        return restored is not None

    async def release(self, task_id: int, *, delay: Duration = 0, actor: str | None = None) -> bool:
        """Give back a message that was taken by hand, with its attempt; False if it is not taken.

        From then on the verbs of its consumer return False. Raises `TaskInUse` if a worker is executing it.
        """
        later = microseconds_of(delay, "delay")
        return await self.database.taken_messages.release_held(check_id(task_id), later, self.database.by(actor))

    async def archive(self, task_id: int, *, actor: str | None = None) -> bool:
        """Keep a message as SUCCESS and never deliver it again; False if it is finished, or not there.

        This includes a message that was taken by hand: the verbs of its consumer return False from then on. Raises
        `TaskInUse` if a worker is executing it.
        """
        return await self.database.taken_messages.archive_unfinished(check_id(task_id), self.database.by(actor))

    async def dead_letters(
        self,
        *,
        queue: str | None = None,
        kind: TaskKind | str | None = None,
        error: str | None = None,
        instance: tuple[str, str] | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[DeadLetter]:
        """Tasks that ended in ERROR, oldest first: of one queue, kind, type of error, or decider instance if given.

        An `instance` is named by its type and id, `("order", "42")`: its effects, timers and submitted inputs. Raises
        `DeciderNotFound` if the store has no decider of this type.
        """
        page = self.database.dead_letters.page
        return await page(queue=queue, kind=kind, error=error, instance=instance, limit=limit, after=after)

    async def requeue(
        self,
        *ids: int,
        queue: str | None = None,
        error: str | None = None,
        succeeded: bool = False,
        reason: str | None = None,
        actor: str | None = None,
    ) -> int:
        """Give dead letters all their attempts again: those named, or all of a queue or type of error.

        Returns how many; a task that was cancelled or is still under way is never touched, nor one whose key has been
        taken again meanwhile. With `succeeded` messages that succeeded are delivered again too, if they are named by
        their ids: each is the same message as before, with its id and key.
        """
        by = self.database.by(actor, reason)
        return await self.database.dead_letters.requeue(ids, queue, error, by, succeeded=succeeded)

    async def drop(
        self,
        *ids: int,
        queue: str | None = None,
        error: str | None = None,
        reason: str | None = None,
        actor: str | None = None,
    ) -> int:
        """Delete dead letters: those named, or all of a queue or type of error. Returns how many."""
        return await self.database.dead_letters.drop(ids, queue, error, self.database.by(actor, reason))

    async def prune(
        self,
        older_than: Duration | None = None,
        *,
        dead_letters: bool = False,
        dry_run: bool = False,
        actor: str | None = None,
    ) -> int:
        """Remove for good what finished, or was deleted, longer ago than that; dead letters only if asked. How many.

        Without a span it is what the store keeps, `connect(keep=)`: 7 days unless said otherwise. What is not finished
        is never touched, nor a task whose parent is not. With `dry_run` they are only counted.
        """
        self.database.check()
        by = self.database.by(actor)
        return await self.database.retention.prune(older_than, by, dead_letters=dead_letters, dry_run=dry_run)

    async def pause(self, run: WhichRun, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Hold a run back until `unpause`; False if it is finished, or is being cancelled.

        A run that no worker executes is PAUSED at once. Otherwise its worker stops it as it does for `cancel`, and
        gives its attempt back: the records of its steps stay, and the step that is being executed will be executed
        again. If the run ends before it is stopped, that end does not count: after `unpause` it comes to the same end.
        Until then it does not go on: signals are kept, and the time of a sleep passes. Its children are not paused.
        """
        return await self.database.control.pause(await self.database.run_id(run), self.database.by(actor, reason))

    async def unpause(self, run: WhichRun, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Let a paused run go on where it was; False if no operator has paused it, or it is finished."""
        return await self.database.control.unpause(await self.database.run_id(run), self.database.by(actor, reason))

    async def accept(self, run: WhichRun, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Let a run go on that is held because its code has changed; False if it is not held for that.

        It does not ask again for what it has recorded under the names that it was held for, so it executes the step
        that it was about to execute. This holds only for this run, and its forks; it is not held again for these names.
        """
        return await self.database.control.accept(await self.database.run_id(run), self.database.by(actor, reason))

    async def resolve(
        self,
        run: WhichRun,
        step: str,
        *,
        done: bool,
        value: Any = None,
        reason: str | None = None,
        actor: str | None = None,
    ) -> SignalAnswer:
        """Say what became of a step that begins at most once and was interrupted: done, and what it returns, or not.

        Only if it is not done does its body begin again. `NotInDoubt` if the run does not wait for that.
        """
        by = self.database.by(actor, reason)
        return await self.database.signals.resolve(run, step, by, done=done, value=value)

    async def why(self, run: WhichRun) -> Why:
        """Why a run, or a submitted input, stands where it stands: for programs, in words, and what happens next."""
        return await self.database.control.why(await self.database.run_id(run))

    async def history(self, run: WhichRun) -> Sequence[AuditInfo]:
        """What was noted of a run, or of a message, in the order in which it happened: nothing if all went well.

        What is noted at all says `connect(audit=)`; it is kept for `keep_audit`, 30 days, and not longer than the run.
        """
        return await self.database.history.of(check_id(await self.database.run_id(run)))

    async def cancel_runs(
        self, *, reason: str | None = None, actor: str | None = None, **which: Unpack[RunFilter]
    ) -> int:
        """Cancel the unfinished runs that match, as `cancel` does; return how many were cancelled or asked to stop.

        The filter is that of `runs`. Without one, say `everything=True`. Runs triggered meanwhile are left alone. Each
        transaction is bounded: if one fails, those before it stay committed, and you may call this again.
        """
        return await self.database.bulk.cancel(which, self.database.by(actor, reason))

    async def retry_runs(
        self, *, reason: str | None = None, actor: str | None = None, **which: Unpack[RunFilter]
    ) -> int:
        """Execute the failed runs that match again, as `retry` does; return how many. See `cancel_runs`.

        Runs that were cancelled go on only if they are asked for: `status="CANCELLED"`, or both.
        """
        return await self.database.bulk.retry(which, self.database.by(actor, reason))

    async def delete_runs(
        self, *, reason: str | None = None, actor: str | None = None, **which: Unpack[RunFilter]
    ) -> int:
        """Delete the runs that match, as `delete` does: they can be restored until they are pruned. Return how many."""
        return await self.database.bulk.delete(which, self.database.by(actor, reason))

    async def begin_maintenance(self, reason: str | None = None, *, actor: str | None = None) -> None:
        """Stop all claims until `end_maintenance`; tasks that are being executed go on, and no attempt is spent."""
        self.database.check()
        await self.database.admission.begin_maintenance(self.database.by(actor, reason))

    async def end_maintenance(self, *, actor: str | None = None) -> None:
        """Allow claims again; does nothing if they are allowed."""
        self.database.check()
        self.database.wakeups.hint(set(await self.database.admission.end_maintenance(self.database.by(actor))))

    async def maintenance(self) -> Maintenance | None:
        """Since when and why nothing is claimed, and how many tasks are still being executed; None if claims go on."""
        self.database.check()
        return await self.database.admission.maintenance()

    async def workers(self) -> Sequence[WorkerInfo]:
        """The newest worker sessions, living and ended."""
        self.database.check()
        return await self.database.sessions.latest()

    async def queue_stats(self, *, exact: bool = False) -> Sequence[QueueStats]:
        """How full every queue is, by name; counted to 10,000 of each sort, or with `exact` to the end."""
        return await self.database.measurements.queue_stats(exact=exact)

    async def dead_letter_counts(self, *, exact: bool = False) -> Sequence[DeadCount]:
        """How many dead letters there are, by queue and kind; a queue without any is left out. See `queue_stats`."""
        return await self.database.measurements.dead_letter_counts(exact=exact)

    async def set_aside(self, *, exact: bool = False) -> Sequence[Aside]:
        """The runs that go on only when a person lets them: what they need, how many, and for how long.

        Of each workflow the 10,000 that were made first are looked at, or with `exact` all.
        """
        return await self.database.measurements.set_aside(exact=exact)

    async def stored_versions(self) -> Sequence[StoredVersion]:
        """Under which names and versions the newest million events are stored, and tasks that no worker could read."""
        return await self.database.measurements.stored_versions()

    async def health(self) -> Health:
        """What the database reports of itself: its version, its clock, and the settings that durability depends on."""
        return await self.database.measurements.health()

    async def appenders(self) -> Sequence[Appender]:
        """The open transactions that have appended events, the one that holds readers up first; ten at the most."""
        self.database.check()
        return await self.database.feed.appenders()

    async def metrics(self, name: str | None = None, *, window: Duration = "1h", exact: bool = False) -> Metrics:
        """What a workflow did in the last `window`, and how it stands; of all workflows together if none is named.

        `"process*"` is every workflow whose name begins so, such as all versions of one. Raises `WorkflowNotFound` if
        there is none. Of each workflow and status at most 10,000 runs are looked at, or with `exact` all.
        """
        return await self.database.measurements.metrics(name, window, exact=exact)

    async def metrics_by_workflow(
        self,
        name: str | None = None,
        *,
        window: Duration = "1h",
        join_versions: bool = False,
        steps: bool = False,
        exact: bool = False,
    ) -> Mapping[str, Metrics]:
        """The same for each workflow, by its name; for those whose name begins so, with `"process*"`.

        With `join_versions`, `process.v1` and `process_v2` are one, called `process`. Steps are told if asked for.
        """
        return await self.database.measurements.metrics_by_workflow(
            name, window, join_versions=join_versions, steps=steps, exact=exact
        )

    async def queue_metrics(self, *, window: Duration = "1h") -> Mapping[str, QueueMetrics]:
        """How tasks of each queue were settled in the last `window`, by its name; a queue without any is left out.

        What that costs grows with the minutes of the window, not with the tasks.
        """
        return await self.database.measurements.queue_metrics(window)

    async def prometheus(self, *, window: Duration = "5m", events: bool = True, exact: bool = False) -> str:
        """What is measured of queues, workers and workflows, in the text format of Prometheus.

        `window` is how far back runs that have ended count; `events` adds what this process has told in its log.
        Numbers of tasks end at 10,000 unless they are to be `exact`.
        """
        return await self.database.measurements.prometheus(window, events=events, exact=exact)
