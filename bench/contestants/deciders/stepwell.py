"""stepwell's deciders, through its public API."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Never

from bench.contestants.stepwell import check_writer
from stepwell import At, Decider, Decision, Engine, Key, Store, Tx, Worker, projection, upcast
from stepwell import connect as open_store

CALLERS: Final = 500
NEVER: Final = 1_000_000  # events until a snapshot


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


@dataclass(frozen=True)
class SumRow:
    """The row of an instance."""

    id: Annotated[str, Key]
    total: int


@projection("sum_rows", rows=SumRow)
def sum_rows(row: SumRow | None, event: Added, at: At) -> SumRow:
    """One more."""
    return SumRow(at.id, event.number + (0 if row is None else row.total))


@projection("sum_table", events=[Added])
class SumTable:
    """The same in SQL of the user's own."""

    def __init__(self, value: str) -> None:
        id_, one = ("$1", "$2") if value == "$" else ("?", "?")
        self._add = f"insert into sum_table (id, total) values ({id_}, {one})"
        self._add += " on conflict (id) do update set total = sum_table.total + excluded.total"

    async def begin(self, tx: Tx) -> None:
        """Make the table."""
        await tx.execute("create table if not exists sum_table (id text primary key, total bigint not null)")
        await tx.execute("delete from sum_table")

    async def handle(self, event: Added, at: At, tx: Tx) -> None:
        """One more."""
        await tx.execute(self._add, at.id, event.number)


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


@dataclass(frozen=True)
class AddedBy:
    """The event as it is two versions later."""

    __stepwell_name__: ClassVar[str] = "Added"
    __stepwell_version__: ClassVar[int] = 3
    number: int
    unit: str
    by: str


@upcast(AddedBy, 1)
def _(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "unit": "one"}


@upcast(AddedBy, 2)
def _(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "by": "nobody"}


class NewerSums(Decider[Sum, Add, AddedBy, Never]):
    """The same decider two versions later."""

    type = "sum"
    route = "id"

    def initial(self) -> Sum:
        """Nothing."""
        return Sum()

    def evolve(self, state: Sum, event: AddedBy) -> Sum:
        """One more."""
        return Sum(state.total + event.number)

    def decide(self, state: Sum, input: Add, now: datetime) -> Decision[AddedBy, Never, Add]:
        """Always."""
        return Decision.event(AddedBy(1, "one", "somebody"))


async def connect(url: str) -> "StepwellDeciders":
    """Open the store with its defaults."""
    return StepwellDeciders(await open_store(url), url)


class StepwellDeciders:
    """The deciders as stepwell's engine takes them."""

    api = {  # noqa: RUF012 - nobody changes it
        "decide": f"{CALLERS} callers of engine.execute in one process, dataclasses",
        "decide_in_turn": "engine.execute, one caller",
        "decide_observed": f"{CALLERS} callers of engine.execute, the decider registered with observe=True",
        "decide_inline": f"{CALLERS} callers of engine.execute, a projection of rows registered with inline=True",
        "replay": "engine.state of an engine that knows nothing, one instance after the other, without a snapshot",
        "replay_old": "the same, the event's class at version 3, with two @upcast functions",
        "follow": "Worker(store, [engine]).drain() with a projection of rows",
        "follow_in_sql": "Worker(store, [engine]).drain() with a class that executes one statement an event",
        "rebuild": "store.rebuild_projection, store.swap_projection, Worker(store, [engine]).drain(); rows",
    }

    def __init__(self, store: Store, url: str) -> None:
        self._store = store
        self._embedded = url.startswith("sqlite:")
        self._engine = Engine(store).register(Sums())
        self._ids: list[str] = []
        self._model = "sum_rows"
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

    async def decide_observed(self, count: int) -> None:
        """The same with observation."""
        self._engine = Engine(self._store).register(Sums(), observe=True)
        await self.decide(count)

    async def decide_inline(self, count: int) -> None:
        """The same with an inline projection, which is caught up and inline before."""
        self._engine = Engine(self._store).register(Sums()).register(sum_rows, inline=True)
        worker = Worker(self._store, [self._engine])
        await worker.drain()
        await self._store.inline_projection("sum_rows")
        await worker.drain()
        await self.decide(count)

    async def record(self, instances: int, each: int) -> None:
        """By decisions."""
        self._engine = Engine(self._store).register(Sums(), snapshot_every=NEVER)
        await self.begin(instances)
        await self.decide(instances * (each - 1))

    async def replay(self) -> list[int]:
        """One after the other."""
        return await self._replayed(Sums())

    async def replay_old(self) -> list[int]:
        """One after the other."""
        return await self._replayed(NewerSums())

    async def _replayed(self, decider: Sums | NewerSums) -> list[int]:
        cold = Engine(self._store).register(decider)
        return [(await cold.state(type(decider), id_)).total for id_ in self._ids]

    async def follow(self, count: int) -> None:
        """All that wait."""
        await self._drained(sum_rows)

    async def follow_in_sql(self, count: int) -> None:
        """All that wait."""
        await self._drained(SumTable("?" if self._embedded else "$"))

    async def rebuild(self, count: int) -> None:
        """All events, until the new rows are those that are read; the others stand still meanwhile."""
        await self._store.pause_projection("sum_rows")
        await self._store.rebuild_projection("sum_rows")
        await self._store.swap_projection("sum_rows")
        await self._drained(sum_rows)
        await self._drained(sum_rows)  # the swap is made by the worker that drives the new build, once it has caught up

    async def _drained(self, model: Any) -> None:
        self._model = "sum_table" if isinstance(model, SumTable) else "sum_rows"
        await Worker(self._store, [Engine(self._store).register(Sums()).register(model)]).drain()

    async def fill(self, count: int) -> None:
        """So many events more, copied from what is there, in turn."""
        prefix = "stepwell_" if self._embedded else "stepwell."
        numbers = f"with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {count})"
        places = "select id, row_number() over (order by id) - 1 as place, count(*) over () as all_ids from"
        async with self._store.transaction() as tx:
            await tx.execute(
                f"insert into {prefix}event (instance_id, version, type, data, recorded_at) {numbers}"
                f" select one.id, 2 + (n - 1) / all_ids, 'Added', '{{\"number\":1}}', 1 from numbers"
                f" join ({places} {prefix}instance) as one on one.place = (n - 1) % all_ids order by n"
            )

    async def modelled(self) -> list[int]:
        """By the database itself."""
        async with self._store.transaction() as tx:
            return [row[0] for row in await tx.execute(f"select total from {self._model} order by id")]

    async def sums(self) -> list[int]:
        """Through an engine that has seen none of them."""
        cold = Engine(self._store).register(Sums())
        return [(await cold.state(Sums, id_)).total for id_ in self._ids]

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
