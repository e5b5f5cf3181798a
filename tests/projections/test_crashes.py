"""A worker that drives a projection is cut off before and after each of its statements: the rows are as without."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence

import pytest

from stepwell import RunId, Store
from stepwell.testing import crashes, world
from stepwell.testing.crashes import WHENS, Crash, InputCrashes, Life, SentInput
from stepwell.testing.manual_worker import HandWorker
from tests.projections.books import Accounts, Pay, engine_of
from tests.projections.shelves import AccountRow, accounts

INPUTS = [Pay("a", 1), Pay("b", 2), Pay("a", 4)]


@pytest.fixture(autouse=True)
def lives_are_told_with_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    told = InputCrashes._told

    async def with_rows(self: InputCrashes, store: Store, calls: Sequence[str]) -> Life:
        engine, life = engine_of(store, accounts), await told(self, store, calls)
        rows = [(row.account, row.state, row.cents) for row in await engine.query(AccountRow)]
        stands = [(one.state, one.handled, one.failures, one.parked, one.lag) for one in await store.projections()]
        return dataclasses.replace(life, output=json.dumps([rows, stands]))

    async def sent(self: SentInput, store: Store) -> RunId[object]:
        for one in INPUTS:
            await engine_of(store).execute(one)
        return RunId(0)

    def driving(store: Store, _: object, name: str) -> HandWorker:
        return HandWorker(store, [engine_of(store, accounts)], name=name)

    monkeypatch.setattr(crashes, "HandWorker", driving)
    monkeypatch.setattr(InputCrashes, "_told", with_rows)
    monkeypatch.setattr(SentInput, "execute", sent)


def _of_the_projection(whole: Life) -> Iterable[Crash]:
    """Both sides of what it says from its tables to the end of its batch."""
    words = ("savepoint", "rows", "projection", "events", "horizon")
    numbers = [at for at, call in enumerate(whole.calls, 1) if any(word in call for word in words)]
    return [(at, when) for at in numbers for when in WHENS]


@pytest.mark.proves("PJ-04", "PJ-05", "PJ-15", "promise-09", "rule-26")
@pytest.mark.backends("postgres", reason="elsewhere the transaction of a worker that is only silent keeps the file")
async def test_a_projection_survives_a_crash_at_every_statement(store_url: str) -> None:
    async with world(Accounts(), url=store_url) as w, w.crashes(INPUTS[0]) as lives:
        report = await lives.everywhere(_of_the_projection)
    assert json.loads(report.life.output or "") == [[["a", "paid", 5], ["b", "paid", 2]], [["running", 3, 0, 0, 0]]]
    assert report.cases >= 16, report
