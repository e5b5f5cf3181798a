"""A worker of deciders is cut off before and after every database call: the same events, each answer and timer once."""

import json
from collections.abc import Iterable

import pytest

from stepwell import Engine, RunId, Store
from stepwell.testing import world
from stepwell.testing.crashes import WHENS, Crash, Life, SentInput, every_crash
from tests.deciders.workbench import Bench, Do

MOST_MISSED = 0.2


def _few(whole: Life) -> Iterable[Crash]:
    """Both sides of the calls that write."""
    written = ("keep_answer", "_decided", "transact", "settle")
    numbers = [at for at, call in enumerate(whole.calls, 1) if any(word in call for word in written)]
    return [(at, when) for at in numbers for when in WHENS]


@pytest.mark.proves("F-04", "F-08", "F-10", "F-13", "TM-04", "TM-06", "M-04", "II-07", "TU-06", "IN-05")
async def test_a_decider_survives_a_crash_at_every_database_call(store_url: str, backend: str) -> None:
    chosen = every_crash if backend == "sqlite" else _few
    async with world(Bench(), url=store_url) as w, w.crashes(Do("a", "go", ask="mail", after=60, timer="k")) as crashes:
        report = await crashes.everywhere(chosen)
    labels = [json.loads(data)["label"] for *_, data in json.loads(report.life.output or "[]")]
    assert labels == ["go", "mail answered", "tick"]
    assert report.life.steps == (("EFFECT", "SUCCESS", 1), ("TIMER", "SUCCESS", 1))
    assert report.cases >= (20 if backend == "sqlite" else 6), report
    assert len(report.missed) <= MOST_MISSED * report.cases, report.missed


@pytest.mark.proves("IN-02", "IN-01")
async def test_a_submitted_input_is_applied_once_wherever_its_worker_is_cut_off(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def submit(self: SentInput, store: Store) -> RunId[object]:
        await Engine(store).register(Bench()).submit(self._input)
        return RunId(0)

    monkeypatch.setattr(SentInput, "execute", submit)
    async with world(Bench(), url=store_url) as w, w.crashes(Do("a", "go")) as crashes:
        report = await crashes.everywhere()
    [(*_, data)] = json.loads(report.life.output or "[]")
    assert json.loads(data)["label"] == "go"
    assert report.life.steps == (("INPUT", "SUCCESS", 1),)
    # Not a part of all cases: how often an idle worker looks again before it ends is a matter of the machine's load.
    assert report.cases - len(report.missed) >= 8, report


@pytest.mark.soak
@pytest.mark.proves("F-04", "TM-04", "TM-11", "TU-06")
async def test_every_shape_of_a_decision_survives_a_crash_at_every_database_call(store_url: str) -> None:
    shapes = [
        Do("a", "go", ask="mail", after=60, timer="k"),
        Do("a", "go", after=60, timer="k", again=60.0),
        Do("a", "go", ask="mail", end=True),
        Do("a", "go", ask="mail", after=1),
    ]
    async with world(Bench(), url=store_url) as w:
        for shape in shapes:
            report = await w.crash_everywhere(shape)
            assert report.cases > len(report.missed)
