"""A worker is cut off before and after every database call it makes: the run ends the same, and nothing runs twice."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType

import pytest

from stepwell import RunStatus
from stepwell.testing import world
from stepwell.testing.crashes import WHENS, Crash, Life, every_crash
from tests.sweep import flows, sync_flows, waiting_flows
from tests.sweep.conftest import Scale
from tests.sweep.ledger import LEDGER, assert_nothing_recorded_ran_again

TELLING = ("steps", "settle", "Waiting")  # what the statements are called that read and write what a run has done
MOST_MISSED = 0.1


@pytest.mark.proves("S-06", "S-11", "S-12", "S-26", "R-04", "R-06", "R-08", "R-15", "W-10", "E-08", "TU-06")
@pytest.mark.proves("promise-03", "promise-05", "rule-03", "rule-13", "rule-16", "protocol-18", "B-02")
@pytest.mark.backends("sqlite", "postgres", reason="the same driver serves Turso")
@pytest.mark.parametrize("module", [flows, sync_flows, waiting_flows], ids=["async", "sync", "waiting"])
async def test_a_run_survives_a_crash_at_every_database_call(
    module: ModuleType, backend: str, store_url: str, scale: Scale, measured: Callable[..., None]
) -> None:
    LEDGER.clear()
    calls = cases = missed = 0
    async with world(module, url=store_url) as w:
        for trigger, output in module.FLOWS[:: scale.of(2, 1)]:
            async with w.crashes(trigger) as crashes:
                few = partial(_few_crashes, 0 if backend == "sqlite" else 1)
                chosen = every_crash if scale.is_full else few
                report = await crashes.everywhere(chosen, look=assert_nothing_recorded_ran_again)
            assert json.loads(report.life.output or "null") == output, report.life
            calls, cases, missed = calls + len(report.calls), cases + report.cases, missed + len(report.missed)
    assert missed <= MOST_MISSED * cases, f"{missed} crashes did not happen, {cases} did"
    kind = {flows: "async", sync_flows: "sync", waiting_flows: "waiting"}[module]
    measured("sweep", kind=kind, flows=len(module.FLOWS), calls=calls, cases=cases)


@pytest.mark.proves("S-13", "R-11", "protocol-18")
async def test_a_sequence_beside_a_sleep_ends_before_the_run_is_given_back_and_that_is_once(store_url: str) -> None:
    async with world(flows, url=store_url) as w:
        run_id = await flows.gather_sleep.trigger(1).execute(w.store)
        await w.drain()
        waiting = await w.store.get_run(run_id)
        done = [one.key for one in await w.store.steps(run_id) if one.name == "add"]
        assert (waiting.status, waiting.worker) == (RunStatus.PENDING, None)
        assert done == [f"hesitant:1/add#{number}" for number in (1, 2, 3)]
        await w.advance("1h")
        assert await w.store.result(run_id, timeout=5) == [1001, [2, 12, 112]]
        run = await w.store.get(run_id)
        assert run is not None
        assert run.turn == 2


def _few_crashes(first: int, whole: Life) -> Iterable[Crash]:
    """Those at calls that read or write what the run has done: every other one, fewer of many, on one side in turn."""
    telling = [1, *(at for at, call in enumerate(whole.calls, 1) if any(word in call for word in TELLING))]
    return [(at, WHENS[number % 2]) for number, at in enumerate(telling[first :: max(2, len(telling) // 6)])]
