"""The verbs of those who look after a store: see what is there, stop and resume, bring back, remove."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepwell.errors import InvalidOption
from stepwell.names import check_filter, check_id, check_whole
from stepwell.records import DeadLetter, Page, QueueInfo, Task, WorkerInfo
from stepwell.store.opened import Opened


class Operating(Opened):
    """Queues, tasks and workers as operators see them."""

    async def pause_queue(self, queue: str) -> None:
        """Let nobody claim from the queue until it is resumed; what is under way goes on."""
        self.check()
        await self._queues.pause(queue, paused=True)

    async def resume_queue(self, queue: str) -> None:
        """Let the queue be claimed from again."""
        self.check()
        await self._queues.pause(queue, paused=False)
        self.tasks.hint({await self.queue_id(queue)})

    async def purge(self, queue: str) -> int:
        """Delete the queue's messages, whatever their status, except those a worker is executing; how many."""
        await self.queue_id(queue)
        return await self._queues.purge(queue)

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue; refused with the counts while it has messages, living workers or a workflow."""
        self.check()
        await self._queues.delete(queue)

    async def get(self, task_id: int) -> Task | None:
        """One message (or other task) as it stands; None if it is not there."""
        self.check()
        return await self._queues.task(check_id(task_id))

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
        limit: int = 100,
        after: str | None = None,
    ) -> Page[DeadLetter]:
        """Tasks that ended in ERROR, oldest first: of one queue, kind, or type of error if given."""
        await self.known(queue)
        return await self._queues.dead_letters(
            queue=queue,
            kind=check_filter("kind", kind),
            error=check_filter("error", error),
            limit=check_whole("limit", limit, 1, 10_000),
            after=after,
        )

    async def requeue(self, *ids: int, queue: str | None = None, error: str | None = None) -> int:
        """Give dead letters all their attempts again: those named, or all of a queue or type of error.

        Returns how many; a task that succeeded, was cancelled or is still under way is never touched, nor one whose
        key has been taken again meanwhile.
        """
        chosen = _filter(ids, queue, error)
        await self.known(queue)
        rows = await self._queues.requeue(ids, **chosen)
        self.tasks.hint({row["queue_id"] for row in rows})
        return len(rows)

    async def drop(self, *ids: int, queue: str | None = None, error: str | None = None) -> int:
        """Delete dead letters: those named, or all of a queue or type of error. Returns how many."""
        chosen = _filter(ids, queue, error)
        await self.known(queue)
        return len(await self._queues.drop(ids, **chosen))


def _filter(ids: Sequence[int], queue: str | None, error: str | None) -> dict[str, str | None]:
    if bool(ids) == (queue is not None or error is not None):
        raise InvalidOption("ids", ids, "name the tasks, or give `queue` or `error` to take all that fit")
    for task_id in ids:
        if isinstance(task_id, Iterable):
            raise InvalidOption("ids", task_id, "pass them one by one: `requeue(*ids)`, `drop(*ids)`")
        check_id(task_id)
    return {"queue": queue, "error": check_filter("error", error)}
