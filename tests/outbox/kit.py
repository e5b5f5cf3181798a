"""Sinks that remember, fail and answer as they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from stepwell import CloudEvent, Outbox, Store, Worker


class Sink:
    """A sink that remembers what it was given, and fails for data that it was told to refuse."""

    def __init__(self) -> None:
        self.events: list[CloudEvent] = []  # that it has taken
        self.tried: list[CloudEvent] = []
        self.refuses: dict[Any, BaseException] = {}

    async def __call__(self, event: CloudEvent) -> None:
        self.tried.append(event)
        if (error := self.answer(event)) is not None:
            raise error
        self.events.append(event)

    def answer(self, event: CloudEvent) -> BaseException | None:
        """Why it does not take an event."""
        return self.refuses.get(event.data) if isinstance(event.data, str | int) else None

    @property
    def data(self) -> list[Any]:
        """What it has taken, in order."""
        return [one.data for one in self.events]


class Batches(Sink):
    """A sink that takes several events at once, and answers for each."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.raises: BaseException | None = None  # instead of an answer, for several

    async def __call__(self, events: Sequence[CloudEvent]) -> list[BaseException | None]:  # type: ignore[override]
        self.sizes.append(len(events))
        self.tried += events
        if self.raises is not None and len(events) > 1:
            raise self.raises
        answers = [self.answer(one) for one in events]
        self.events += [one for one, answer in zip(events, answers, strict=True) if answer is None]
        return answers


async def drained(store: Store, *serves: Any) -> int:
    """Publish all that is due."""
    return await Worker(store, serves, concurrency=4).drain()


def outbox(sink: Any, types: str | Sequence[str] = "*", name: str = "crm", **options: Any) -> Outbox:
    """An outbox over a sink, with few attempts."""
    return Outbox(name, sink, types=types, **{"retry": 3, **options})


async def statuses(store: Store, queue: str = "outbox.crm") -> Counter[str]:
    """How many tasks of a queue have each status."""
    return Counter({status: int(count) for status, count in (await store.counts(queue)).items()})
