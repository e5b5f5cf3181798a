"""Who counts as dead: silent by the database's clock, and seen so, unchanged, by the observer's own."""

import pytest

from stepwell.base.clock import TestClock
from stepwell.store.recovery import Watch
from stepwell.store.rows import SeenWorker

A, B = SeenWorker(1, 100), SeenWorker(2, 200)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def watch(clock: TestClock) -> Watch:
    return Watch(clock)


def test_dead_is_who_was_seen_silent_for_long_enough(watch: Watch, clock: TestClock) -> None:
    assert watch.dead_among([A]) == []
    clock.advance(9, leases=True)
    assert watch.dead_among([A, B]) == []
    clock.advance(1, leases=True)
    assert watch.dead_among([A, B]) == [A]
    clock.advance(9, leases=True)
    assert watch.dead_among([B]) == [B]


def test_a_beat_in_between_is_a_new_beginning(watch: Watch, clock: TestClock) -> None:
    watch.dead_among([A])
    clock.advance(8, leases=True)
    watch.dead_among([SeenWorker(1, 101)])  # it has beaten, and is late again
    clock.advance(8, leases=True)
    assert watch.dead_among([SeenWorker(1, 101)]) == []
    clock.advance(1, leases=True)
    assert watch.dead_among([]) == []
    clock.advance(1, leases=True)
    assert watch.dead_among([SeenWorker(1, 101)]) == []
    clock.advance(10, leases=True)
    assert watch.dead_among([SeenWorker(1, 101)]) == [SeenWorker(1, 101)]


def test_after_an_outage_everybody_is_innocent(watch: Watch, clock: TestClock) -> None:
    watch.dead_among([A])
    clock.advance(9, leases=True)
    watch.interrupted()
    clock.advance(5, leases=True)
    assert watch.dead_among([A]) == []
    clock.advance(10, leases=True)
    assert watch.dead_among([A]) == [A]


def test_an_observer_that_did_not_look_has_seen_nothing(watch: Watch, clock: TestClock) -> None:
    """Frozen itself, or just busy: what it saw before proves nothing about the time between."""
    watch.dead_among([A])
    clock.advance(20.1, leases=True)
    assert watch.dead_among([A]) == []
    clock.advance(10, leases=True)
    assert watch.dead_among([A]) == [A]


def test_a_watch_that_ran_along_with_the_lease_needs_no_more_patience(watch: Watch, clock: TestClock) -> None:
    for _ in range(2):
        assert watch.dead_among([SeenWorker(1, 100, silent=False)]) == []
        clock.advance(10, leases=True)
    assert watch.dead_among([A]) == [A]


def test_a_jump_of_the_databases_clock_kills_nobody_who_beats(watch: Watch, clock: TestClock) -> None:
    watch.dead_among([SeenWorker(1, 100, silent=False)])
    clock.advance(10, leases=True)  # the time between two beats
    assert watch.dead_among([A]) == [], "late by the database, but a beat is due only now"
    clock.advance(1, leases=True)
    assert watch.dead_among([SeenWorker(1, 101)]) == []


def test_a_jump_of_the_due_clock_accuses_nobody(watch: Watch, clock: TestClock) -> None:
    watch.dead_among([A])
    clock.advance("365d")
    assert watch.dead_among([A]) == []
