"""Dead letters: tasks that ended in ERROR, and what people do with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stepwell.base.durations import datetime_of
from stepwell.base.names import check_filter, check_id, check_key, check_whole
from stepwell.errors import DeciderNotFound, InvalidOption, Refused, StillStopping
from stepwell.records import DeadLetter, Page, TaskKind
from stepwell.store.audit import By, What
from stepwell.store.control import cancelled_together
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.ordered_groups import groups_of, let_next_go
from stepwell.store.progress import tell_done
from stepwell.store.retention import remove_belongings
from stepwell.store.settle import lock_families
from stepwell.values.named_codecs import shown_value

if TYPE_CHECKING:
    from stepwell.store.database import Database

CHUNK: Final = 1000
INPUTS: Final = ":inputs"  # the end of the name of a decider's queue of inputs


@dataclass(eq=False)
class DeadLetters:
    """Lists tasks that ended in ERROR, delivers them again, and removes them."""

    _db: Database

    async def page(
        self,
        *,
        queue: str | None,
        kind: TaskKind | str | None,
        error: str | None,
        instance: tuple[str, str] | None,
        limit: int,
        after: str | None,
        whole: bool = True,
    ) -> Page[DeadLetter]:
        """Tasks in ERROR, oldest first; with their payloads and errors only if they are to be whole."""
        await self._db.known(queue)
        await self._known_instance(instance)
        check_whole("limit", limit, 1, 10_000)
        after_time, after_id = place_of(after)
        filters = self._db.params(kind=None if kind is None else _kind(kind), error=check_filter("error", error))
        place: dict[str, Value] = {"after_time": after_time, "after_id": after_id, "limit": limit + 1}
        if instance is None:
            asking = Call("dead_letters", {**filters, **place, "queue": queue, "whole": whole})
        else:
            asking = Call("dead_letters_of", {**filters, **place, **_of(*instance, queue)})
        rows = await self._db.driver.read(asking)
        page = [dead_letter(row) for row in rows[:limit]]
        last = rows[limit - 1] if len(rows) > limit else None
        return Page(page, next=None if last is None else f"{last['finished_at']}-{last['id']}")

    async def requeue(
        self, ids: Sequence[int], queue: str | None, error: str | None, by: By, *, succeeded: bool
    ) -> int:
        """Put tasks in ERROR, or messages that `succeeded`, back to the beginning: those named, or all that match."""
        chosen = _filter(ids, queue, error)
        if succeeded and not ids:
            raise InvalidOption("succeeded", succeeded, "name the messages by their ids: a filter takes dead letters")
        await self._db.known(queue)
        requeue = partial(self._requeue, by, succeeded=bool(succeeded))
        return self._ready(await self._each_chunk(ids, chosen, requeue))

    async def requeue_runs(self, by: By, run_ids: Sequence[int]) -> int:
        """Put these runs in ERROR back to the beginning; return how many."""
        return self._ready(await self._each_chunk(run_ids, {}, partial(self._requeue, by)))

    async def drop(self, ids: Sequence[int], queue: str | None, error: str | None, by: By) -> int:
        """Remove tasks in ERROR: those named, or all that match the filter."""
        chosen = _filter(ids, queue, error)
        await self._db.known(queue)
        dropped = await self._each_chunk(ids, chosen, partial(self._drop, by))
        self._db.wakeups.hint({queue_id for queue_id, _ in groups_of(dropped)})
        return len(dropped)

    def _ready(self, rows: Sequence[Row]) -> int:
        self._db.wakeups.hint({row["queue_id"] for row in rows})
        return len(rows)

    async def _each_chunk(
        self,
        ids: Sequence[int],
        chosen: dict[str, Value],
        change: Callable[[Sequence[int]], Script[list[Row]]],
    ) -> list[Row]:
        """Change the tasks named, or found by the filter, a bounded number in each transaction."""
        changed: list[Row] = []
        if ids:
            for start in range(0, len(ids), CHUNK):
                chunk = sorted(ids[start : start + CHUNK])
                changed += await self._db.driver.transact(partial(change, chunk))
                tell_done(len(chunk))
            return changed
        filters = self._db.params(**chosen, limit=CHUNK)
        while found := [row["id"] for row in await self._db.driver.read(Call("dead_ids", filters))]:
            rows = await self._db.driver.transact(partial(change, found))
            changed += rows
            tell_done(len(rows))
            if not rows:
                break  # another process changes the same tasks: let it
        return changed

    def _requeue(
        self, by: By, ids: Sequence[int], what: What = What.REQUEUED, *, succeeded: bool = False
    ) -> Script[list[Row]]:
        """Requeue all, or if a key is in use again, all that can be; the failed steps of a run are executed again."""
        yield from lock_families(ids)
        failed = yield Call("failed_runs", {}, [(task_id,) for task_id in ids])
        children = yield from self._ended_with(failed)
        stopping = {row["parent_id"] for row in children if row["stopping"]}
        if what is What.RETRIED and stopping:
            raise StillStopping(ids[0], [row["id"] for row in children if row["stopping"]])
        untried = [going_on] if (going_on := [task_id for task_id in ids if task_id not in stopping]) else []
        requeued: list[Row] = []
        while untried:
            part = untried.pop()
            yield Call("savepoint")
            try:
                requeued += yield Call(
                    "requeue", self._db.params(succeeded=succeeded), [(task_id,) for task_id in part]
                )
            except Refused:
                yield Call("rollback_to_savepoint")
                if len(part) > 1:
                    untried += [part[: len(part) // 2], part[len(part) // 2 :]]
            yield Call("release_savepoint")
        yield from _reopen(failed, requeued)
        yield from self._going_on(by, children, {row["id"] for row in requeued})
        yield from self._db.audit.of_all(self._db.params(), requeued, what, by=by)
        return requeued

    def _ended_with(self, failed: Sequence[Row]) -> Script[list[Row]]:
        """The runs that were cancelled by the ends of these."""
        told = [(row["id"], int(is_out_of_time(row["error"])), row["ends_children"]) for row in failed]
        parents = [(run_id, timed_out) for run_id, timed_out, ends in told if timed_out or ends]
        return (yield Call("ended_with", {}, parents)) if parents else []

    def _going_on(self, by: By, children: Sequence[Row], parents: set[int]) -> Script[None]:
        """Let the runs that were cancelled by the ends of these go on too, each unless its key is in use again."""
        params = self._db.params()
        for child in (row for row in children if row["parent_id"] in parents):
            tree = yield from cancelled_together(params, [child])
            yield Call("savepoint")
            try:
                again = yield Call("retry_cancelled", params, [(row["id"],) for row in tree])
            except Refused:
                yield Call("rollback_to_savepoint")
                again = []
            yield Call("release_savepoint")
            yield from self._db.audit.of_all(params, again, What.RETRIED, by=by)

    def retrying(self, by: By, run_id: int) -> Script[list[Row]]:
        """Put a run in ERROR back to the beginning; nothing if it is not in ERROR, or another run has its key now."""
        if not (yield Call("failed_runs", {}, [(run_id,)])):
            return []
        return (yield from self._requeue(by, [run_id], What.RETRIED))

    def _drop(self, by: By, ids: Sequence[int]) -> Script[list[Row]]:
        yield from lock_families(ids)
        removed = yield Call("drop", self._db.params(), [(task_id,) for task_id in ids])
        yield from remove_belongings(removed, broadcasts=self._db.has_broadcasts)
        yield from self._db.audit.of_removed(self._db.params(), removed, What.DROPPED, by)
        yield from let_next_go(self._db.params(), groups_of(removed))
        return removed

    async def _known_instance(self, instance: object) -> None:
        """Refuse a misspelt type of decider instead of finding nothing of it."""
        match instance:
            case None:
                return
            case (str() as type_, str() as name):
                check_key(name, "instance")
            case _:
                raise InvalidOption("instance", instance, 'name it by its type and id: `instance=("order", "42")`')
        names = [one.name for one in await self._db.queues.all()]
        known = tuple(name.removesuffix(INPUTS) for name in names if name.endswith(INPUTS))
        if type_ not in known:
            raise DeciderNotFound(type_, known)


def dead_letters_of(params: dict[str, Value], type: str, id: str, limit: int) -> Call:
    """The question for the dead letters of one instance, oldest first; `dead_letter` reads the answer."""
    place: dict[str, Value] = {"after_time": 0, "after_id": 0, "limit": limit}
    return Call("dead_letters_of", {**params, "kind": None, "error": None, **_of(type, id), **place})


def _of(type: str, id: str, queue: str | None = None) -> dict[str, Value]:
    """The instance, and the queues of its decider: both, or the one that is asked for."""
    effects, inputs = (name if queue in (None, name) else "" for name in (f"{type}:effects", f"{type}{INPUTS}"))
    return {"instance": id, "effects": effects, "inputs": inputs}


def is_out_of_time(error: str | None) -> bool:
    """Whether a run ended with this error because the time for all of it was over."""
    told = shown_value(error) or {}
    return told.get("type") == "Timeout" and bool(told.keys() & {"limit", "parent_id"})


def _reopen(failed: Sequence[Row], requeued: Sequence[Row]) -> Script[None]:
    """Let the steps whose failure ended these runs be executed again; the results of other steps stay."""
    again = {row["id"] for row in requeued}
    ended = [(row["id"], row["generation"], shown_value(row["error"]) or {}) for row in failed if row["id"] in again]
    if steps := [(run_id, generation, key) for run_id, generation, error in ended for key in error.get("steps", ())]:
        yield Call("reopen_steps", {}, steps)


def _filter(ids: Sequence[int], queue: str | None, error: str | None) -> dict[str, Value]:
    if bool(ids) == (queue is not None or error is not None):
        raise InvalidOption("ids", ids, "name the tasks, or give `queue` or `error` to take all that fit")
    for task_id in ids:
        if isinstance(task_id, Iterable):
            raise InvalidOption("ids", task_id, "pass them one by one: `requeue(*ids)`, `drop(*ids)`")
        check_id(task_id)
    return {"queue": queue, "error": check_filter("error", error)}


def _kind(kind: TaskKind | str) -> TaskKind:
    try:
        return TaskKind(kind)
    except ValueError:
        raise InvalidOption("kind", kind, f"it is one of {', '.join(TaskKind)}") from None


def place_of(after: str | None, beginning: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """The position at which a page begins, from the text that the page before returned."""
    if after is None:
        return beginning
    moment, _, task_id = after.partition("-")
    if not (moment.isdigit() and task_id.isdigit()):
        raise InvalidOption("after", after, "pass the `next` of the page before, as it is")
    return int(moment), int(task_id)


def dead_letter(row: Any) -> DeadLetter:
    """A task that ended in ERROR, for people."""
    return DeadLetter(
        id=row["id"],
        kind=TaskKind(row["kind"]),
        queue=row["queue"],
        key=row["key"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        payload=shown_value(row["input"]),
        error=shown_value(row["error"]),
        last_error=row["last_error"],
        created_at=datetime_of(row["created_at"]),
        finished_at=datetime_of(row["finished_at"]),
        last_worker=row["worker_id"],
        last_worker_name=row["worker_name"],
    )
