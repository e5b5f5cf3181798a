"""What a worker does for deciders: execute effects and route their answers, deliver timers and queued inputs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from stepwell.base.backoff import Retry
from stepwell.base.durations import datetime_of
from stepwell.decider import Decider, EffectContext, Receipt
from stepwell.deciders.mailbox import Pending
from stepwell.deciders.proposal import ATTEMPTS, Envelope, effects_queue, inputs_queue
from stepwell.deciders.registry import Family, Registry
from stepwell.deciders.type_names import Kinds
from stepwell.errors import DeciderNotFound, LeaseLost, SerializationError, Timeout, TransientError, UnknownRecord
from stepwell.records import RunStatus, TaskKind
from stepwell.store.database import Database
from stepwell.store.instances import Delivery
from stepwell.store.rows import Claimed, Settlement
from stepwell.values.headers import headers_in
from stepwell.work.body import Served, Slot, told_of
from stepwell.work.outcome import DONE, Ended, Settled
from stepwell.work.threads import Threads, in_thread
from stepwell.work.unreadable import Misfit

Route = Callable[[Pending], Awaitable[Receipt]]


class DeciderBodies:
    """The bodies of the queues of deciders."""

    def __init__(self, database: Database, registry: Registry, route: Route, *, takes_along: bool) -> None:
        self._db = database
        self._registry = registry
        self._route = route
        self._takes_along = takes_along

    def served(self, family: Family, workers: int) -> list[Served]:
        """The queues of one decider: its effects, with this concurrency, and its timers and inputs."""
        inputs = inputs_queue(family.type)
        told = type(family.decider).on_dead_letter is not Decider.on_dead_letter
        effects = Served(
            effects_queue(family.type),
            partial(self._readable, partial(self._carry_out, family)),
            family.retry,
            concurrency=workers,
            told=told_of(inputs if told else None),
        )
        deliver = partial(self._readable, partial(self._deliver, family))
        return [effects, Served(inputs, deliver, Retry(ATTEMPTS), in_order=True, reads=family.reads)]

    async def _readable(
        self,
        body: Callable[[Claimed, Threads, Slot], Awaitable[Ended]],
        tasks: Sequence[Claimed],
        threads: Threads,
        slot: Slot,
    ) -> Ended:
        """Leave a task to other code if this code does not know its class: the code that wrote it could read it."""
        try:
            return await body(tasks[0], threads, slot)
        except UnknownRecord as error:
            raise Misfit(error, was_read=True) from error

    async def _carry_out(self, family: Family, task: Claimed, threads: Threads, slot: Slot) -> Ended:
        envelope = Envelope.read(task.input)
        kept = await self._kept_answer(task)
        if kept is None:
            effect = read_envelope(family.effects, envelope)
            if effect is None:
                return DONE
            answer = await self._handled(family, effect, _context(family, envelope, task), threads, slot)
            if answer is None:
                return DONE
            kept = self._written(answer)
            if not await self._db.decisions.keep_answer(task, kept.text()):
                return Settled()
        return await self._routed(kept, task, f"effect:{task.id}", Settlement(RunStatus.SUCCESS, output=kept.text()))

    async def _deliver(self, family: Family, task: Claimed, threads: Threads, slot: Slot) -> Ended:
        envelope = Envelope.read(task.input)
        is_submitted = task.kind is TaskKind.INPUT and envelope.dead_letter is None
        if envelope.dead_letter is not None:
            answer = await self._given_up(family, envelope.dead_letter)
            if answer is None:
                return DONE
            envelope = self._written(answer)
        envelope.owner = envelope.owner or family.type
        cause, settlement = f"{task.kind.lower()}:{task.id}", Settlement(RunStatus.SUCCESS)
        return await self._routed(envelope, task, cause, settlement, is_submitted=is_submitted)

    async def _routed(
        self, envelope: Envelope, task: Claimed, cause: str, settlement: Settlement, *, is_submitted: bool = False
    ) -> Ended:
        """Decide an input and settle the task that it came with, in one transaction."""
        family = self._owner(envelope)
        value = read_envelope(family.inputs, envelope)
        if value is None:
            return DONE
        timer_key = None
        if task.kind is TaskKind.TIMER and task.key is not None:
            timer_key = task.key.partition(":")[2]
        along = self._takes_along and task.attempt == 1 and not task.suspect  # else it may be what kills its workers
        group = None if task.group_key is None else (task.queue_id, task.group_key)
        delivery = Delivery(task.id, task.owner, task.turn, settlement, timer_key, group, along)
        key = envelope.key or family.key_of(value)
        pending = Pending(family, family.identify(value), value, cause, key=key, delivery=delivery)
        pending.headers = family.headers_of(pending.id, task.headers)
        pending = pending.sent_from_outside() if is_submitted else pending
        try:
            await self._route(pending)
        except LeaseLost:  # another worker has the task, or it was cancelled: nothing was decided
            return Settled()
        return Settled(str(settlement.status), pending.took_along)

    def _owner(self, envelope: Envelope) -> Family:
        try:
            return self._registry.of_type(envelope.owner)
        except DeciderNotFound as error:
            what = f"input {envelope.type} of {envelope.owner}"
            raise UnknownRecord(what, envelope.type, envelope.version, str(error).partition(";")[0]) from error

    async def _kept_answer(self, task: Claimed) -> Envelope | None:
        """The answer of this effect that an earlier turn has stored: then only its routing is left to do."""
        if task.turn == 1:
            return None
        again = await self._db.tasks.again(task.id)
        return None if again is None or again["output"] is None else Envelope.read(again["output"])

    async def _handled(self, family: Family, effect: Any, ctx: EffectContext, threads: Threads, slot: Slot) -> Any:
        """The answer of the decider to an effect, within its timeout; the decision on the answer does not count."""
        limit = asyncio.timeout(family.timeout)
        try:
            async with limit:
                return await self._called(family, effect, ctx, threads, slot)
        except UnknownRecord as error:  # raised by an engine that `handle` has used: it has acted, which is an attempt
            raise TransientError(str(error)) from error
        except TimeoutError as error:
            if not limit.expired():
                raise
            what = f"`handle` of effect {ctx.effect_id} of {family.type} {ctx.id}"
            raise Timeout(f"{what} ran longer than {family.timeout:g} s") from error

    async def _called(self, family: Family, effect: Any, ctx: EffectContext, threads: Threads, slot: Slot) -> Any:
        handle: Callable[..., Any] = family.decider.handle
        if inspect.iscoroutinefunction(handle):
            return await handle(effect, ctx)
        answer = await in_thread(lambda: handle(effect, ctx), threads, slot)
        return await answer if inspect.isawaitable(answer) else answer

    async def _given_up(self, family: Family, task_id: int) -> object | None:
        """The input that the decider sends to its instance for an effect that was given up."""
        dead = await self._db.tasks.again(task_id)
        if dead is None or dead["status"] != RunStatus.ERROR:
            return None  # requeued or dropped by an operator since
        envelope = Envelope.read(dead["input"])
        effect = read_envelope(family.effects, envelope)
        return None if effect is None else family.decider.on_dead_letter(effect, dead["last_error"] or "")

    def _written(self, answer: object) -> Envelope:
        return enveloped(self._registry.of_input(answer), answer, limit=self._db.options.payload_limit)


def enveloped(family: Family, input: object, *, limit: int, key: str | None = None) -> Envelope:
    """An input as a task stores it, with the type of its decider."""
    written = family.inputs.write(input, limit=limit)
    data = msgspec.Raw(written.text.encode())
    return Envelope(family.identify(written.value), written.type, written.version, data, owner=family.type, key=key)


def _context(family: Family, envelope: Envelope, task: Claimed) -> EffectContext:
    return EffectContext(
        key=task.lasting_key,
        attempt=task.attempt,
        type=family.type,
        id=envelope.id,
        created_at=datetime_of(task.created_at),
        effect_id=task.id,
        headers=headers_in(task.headers),
    )


def read_envelope(kinds: Kinds, envelope: Envelope) -> Any:
    """What stands in a task, None if an upcaster drops it.

    It was read back when it was written, so what does not fit here is for other code.
    """
    try:
        return next(iter(kinds.read(envelope.type, envelope.version, bytes(envelope.data).decode())), None)
    except SerializationError as error:
        raise Misfit(error, was_read=True) from error
