"""Limits of queues over all workers: what code declares, what people change, and how both stand."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stepwell.base.limits import (
    MOST_RUNNING,
    PATHS,
    WAKES_COST,
    AfterDead,
    Limits,
    limits_of,
    meters_of,
    order_of,
    storable,
)
from stepwell.base.names import check_filter, check_key, check_name, check_whole
from stepwell.base.rates import Meter, Rate, meter_of
from stepwell.errors import InvalidOption, StoreBusy, StoreUnavailable
from stepwell.records import Page
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.limits_info import LimitedKey, LimitedPlace, LimitsInfo, key_of, waits_of
from stepwell.store.ordered_groups import let_next_go

if TYPE_CHECKING:
    from stepwell.store.database import Database

LOOK_EVERY: Final = 15.0  # seconds after which a process asks again which of its queues have limits
SETTLED: Final = 5_000_000  # microseconds after which no claim is under way that knew of no limits
CHUNK: Final = 1000
MOST_COUNTED: Final = 1000  # ready tasks of one key
HEAVIEST: Final = 1000
KEPT: Final = "(as it is)"  # an option that is not given


class Limiters:
    """The limits of the queues of one store."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._looked_at = float("-inf")
        self._asked: frozenset[int] = frozenset()
        self._forgot: dict[
            int, str
        ] = {}  # of queues with rates of keys, the last key that was looked at to be forgotten
        self._silent: frozenset[int] = frozenset()  # queues of which the code here declares no limits

    async def of(self, queue: str) -> LimitsInfo | None:
        """The limits of a queue or workflow; None if it has none."""
        number = await self._number(queue)
        return next((info for info in await self._infos() if info[0] == number), (0, None))[1]

    async def all(self) -> list[LimitsInfo]:
        """Every queue that has limits, by name."""
        self._db.check()
        return [info for _, info in await self._infos()]

    async def set(
        self,
        queue: str,
        *,
        running: int | str | None = KEPT,
        per_key: int | str | None = KEPT,
        key: str | None = KEPT,
        rate: Rate | str | None = KEPT,
        key_rate: Rate | str | None = KEPT,
        cost: str | None = KEPT,
        ordered: bool | None = None,
        after_dead: AfterDead | None = None,
    ) -> LimitsInfo | None:
        """Change the limits of a queue or workflow, over what its code declares; None takes a limit away.

        It holds for all workers and stays until `reset`, over every deploy. What runs goes on: where that is more than
        the new limit, nothing begins until it fits. What stands in order stays so when `ordered` is taken back.
        """
        given = {"running": running, "per_key": per_key, "key": key, "rate": rate, "key_rate": key_rate, "cost": cost}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value != KEPT}
        changes |= {
            name: value for name, value in (("ordered", ordered), ("after_dead", after_dead)) if value is not None
        }
        asked = {name: value for name, value in changes.items() if value is not None}
        checked = limits_of({"ordered": "after_dead" in asked, **asked})
        changes = {name: storable(getattr(checked, name)) for name in changes}
        number = await self._limitable(queue)
        await self._db.transact(partial(self._change, number, changes))
        await self._begun(number)
        return await self.of(queue)

    async def reset(self, queue: str) -> None:
        """Take back what people have changed: the limits are those that code declares, or none."""
        number = await self._number(queue)
        await self._db.transact(partial(self._reset, number))
        await self._begun(number)

    async def set_key(
        self, queue: str, key: str, *, weight: int | None = None, running: int | str | None = KEPT
    ) -> None:
        """Say of a key how many of its tasks begin in each round of the keys, and how many run at once of it."""
        if weight is not None:
            check_whole("weight", weight, 1, HEAVIEST)
        if running is not None and running != KEPT:
            check_whole("running", running, 1, MOST_RUNNING)
        said: dict[str, Value] = {"weight": weight, "keeps": running == KEPT}
        said["running"] = running if isinstance(running, int) else None
        await self._say(queue, key, "put_key_limit", said)

    async def pause(self, queue: str, key: str, *, reason: str | None = None) -> None:
        """Start nothing of this key until `resume`; what runs goes on."""
        await self._say(queue, key, "pause_key", {"reason": check_filter("reason", reason)})

    async def resume(self, queue: str, key: str) -> None:
        """Let a paused key go on."""
        await self._say(queue, key, "resume_key", {})

    async def keys(self, queue: str, *, limit: int = 100, after: str | None = None) -> Page[LimitedKey]:
        """The keys of a limited queue that have ready or running tasks, or of which something is said, by name."""
        check_whole("limit", limit, 1, 1000)
        number = await self._number(queue)
        params: dict[str, Value] = {"queue_id": number, "limit": limit + 1, "most": MOST_COUNTED}
        place: dict[str, Value] = {"after": after or "", "first": after is None}
        rows = await self._db.driver.read(Call("keys", {**params, **place}))
        running = _count(await self._db.driver.read(Call("places", {"queue_id": number})))
        more = rows[limit - 1]["limit_key"] if len(rows) > limit else None
        found = {row["limit_key"]: key_of(row, running.get(row["limit_key"], 0)) for row in rows[:limit]}
        for key, count in running.items():  # with nothing ready behind what runs
            if key not in found and (after is None or key > after) and (more is None or key < more):
                found[key] = LimitedKey(key, 0, count)
        return Page((found[key] for key in sorted(found)), more)

    async def place_of(self, task_id: int) -> LimitedPlace | None:
        """Where a ready task of a limited queue stands; None if its queue has no limits any more."""
        rows = await self._db.driver.read(Call("limits_on", self._db.params(id=task_id, most=MOST_COUNTED)))
        if not rows:
            return None
        row = rows[0]
        places = await self._db.driver.read(Call("places", {"queue_id": row["queue_id"]}))
        key = row["limit_key"]
        return LimitedPlace(
            key=key,
            before=row["before"],
            waiting=row["waiting"],
            running=len(places),
            most=row["running"],
            of_key=_count(places).get(key, 0),
            most_of_key=row["per_key"] if row["key_running"] is None else row["key_running"],
            is_paused=row["paused_at"] is not None,
            reason=row["pause_reason"],
            **waits_of(row),
        )

    async def declared(self, queues: Mapping[int, Mapping[str, Any] | None], *, looks: bool) -> None:
        """Write what the code of a worker declares of its queues, if that is news; what people change stays over it.

        Where it declares nothing, what earlier code has declared is taken back: now if it `looks`, else when upkeep has
        found that any queue has limits. So without limits nothing is asked.
        """
        said = {queue_id for queue_id, limits in queues.items() if limits is not None}
        self._asked |= queues.keys()
        self._silent = (self._silent | queues.keys()) - said
        for queue_id in said:
            await self._db.transact(partial(self._declare, queue_id, queues[queue_id]))
            await self._begun(queue_id)
        if looks or said:
            await self._look_now()

    async def _look_now(self) -> None:
        for row in await self._among(await self.limited(self._asked, anew=True)):
            if row["declared"] is not None and row["queue_id"] in self._silent:
                await self._db.transact(partial(self._declare, row["queue_id"], None))
                await self.limited(self._asked, anew=True)
            meter = meter_of(row["key_rate"], row["key_period"], row["key_burst"])
            if meter is not None:
                await self._forget_paid(row["queue_id"], meter)

    async def _forget_paid(self, queue_id: int, meter: Meter) -> None:
        """Forget keys whose rates have rested for as long as any task could ask for: some of them each time."""
        params = self._db.params(queue_id=queue_id, after=self._forgot.get(queue_id, ""), limit=CHUNK)
        if keys := await self._db.driver.read(Call("paid_after", params)):
            range_ = {**params, "last": keys[-1]["limit_key"], "rested": meter.price(meter.count)}
            await self._db.driver.transact(lambda: _saying(Call("forget_paid", range_)))
        self._forgot[queue_id] = keys[-1]["limit_key"] if len(keys) == CHUNK else ""

    async def limited(self, queue_ids: Iterable[int], *, anew: bool = False) -> frozenset[int]:
        """Which of these queues have limits, as known for 15 seconds; a claim that is mistaken takes nothing."""
        asked = frozenset(queue_ids)
        if anew or not asked <= self._asked or time.monotonic() - self._looked_at > LOOK_EVERY:
            self._asked |= asked
            rows = await self._among(self._asked)
            self._looked_at = time.monotonic()
            self._db.tasks.limited = frozenset(row["queue_id"] for row in rows)
            for row in rows:
                if not row["adopted"] and row["queue_id"] in asked:
                    await self._adopt(row["queue_id"])
        return self._db.tasks.limited & asked

    async def look(self) -> None:
        """Look again which of the queues that are served here have limits, if the last look is long ago."""
        if time.monotonic() - self._looked_at > LOOK_EVERY:
            known = self._db.tasks.limited
            with contextlib.suppress(StoreBusy, StoreUnavailable):
                await self._look_now()
            self._db.wakeups.wake(set(self._db.tasks.limited - known))

    def changed(self) -> None:
        """What is known of limits may be wrong."""
        self._looked_at = float("-inf")

    async def _among(self, queue_ids: Collection[int]) -> list[Row]:
        rows = [(queue_id,) for queue_id in sorted(queue_ids)]
        return await self._db.driver.read(Call("limited_among", {}, rows)) if rows else []

    async def _infos(self) -> list[tuple[int, LimitsInfo]]:
        infos = []
        for row in await self._db.driver.read(Call("limiters", self._db.params())):
            places = await self._db.driver.read(Call("places", {"queue_id": row["id"]}))
            declared, edited = _said(row["declared"]), _said(row["edited"]) or {}
            limits = limits_of(_effective(declared, edited))
            shown = {name: value for name, value in (declared or {}).items() if name in Limits.__dataclass_fields__}
            said = (row["name"], limits, None if declared is None else shown, edited)
            wait = waits_of({**dict(row), "key_rate": None, "cost": 1}).get("wait", 0) / 1_000_000
            infos.append((row["id"], LimitsInfo(*said, len(places), row["paused_keys"], wait)))
        return infos

    async def _number(self, queue: str) -> int:
        return await self._db.queue_id(check_name("queue", queue))

    async def _limitable(self, queue: str) -> int:
        if queue.endswith((":effects", ":inputs")):
            raise InvalidOption("queue", queue, "a decider's own queues take no limits")
        return await self._number(queue)

    async def _say(self, queue: str, key: str, statement: str, said: Mapping[str, Value]) -> None:
        number = await self._limitable(queue)
        check_key(key or "-")  # '' is the key of tasks that name none
        await self._db.transact(partial(self._say_of_key, number, key, statement, said))
        await self._begun(number)

    async def _begun(self, queue_id: int) -> None:
        """Give the tasks that were there before a key, and let workers look anew."""
        await self.limited({queue_id}, anew=True)
        self._db.wakeups.hint({queue_id})

    async def _adopt(self, queue_id: int) -> None:
        """Give each task from before the limits a key, in pieces, and let in what was claimed just before them."""
        after = 0
        while found := await self._db.transact(partial(self._adopt_some, queue_id, after)):
            after = found[-1]
        after = 0
        while found := await self._db.transact(partial(self._order_some, queue_id, after)):
            after = found[-1]
        await self._db.transact(partial(self._adopted, queue_id))

    def _adopt_some(self, queue_id: int, after: int) -> Script[list[int]]:
        rows = yield Call("adopt_tasks", {"queue_id": queue_id, "after": after, "limit": CHUNK})
        return sorted(row["id"] for row in rows)

    def _order_some(self, queue_id: int, after: int) -> Script[list[int]]:
        """Put tasks from before the order of their queue into it, before all that was added since."""
        params = self._db.params(queue_id=queue_id, after=after, limit=CHUNK)
        rows = yield Call("tasks_without_order", params)
        if rows:
            groups = sorted({(queue_id, row["limit_key"]) for row in rows})
            yield Call("join_groups", params, [(*group, "wait", 0, 0) for group in groups])
            yield Call("place_in_order", params, [(row["id"], row["limit_key"]) for row in rows])
            yield Call("hold_back", params, groups)
            yield from let_next_go(params, groups)
        return [row["id"] for row in rows]

    def _adopted(self, queue_id: int) -> Script[None]:
        yield Call("lock_limiter", self._db.params(queue_id=queue_id))
        yield Call("admit_running", {"queue_id": queue_id})
        yield Call("note_adopted", {**self._db.params(), "queue_id": queue_id, "settled": SETTLED})

    def _declare(self, queue_id: int, said: Mapping[str, Any] | None) -> Script[None]:
        row = yield from self._locked(queue_id)
        if row is None and said is None:
            return
        edited = {} if row is None else _said(row["edited"]) or {}
        if row is None or _said(row["declared"]) != said:
            yield from self._put(queue_id, said, edited, is_new=row is None)

    def _change(self, queue_id: int, changes: Mapping[str, Any]) -> Script[None]:
        row = yield from self._locked(queue_id)
        declared, edited = (None, {}) if row is None else (_said(row["declared"]), _said(row["edited"]) or {})
        changed = {**edited, **changes}
        for option, path in PATHS.items():
            if option in changes:
                changed[path] = None if changes[option] is None else f"$.{changes[option]}"
        yield from self._put(queue_id, declared, changed, is_new=row is None)

    def _reset(self, queue_id: int) -> Script[None]:
        row = yield from self._locked(queue_id)
        if row is not None:
            yield Call("drop_key_limits", {"queue_id": queue_id})
            yield from self._put(queue_id, _said(row["declared"]), {}, is_new=False)

    def _say_of_key(self, queue_id: int, key: str, statement: str, said: Mapping[str, Value]) -> Script[None]:
        # The limiter is locked: a claim that is under way has ended when this is committed.
        if (yield from self._locked(queue_id)) is None:
            yield from self._put(queue_id, None, {}, is_new=True, keeps=True)
        yield Call(statement, {**self._db.params(), "queue_id": queue_id, "limit_key": key, **said})
        yield Call("forget_key", {"queue_id": queue_id, "limit_key": key})

    def _locked(self, queue_id: int) -> Script[Row | None]:
        """The limiter of a queue, locked; without one the queue is locked, so that nothing is added meanwhile."""
        locking = Call("lock_limiter", self._db.params(queue_id=queue_id))
        rows = yield locking
        if not rows:
            yield Call("lock_queue", {"queue_id": queue_id})
            rows = yield locking
        return rows[0] if rows else None

    def _put(
        self,
        queue_id: int,
        declared: Mapping[str, Any] | None,
        edited: Mapping[str, Any],
        *,
        is_new: bool,
        keeps: bool = False,
    ) -> Script[None]:
        """Write the limits; a queue of which nothing is said any more has none."""
        said = _effective(declared, edited)
        limited, ordered = keeps or declared is not None or bool(edited), order_of(said)
        begins = False
        if limited and ordered:  # adds that are under way end first
            [queue] = yield Call("lock_queue", {"queue_id": queue_id})
            begins = not queue["ordered"]
        if limited:
            texts = {"declared": None if declared is None else json.dumps(declared), "edited": json.dumps(edited)}
            numbers = {"running": said.get("running"), "per_key": said.get("per_key"), **meters_of(said)}
            numbers |= {WAKES_COST: said.get(WAKES_COST, False), "begins_order": begins}
            yield Call("put_limiter", {**self._db.params(), "queue_id": queue_id, **numbers, **texts})
        # After the limiter: a claim holds that, and looks at the queue.
        paths = {path: said.get(path) if limited else None for path in PATHS.values()}
        paths["ordered"] = ordered if limited else None
        yield Call("limit_queue", {"queue_id": queue_id, "limited": limited, **paths})
        if is_new and limited:
            yield Call("admit_running", {"queue_id": queue_id})
        if not limited:
            yield Call("drop_limiter", {"queue_id": queue_id})
            yield Call("forget_all_paid", {"queue_id": queue_id})


def _saying(call: Call) -> Script[list[Row]]:
    return (yield call)


def _effective(declared: Mapping[str, Any] | None, edited: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**(declared or {}), **edited}.items() if value is not None}


def _said(text: str | None) -> dict[str, Any] | None:
    said: dict[str, Any] | None = None if text is None else json.loads(text)
    return said


def _count(places: Iterable[Row]) -> dict[str, int]:
    running: dict[str, int] = {}
    for row in places:
        running[row["limit_key"]] = running.get(row["limit_key"], 0) + 1
    return running
