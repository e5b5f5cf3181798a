"""What is measured of deciders and read models. Each run is checked: every event is there, every instance adds up."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

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


async def observed(stage: Stage[Any]) -> Figures:
    """As `many`, each input recorded with how it was answered."""
    return await _decided(stage, INSTANCES, stage.contestant.decide_observed)


async def inline(stage: Stage[Any]) -> Figures:
    """As `many`, with the instance's row of a read model in each commit."""
    figures = await _decided(stage, INSTANCES, stage.contestant.decide_inline)
    await _check_model(stage)
    return figures


async def replayed(stage: Stage[Deciders]) -> Figures:
    """The states of fifty instances, read from all of their events by somebody who knows none of them."""
    return await _replayed(stage, stage.contestant.replay)


async def upcast(stage: Stage[Deciders]) -> Figures:
    """The same by code in which the class of these events is two versions newer."""
    return await _replayed(stage, stage.contestant.replay_old)


async def followed(stage: Stage[Any]) -> Figures:
    """A read model that has all events to handle; what it costs to have handled them."""
    return await _followed(stage, stage.contestant.follow)


async def followed_in_sql(stage: Stage[Any]) -> Figures:
    """The same, with a statement of the user's for each event."""
    return await _followed(stage, stage.contestant.follow_in_sql)


async def rebuilt(stage: Stage[Any]) -> Figures:
    """All events once more, beside a read model that stands still meanwhile, until the new one is read."""
    await stage.contestant.begin(INSTANCES)
    await stage.contestant.follow(INSTANCES)
    await stage.contestant.fill(stage.count)
    begun = stage.meter.read()
    await stage.contestant.rebuild(stage.count)
    used = stage.meter.read() - begun
    await stage.expect(stage.contestant.events, INSTANCES + stage.count)
    await _check_model(stage)
    return rate_of(stage.count, used)


async def _replayed(stage: Stage[Deciders], replay: Callable[[], Awaitable[list[int]]]) -> Figures:
    each = stage.count // INSTANCES
    await stage.contestant.record(INSTANCES, each)
    await stage.expect(stage.contestant.events, INSTANCES * each)
    begun = stage.meter.read()
    sums = await replay()
    used = stage.meter.read() - begun
    if sums != [each] * INSTANCES:
        raise RuntimeError(f"the instances do not add up: {sorted(set(sums))} where each is {each}")
    return rate_of(INSTANCES * each, used)


async def _followed(stage: Stage[Any], follow: Callable[[int], Awaitable[None]]) -> Figures:
    await stage.contestant.begin(INSTANCES)
    await stage.contestant.decide(stage.count)
    begun = stage.meter.read()
    await follow(INSTANCES + stage.count)
    used = stage.meter.read() - begun
    await _check_model(stage)
    return rate_of(stage.count, used)


async def _check_model(stage: Stage[Any]) -> None:
    sums = await stage.contestant.modelled()
    if len(sums) != INSTANCES or sum(sums) != INSTANCES + stage.count:
        raise RuntimeError(f"the read model does not add up: {sum(sums)} instead of {INSTANCES + stage.count}")


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
