"""Definitions of workflows: a row of its own beside the queue's, and the two are made and removed together."""

from __future__ import annotations

import json
from typing import Any, Final

from stepwell.clock import Clock
from stepwell.durations import datetime_of, microseconds_of
from stepwell.errors import Refused, WorkflowNotFound
from stepwell.records import WorkflowInfo
from stepwell.store.driver import Call, Driver, Script, Value
from stepwell.store.remembered import Remembered

MOST_RACES: Final = 3


class Workflows:
    """The workflows of one tenant in one store."""

    def __init__(self, driver: Driver, clock: Clock, tenant: str) -> None:
        self._driver = driver
        self._clock = clock
        self._tenant = tenant
        self._remembered = Remembered()

    def known(self, name: str) -> int | None:
        """The number of the queue of a workflow that was asked for lately; None if the database has to be asked."""
        return self._remembered.get(name)

    async def create(self, name: str, patience: float | None = None) -> int:
        """Make the workflow and its queue if they are not there; the queue's number either way."""
        if found := await self._driver.read(find_workflow(self._params(), name)):  # so that nothing is written twice
            return self._remembered.learn(name, found[0]["id"])
        made = await self._driver.transact(lambda: create_workflow(self._params(), name), patience=patience)
        return self._remembered.learn(name, made)

    async def find(self, name: str) -> int:
        """The number of the queue of a workflow that is there."""
        found = await self._driver.read(find_workflow(self._params(), name))
        if not found:
            raise WorkflowNotFound(name)
        return self._remembered.learn(name, found[0]["id"])

    async def describe(self, queue_id: int, options: dict[str, str], cleanup: float | None) -> None:
        """Note what a workflow says of itself, for those who have not its code."""
        text = json.dumps(options) if options else None
        span = None if cleanup is None else microseconds_of(cleanup, "cleanup")
        params = self._params(queue_id=queue_id, options=text, cleanup=span)
        await self._driver.transact(lambda: _one(Call("describe_workflow", params)))

    def forget(self, name: str) -> None:
        """Look the workflow up again next time: the database says it is not the one we knew."""
        self._remembered.forget(name)

    async def all(self) -> list[WorkflowInfo]:
        """Every workflow, by name."""
        return [_workflow_info(row) for row in await self._driver.read(Call("workflows", self._params(name=None)))]

    async def get(self, name: str) -> WorkflowInfo:
        """One workflow."""
        rows = await self._driver.read(Call("workflows", self._params(name=name)))
        if not rows:
            raise WorkflowNotFound(name)
        return _workflow_info(rows[0])

    def _params(self, **params: Value) -> dict[str, Value]:
        return {"now": self._clock.now(), "tenant": self._tenant, **params}


def create_workflow(params: dict[str, Value], name: str) -> Script[int]:
    """Make a workflow and its queue, whichever of them is missing; the queue's number."""
    params = {**params, "name": name}
    for _ in range(MOST_RACES):
        yield Call("add_queue", params)
        # Held, so that nobody deletes it before the workflow's row is there; gone if somebody was quicker.
        if held := (yield Call("hold_queue", params)):
            queue_id: int = held[0]["id"]
            yield Call("add_workflow", {**params, "queue_id": queue_id})
            return queue_id
    raise Refused(f"the queue {name} was made by a transaction that this one cannot see; roll back and try again")


def _one(call: Call) -> Script[None]:
    yield call


def find_workflow(params: dict[str, Value], name: str) -> Call:
    """Ask for the number of a workflow's queue."""
    return Call("find_workflow", {**params, "name": name})


def _workflow_info(row: Any) -> WorkflowInfo:
    options = {} if row["options"] is None else json.loads(row["options"])
    return WorkflowInfo(name=row["name"], created_at=datetime_of(row["created_at"]), options=options)
