"""Whether a living worker serves a workflow, and what a trigger makes of it if none does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from stepwell.clock import Clock
from stepwell.errors import NoWorkerAvailable
from stepwell.names import is_served
from stepwell.store.draft import RequireWorker
from stepwell.store.driver import Call, Driver, Row, Script, SessionGuards
from stepwell.store.repeat import repeated
from stepwell.telemetry import NoWorker, Telemetry

REMEMBERED: Final = 1.0  # seconds, for a warning; an error is never raised on what was known a moment ago


def living(rows: Iterable[Row], guards: SessionGuards) -> list[Row]:
    """Those of the sessions that were heard of in time whose process is not known to be gone."""
    return [row for row in rows if not row["gone"] and not guards.proves_dead(row["id"])]


class Living:
    """What the living workers of one tenant serve."""

    def __init__(self, driver: Driver, clock: Clock, telemetry: Telemetry, *, tenant: str, timeout: float) -> None:
        self._driver = driver
        self._clock = clock
        self._telemetry = telemetry
        self._tenant = tenant
        self._timeout = timeout
        self._served: frozenset[str] = frozenset()
        self._learned_at: float | None = None
        self._learning = asyncio.Lock()

    async def check(self, required: Mapping[str, RequireWorker]) -> None:
        """Warn of workflows that no living worker serves, or raise `NoWorkerAvailable`, as each says.

        A burst of triggers that only warn costs one small read.
        """
        asks = _asks(required)
        if asks == "error":
            self._judge(required, await self._learn())
        elif asks == "warn":
            async with self._learning:
                served = self._served if self._is_fresh else await self._learn()
            self._judge(required, served)

    def checking(self, required: Mapping[str, RequireWorker]) -> Script[None]:
        """The same inside a user's transaction, and through their connection alone."""
        asks = _asks(required)
        if asks == "error" or (asks == "warn" and not self._is_fresh):
            self._judge(required, self._learned((yield self._asking())))
        elif asks == "warn":
            self._judge(required, self._served)

    @property
    def _is_fresh(self) -> bool:
        return self._learned_at is not None and self._clock.monotonic() - self._learned_at < REMEMBERED

    async def _learn(self) -> frozenset[str]:
        rows = await repeated(
            lambda: self._driver.read(self._asking()),
            clock=self._clock,
            telemetry=self._telemetry,
            within=self._timeout,
        )
        return self._learned(rows)

    def _asking(self) -> Call:
        params = {"now": self._clock.now(), "beat_now": self._clock.beat_now(), "tenant": self._tenant}
        return Call("living_handlers", params)

    def _learned(self, rows: Sequence[Row]) -> frozenset[str]:
        rows = living(rows, self._driver.guards)
        self._served = frozenset(name for row in rows for name in json.loads(row["handlers"]))
        self._learned_at = self._clock.monotonic()
        return self._served

    def _judge(self, required: Mapping[str, RequireWorker], served: Iterable[str]) -> None:
        alone = {name: policy for name, policy in required.items() if not is_served(name, served)}
        for name, policy in alone.items():
            if policy == "error":
                raise NoWorkerAvailable(name)
        for name, policy in alone.items():
            if policy == "warn":
                self._telemetry.emit(NoWorker(name))


def _asks(required: Mapping[str, RequireWorker]) -> RequireWorker:
    """The strictest of the policies."""
    policies = required.values()
    return "error" if "error" in policies else "warn" if "warn" in policies else "ignore"
