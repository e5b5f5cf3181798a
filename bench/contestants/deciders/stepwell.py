"""stepwell's deciders, through its public API."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Never

from bench.contestants.stepwell import check_writer
from stepwell import Decider, Decision, Engine, Store
from stepwell import connect as open_store

CALLERS: Final = 500


@dataclass(frozen=True)
class Add:
    """An input."""

    id: str


@dataclass(frozen=True)
class Added:
    """An event."""

    number: int


@dataclass(frozen=True)
class Sum:
    """A state."""

    total: int = 0


class Sums(Decider[Sum, Add, Added, Never]):
    """Adds."""

    type = "sum"
    route = "id"

    def initial(self) -> Sum:
        """Nothing."""
        return Sum()

    def evolve(self, state: Sum, event: Added) -> Sum:
        """One more."""
        return Sum(state.total + event.number)

    def decide(self, state: Sum, input: Add, now: datetime) -> Decision[Added, Never, Add]:
        """Always."""
        return Decision.event(Added(1))


async def connect(url: str) -> "StepwellDeciders":
    """Open the store with its defaults."""
    return StepwellDeciders(await open_store(url), url)


class StepwellDeciders:
    """The deciders as stepwell's engine takes them."""

    api = {  # noqa: RUF012 - nobody changes it
        "decide": f"{CALLERS} callers of engine.execute in one process, dataclasses",
        "decide_in_turn": "engine.execute, one caller",
    }

    def __init__(self, store: Store, url: str) -> None:
        self._store = store
        self._embedded = url.startswith("sqlite:")
        self._engine = Engine(store).register(Sums())
        self._ids: list[str] = []
        self.events = f"select count(*) from {'stepwell_event' if self._embedded else 'stepwell.event'}"

    async def install(self) -> None:
        """Nothing but the check: it installs itself."""
        if self._embedded:
            check_writer(self._store)

    async def begin(self, instances: int) -> None:
        """One input each."""
        self._ids = [str(number) for number in range(instances)]
        await asyncio.gather(*(self._engine.execute(Add(id_)) for id_ in self._ids))

    async def decide(self, count: int) -> None:
        """Every caller takes the next number."""
        numbers = iter(range(count))

        async def call() -> None:
            for number in numbers:
                await self._engine.execute(Add(self._ids[number % len(self._ids)]))

        await asyncio.gather(*(call() for _ in range(CALLERS)))

    async def decide_in_turn(self, count: int) -> None:
        """One after the other."""
        for number in range(count):
            await self._engine.execute(Add(self._ids[number % len(self._ids)]))

    async def sums(self) -> list[int]:
        """Through an engine that has seen none of them."""
        cold = Engine(self._store).register(Sums())
        return [(await cold.state(Sums, id_)).total for id_ in self._ids]

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
