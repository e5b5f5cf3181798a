"""Raw SQL on Postgres: the rows of an event-sourced instance's life with nothing around them, through asyncpg."""

import json
from typing import Any, Final

import asyncpg

from bench.contestants.deciders import with_by, with_unit

BATCH: Final = 500
TABLES: Final = """
create table if not exists raw_instance (id bigint primary key, version bigint not null);
create table if not exists raw_event (
    position bigint generated always as identity primary key, instance_id bigint not null, version bigint not null,
    type text not null, data json not null, recorded_at timestamptz not null default now(),
    unique (instance_id, version));
create table if not exists raw_model (id bigint primary key, total bigint not null);
create table if not exists raw_place (position bigint not null);
insert into raw_place values (0);
"""
BEGIN: Final = """
with made as (insert into raw_instance select number, 1 from generate_series(0, $1 - 1) as number returning id)
insert into raw_event (instance_id, version, type, data) select id, 1, 'Added', '{"number":1}' from made
"""
MOVED: Final = """
with given as (
    select * from unnest(cast(string_to_array($1, ',') as bigint[]), cast(string_to_array($2, ',') as bigint[]))
        as given (id, version)
),
moved as (
    update raw_instance set version = latest.version
      from (select id, max(version) as version, min(version) - 1 as before from given group by id) as latest
     where raw_instance.id = latest.id and raw_instance.version = latest.before returning raw_instance.id
)
"""
APPEND: Final = """
insert into raw_event (instance_id, version, type, data)
select given.id, given.version, 'Added', '{"number":1}' from given where given.id in (select id from moved)
"""
MODELLED: Final = """, modelled as (
    insert into raw_model select id, count(*) from given where id in (select id from moved) group by id
    on conflict (id) do update set total = raw_model.total + excluded.total
)
"""
DECIDE: Final = MOVED + APPEND
INLINE: Final = MOVED + MODELLED + APPEND
FOLLOW: Final = """
with place as (select position from raw_place),
next as (select position, instance_id, data from raw_event where position > (select position from place)
          order by position limit $1),
modelled as (
    insert into raw_model select instance_id, sum((data ->> 'number')::int) from next group by instance_id
    on conflict (id) do update set total = raw_model.total + excluded.total
)
update raw_place set position = (select max(position) from next) where exists (select from next)
"""
HISTORY: Final = "select data from raw_event where instance_id = $1 order by version"
SUMS: Final = (
    "select sum((data ->> 'number')::int)::int as total from raw_event group by instance_id order by instance_id"
)


async def connect(url: str) -> "RawPostgres":
    """Open one connection."""
    return RawPostgres(await asyncpg.connect(url))


class RawPostgres:
    """Deciders of one statement."""

    api = {  # noqa: RUF012 - nobody changes it
        "decide": f"{BATCH} inputs a commit: an awaited no-op each, then one update and insert",
        "decide_in_turn": "an awaited no-op, one update and insert, a commit each",
        "decide_inline": f"{BATCH} inputs a commit: an awaited no-op each, then one update and two inserts",
        "replay": "one select an instance, json.loads of each event",
        "replay_old": "the same, and two functions that add a field to each",
        "follow": f"{BATCH} events a commit: their sums by instance, inserted or added",
    }
    events = "select count(*) from raw_event"

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._versions: list[int] = []

    async def install(self) -> None:
        """Make the tables."""
        await self._connection.execute(TABLES)

    async def begin(self, instances: int) -> None:
        """One event each."""
        await self._connection.fetch(BEGIN, instances)
        self._versions = [1] * instances

    async def decide(self, count: int) -> None:
        """So many at a time."""
        for first in range(0, count, BATCH):
            await self._decide(range(first, min(first + BATCH, count)))

    async def decide_in_turn(self, count: int) -> None:
        """One after the other."""
        for number in range(count):
            await self._decide(range(number, number + 1))

    async def decide_inline(self, count: int) -> None:
        """The same with the rows of the read model."""
        await self.follow(len(self._versions))
        for first in range(0, count, BATCH):
            await self._decide(range(first, min(first + BATCH, count)), INLINE)

    async def follow(self, count: int) -> None:
        """So many events at a time."""
        for _ in range(0, count, BATCH):
            await self._connection.fetch(FOLLOW, BATCH)

    async def record(self, instances: int, each: int) -> None:
        """So many at a time."""
        await self.begin(instances)
        await self.decide(instances * (each - 1))

    async def replay(self) -> list[int]:
        """One instance after the other."""
        return [
            sum(json.loads(row["data"])["number"] for row in await self._connection.fetch(HISTORY, id_))
            for id_ in range(len(self._versions))
        ]

    async def replay_old(self) -> list[int]:
        """The same through two functions."""
        return [
            sum(
                with_by(with_unit(json.loads(row["data"])))["number"]
                for row in await self._connection.fetch(HISTORY, id_)
            )
            for id_ in range(len(self._versions))
        ]

    async def modelled(self) -> list[int]:
        """By the database itself."""
        return [row["total"] for row in await self._connection.fetch("select total from raw_model order by id")]

    async def _decide(self, numbers: range, statement: str = DECIDE) -> None:
        ids, versions = [], []
        for number in numbers:
            await _noop()
            place = number % len(self._versions)
            self._versions[place] += 1
            ids.append(str(place))
            versions.append(str(self._versions[place]))
        await self._connection.fetch(statement, ",".join(ids), ",".join(versions))

    async def sums(self) -> list[int]:
        """By the database itself."""
        return [row["total"] for row in await self._connection.fetch(SUMS)]

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


async def _noop() -> None:
    pass
