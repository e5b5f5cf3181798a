"""Delays grow from the base to the cap, spread, and never leave their bounds."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.base.backoff import Retry, waits
from stepwell.base.clock import DatabaseClock
from stepwell.errors import InvalidOption

SHARES = st.floats(min_value=0, max_value=1)


@pytest.mark.proves("E-04")
@given(failures_before=st.integers(min_value=0, max_value=20), randomness=SHARES)
def test_the_default_delay_is_raw_plus_up_to_half_of_it(failures_before: int, randomness: float) -> None:
    raw = min(300.0, 1.0 * 2**failures_before)
    delay = Retry().delay(failures_before + 1, randomness)
    assert raw <= delay <= 1.5 * raw
    assert delay <= 300.0


@pytest.mark.proves("E-04")
def test_without_jitter_the_delays_double_up_to_the_cap() -> None:
    delays = [Retry().delay(attempt, 0.0) for attempt in range(1, 12)]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


@pytest.mark.proves("E-04")
def test_jitter_is_up_to_half_and_the_cap_comes_last() -> None:
    assert [Retry().delay(attempt, 1.0) for attempt in (1, 2, 3, 9, 10)] == [1.5, 3.0, 6.0, 300.0, 300.0]


@pytest.mark.proves("E-05")
def test_a_hundred_failures_at_once_are_spread() -> None:
    clock = DatabaseClock()
    delays = [Retry().delay(1, clock.random()) for _ in range(100)]
    assert len(set(delays)) > 50


@given(
    attempt=st.integers(min_value=1, max_value=10**6),
    randomness=SHARES,
    base=st.floats(min_value=0, max_value=3_155_760_000),
    cap=st.floats(min_value=0, max_value=3_155_760_000),
    jitter=SHARES,
)
def test_no_policy_leaves_its_bounds(attempt: int, randomness: float, base: float, cap: float, jitter: float) -> None:
    retry = Retry(base=base, cap=cap, jitter=jitter)
    delay = retry.delay(attempt, randomness)
    assert 0 <= delay <= cap
    assert delay <= retry.delay(attempt + 1, randomness)


def test_a_million_attempts_do_not_overflow() -> None:
    assert Retry(base="36525d", cap="36525d").delay(10**6, 1.0) == 3_155_760_000.0
    assert Retry(base=1e-6).delay(10**6, 0.5) == 300.0


def test_a_number_stands_for_a_policy() -> None:
    policy = Retry(5, cap=60)
    assert Retry.of(policy) is policy
    assert Retry.of(5) == Retry(5)
    assert Retry(cap="5m") == Retry(cap=300)


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"max_attempts": True},
        {"base": -1},
        {"cap": "soon"},
        {"jitter": 1.5},
        {"jitter": float("nan")},
        {"jitter": "0.5"},
        {"permanent": ValueError},
        {"transient": ("ValueError",)},
    ],
)
def test_a_bad_policy_is_refused_by_the_option(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        Retry(**options)
    assert caught.value.option in options


def test_reconnecting_doubles_to_the_cap() -> None:
    assert list(islice(waits(1.0, lambda: 0.0), 7)) == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@given(cap=st.floats(min_value=0, max_value=3600), chance=SHARES)
def test_reconnecting_never_spins_and_never_waits_past_the_cap(cap: float, chance: float) -> None:
    assert all(0 < wait <= max(cap, 0.001) for wait in islice(waits(cap, lambda: chance), 30))
