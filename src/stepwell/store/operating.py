"""The verbs of those who look after a store: see what is there, stop and resume, bring back, remove."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from stepwell.durations import Duration, microseconds_of, seconds_of
from stepwell.errors import DeciderNotFound, InvalidOption
from stepwell.names import check_filter, check_id, check_key, check_name, check_whole
from stepwell.records import DeadLetter, Maintenance, Page, QueueInfo, Task, Unserved, WorkerInfo
from stepwell.store.opened import Opened
from stepwell.store.polling import LONGEST_POLL, SHORTEST_POLL

INPUTS: Final = ":inputs"  # what the name of a decider's queue of inputs ends with


class Operating(Opened):
    """Queues, tasks and workers as operators see them."""

    async def pause_queue(self, queue: str) -> None:
        """Let nobody claim from the queue until it is resumed; what is under way goes on."""
        self.check()
        await self._queues.pause(check_name("queue", queue), paused=True)

    async def resume_queue(self, queue: str) -> None:
        """Let the queue be claimed from again."""
        self.check()
        await self._queues.pause(check_name("queue", queue), paused=False)
        self.tasks.hint({await self.queue_id(queue)})

    async def purge(self, queue: str) -> int:
        """Delete the queue's messages, whatever their status, except those a worker is executing; how many."""
        await self.queue_id(queue)
        return await self._queues.purge(queue)

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue; refused with the counts while it has messages, living workers or a workflow."""
        self.check()
        await self._queues.delete(check_name("queue", queue))

    async def drain_queue(self, queue: str, *, wait: Duration = 0) -> int:
        """Let the queue take no new messages while what is there is worked off; how many are still to do.

        Enqueueing to it raises `QueueDraining`. What pending work leads to goes in and counts: children of runs, and
        the effects, timers, messages and runs that a decider's pending tasks lead to. The two queues of a decider are
        drained together, whichever is named. Waits up to `wait` until there are none; 0 says that it is drained.
        """
        self.check()
        until = asyncio.get_running_loop().time() + seconds_of(wait, "wait")
        queues = await self.serving.drain(check_name("queue", queue), draining=True)
        pause = SHORTEST_POLL
        while left := await self.serving.unfinished(queue, queues):
            rest = until - asyncio.get_running_loop().time()
            if rest <= 0:
                break
            await asyncio.sleep(min(pause, rest))
            pause = min(LONGEST_POLL, pause * 1.5)
        return left

    async def reopen_queue(self, queue: str) -> None:
        """Let a queue that is being drained take messages again."""
        self.check()
        await self.serving.drain(check_name("queue", queue), draining=False)

    async def begin_maintenance(self, reason: str | None = None) -> None:
        """Let nobody claim anything until `end_maintenance`; what is under way goes on, and no attempt is spent."""
        self.check()
        await self.serving.begin_maintenance(check_filter("reason", reason))

    async def end_maintenance(self) -> None:
        """Let everybody claim again; does nothing if they may."""
        self.check()
        self.tasks.hint(set(await self.serving.end_maintenance()))

    async def maintenance(self) -> Maintenance | None:
        """Since when and why nothing is claimed, and how many tasks are still being executed; None if it is not so."""
        self.check()
        return await self.serving.maintenance()

    async def unserved(self) -> Sequence[Unserved]:
        """The queues with unfinished messages that no living worker serves, by name; `waiting` is counted to 10,000."""
        self.check()
        return await self.serving.unserved()

    async def delete(self, task_id: int, reason: str | None = None) -> bool:
        """Delete a task so that it can be restored, until it is pruned; False if it is not there, or deleted already.

        Its status stays, nobody claims it any more, and its key is free at once. One that is being executed may finish
        and have its outcome recorded.
        """
        self.check()
        return await self.serving.delete(check_id(task_id), check_filter("reason", reason))

    async def restore(self, task_id: int) -> bool:
        """Bring back a deleted task as it was; False if it is gone, or was not deleted.

        Raises `KeyTaken`, with the other task's id, if its key has been taken again meanwhile.
        """
        self.check()
        restored = await self.serving.restore(check_id(task_id))
        if restored is not None and restored["ready"]:
            self.tasks.hint({restored["queue_id"]})
        return restored is not None

    async def release(self, task_id: int, *, delay: Duration = 0) -> bool:
        """Give back a message that somebody has taken by hand, its attempt too; False if it is not taken.

        Whoever took it is told False by its verbs from then on. Raises `TaskInUse` if a worker is executing it.
        """
        return await self.by_hand.release_held(check_id(task_id), microseconds_of(delay, "delay"))

    async def archive(self, task_id: int) -> bool:
        """Have a message never delivered again and kept as SUCCESS; False if it is finished, or not there.

        Also one that somebody has taken by hand, who is told False from then on. Raises `TaskInUse` if a worker is
        executing it.
        """
        return await self.by_hand.archive_unfinished(check_id(task_id))

    async def prune(
        self, older_than: Duration | None = None, *, dead_letters: bool = False, dry_run: bool = False
    ) -> int:
        """Remove for good what finished, or was deleted, longer ago than that; dead letters only if asked. How many.

        Without a span it is what the store keeps, `connect(keep=)`: 7 days unless said otherwise. What is not finished
        is never touched, nor a task whose parent is not. With `dry_run` they are only counted.
        """
        self.check()
        given = self.options.keep if older_than is None else older_than
        if given is None:
            raise InvalidOption(
                "older_than", None, "this store keeps what is finished for ever: say how old it must be"
            )
        age = seconds_of(given, "older_than")
        if dry_run:
            return await self.retention.count(age, dead_letters=dead_letters)
        return await self.retention.prune(age, dead_letters=dead_letters)

    async def get(self, task_id: int, *, deleted: bool = False) -> Task | None:
        """One message (or other task) as it stands; None if it is not there, or deleted, unless `deleted` is True."""
        self.check()
        return await self._queues.task(check_id(task_id), deleted=deleted)

    async def queues(self) -> Sequence[QueueInfo]:
        """Every queue, by name."""
        self.check()
        return await self._queues.all()

    async def counts(self, queue: str) -> dict[str, int]:
        """How many messages of a queue have each status; a status that none has is left out."""
        await self.queue_id(queue)
        return {str(status): count for status, count in (await self._queues.counts(queue)).items()}

    async def workers(self) -> Sequence[WorkerInfo]:
        """The newest worker sessions, living and ended."""
        self.check()
        return await self.sessions.latest()

    async def dead_letters(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        error: str | None = None,
        instance: tuple[str, str] | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[DeadLetter]:
        """Tasks that ended in ERROR, oldest first: of one queue, kind, type of error, or decider instance if given.

        An `instance` is named by its type and id, `("order", "42")`: its effects, timers and submitted inputs. Raises
        `DeciderNotFound` if the store has no decider of this type.
        """
        await self.known(queue)
        await self._known_instance(instance)
        return await self._queues.dead_letters(
            queue=queue,
            kind=check_filter("kind", kind),
            error=check_filter("error", error),
            instance=instance,
            limit=check_whole("limit", limit, 1, 10_000),
            after=after,
        )

    async def requeue(
        self, *ids: int, queue: str | None = None, error: str | None = None, succeeded: bool = False
    ) -> int:
        """Give dead letters all their attempts again: those named, or all of a queue or type of error.

        Returns how many; a task that was cancelled or is still under way is never touched, nor one whose key has been
        taken again meanwhile. With `succeeded` messages that succeeded are delivered again too, if they are named by
        their ids: each is the same message as before, with its id and key.
        """
        chosen = _filter(ids, queue, error)
        if succeeded and not ids:
            raise InvalidOption("succeeded", succeeded, "name the messages by their ids: a filter takes dead letters")
        await self.known(queue)
        rows = await self._queues.requeue(ids, **chosen, succeeded=bool(succeeded))
        self.tasks.hint({row["queue_id"] for row in rows})
        return len(rows)

    async def drop(self, *ids: int, queue: str | None = None, error: str | None = None) -> int:
        """Delete dead letters: those named, or all of a queue or type of error. Returns how many."""
        chosen = _filter(ids, queue, error)
        await self.known(queue)
        return len(await self._queues.drop(ids, **chosen))

    async def _known_instance(self, instance: object) -> None:
        """Refuse a misspelt type of decider instead of finding nothing of it."""
        match instance:
            case None:
                return
            case (str() as type_, str() as name):
                check_key(name, "instance")
            case _:
                raise InvalidOption("instance", instance, 'name it by its type and id: `instance=("order", "42")`')
        names = [one.name for one in await self._queues.all()]
        known = tuple(name.removesuffix(INPUTS) for name in names if name.endswith(INPUTS))
        if type_ not in known:
            raise DeciderNotFound(type_, known)


def _filter(ids: Sequence[int], queue: str | None, error: str | None) -> dict[str, str | None]:
    if bool(ids) == (queue is not None or error is not None):
        raise InvalidOption("ids", ids, "name the tasks, or give `queue` or `error` to take all that fit")
    for task_id in ids:
        if isinstance(task_id, Iterable):
            raise InvalidOption("ids", task_id, "pass them one by one: `requeue(*ids)`, `drop(*ids)`")
        check_id(task_id)
    return {"queue": queue, "error": check_filter("error", error)}
