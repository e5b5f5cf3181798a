"""What is measured of deciders. Each run is checked: every event is there, and every instance adds up."""

from collections.abc import Awaitable, Callable
from typing import Final

from bench.contestants.deciders import Deciders
from bench.stage import Figures, Stage, rate_of

INSTANCES: Final = 50


async def many(stage: Stage[Deciders]) -> Figures:
    """Inputs to fifty instances, from as many callers as is best for the contestant."""
    return await _decided(stage, INSTANCES, stage.contestant.decide)


async def one(stage: Stage[Deciders]) -> Figures:
    """The same, all of them to one instance."""
    return await _decided(stage, 1, stage.contestant.decide)


async def in_turn(stage: Stage[Deciders]) -> Figures:
    """Inputs to fifty instances from one caller, who sends the next when the one before is committed."""
    return await _decided(stage, INSTANCES, stage.contestant.decide_in_turn)


async def _decided(stage: Stage[Deciders], instances: int, decide: Callable[[int], Awaitable[None]]) -> Figures:
    await stage.contestant.begin(instances)
    begun = stage.meter.read()
    await decide(stage.count)
    used = stage.meter.read() - begun
    await stage.expect(stage.contestant.events, instances + stage.count)
    sums = await stage.contestant.sums()
    if len(sums) != instances or sum(sums) != instances + stage.count:
        raise RuntimeError(f"the instances do not add up: {sum(sums)} where {instances + stage.count} were expected")
    return rate_of(stage.count, used)
