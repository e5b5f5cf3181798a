"""Tasks that were lost with a worker: one of them may have killed it, so each is executed alone until it survives."""

from __future__ import annotations

import time
from collections.abc import Sequence

from stepwell.clock import Clock
from stepwell.records import Claimed
from stepwell.store.audit import Audit
from stepwell.store.driver import Call, Driver, Row, Script, Value
from stepwell.store.tasks import claimed_of


class Suspects:
    """The suspects in one store. A claim passes them over; whatever settles one acquits it."""

    def __init__(self, driver: Driver, clock: Clock, audit: Audit, *, slot: int) -> None:
        self._driver = driver
        self._clock = clock
        self._audit = audit
        self._slot = slot

    async def wait_in(self, queues: Sequence[int]) -> bool:
        """Whether a suspect of one of these queues could be executed now."""
        return bool(await self._driver.read(Call("has_suspects", self._params(queues))))

    async def claim(self, worker: int, queues: Sequence[int], *, beside: bool) -> list[Claimed]:
        """Take one for a session that has nothing else, or may have it `beside` what it has; at most one comes."""
        asked_at = time.monotonic()
        call = Call("claim_alone", self._params(queues, worker=worker, slot=self._slot, beside=beside))
        return claimed_of(worker, await self._taken(call), queues, asked_at)

    async def take(self, queues: Sequence[int], visibility: int) -> list[Row]:
        """Take one by hand; at most one comes."""
        return await self._taken(Call("take_suspect", self._params(queues, visibility=visibility)))

    async def _taken(self, call: Call) -> list[Row]:
        return await self._driver.transact(lambda: self._noted(call))

    def _noted(self, call: Call) -> Script[list[Row]]:
        rows = yield call
        yield from self._audit.claimed(dict(call.params), rows)
        return rows

    def _params(self, queues: Sequence[int], **params: Value) -> dict[str, Value]:
        return {"now": self._clock.now(), "queues": ",".join(map(str, queues)), **params}
