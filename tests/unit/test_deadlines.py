"""Deadlines of many who wait, with one timer."""

import asyncio
from typing import Any

import pytest

from stepwell.base.deadlines import Deadlines
from tests.ground.waiting import until


@pytest.mark.proves("promise-20")
async def test_who_waits_too_long_is_told_once_and_the_others_are_not() -> None:
    told: list[str] = []
    deadlines: Deadlines[str] = Deadlines(told.append)
    deadlines.add("patient", 60)
    deadlines.add("second", 0.04)
    deadlines.add("first", 0.02)  # before the one for which the timer is set
    deadlines.add("answered", 0.03)
    deadlines.remove("answered")
    await until(lambda: len(told) == 2)
    assert sorted(told) == ["first", "second"]
    deadlines.add("last", 0.02)
    await until(lambda: len(told) == 3)
    assert told[2:] == ["last"]
    deadlines.close()


@pytest.mark.proves("promise-20")
async def test_one_timer_serves_many_and_none_is_left_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    class Counting:  # not the loop itself: uvloop's takes no other attribute
        time = loop.time

        def call_at(self, *given: Any) -> asyncio.TimerHandle:
            timers.append(loop.call_at(*given))
            return timers[-1]

    monkeypatch.setattr(asyncio, "get_running_loop", Counting)
    deadlines: Deadlines[int] = Deadlines(print)
    for number in range(100):
        deadlines.add(number, 60)
        deadlines.remove(number)
    assert len(timers) == 1
    deadlines.close()
    assert timers[0].cancelled()
