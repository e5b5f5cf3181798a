"""The rates of limited queues: what begins is paid for, and what it has cost in truth is settled afterwards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from stepwell.base.futures import begin_apart
from stepwell.base.names import check_whole
from stepwell.base.rates import MOST_UNITS, Meter, meter_of
from stepwell.errors import StoreBusy, StoreClosed, StoreUnavailable
from stepwell.store.driver import Call, Row, Script

if TYPE_CHECKING:
    from stepwell.store.database import Database

CHARGE_EVERY: Final = 0.1  # seconds
MOST_CHARGED: Final = 10_000  # that wait to be written; with more, the estimates stand

Turn = tuple[int, int]  # a task, and its turn


@dataclass(slots=True)
class Rates:
    """The rates of a limited queue, until when each is paid, and what begins now."""

    now: int
    of_all: Meter | None
    of_keys: Meter | None
    paid: int
    paid_of: dict[str, int] = field(default_factory=dict)
    units: int = 0  # what begins costs this
    units_of: dict[str, int] = field(default_factory=dict)
    corrected: set[str] = field(default_factory=set)  # keys of which some have cost more or less than was paid

    @classmethod
    def locked(cls, queue_id: int, row: Row) -> Script[Rates]:
        """Those of a limiter that is locked; if the clock was set back since a task began, so is what is paid."""
        of_all = meter_of(row["rate"], row["period"], row["burst"])
        of_keys = meter_of(row["key_rate"], row["key_period"], row["key_burst"])
        back = max(0, row["paid_at"] - row["now"])
        rates = cls(row["now"], of_all, of_keys, row["paid"] - back)
        if back:
            yield Call("pay", {"queue_id": queue_id, "paid": rates.paid, "paid_at": rates.now})
            yield Call("set_back_keys", {"queue_id": queue_id, "by": back})
        return rates

    def know(self, rows: Sequence[Row]) -> None:
        """Until when the rates of these keys are paid."""
        self.paid_of |= {row["limit_key"]: row["paid"] for row in rows if row["paid"]}

    def wait(self, key: str, cost: int) -> int:
        """Microseconds until a task of this key and cost may begin after what begins now."""
        return max(self.wait_of_all(cost), self.wait_of_key(key, cost))

    def wait_of_all(self, cost: int) -> int:
        """The same as far as the rate in all says."""
        return 0 if self.of_all is None else self.of_all.wait(self.paid, self.now, cost, before=self.units)

    def wait_of_key(self, key: str, cost: int) -> int:
        """The same as far as the rate of the key says."""
        paid, before = self.paid_of.get(key, 0), self.units_of.get(key, 0)
        return 0 if self.of_keys is None else self.of_keys.wait(paid, self.now, cost, before=before)

    def begin(self, key: str, cost: int) -> None:
        """A task begins."""
        self.units += cost
        self.units_of[key] = self.units_of.get(key, 0) + cost

    @property
    def paid_after(self) -> int:
        """Until when the rate in all is paid after what begins."""
        if self.of_all is None or self.units == 0:
            return self.paid
        return max(self.paid, self.now) + self.of_all.price(self.units)

    def paying(self, queue_id: int) -> Script[None]:
        """Write what is paid for what begins, where the limiter is locked."""
        if self.of_all is not None or self.of_keys is not None:
            yield Call("pay", {"queue_id": queue_id, "paid": self.paid_after, "paid_at": self.now})
        yield from self.paying_keys(queue_id)

    def paying_keys(self, queue_id: int) -> Script[None]:
        """The same for the keys alone."""
        meter = self.of_keys
        changed = {key for key, units in self.units_of.items() if units} | self.corrected
        if meter is not None and changed:
            for key in changed & self.units_of.keys():
                self.paid_of[key] = max(self.paid_of.get(key, 0), self.now) + meter.price(self.units_of[key])
            yield Call("pay_keys", {}, [(queue_id, key, self.paid_of[key]) for key in sorted(changed)])

    def correct(self, key: str, units: int) -> None:
        """A task of this key has cost so many units more, or less: what was paid too much lets others go on sooner."""
        if (meter := self.of_all) is not None:
            self.paid = meter.corrected(self.paid, self.now, units)
        if (meter := self.of_keys) is not None:
            self.paid_of[key] = meter.corrected(self.paid_of.get(key, 0), self.now, units)
            self.corrected.add(key)


class Charges:
    """What tasks have cost in truth: gathered, and written soon; if the process dies, the estimates stand."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._told: dict[Turn, int] = {}
        self._writing: asyncio.Task[None] | None = None

    def tell(self, task_id: int, turn: int, units: int) -> None:
        """A task costs so many units in all, in this turn; what is said last counts. On the loop of the store."""
        if len(self._told) < MOST_CHARGED:
            self._told[task_id, turn] = units
        if self._writing is None:
            self._writing = begin_apart(self._write_soon(), "stepwell-charges")

    async def write(self) -> None:
        """Write what was told so far."""
        if told := sorted((task_id, turn, units) for (task_id, turn), units in self._told.items()):
            self._told = {}
            await self._db.driver.transact(partial(self._charge, told))

    async def close(self) -> None:
        """Write what was told, if the database answers."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
            with contextlib.suppress(StoreBusy, StoreUnavailable):
                await self.write()

    async def _write_soon(self) -> None:
        while self._told:
            await asyncio.sleep(CHARGE_EVERY)
            with contextlib.suppress(StoreBusy, StoreUnavailable, StoreClosed):
                await self.write()
        self._writing = None

    def _charge(self, told: Sequence[tuple[int, int, int]]) -> Script[None]:
        # The limiter comes last, so that claims wait for as little as possible; who holds one waits for no task.
        known = yield Call("costs_of", {}, told)
        cost = {task_id: units for task_id, _, units in told}
        if not (changed := [row for row in known if cost[row["id"]] != row["cost"]]):
            return
        yield Call("note_costs", {}, [row for row in told if any(row[0] == each["id"] for each in changed)])
        for queue_id in sorted({row["queue_id"] for row in changed}):
            of_queue = [row for row in changed if row["queue_id"] == queue_id]
            for limiter in (yield Call("lock_limiter", self._db.params(queue_id=queue_id))):
                rates = yield from Rates.locked(queue_id, limiter)
                keys = sorted({row["limit_key"] for row in of_queue}) if rates.of_keys is not None else []
                if keys:
                    rates.know((yield Call("paid_of_keys", {}, [(queue_id, key) for key in keys])))
                for row in of_queue:
                    rates.correct(row["limit_key"], cost[row["id"]] - row["cost"])
                yield from rates.paying(queue_id)


def checked_units(units: object) -> int:
    """What a task has cost, if that is a whole number of units, or none."""
    return check_whole("units", units, 0, MOST_UNITS)
