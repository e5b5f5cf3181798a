"""Crashes of deciders: a worker is cut off at each of its database calls while it serves what one input leads to."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, cast

from stepwell.clock import TestClock
from stepwell.decider import Decider
from stepwell.deciders.service import Service
from stepwell.errors import InvalidOption
from stepwell.records import RunId
from stepwell.store.driver import Call
from stepwell.store.store import Store
from stepwell.telemetry import Telemetry
from stepwell.testing.crashing import Crashes, Life, When
from stepwell.testing.doomed import Doomed
from stepwell.testing.hands import HandWorker, live
from stepwell.worker import Serves

Ground = Callable[[Telemetry], AbstractAsyncContextManager[Store]]
_cases = itertools.count(1)
NO_DECIDER: Final = "the world serves no decider with inputs of this class: `world(Orders())`"


class InputCrashes(Crashes):
    """The lives of instances that are sent one input, each in a part of the database that is its own."""

    def __init__(self, serves: Sequence[Serves], input: object, ground: Ground) -> None:
        super().__init__(serves, cast("Any", Asking(serves, input)), _apart(ground))
        self._input = input

    async def _live(self, at: int, when: When) -> tuple[Life, frozenset[tuple[str, int]] | None]:
        async with self._ground(Telemetry(log=False)) as store:
            doomed = Doomed(store.driver, at, after=when == "after")
            await self._first_life(store, doomed)
            if doomed.is_silent:
                async with HandWorker(store, self._serves, name="second") as worker:
                    await live(worker, store, cast("TestClock", store.clock))
            life = await self._told(store, doomed.calls)
            return life, frozenset() if doomed.is_silent else None

    async def _told(self, store: Store, calls: Sequence[str]) -> Life:
        """The events of every instance, and how many tasks of each kind ended how."""
        params = {"tenant": store.options.tenant}
        events = [tuple(row) for row in await store.driver.read(Call("all_events", params))]
        tasks = tuple(tuple(row) for row in await store.driver.read(Call("tasks_of_deciders", params)))
        steps = cast("tuple[tuple[str, str, Any], ...]", tasks)
        return Life(RunId(0), "", json.dumps(events), None, steps, tuple(calls))


class Asking:
    """In place of a trigger: sends the input, without a worker."""

    def __init__(self, serves: Sequence[Serves], input: object) -> None:
        self._deciders = [one for one in serves if isinstance(one, Decider)]
        self._input = input

    async def execute(self, store: Store) -> RunId[Any]:
        """Decide the input."""
        service = Service(store)
        for decider in self._deciders:
            service.register(decider)
        try:
            service.registry.of_input(self._input)
        except InvalidOption:
            raise InvalidOption("input", self._input, NO_DECIDER) from None
        await service.execute(self._input)
        return RunId(0)


def _apart(ground: Ground) -> Ground:
    """The same ground, and a tenant of its own in it: what another life has left there is not seen."""

    @asynccontextmanager
    async def grounded(telemetry: Telemetry) -> AsyncIterator[Store]:
        async with ground(telemetry) as store:
            options = dataclasses.replace(store.options, tenant=f"crash-{next(_cases)}", listen=False)
            driver = Doomed(store.driver)  # which never is: it leaves the other open
            async with Store(driver, store.statements, options, store.clock, telemetry) as own:
                yield own

    return grounded
