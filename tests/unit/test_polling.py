"""The pauses between claims: ended by a hint, by their own time, by a cancellation."""

import asyncio

import pytest

from stepwell.base.clock import DatabaseClock
from stepwell.store.poll import Polling

LONG = 3600.0


def long_pauses() -> Polling:
    """Pauses that end by themselves after any test has."""
    polling = Polling(DatabaseClock(), LONG)
    polling._pause = LONG
    polling.begin()
    return polling


@pytest.mark.proves("rule-17")
async def test_a_hint_ends_the_pause() -> None:
    polling = long_pauses()
    resting = asyncio.create_task(polling.rest())
    await asyncio.sleep(0)
    assert not resting.done()
    polling.wake()
    polling.wake()  # once more does nothing
    await asyncio.wait_for(resting, 5)


@pytest.mark.proves("rule-17")
async def test_a_hint_during_a_claim_ends_the_pause_after_it() -> None:
    polling = long_pauses()
    polling.wake()
    await asyncio.wait_for(polling.rest(), 5)
    polling.begin()
    resting = asyncio.create_task(polling.rest())  # and not the one after that
    await asyncio.sleep(0)
    assert polling._rest is not None, "it rests"
    assert not polling._rest.done()
    resting.cancel()


async def test_a_pause_ends_by_itself_and_at_the_time_given() -> None:
    polling = Polling(DatabaseClock(), 0.01)
    polling.begin()
    await asyncio.wait_for(polling.rest(), 5)
    await asyncio.wait_for(long_pauses().rest(0.01), 5)


async def test_a_pause_that_is_cancelled_together_with_a_hint_is_cancelled() -> None:
    polling = long_pauses()
    resting = asyncio.create_task(polling.rest())
    await asyncio.sleep(0)
    polling.wake()
    resting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resting
    assert polling._rest is None
