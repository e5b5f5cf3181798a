"""The verbs of those who want to know how a store is: how full its queues are, and what its database says of itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stepwell.durations import datetime_of
from stepwell.records import Condition, QueueStats
from stepwell.store import schema
from stepwell.store.driver import Call, Script
from stepwell.store.opened import Opened

SYNCHRONOUS: Final = {0: "off", 1: "normal", 2: "full", 3: "extra"}


class Health(Opened):
    """A store as those who look after it see it from outside."""

    async def queue_stats(self) -> Sequence[QueueStats]:
        """How full every queue is, by name; the cost grows with what is unfinished or dead, not with what is done."""
        self.check()
        params = {"now": self.clock.now(), "tenant": self.options.tenant}
        return [_stats(row) for row in await self.driver.read(Call("queue_stats", params))]

    async def condition(self) -> Condition:
        """What the database says of itself: its version, its clock, and the settings that durability hangs on."""
        self.check()
        asked_at = time.perf_counter()
        [row] = await self.driver.read(Call("condition", {"now": self.clock.now()}))
        took = time.perf_counter() - asked_at
        embedded = self.statements.dialect == "sqlite"
        # Of the connection that writes: on an embedded database each has settings of its own.
        settings = await self.driver.transact(_settings) if embedded else _server_settings(row)
        return Condition(
            backend=self.driver.name,
            version=row["version"],
            schema=await schema.version(self.driver),
            settings=settings,
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
    )


def _server_settings(row: Any) -> Mapping[str, str]:
    return {name: row[name] for name in ("fsync", "synchronous_commit", "full_page_writes")}


def _settings() -> Script[Mapping[str, str]]:
    journal = yield Call("journal_mode")
    synchronous = yield Call("synchronous")
    return {"journal_mode": str(journal[0][0]), "synchronous": SYNCHRONOUS.get(synchronous[0][0], "unknown")}
