"""Raw SQL on SQLite: the rows of an event-sourced instance's life with nothing around them."""

import json
import sqlite3
from typing import Final

from bench.asking import path_of
from bench.contestants.deciders import with_by, with_unit
from bench.durability import check_sqlite

BATCH: Final = 500
TABLES: Final = """
create table if not exists raw_instance (id integer primary key, version integer not null);
create table if not exists raw_event (
    position integer primary key autoincrement, instance_id integer not null, version integer not null,
    type text not null, data text not null, recorded_at integer not null default (unixepoch()),
    unique (instance_id, version));
create table if not exists raw_model (id integer primary key, total integer not null);
create table if not exists raw_place (position integer not null);
insert into raw_place values (0);
"""
MOVE: Final = "update raw_instance set version = version + 1 where id = ? and version = ?"
APPEND: Final = """insert into raw_event (instance_id, version, type, data) values (?, ?, 'Added', '{"number":1}')"""
ADD: Final = "insert into raw_model values (?, 1) on conflict (id) do update set total = total + excluded.total"
FOLLOW: Final = """
insert into raw_model select instance_id, sum(data ->> 'number') from (
    select instance_id, data from raw_event where position > (select position from raw_place)
    order by position limit ?) where true group by instance_id
on conflict (id) do update set total = total + excluded.total"""
PLACE: Final = """
update raw_place set position = (select coalesce(max(position), 0) from (
    select position from raw_event where position > (select position from raw_place) order by position limit ?))"""
HISTORY: Final = "select data from raw_event where instance_id = ? order by version"
SUMS: Final = "select sum(data ->> 'number') from raw_event group by instance_id order by instance_id"


async def connect(url: str) -> "RawSqlite":
    """Open the file as stepwell does."""
    connection = sqlite3.connect(path_of(url), isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    return RawSqlite(connection)


class RawSqlite:
    """Deciders of two statements."""

    api = {  # noqa: RUF012 - nobody changes it
        "decide": f"{BATCH} inputs a commit: an awaited no-op, an update and an insert each",
        "decide_in_turn": "an awaited no-op, an update and an insert, a commit each",
        "decide_inline": f"{BATCH} inputs a commit: an awaited no-op, an update and two inserts each",
        "replay": "one select an instance, json.loads of each event",
        "replay_old": "the same, and two functions that add a field to each",
        "follow": f"{BATCH} events a commit: their sums by instance, inserted or added",
    }
    events = "select count(*) from raw_event"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._versions: list[int] = []

    async def install(self) -> None:
        """Make the tables."""
        self._connection.executescript(TABLES)
        mode = self._connection.execute("pragma journal_mode").fetchone()[0]
        check_sqlite(mode, self._connection.execute("pragma synchronous").fetchone()[0])

    async def begin(self, instances: int) -> None:
        """One event each."""
        for number in range(instances):
            self._connection.execute("insert into raw_instance values (?, 1)", (number,))
            self._connection.execute(APPEND, (number, 1))
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
            await self._decide(range(first, min(first + BATCH, count)), inline=True)

    async def follow(self, count: int) -> None:
        """So many events at a time."""
        for _ in range(0, count, BATCH):
            self._connection.execute("begin immediate")
            self._connection.execute(FOLLOW, (BATCH,))
            self._connection.execute(PLACE, (BATCH,))
            self._connection.execute("commit")

    async def record(self, instances: int, each: int) -> None:
        """So many at a time."""
        await self.begin(instances)
        await self.decide(instances * (each - 1))

    async def replay(self) -> list[int]:
        """One instance after the other."""
        return [
            sum(json.loads(data)["number"] for (data,) in self._connection.execute(HISTORY, (id_,)))
            for id_ in range(len(self._versions))
        ]

    async def replay_old(self) -> list[int]:
        """The same through two functions."""
        return [
            sum(with_by(with_unit(json.loads(data)))["number"] for (data,) in self._connection.execute(HISTORY, (id_,)))
            for id_ in range(len(self._versions))
        ]

    async def modelled(self) -> list[int]:
        """By the database itself."""
        return [row[0] for row in self._connection.execute("select total from raw_model order by id")]

    async def _decide(self, numbers: range, *, inline: bool = False) -> None:
        self._connection.execute("begin immediate")
        for number in numbers:
            await _noop()
            place = number % len(self._versions)
            self._connection.execute(MOVE, (place, self._versions[place]))
            self._versions[place] += 1
            self._connection.execute(APPEND, (place, self._versions[place]))
            if inline:
                self._connection.execute(ADD, (place,))
        self._connection.execute("commit")

    async def sums(self) -> list[int]:
        """By the database itself."""
        return [row[0] for row in self._connection.execute(SUMS)]

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()


async def _noop() -> None:
    pass
