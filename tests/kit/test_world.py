"""The world of `stepwell.testing`: its clock, its worker and its fakes."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import stepwell.testing
from stepwell import (
    Context,
    InvalidOption,
    PermanentError,
    RunStatus,
    StepFailed,
    Timeout,
    TransientError,
    current,
    handler,
    sleep,
    step,
    workflow,
)
from stepwell.testing import TestClock, world
from stepwell.testing import manual_worker as hands
from tests.shape.blocks import ROOT, blocks

START = datetime(2026, 1, 1, tzinfo=UTC)


@step
async def fetch(url: str) -> int:
    raise AssertionError(f"{url} was really fetched")


@step
def measure(url: str) -> int:
    return len(url)


@workflow(name="kit.fetched")
async def fetched(url: str) -> int:
    return await fetch(url) + 1


@workflow(name="kit.measured")
def measured(url: str) -> int:
    return measure(url) + 1


@workflow(name="kit.caught")
async def caught(url: str) -> str:
    try:
        return str(await fetch(url))
    except StepFailed as failed:
        return failed.type


@workflow(name="kit.stops")
async def stops(ctx: Context, times: int) -> list[datetime]:
    seen = [ctx.now()]
    for _ in range(times):
        await ctx.sleep("1h")
        seen.append(ctx.now())
    return seen


@workflow(name="kit.naps")
async def naps(minutes: list[int]) -> list[datetime]:
    return await asyncio.gather(*(_nap(each) for each in minutes))


async def _nap(minutes: int) -> datetime:
    await sleep(timedelta(minutes=minutes))
    return current().now()


@workflow(name="kit.retried")
async def retried() -> int:
    return await fetch("a")


@pytest.mark.proves("TU-05", "TU-04")
async def test_one_leap_crosses_all_the_sleeps_in_it_and_each_stop_sees_its_own_time(store_url: str) -> None:
    async with world(stops, url=store_url) as w:
        run_id = await stops.trigger(3).execute(w.store)
        await w.advance("4h")
        assert await w.store.result(run_id, timeout=5) == [START + timedelta(hours=hours) for hours in range(4)]
        assert w.clock.now() == TestClock(START + timedelta(hours=4)).now()


@pytest.mark.proves("TU-05")
async def test_what_is_due_after_the_leap_is_left_and_what_is_due_at_its_end_is_done() -> None:
    async with world(stops) as w:
        run_id = await stops.trigger(2).execute(w.store)
        await w.advance("119m59s")
        assert (await w.store.get_run(run_id)).status == RunStatus.PENDING
        await w.advance("1s")
        assert (await w.store.get_run(run_id)).status == RunStatus.SUCCESS


@pytest.mark.proves("TU-05")
async def test_runs_and_branches_go_on_each_when_it_is_due() -> None:
    async with world(naps, stops) as w:
        first = await naps.trigger([50, 10, 30]).execute(w.store)
        second = await stops.trigger(1).options(delay="20m").execute(w.store)
        await w.advance("3h")
        woken = [START + timedelta(minutes=minutes) for minutes in (50, 10, 30)]
        assert await w.store.result(first, timeout=5) == woken
        begun = START + timedelta(minutes=20)
        assert await w.store.result(second, timeout=5) == [begun, begun + timedelta(hours=1)]


@pytest.mark.proves("TU-05", "E-03")
async def test_backoff_of_a_step_and_of_a_message_passes_in_virtual_time() -> None:
    seen: list[str] = []

    @handler("kit.mail", retry=3)
    async def mail(address: str) -> None:
        seen.append(address)
        if len(seen) < 3:
            raise TransientError("busy", retry_after="10m")

    async with world(mail, retried) as w:
        w.fake(fetch, raises=TransientError("later", retry_after="1h"))
        run_id = await retried.trigger().execute(w.store)
        await w.store.enqueue(mail, "ada")
        await w.drain()
        assert seen == ["ada"]
        await w.advance("20m")
        assert seen == ["ada"] * 3
        w.fake(fetch, returns=7)
        await w.advance("1h")
        assert await w.store.result(run_id, timeout=5) == 7


@pytest.mark.proves("TU-04")
async def test_drain_says_how_many_attempts_it_took() -> None:
    async with world(measured) as w:
        w.fake(measure, returns=1)
        await w.drain()
        await w.store.trigger_many([measured.trigger("a"), measured.trigger("b")])
        assert await w.drain() == 2
        assert [run.output() for run in await w.store.runs()] == [2, 2]
        run_id = await measured.trigger("c").execute(w.store)
        assert await w.store.result(run_id, timeout=5) == 2  # the worker has done it by itself
        assert [await w.drain(), await w.drain()] == [1, 0]
        await measured.trigger("d").options(delay="1h").execute(w.store)
        await w.advance("1h")
        assert await w.drain() == 0, "advance has answered for it"


@pytest.mark.proves("TU-04")
async def test_a_test_waits_for_facts_and_for_what_was_not_written_yet(store_url: str) -> None:
    def counts() -> int:
        return len(came)

    came = list[int]()
    async with world(measured, url=store_url) as w:
        w.fake(measure, returns=1)
        await w.store.create_queue("mail")
        with pytest.raises(AssertionError, match=r"counts at .* still says 0 after 0\.02"):
            await w.wait_until(counts, timeout=0.02)
        asyncio.get_running_loop().call_later(0.02, came.append, 7)
        assert await w.wait_until(counts) == 1

        async def queues() -> bool:
            return "mail" in {one.name for one in await w.store.queues()}

        assert await w.wait_until(queues)


@pytest.mark.proves("TU-04")
async def test_what_was_begun_before_a_flush_is_written_when_it_returns(store_url: str) -> None:
    async with world(url=store_url) as w:
        await w.store.create_queue("mail")
        await w.store.enqueue("mail", "the number of its queue is known now")
        adding = [asyncio.ensure_future(w.store.enqueue("mail", number)) for number in range(5)]
        await w.flush()
        [mail] = [one for one in await w.store.queue_stats() if one.queue == "mail"]
        assert mail.ready == 6
        assert len(await asyncio.gather(*adding)) == 5


@pytest.mark.proves("TU-03")
async def test_a_fake_is_recorded_like_any_result(store_url: str) -> None:
    async with world(fetched, measured, url=store_url) as w:
        w.fake(fetch, returns=41)
        w.fake(measure, 40)
        one = await fetched.trigger("x").wait(5).execute(w.store)
        run_id = await measured.trigger("x").execute(w.store)
        assert (one, await w.store.result(run_id, timeout=5)) == (42, 41)
        [step_info] = await w.store.steps(run_id)
        assert (step_info.key, step_info.status, step_info.output) == ("measure#1", RunStatus.SUCCESS, 40)


async def test_a_fake_can_fail_for_good_or_for_now() -> None:
    async with world(caught) as w:
        w.fake(fetch, raises=PermanentError("gone"))
        assert await caught.trigger("x").wait(5).execute(w.store) == "PermanentError"
        w.fake(fetch, raises=TransientError)
        run_id = await caught.trigger("x").execute(w.store)
        await w.advance("1h")
        assert await w.store.result(run_id, timeout=5) == "TransientError"


async def test_a_fake_belongs_to_its_world_and_ends_with_it() -> None:
    before = fetch.definition
    async with world(measured) as inner, world(measured) as outer:
        inner.fake(measure, returns=100)
        run_ids = [await measured.trigger("four").execute(one.store) for one in (inner, outer)]
        results = [await one.store.result(id_, timeout=5) for one, id_ in zip((inner, outer), run_ids, strict=True)]
        assert results == [101, 5]
        outer.fake(measure, returns=200)
        assert await measured.trigger("four").wait(5).execute(outer.store) == 201
        assert await measured.trigger("four").wait(5).execute(inner.store) == 101
        assert measure.local("four") == 4
    async with world(measured) as w:
        assert await measured.trigger("four").wait(5).execute(w.store) == 5
    assert fetch.definition is before


async def test_a_fake_of_the_wrong_type_is_refused_as_the_body_s_would_be() -> None:
    async with world(caught) as w:
        w.fake(fetch, returns="no number")
        assert await caught.trigger("x").wait(5).execute(w.store) == "SerializationError"


async def test_wrong_use_is_refused() -> None:
    async with world() as w:
        with pytest.raises(InvalidOption, match="either `returns` or `raises`"):
            w.fake(fetch)
        with pytest.raises(InvalidOption, match="either `returns` or `raises`"):
            w.fake(fetch, returns=1, raises=ValueError)
        with pytest.raises(InvalidOption, match="an exception"):
            w.fake(fetch, raises="ValueError")
        with pytest.raises(InvalidOption, match="decorated with @step"):
            w.fake(len, returns=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="TestClock"):
        async with world(clock=object()):  # type: ignore[arg-type]
            pass


async def test_the_clock_begins_where_the_test_says() -> None:
    begin = datetime(2030, 5, 1, 12, tzinfo=UTC)
    async with world(stops, start=begin) as w:
        assert await stops.trigger(0).wait(5).execute(w.store) == [begin]


def test_the_example_of_the_module_runs(tmp_path: Path) -> None:
    document = Path(stepwell.testing.__file__)
    [block] = blocks(document)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.shape.blocks", str(document), str(block.line)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class _Held:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()


async def test_a_world_whose_run_waits_for_a_lock_in_an_attribute_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    @workflow
    async def held() -> None:
        place = _Held()

        async def one() -> None:
            async with place.lock:
                await sleep("1h")

        await asyncio.gather(one(), one())

    monkeypatch.setattr(hands, "STUCK", 0.5)
    async with world(held) as w:
        w._worker._runtime._grace = 1000  # if the world's end waited for that, this test would not end in time
        await held.trigger().execute(w.store)
        with pytest.raises(Timeout, match=r"held is still under way, and the clock stands .* not in an attribute"):
            await w.advance("3h")
