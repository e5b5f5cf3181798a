"""Word of finished runs: how it travels, together with that of queues, and what it costs who finishes them."""

import asyncio
from typing import Any

import pytest

from stepwell import Store
from stepwell.base.telemetry import Telemetry
from stepwell.store.driver import Hint
from stepwell.store.hints import wakeups
from stepwell.store.hints.wakeups import MOST_FINISHED, Teller
from stepwell.store.postgres.listener import read, written
from tests.ground.waiting import until
from tests.results.runs import Reads
from tests.wakeups.test_telling import Telephone


@pytest.mark.proves("RS-04", "rule-18")
@pytest.mark.parametrize(
    ("hint", "word"),
    [
        (Hint("a1", frozenset({2, 1})), "a1:1,2"), (Hint("a1"), "a1:*"),
        (Hint("a1", frozenset(), finished=frozenset({9, 5})), "a1:!5,9"),
        (Hint("a1", frozenset({1}), finished=frozenset({5})), "a1:1!5"),
        (Hint("a1", frozenset({1}), finished=None), "a1:1!*"), (Hint("a1", finished=None), "a1:*!*"),
        (Hint("a1", frozenset(), finished=frozenset({2**53})), f"a1:!{2**53}"),
        (Hint("0", frozenset(), gone=True), "0-"),
    ],
)  # fmt: skip
def test_a_word_of_queues_and_runs_comes_out_as_it_went_in(hint: Hint, word: str) -> None:
    assert written(hint) == word
    assert read(word) == hint


@pytest.mark.proves("RS-04")
def test_whatever_there_is_to_tell_fits_into_what_postgres_takes() -> None:
    some = frozenset(range(10**9, 10**9 + 354))  # as many as fit
    more = frozenset(range(10**9, 10**9 + 355))
    assert read(written(Hint("a1", some, finished=some))) == Hint("a1", some, finished=some)
    assert read(written(Hint("a1", some, finished=more))) == Hint("a1", some, finished=None)
    assert read(written(Hint("a1", more, finished=more))) == Hint("a1", finished=None)
    assert len(written(Hint("a" * 8, some, finished=some))) < 8_000


@pytest.mark.proves("RS-04")
@pytest.mark.parametrize("word", ["", "*", "by hand", "a1:", "a1:!", "a1:1!", "a1!5", "a1:1,!5", "a1:1!5!6", "a1?x"])
def test_what_others_say_there_may_mean_any_run(word: str) -> None:
    assert read(word).finished is None
    assert read(word).queues is None


@pytest.mark.proves("RS-04", "rule-18")
async def test_runs_are_told_in_the_same_word_as_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "TELL_EVERY", 0.05)
    driver: Any = Telephone()
    teller = Teller(driver, Telemetry(log=False), "a")
    teller.tell_finished(1)
    await asyncio.sleep(0)
    assert driver.told == [Hint("a", frozenset(), finished=frozenset({1}))]
    teller.tell({7})
    for run_id in (2, 3):
        teller.tell_finished(run_id)
    await until(lambda: len(driver.told) == 2)
    assert driver.told[1] == Hint("a", frozenset({7}), finished=frozenset({2, 3}))
    teller.tell_finished(4, soon=False)  # somebody here knows already
    await teller.close()
    assert driver.told[2:] == [Hint("a", frozenset(), finished=frozenset({4}))]


@pytest.mark.proves("RS-04", "rule-18")
async def test_what_there_is_to_tell_does_not_grow_with_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "TELL_EVERY", 0.05)
    driver: Any = Telephone()
    teller = Teller(driver, Telemetry(log=False), "a")
    teller.tell_finished(0)
    for run_id in range(1, 100_000):
        teller.tell_finished(run_id)
    assert len(teller._pending._finished) <= MOST_FINISHED + 1
    await teller.close()
    assert [hint.finished for hint in driver.told] == [frozenset({0}), None]


async def test_a_run_that_nobody_waits_for_is_not_read(store: Store) -> None:
    reads = Reads(store)
    for run_id in range(1, 100):
        store.database.results.settled(run_id, "SUCCESS", "1", None, "w")
    store.database.results.finished([1, 2])
    store.database.results._heard(None)
    await asyncio.sleep(0)
    assert store.database.results._job is None
    assert reads.count == 0
