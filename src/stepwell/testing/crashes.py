"""Crashes: a worker is cut off at each of its database calls, and another worker takes over its run or its input.

Everything happens in one process. The crashing worker has its own store on the same database, whose driver goes silent
at a chosen call; after that none of its calls reaches the database, its session is declared dead at once, and another
worker continues. Time is virtual, so the test does not wait for leases or sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from stepwell.base.clock import TestClock
from stepwell.base.events import Event, StepsUnasked
from stepwell.base.telemetry import Telemetry
from stepwell.decider import Decider
from stepwell.deciders.service import Service
from stepwell.errors import InvalidOption, RunNotFound, StepwellError
from stepwell.records import RunId, RunStatus, StepInfo
from stepwell.store.driver import Call
from stepwell.store.store import Store
from stepwell.testing.crash_driver import NEVER, Doomed
from stepwell.testing.manual_worker import HandWorker, live
from stepwell.trigger import Trigger
from stepwell.workload import Serves

When = Literal["before", "after"]
Crash = tuple[int, When]  # the number of a call, and on which side of it
WHENS: Final[tuple[When, When]] = ("before", "after")
Ground = Callable[[Telemetry], AbstractAsyncContextManager[Store]]
NO_DECIDER: Final = "the world serves no decider with inputs of this class: `world(Orders())`"
TRIES: Final = 3  # how often a crash at one call is tried: calls that are under way at the same time may merge
_tenants = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Life:
    """The life of a run: how it ended, what it recorded, and the database calls of its first worker."""

    run_id: RunId[Any]
    status: str
    output: str | None
    error: tuple[object, object] | None  # its type and message
    steps: tuple[tuple[str, str, Any], ...]  # key, status, output
    calls: tuple[str, ...]
    unasked: tuple[str, ...] = ()  # recorded steps that a replay did not reach

    @property
    def told(self) -> tuple[object, ...]:
        """What has to be the same, however often workers were lost."""
        return self.status, self.output, self.error, self.steps, self.unasked


@dataclass(frozen=True, slots=True)
class Case:
    """One crash, and the life of its run; `recorded` are the keys and attempts with an outcome at that moment."""

    when: When
    at: int
    life: Life
    recorded: frozenset[tuple[str, int]]

    def __str__(self) -> str:
        return f"cut off {self.when} call {self.at}, {self.life.calls[self.at - 1]}"


@dataclass(frozen=True, slots=True)
class CrashReport:
    """What `crash_everywhere` did: `cases` crashes, all of which happened, and each time the run ended the same.

    `calls` are the database calls of a worker without a crash; `missed` are crashes that were planned at one of them
    and did not happen, because two calls were sent as one every time.
    """

    cases: int
    calls: tuple[str, ...]
    missed: tuple[str, ...]
    life: Life

    def __str__(self) -> str:
        told = f"{self.cases} crashes, before and after each of {len(self.calls)} database calls"
        return f"{told}:\n{_numbered(self.calls)}"


def every_crash(whole: Life) -> list[Crash]:
    """Before and after each call."""
    return [(at, when) for at in range(1, len(whole.calls) + 1) for when in WHENS]


class Crashes:
    """The lives of runs of one trigger, each on its own store."""

    def __init__(
        self,
        serves: Sequence[Serves],
        trigger: Trigger[Any],
        ground: Ground,
    ) -> None:
        self._serves = serves
        self._trigger = trigger
        self._ground = ground

    async def everywhere(
        self, chosen: Callable[[Life], Iterable[Crash]] = every_crash, look: Callable[[Case], object] = str
    ) -> CrashReport:
        """Cut the worker off before and after each of its calls; raises `AssertionError` if a run ends otherwise.

        `chosen` selects the crashes, if not all; `look` is called with every one that happened.
        """
        whole = await self.undisturbed()
        cases, missed = 0, []
        for at, when in chosen(whole):
            case = await self.cut_off(at, when)
            if case is None:
                missed.append(f"{when} call {at}")
                continue
            check_same(whole, case)
            look(case)
            cases += 1
        if cases <= len(missed):
            raise AssertionError(f"only {cases} of {cases + len(missed)} crashes happened; the runs are too different")
        return CrashReport(cases, whole.calls, tuple(missed), whole)

    async def undisturbed(self) -> Life:
        """A run without a crash."""
        life, _ = await self._live(NEVER, "before")
        return life

    async def cut_off(self, at: int, when: When) -> Case | None:
        """A run whose worker is cut off at this call; None if in every try it needed fewer calls."""
        for _ in range(TRIES):
            life, recorded = await self._live(at, when)
            if recorded is not None:
                return Case(when, at, life, recorded)
        return None

    async def _live(self, at: int, when: When) -> tuple[Life, frozenset[tuple[str, int]] | None]:
        """The life of a run, and what it had recorded when its worker was lost, if it was."""
        telemetry, unasked, recorded = Telemetry(log=False), Unasked(), None
        telemetry.subscribe(unasked)
        async with self._ground(telemetry) as store:
            doomed = Doomed(store.database.driver, at, after=when == "after")
            run_id = await self._first_life(store, doomed)
            if doomed.is_silent:
                steps = await store.steps(run_id)
                recorded = frozenset((one.key, one.attempt) for one in steps if one.status != RunStatus.RUNNING)
                async with HandWorker(store, self._serves, name="second") as worker:
                    await live(worker, store, cast("TestClock", store.database.clock))
            return await _life(store, run_id, doomed.calls, unasked), recorded

    async def _first_life(self, store: Store, doomed: Doomed) -> RunId[Any]:
        options = dataclasses.replace(store.database.options, listen=False)
        own = Store(doomed, store.database.statements, options, store.database.clock, store.database.telemetry)
        worker = HandWorker(own, self._serves, name="first")
        try:
            await worker.register()
            dead = worker.id
            run_id = await self._trigger.execute(store)
            doomed.arm()
            await self._until_death(worker, store, doomed)
        finally:
            await own.close()
        if doomed.is_silent:
            await _bury(store, dead)
        return run_id

    async def _until_death(self, worker: HandWorker, store: Store, doomed: Doomed) -> None:
        """Work until no task waits, or until the worker is gone."""
        await worker.__aenter__()
        working = asyncio.ensure_future(live(worker, store, cast("TestClock", store.database.clock)))
        dying = asyncio.ensure_future(doomed.died.wait())
        try:
            await asyncio.wait([working, dying], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (working, dying):
                one.cancel()
            failed, _ = await asyncio.gather(working, dying, return_exceptions=True)
            if doomed.is_silent:
                await doomed.died.wait()
                await worker.vanish(doomed)
            else:
                doomed.disarm()
                await worker.__aexit__(None, None, None)
        if isinstance(failed, Exception) and not doomed.is_silent:
            raise failed


class InputCrashes(Crashes):
    """The lives of instances that get one input, each in its own tenant."""

    def __init__(self, serves: Sequence[Serves], input: object, ground: Ground) -> None:
        super().__init__(serves, cast("Any", SentInput(serves, input)), _with_tenants(ground))
        self._input = input

    async def _live(self, at: int, when: When) -> tuple[Life, frozenset[tuple[str, int]] | None]:
        async with self._ground(Telemetry(log=False)) as store:
            doomed = Doomed(store.database.driver, at, after=when == "after")
            await self._first_life(store, doomed)
            if doomed.is_silent:
                async with HandWorker(store, self._serves, name="second") as worker:
                    await live(worker, store, cast("TestClock", store.database.clock))
            life = await self._told(store, doomed.calls)
            return life, frozenset() if doomed.is_silent else None

    async def _told(self, store: Store, calls: Sequence[str]) -> Life:
        """The events of every instance, and the number of tasks by kind and status."""
        params = {"tenant": store.database.options.tenant}
        events = [tuple(row) for row in await store.database.driver.read(Call("all_events", params))]
        tasks = tuple(tuple(row) for row in await store.database.driver.read(Call("tasks_of_deciders", params)))
        steps = cast("tuple[tuple[str, str, Any], ...]", tasks)
        return Life(RunId(0), "", json.dumps(events), None, steps, tuple(calls))


class SentInput:
    """Replaces a trigger: sends the input, without a worker."""

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


class Unasked:
    """Collects the recorded steps that a replay did not reach."""

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepsUnasked):
            self.keys += event.keys


def check_same(whole: Life, case: Case) -> None:
    """Raise, with all details, unless the run ended and recorded the same as a run without a crash."""
    if case.life.told == whole.told:
        return
    raise AssertionError(
        f"{case}: the run ended otherwise than without faults\n"
        f"  without: {_ending(whole)}\n  now:     {_ending(case.life)}\n"
        f"{_difference(whole, case.life)}"
        f"database calls without faults:\n{_numbered(whole.calls)}\nuntil the crash:\n{_numbered(case.life.calls)}"
    )


async def _bury(store: Store, worker_id: int) -> None:
    """Declare the session dead now; without a test, its lease would have to pass."""
    [seen] = [one for one in await store.database.sessions.living() if one.worker_id == worker_id]
    if await store.database.sessions.bury(seen) is None:
        raise StepwellError(f"session {worker_id} has beaten after it was cut off")


async def _life(store: Store, run_id: RunId[Any], calls: Sequence[str], unasked: Unasked) -> Life:
    run = await store.get_run(run_id)
    if not run.status.finished:
        raise AssertionError(f"run {run_id} is {run.status} and waits for nothing that time would bring")
    error = None if run.error is None else (run.error.get("type"), run.error.get("message"))
    steps = [(one.key, str(one.status), await _told(store, run_id, one)) for one in await store.steps(run_id)]
    ordered = tuple(sorted(steps, key=str))
    return Life(run_id, str(run.status), run.output_text, error, ordered, tuple(calls), unasked.keys)


async def _told(store: Store, run_id: int, step: StepInfo) -> Any:
    """The record of a step; of children only the count, since their ids differ in every life."""
    if step.key.rpartition("/")[2].startswith("results()") and isinstance(step.output, list):
        return step.output  # what they returned, even if one of these numbers is also the id of a child
    ids = step.output.get("ids") if isinstance(step.output, dict) else step.output
    if isinstance(ids, list) and ids and isinstance(ids[0], int):
        with contextlib.suppress(RunNotFound):
            if (await store.get_run(ids[0])).parent_id == run_id:
                return f"{len(ids)} children"
    return step.output


def _ending(life: Life) -> str:
    error = "" if life.error is None else f", error {life.error[0]}: {life.error[1]}"
    unasked = f", not asked for: {', '.join(life.unasked)}" if life.unasked else ""
    return f"{life.status}, output {life.output}{error}{unasked}"


def _difference(whole: Life, life: Life) -> str:
    lines = [f"  only without: {one}\n" for one in whole.steps if one not in life.steps]
    return "".join([*lines, *(f"  only now:     {one}\n" for one in life.steps if one not in whole.steps)])


def _numbered(calls: Sequence[str]) -> str:
    return "\n".join(f"  {number:3} {call}" for number, call in enumerate(calls, 1))


def _with_tenants(ground: Ground) -> Ground:
    """The same ground with a new tenant each time, so that no life sees what another has left."""

    @asynccontextmanager
    async def grounded(telemetry: Telemetry) -> AsyncIterator[Store]:
        async with ground(telemetry) as store:
            options = dataclasses.replace(store.database.options, tenant=f"crash_{next(_tenants)}", listen=False)
            driver = Doomed(store.database.driver)  # it never falls silent; it only leaves the other driver open
            async with Store(driver, store.database.statements, options, store.database.clock, telemetry) as own:
                yield own

    return grounded
