"""`crash_everywhere`: it crashes where it says, and it fails where a workflow does not survive that."""

import asyncio
import itertools
from collections.abc import Callable

import pytest

from stepwell import Context, RunStatus, StepFailed, sleep, step, workflow
from stepwell.store.driver import Call
from stepwell.testing import World, world
from stepwell.testing.crash_driver import Doomed
from stepwell.testing.crashes import Case, Crashes, When

counter = itertools.count()


@step
async def double(n: int) -> int:
    return 2 * n


@step
async def refuse(n: int) -> int:
    raise ValueError(f"not {n}")


@workflow(name="kit.sound")
async def sound(ctx: Context, n: int) -> list[str]:
    first = await double(n)
    token = ctx.uuid()
    await sleep("1h")
    return [str(await double(first)), str(token), ctx.now().isoformat()]


@workflow(name="kit.failing")
async def failing(n: int) -> int:
    await double(n)
    try:
        return await refuse(n)
    except StepFailed:
        await double(n + 1)
        raise


@workflow(name="kit.chancy")
async def chancy(n: int) -> int:
    await double(n)
    await double(n + 1)  # the end of the run records this one; the first has a write of its own
    return next(counter)  # another one whenever the code is executed again


@workflow(name="kit.forgetful")
async def forgetful(n: int) -> int:
    if next(counter) == 0:
        await double(n)
        await double(n + 1)  # not before the first is recorded
    return n


@pytest.mark.proves("TU-06", "R-06")
async def test_each_crash_happened_and_the_run_ended_the_same() -> None:
    async with world(sound) as w:
        report = await w.crash_everywhere(sound.trigger(3))
        assert report.cases + len(report.missed) == 2 * len(report.calls)
        assert report.cases > len(report.calls)
        assert report.life.status == "SUCCESS"
        assert report.life.output is not None
        assert report.life.output.startswith('["12",')
        assert f"{report.cases} crashes" in str(report)
        assert "settle" in str(report)
        assert await sound.trigger(1).execute(w.store)  # its own worker is at work again
        await w.advance("1h")
        assert [run.status for run in await w.store.runs()] == [RunStatus.SUCCESS]


@pytest.mark.proves("TU-06", "S-06")
async def test_a_run_that_fails_is_to_fail_the_same() -> None:
    async with world(failing, retry=2) as w:
        report = await w.crash_everywhere(failing.trigger(3))
        assert report.life.error == ("StepFailed", "step refuse#1 gave up with ValueError: not 3")
        assert report.cases > 10


@pytest.mark.proves("TU-06")
async def test_a_workflow_that_is_not_deterministic_is_found_out_with_the_crash_and_the_calls() -> None:
    async with world(chancy) as w:
        with pytest.raises(AssertionError) as raised:
            await w.crash_everywhere(chancy.trigger(3))
    told = str(raised.value)
    assert "cut off before call 1, has_suspects: the run ended otherwise" in told
    assert "database calls without faults:" in told
    assert "add_steps" in told


async def test_recorded_steps_that_the_next_worker_does_not_ask_for_are_found_out() -> None:
    def anew() -> None:
        global counter  # noqa: PLW0603 - the workflow's own sin
        counter = itertools.count()

    async with world(forgetful) as w, w.crashes(forgetful.trigger(3)) as crashes:
        case = await _cut_off(crashes, "settle", "before", anew)
        assert case.life.unasked == ("double#1",)


async def test_the_loss_of_a_call_before_it_is_made_and_after_it_is_made_differ_in_what_is_recorded() -> None:
    async with world(sound) as w, w.crashes(sound.trigger(3)) as crashes:
        before = await _cut_off(crashes, "add_steps", "before")
        after = await _cut_off(crashes, "add_steps", "after")
        assert (before.recorded, after.recorded) == (frozenset(), frozenset({("double#1", 1)}))
        assert before.life.told == after.life.told


async def test_a_doomed_driver_answers_nobody_after_its_call(store_url: str) -> None:
    async with world(url=store_url) as w:
        doomed = Doomed(w.store.database.driver, 2, after=True)
        doomed.arm()
        await doomed.read(_asking(w))
        waiting = [asyncio.ensure_future(doomed.read(_asking(w))) for _ in range(3)]
        await asyncio.wait_for(doomed.died.wait(), 5)
        assert not any(one.done() for one in waiting)
        assert doomed.calls == ["next_due", "next_due"]
        doomed.over()
        await asyncio.wait(waiting)
        assert all(one.cancelled() for one in waiting)


async def _cut_off(crashes: Crashes, statement: str, when: When, before: Callable[[], object] = str) -> Case:
    """The crash at the first call of this statement; which number it has is up to the loop."""
    for _ in range(10):
        before()
        whole = await crashes.undisturbed()
        number = next(number for number, call in enumerate(whole.calls, 1) if statement in call)
        before()
        case = await crashes.cut_off(number, when)
        if case is not None and statement in case.life.calls[-1]:
            return case
    raise AssertionError(f"no crash came at {statement}")


def _asking(w: World) -> Call:
    return Call("next_due", w.store.database.params())
