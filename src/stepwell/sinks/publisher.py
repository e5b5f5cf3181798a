"""The body of an outbox's tasks: read the events, hand them to the sink, and say what became of each."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from stepwell.base.backoff import Retry
from stepwell.errors import InvalidOption, PermanentError, Timeout
from stepwell.sinks.cloud_event import CloudEvent, cloud_event
from stepwell.store.rows import Claimed
from stepwell.work.body import Slot
from stepwell.work.outcome import DONE, Done, Each, Outcome, is_permanent, judge, judge_batch
from stepwell.work.threads import Threads, in_thread

Answer = BaseException | None  # of a sink, for one event: None if it has taken it


@dataclass(frozen=True, slots=True)
class Publisher:
    """What an outbox calls for the tasks of a place."""

    name: str
    sink: Callable[[Any], Any]  # takes one event, or a list of them if it takes batches
    is_async: bool
    takes_batches: bool
    source: str
    timeout: float
    retry: Retry
    _serving: Counter[asyncio.AbstractEventLoop] = field(default_factory=Counter)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Held by each worker that serves the outbox: when the last one of a loop stops, the sink is closed there.

        Nothing is opened here: a sink whose receiver is away would keep its worker from starting.
        """
        loop = asyncio.get_running_loop()
        self._serving[loop] += 1
        try:
            yield
        finally:
            self._serving[loop] -= 1
            if not self._serving[loop]:
                del self._serving[loop]
                if (close := getattr(self.sink, "aclose", None)) is not None:
                    await close()

    async def body(self, tasks: Sequence[Claimed], threads: Threads, slot: Slot) -> Done | Each:
        """Publish these events; with one event an exception is the outcome, with several each has its own."""
        events = await self._events(tasks, slot)
        if not self.takes_batches:
            await self._called(events[0], threads, slot)
            return DONE
        try:
            answers = _answers_of(await self._called(events, threads, slot), len(events))
        except Exception as error:
            if len(tasks) == 1:
                raise
            answers = [error] * len(tasks)
            if is_permanent(error, self.retry):  # one of them may be at fault: each is published alone
                return Each(tuple([judge_batch(error)] * len(tasks)))
        if not any(answers):
            return DONE
        random = slot.database.clock.random
        judged = [self._judged(task, answer, random()) for task, answer in zip(tasks, answers, strict=True)]
        return Each(tuple(judged))

    async def _events(self, tasks: Sequence[Claimed], slot: Slot) -> list[CloudEvent]:
        ordered = [task.id for task in tasks if task.group_key is not None]
        positions = await slot.database.outboxes.positions(ordered) if ordered else {}
        source = self.source or _source_of(slot.database.options.tenant)
        try:
            return [cloud_event(task, source, positions.get(task.id)) for task in tasks]
        except msgspec.MsgspecError as error:
            raise PermanentError(f"what stands in the queue of outbox {self.name} is no event: {error}") from error

    async def _called(self, given: Any, threads: Threads, slot: Slot) -> Any:
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                if self.is_async:
                    return await self.sink(given)
                answer = await in_thread(lambda: self.sink(given), threads, slot)
                return await answer if inspect.isawaitable(answer) else answer
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Timeout(f"the sink of outbox {self.name} took longer than {self.timeout:g} s") from error

    def _judged(self, task: Claimed, answer: Answer, randomness: float) -> Outcome:
        if answer is None:
            return DONE
        return judge(answer, task.attempt, task.max_attempts, self.retry, randomness)


def _answers_of(given: Any, count: int) -> list[Answer]:
    if given is None:
        return [None] * count
    answers = list(given) if isinstance(given, Sequence) and not isinstance(given, str | bytes) else []
    if len(answers) != count or any(one is not None and not isinstance(one, BaseException) for one in answers):
        why = f"for {count} events return None if all are published, else a list with None or an exception for each"
        raise InvalidOption("answer of the sink", given, why)
    return answers


def _source_of(tenant: str) -> str:
    return f"/stepwell/{tenant}" if tenant else "/stepwell"


PATIENT: Final = Retry(80, base=1, cap="1h")  # about three days
