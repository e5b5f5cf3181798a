"""What the tests of wake-ups have in common: a queue, polls that never come, an ear of the test's own."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from stepwell import Store, Worker, handler
from stepwell.base.telemetry import Telemetry
from tests.ground.waiting import until

CHANNEL = "stepwell.stepwell"
NEVER = 600.0  # seconds: no test lives as long as this pause between two polls


class Mail:
    """A queue whose handler notes what came, and a telemetry whose events are kept."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.events: list[Any] = []
        self.telemetry = Telemetry()
        self.telemetry.subscribe(self.events.append)

        @handler("mail")
        async def send(number: int) -> None:
            self.done.append(number)

        self.send = send

    def told(self, kind: type[Any]) -> list[Any]:
        """The events of a kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def worker(self, store: Store) -> Worker:
        """A worker of the queue."""
        return Worker(store, [self.send])

    def worker_that_never_polls(self, store: Store) -> Worker:
        """With the fixture `no_polls`: it claims when it begins, and then when it is woken."""
        return Worker(store, [self.send], poll=NEVER)


async def hearing(store: Store) -> None:
    """Return when the store has proved that it hears other processes."""
    inside = store.database.wakeups._hearing
    assert inside is not None
    await until(lambda: inside._is_well, message="an ear that hears")


@contextlib.asynccontextmanager
async def overhearing(url: str) -> AsyncIterator[list[str]]:
    """Every word that is told on the channel, as it comes."""
    words: list[str] = []
    connection = await asyncpg.connect(url)
    try:
        await connection.add_listener(CHANNEL, lambda *said: words.append(said[3]))
        yield words
    finally:
        await connection.close()


async def connections(url: str) -> list[str]:
    """The last statement of each connection that stepwell has to this database."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "select query from pg_stat_activity where application_name = 'stepwell' and datname = current_database()"
        )
    finally:
        await connection.close()
    return [row["query"] for row in rows]


async def listeners(url: str) -> int:
    """How many connections of stepwell were last heard of as they began to listen."""
    return sum(query.startswith("LISTEN") for query in await connections(url))
