"""Broadcasts: an event is one task, which a worker publishes, tells to the runs that wait, and triggers workflows for.

It is published first: it gets a place among the others, and can be found. A run that begins to wait looks for what was
published; the wait is committed before it looks, so whichever comes second finds the other, and nothing is locked for
that. Then the waits are told, a hundred in one transaction. All of it may be repeated: a wait is told once, a run takes
what it takes under its own lock, and the run of a workflow has a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stepwell.base.names import EVENT, LONGEST_NAME, check_key, check_name
from stepwell.errors import InvalidName, LeaseLost
from stepwell.records import TaskId, TaskKind
from stepwell.store.audit import What
from stepwell.store.choice import choice_of, choices_in
from stepwell.store.draft import Drafted
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.ordered_groups import add_each
from stepwell.store.rows import Claimed, NewTask
from stepwell.store.transaction import headers_here
from stepwell.values.codec import decode, encode, payload_hash
from stepwell.values.lossless import refuse_unnamed
from stepwell.values.stamp import write_value

if TYPE_CHECKING:
    from stepwell.store.database import Database

QUEUE: Final = "stepwell.broadcasts"
EVENT_KEY: Final = "event:"  # the key of a run that an event has triggered begins so
LONGEST_EVENT: Final = LONGEST_NAME - len(EVENT)
CHUNK: Final = 100  # runs that are told, or triggered, in one transaction
PASSES: Final = 20  # looks for runs that other transactions had locked, ...
PAUSE: Final = 0.05  # seconds between them; then the rest waits for another turn


class Sent(msgspec.Struct, frozen=True):
    """An event as its task stores it."""

    name: str
    data: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class Listening:
    """What a workflow is triggered for: broadcasts of a name, all of them or those with a field of some value."""

    name: str
    where: Mapping[str, Any] | None = None
    max_attempts: int | None = None
    priority: int = 0


@dataclass(eq=False)
class Broadcasts:
    """The broadcasts of one tenant."""

    _db: Database

    async def send(self, name: str, data: Any, key: str | None, tx: object) -> TaskId:
        """Write the task of a broadcast, in a transaction of its own or in the user's."""
        drafted = self.drafted(name, data, key)
        self._db.has_broadcasts = True
        [task_id] = await self._db.new_tasks.add(drafted, tx)
        return task_id

    def send_here(self, name: str, data: Any, key: str | None, tx: object) -> TaskId:
        """As `send`, through the user's own sync connection, in the user's thread, which is this one."""
        drafted = self.drafted(name, data, key)
        self._db.has_broadcasts = True
        [task_id] = self._db.new_tasks.add_here(drafted, tx)
        return task_id

    def drafted(self, name: str, data: Any, key: str | None) -> Drafted:
        """The task of a broadcast, checked and encoded; nothing is written yet."""
        options = self._db.options
        what = f"event {check_event(name)}"
        text = write_value(data, limit=options.payload_limit, what=what, codec=options.codec)
        refuse_unnamed(data, what=what, codec=options.codec)
        choices_in(name, text, b"")  # raises if there are too many
        sent = encode(Sent(name, msgspec.Raw(text.encode())), limit=2 * options.payload_limit, what=what)
        key = None if key is None else check_key(f"{name}/{check_key(key)}")
        hashed = None if key is None else payload_hash(sent)
        attempts = options.retry.max_attempts
        # fmt: off
        task = NewTask(TaskKind.MESSAGE, 0, QUEUE, sent, max_attempts=attempts, key=key, payload_hash=hashed,
                       headers=headers_here())
        # fmt: on
        return Drafted(TaskKind.MESSAGE, [task], {QUEUE: True})

    @cached_property
    def secret(self) -> bytes:
        """What the digests of an encrypted store are made with; nothing in any other."""
        if not self._db.options.encrypted:
            return b""
        driver: Any = self._db.driver
        secret: bytes = driver.cipher.secret
        return secret

    def choice(self, where: Mapping[str, Any] | None) -> str:
        """What a wait asks for, as it is stored."""
        return choice_of(where, self.secret)

    async def fan_out(self, task: Claimed) -> bool:
        """Publish the event of a task and tell all whom it concerns; False if some were locked, and are to be told."""
        sent = decode(task.input or "null", Sent, what=f"broadcast {task.id}")
        choices = choices_in(sent.name, bytes(sent.data).decode(), self.secret)
        place = await self._db.transact(partial(self._publishing, task, sent, choices))
        params = self._db.params(name=sent.name)
        rows = [(choice,) for choice in choices]
        found = await self._db.repeat(lambda: self._db.driver.read(Call("subscribed", params, rows)))
        for row in found:
            if row["workflows"]:
                await self._trigger_all(task, sent, row["match"])
        told = True
        for row in found:
            if row["runs"]:
                told &= await self._tell_all(task, sent.name, row["match"], place)
        return told

    def _publishing(self, task: Claimed, sent: Sent, choices: Sequence[str]) -> Script[int]:
        """Give the event its place, under the lock by which places are in the order of commits."""
        params = self._db.params(queue_id=task.queue_id, id=task.id, name=sent.name)
        yield Call("lock_publishing", params)
        yield Call("publish", params, [(task.id, sent.name, bytes(sent.data).decode())])
        [row] = yield Call("published", params)
        place: int = row["place"]
        yield Call("add_broadcast_keys", {**params, "place": place}, [(choice,) for choice in sorted(choices)])
        yield from self._fenced(task)
        return place

    def _fenced(self, task: Claimed) -> Script[None]:
        """End a transaction of a turn: it commits only if the turn stands."""
        if not (yield Call("keep_turns", {}, [(task.id, task.owner, task.turn)])):
            raise LeaseLost(task.owner, task.id)

    async def _tell_all(self, task: Claimed, name: str, match: str, place: int) -> bool:
        """Tell all waits for a name and a choice; False if other transactions keep some of their runs locked."""
        for _ in range(PASSES):
            if not await self._pass(task, name, match, place):
                return True
            await asyncio.sleep(PAUSE)
        return False

    async def _pass(self, task: Claimed, name: str, match: str, place: int) -> int:
        """Tell the waits in batches, in the order of their runs; return how many are left."""
        after, left = -(2**63), 0
        while True:
            params = self._db.params(name=name, match=match, after=after, limit=CHUNK)
            page = await self._db.repeat(partial(self._db.driver.read, Call("open_subscriptions", params)))
            before = [row for row in page if row["over"] or row["after"] < place]
            if before:
                told, ids, queues = await self._db.transact(partial(self._telling, task, name, place, before))
                left += len(before) - told
                for run_id in ids:
                    self._db.run_waits.woken(run_id)
                self._db.wakeups.hint(queues)
            if len(page) < CHUNK:
                return left
            after = page[-1]["run_id"]

    def _telling(
        self, task: Claimed, name: str, place: int, page: Sequence[Row]
    ) -> Script[tuple[int, list[int], set[int]]]:
        """Wake the runs of these waits, but for those that another transaction has locked."""
        params = self._db.params(place=place)
        over = [_key(row) for row in page if row["over"]]
        if over:
            yield Call("unsubscribe", params, over)
        runs = sorted({row["run_id"] for row in page if not row["over"]})
        locked = {row["id"] for row in (yield Call("lock_subscribers", params, [(one,) for one in runs]))}
        free = [_key(row) for row in page if not row["over"] and row["run_id"] in locked]
        told = {row["id"] for row in (yield Call("tell_subscriptions", params, free))} if free else set[int]()
        woken = (yield Call("wake_runs", params, [(one,) for one in sorted(told)])) if told else []
        yield from self._db.audit.of_all(params, woken, What.SIGNALLED, f"{EVENT}{name}")
        yield from self._fenced(task)
        ready = {row["queue_id"] for row in woken if row["ready"]}
        return len(over) + len(free), [row["id"] for row in woken], ready

    async def _trigger_all(self, task: Claimed, sent: Sent, match: str) -> None:
        """Trigger a run of each workflow that asks for the event, in batches of one transaction each."""
        after = -(2**63)
        while True:
            params = self._db.params(name=sent.name, match=match, after=after, limit=CHUNK)
            page = await self._db.repeat(partial(self._db.driver.read, Call("event_workflows", params)))
            ids = await self._db.ids.take(len(page)) if page else []
            queues = await self._db.transact(partial(self._triggering, task, sent, page, ids)) if page else set[int]()
            self._db.wakeups.hint(queues)
            if len(page) < CHUNK:
                return
            after = page[-1]["queue_id"]

    def _triggering(self, task: Claimed, sent: Sent, page: Sequence[Row], ids: Sequence[int]) -> Script[set[int]]:
        """A run of each of these workflows has the event as its input, and its number as its key: there is one."""
        runs = [
            NewTask(
                TaskKind.RUN,
                row["queue_id"],
                "",
                bytes(sent.data).decode(),
                priority=row["priority"],
                max_attempts=row["max_attempts"],
                key=run_key(sent.name, task.id),
                inside=True,
                headers=task.headers,
            )
            for row in page
        ]
        added = set((yield from add_each("add_tasks_once", self._db.params(), runs, ids)))
        yield from self._fenced(task)
        return {row["queue_id"] for row, task_id in zip(page, ids, strict=True) if task_id in added}

    async def declare(self, listening: Mapping[int, Sequence[Listening]]) -> None:
        """Say for which events each of these workflows is triggered from now on, by the numbers of their queues."""
        if not self._db.has_broadcasts and not any(listening.values()):
            return
        self._db.has_broadcasts = True
        for queue_id, each in sorted(listening.items()):
            await self._db.transact(partial(self._declaring, queue_id, each))

    def _declaring(self, queue_id: int, listening: Sequence[Listening]) -> Script[None]:
        params, attempts = self._db.params(queue_id=queue_id), self._db.options.retry.max_attempts
        wanted = {(one.name, self.choice(one.where)): one for one in listening}
        known = {(row["name"], row["match"]) for row in (yield Call("declared_events", params))}
        if gone := sorted(known - wanted.keys()):
            yield Call("withdraw_events", params, gone)
        if wanted:
            rows: list[tuple[Value, ...]] = [
                (*place, queue_id, one.max_attempts or attempts, one.priority) for place, one in sorted(wanted.items())
            ]
            yield Call("declare_event_workflows", params, rows)

    async def tidy(self) -> bool:
        """Remove broadcasts that are older than what is finished is kept; True if there may be more."""
        if not self._db.has_broadcasts or self._db.options.keep is None:
            return False
        [row] = await self._db.driver.read(Call("moment", {"now": self._db.clock.now()}))
        before = row["now"] - round(self._db.options.keep * 1_000_000)
        return await self._db.driver.transact(partial(self._removing, before)) == CHUNK

    def _removing(self, before: int) -> Script[int]:
        removed = yield Call("remove_broadcasts", self._db.params(before=before, limit=CHUNK))
        if removed:
            yield Call("remove_broadcast_keys", {"ids": ",".join(str(row["id"]) for row in removed)})
        return len(removed)


def check_event(name: object) -> str:
    """The name, if an event may have it: a name that leaves room for the mark of a wait."""
    if len(checked := check_name("event", name)) > LONGEST_EVENT:
        raise InvalidName("event", name, f"it has at most {LONGEST_EVENT} characters")
    return checked


def run_key(name: str, task_id: int) -> str:
    """The key of a run that was triggered for an event."""
    return f"{EVENT_KEY}{name[: LONGEST_NAME - 30]}:{task_id}"


def broadcast_of(key: str | None) -> tuple[str, str] | None:
    """The event and the number of its task, by the key of a run; None if no event has triggered it."""
    if key is None or not key.startswith(EVENT_KEY):
        return None
    name, _, number = key.removeprefix(EVENT_KEY).rpartition(":")
    return (name, number) if number.isdigit() else None


def _key(row: Row) -> tuple[int, int, str]:
    return row["run_id"], row["generation"], row["key"]
