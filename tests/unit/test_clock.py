"""The production clock leaves time to the database; the test clock moves only when it is moved."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from stepwell.base.clock import Clock, DatabaseClock, TestClock, boot_microseconds, wall_microseconds
from stepwell.base.durations import moment_of
from stepwell.errors import InvalidOption


def test_both_are_clocks() -> None:
    clocks: list[Clock] = [DatabaseClock(), TestClock()]
    assert all(0 <= clock.random() < 1 for clock in clocks)


def test_in_production_the_database_tells_the_time() -> None:
    clock = DatabaseClock()
    assert clock.now() is None
    assert clock.beat_now() is None
    assert clock.monotonic() <= clock.monotonic()


def test_a_leap_leaves_living_sessions_alive() -> None:
    start = datetime(2026, 7, 1, tzinfo=UTC)
    clock = TestClock(start)
    clock.advance("4h")
    assert clock.now() == moment_of(start) + 4 * 3_600_000_000
    assert clock.beat_now() == moment_of(start)
    assert clock.monotonic() == 0.0


def test_with_leases_silence_counts() -> None:
    clock = TestClock()
    before = clock.now()
    clock.advance(31, leases=True)
    assert clock.now() == clock.beat_now() == before + 31_000_000
    assert clock.monotonic() == 31.0


def test_time_does_not_go_back() -> None:
    with pytest.raises(InvalidOption, match="by"):
        TestClock().advance(-1)


def test_chance_repeats_itself() -> None:
    assert [TestClock(seed=7).random() for _ in range(2)] == [TestClock(seed=7).random()] * 2
    assert TestClock(seed=7).random() != TestClock(seed=8).random()


def test_no_step_is_lost_between_threads() -> None:
    clock = TestClock()
    before = clock.now()

    def move() -> None:
        for _ in range(500):
            clock.advance(1)

    threads = [threading.Thread(target=move) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() == before + 8 * 500 * 1_000_000


def test_the_hosts_clocks() -> None:
    assert wall_microseconds() > moment_of(datetime(2024, 1, 1, tzinfo=UTC))
    assert 0 < boot_microseconds() <= boot_microseconds()
