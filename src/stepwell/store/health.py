"""The verbs of those who want to know how a store is: how full its queues are, and what its database says of itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from stepwell.durations import datetime_of
from stepwell.records import NEVER, Aside, Health, QueueStats
from stepwell.store import schema
from stepwell.store.driver import Call, Row, Script
from stepwell.store.opened import Opened

OF_A_FILE: Final = ("journal_mode", "synchronous")
OF_A_SERVER: Final = ("fsync", "synchronous_commit", "full_page_writes")


class Observing(Opened):
    """A store as those who look after it see it from outside."""

    async def queue_stats(self) -> Sequence[QueueStats]:
        """How full every queue is, by name; the cost grows with what is unfinished or dead, not with what is done."""
        self.check()
        params = {"now": self.clock.now(), "tenant": self.options.tenant}
        return [_stats(row) for row in await self.driver.read(Call("queue_stats", params))]

    async def set_aside(self) -> Sequence[Aside]:
        """The runs that go on only when somebody lets them: what they need, how many they are, and for how long."""
        self.check()
        params = {"now": self.clock.now(), "tenant": self.options.tenant, "never": NEVER}
        rows = await self.driver.read(Call("set_aside", params))
        return [Aside(row["needs"], row["runs"], max(0.0, row["longest"] / 1_000_000)) for row in rows]

    async def health(self) -> Health:
        """What the database says of itself: its version, its clock, and the settings that durability hangs on."""
        self.check()
        asked_at = time.perf_counter()
        # Asked where it is written, not where it is read: on an embedded database each connection has its own settings.
        row = await self.driver.transact(partial(_ask, Call("health", {"now": self.clock.now()})))
        took = time.perf_counter() - asked_at
        embedded = self.statements.dialect == "sqlite"
        return Health(
            backend=self.driver.name,
            version=row["version"],
            schema=await schema.version(self.driver),
            settings={name: row[name] for name in (OF_A_FILE if embedded else OF_A_SERVER)},
            clock=datetime_of(row["clock"]),
            took=took,
            held=None if embedded else row["held"] or 0.0,
        )


def _stats(row: Any) -> QueueStats:
    return QueueStats(
        queue=row["name"],
        paused=bool(row["paused"]),
        draining=bool(row["draining"]),
        ready=row["ready"],
        waiting=row["waiting"],
        running=row["running"],
        dead=row["dead"],
        oldest=None if row["oldest"] is None else max(0.0, row["oldest"] / 1_000_000),
        suspects=row["suspects"],
        scheduled=row["waiting"] - row["set_aside"] - row["suspects"],
        set_aside=row["set_aside"],
        unreadable=row["unreadable"],
    )


def _ask(call: Call) -> Script[Row]:
    [row] = yield call
    return row
