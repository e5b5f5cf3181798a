"""eventsourcing, sync, with its aggregates in its cache and a thread for each caller."""

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from eventsourcing.application import Application  # type: ignore[import-not-found]
from eventsourcing.domain import Aggregate, event  # type: ignore[import-not-found]

from bench.asking import path_of

THREADS: Final = 10
UNASKED: Final = ("AGGREGATE_CACHE_FASTFORWARD", "DEEPCOPY_FROM_AGGREGATE_CACHE")


class Sum(Aggregate):  # type: ignore[misc]
    """An aggregate."""

    @event("Begun")  # type: ignore[untyped-decorator]
    def __init__(self) -> None:
        self.total = 1

    @event("Added")  # type: ignore[untyped-decorator]
    def add(self, number: int) -> None:
        """One more."""
        self.total += number


async def connect(url: str) -> "EventSourcing":
    """Open an application whose aggregates stay in memory."""
    return EventSourcing(url)


class EventSourcing:
    """Aggregates in place of deciders: what is called is the command, what it triggers the event."""

    api = {  # noqa: RUF012 - nobody changes it
        "decide": f"{THREADS} threads, each with its own aggregates: repository.get from the cache, command, save",
        "decide_in_turn": "repository.get from the cache, command, save, one thread",
        "replay": "repository.get of an application without a cache, one aggregate after the other",
        "replay_old": "the same, class_version 3 with upcast_v1_v2 and upcast_v2_v3",
        "follow": "ProjectionRunner with a view of one statement an event",
    }

    def __init__(self, url: str) -> None:
        self._url = url
        table = "stored_events" if url.startswith("sqlite:") else "bench_events"
        self.events = f"select count(*) from {table}"
        self._application = self._opened(cached=True)
        self._ids: list[UUID] = []
        self._pool = ThreadPoolExecutor(THREADS)

    def _opened(self, *, cached: bool) -> Any:
        settings = _settings(self._url)
        if cached:
            settings |= {
                "AGGREGATE_CACHE_MAXSIZE": "1000",
                "AGGREGATE_CACHE_FASTFORWARD": "n",
                "DEEPCOPY_FROM_AGGREGATE_CACHE": "n",
            }
        return type("Bench", (Application,), {"name": "bench"})(env=settings)

    async def install(self) -> None:
        """Nothing to do: it makes its tables when it is opened."""

    async def begin(self, instances: int) -> None:
        """One event each."""
        aggregates = [Sum() for _ in range(instances)]
        self._application.save(*aggregates)
        self._ids = [one.id for one in aggregates]

    async def decide(self, count: int) -> None:
        """Each thread has its own aggregates, so that none overtakes another; one has one thread."""
        threads = min(THREADS, len(self._ids))
        taken, lock = itertools.count(), threading.Lock()

        def work(mine: list[UUID]) -> None:
            for id_ in itertools.cycle(mine):
                with lock:
                    if next(taken) >= count:
                        return
                self._add(id_)

        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(loop.run_in_executor(self._pool, work, self._ids[number::threads]) for number in range(threads))
        )

    async def decide_in_turn(self, count: int) -> None:
        """One after the other."""
        for number in range(count):
            self._add(self._ids[number % len(self._ids)])

    def _add(self, id_: UUID) -> None:
        aggregate = self._application.repository.get(id_)
        aggregate.add(1)
        self._application.save(aggregate)

    async def record(self, instances: int, each: int) -> None:
        """All events of an aggregate in one commit."""
        await self.begin(instances)
        for id_ in self._ids:
            aggregate = self._application.repository.get(id_)
            for _ in range(each - 1):
                aggregate.add(1)
            self._application.save(aggregate)

    async def replay(self) -> list[int]:
        """One after the other."""
        return await self.sums()

    async def replay_old(self) -> list[int]:
        """The same, after the classes of the events have become newer than what is stored."""
        for cls in (Sum.Begun, Sum.Added):
            cls.class_version = 3
            cls.upcast_v1_v2 = staticmethod(lambda state: state.update(unit="one"))
            cls.upcast_v2_v3 = staticmethod(lambda state: state.update(by="nobody"))
        return await self.sums()

    async def follow(self, count: int) -> None:
        """Until the view has recorded the last event."""
        # Only Postgres is asked for this: the module needs psycopg's own types.
        from bench.contestants.deciders.eventsourcing_view import followed  # noqa: PLC0415

        last = self._application.recorder.max_notification_id()
        await asyncio.to_thread(followed, type(self._application), _settings(self._url), last)

    async def modelled(self) -> list[int]:
        """By the database itself."""
        from bench.contestants.deciders.eventsourcing_view import totals  # noqa: PLC0415

        return totals(self._application.factory.datastore)

    async def sums(self) -> list[int]:
        """Through an application that has seen none of them."""
        cold = self._opened(cached=False)
        return [cold.repository.get(id_).total for id_ in self._ids]

    async def close(self) -> None:
        """Close the application."""
        self._pool.shutdown()
        self._application.close()


def _settings(url: str) -> dict[str, str]:
    if url.startswith("sqlite:"):
        return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": path_of(url)}
    parts = urlsplit(url)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": parts.path.removeprefix("/"),
        "POSTGRES_HOST": parts.hostname or "",
        "POSTGRES_PORT": str(parts.port or 5432),
        "POSTGRES_USER": parts.username or "",
        "POSTGRES_PASSWORD": parts.password or "none",
        "POSTGRES_POOL_SIZE": str(THREADS),
        "POSTGRES_MAX_OVERFLOW": str(THREADS),
    }
