"""Fixtures of the tests of wake-ups."""

import pytest

from stepwell.store import poll as polling
from stepwell.store.hints import listener as hearing
from stepwell.store.postgres import listener as listening
from tests.ground.pgbouncer import pooled_url
from tests.wakeups.ways import NEVER, Mail

__all__ = ["mail", "no_polls", "pooled_url", "quick"]


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who waits looks again before the test is over, unless something wakes them."""
    monkeypatch.setattr(polling, "SHORTEST_POLL", NEVER)
    monkeypatch.setattr(polling, "LONGEST_POLL", NEVER)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ear that is asked after often, and given up soon."""
    monkeypatch.setattr(hearing, "PROBE_EVERY", 0.1)
    monkeypatch.setattr(hearing, "PROBE_WITHIN", 0.5)
    monkeypatch.setattr(hearing, "LONGEST_PAUSE", 0.2)
    monkeypatch.setattr(listening, "GOODBYE", 0.1)


@pytest.fixture
def mail() -> Mail:
    """A queue, its handler, and what became of it."""
    return Mail()
