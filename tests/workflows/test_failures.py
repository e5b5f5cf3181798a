"""What failures cost: a step's own attempts, a run's, and neither where somebody has decided otherwise."""

import asyncio
import contextlib
import threading
from collections import Counter

import pytest

from stepwell import (
    Context,
    ExecutionFailed,
    PermanentError,
    Retry,
    StepFailed,
    Store,
    Timeout,
    current,
    step,
    workflow,
)
from stepwell.base.clock import TestClock
from tests.workflows.kit import begun, die, drained, statuses, steps_of, task_of

AT_ONCE = Retry(3, base=0)


@pytest.mark.proves("E-13", "E-06", "S-22", "R-05", "R-20")
async def test_a_step_has_its_own_attempts_and_a_retry_of_the_run_opens_only_that_step(
    store: Store, clock: TestClock
) -> None:
    called: Counter[str] = Counter()
    healed = False

    @step(retry=5)
    async def stubborn() -> str:
        called["stubborn"] += 1
        if not healed:
            raise ValueError("no")
        return "yes"

    @step(retry=1)
    async def caught() -> None:
        called["caught"] += 1
        raise ValueError("caught")

    @step
    async def first() -> str:
        called["first"] += 1
        return "first"

    @workflow(retry=3)
    async def budget() -> list[str]:
        found = [await first()]
        try:
            await caught()
        except StepFailed:
            found.append("went on")
        return [*found, await stubborn()]

    run_id = await begun(store, budget)
    for attempt in range(1, 6):
        assert await drained(store, budget) == 1
        assert called["stubborn"] == attempt
        clock.advance(60)
    run = await store.get_run(run_id)
    assert (run.status, run.attempt, run.max_attempts) == ("ERROR", 1, 3)  # more attempts than the run has, and no more
    assert run.error is not None
    assert (run.error["type"], run.last_error) == (
        "StepFailed",
        "StepFailed: step stubborn#1 gave up with ValueError: no",
    )
    with pytest.raises(ExecutionFailed, match=f"store.retry\\({run_id}\\)"):
        run.output()
    assert await drained(store, budget) == 0
    healed = True
    assert await store.retry(run_id)
    await drained(store, budget)
    run = await store.get_run(run_id)
    assert (run.output(), run.error) == (["first", "went on", "yes"], None)
    assert called == {"first": 1, "caught": 1, "stubborn": 6}
    assert await statuses(store, run_id) == {"first#1": "SUCCESS", "caught#1": "ERROR", "stubborn#1": "SUCCESS"}


@pytest.mark.proves("E-01", "E-03", "E-06", "E-07", "E-10", "E-12", "E-14", "E-15", "R-02", "W-03", "W-11", "W-12")
async def test_how_a_run_ends(store: Store, clock: TestClock) -> None:
    turns: Counter[str] = Counter()

    @workflow(retry=AT_ONCE)
    async def permanent() -> None:
        turns["permanent"] += 1
        raise PermanentError("never")

    @workflow(retry=Retry(5, permanent=(KeyError,)))
    async def mapped() -> None:
        turns["mapped"] += 1
        raise KeyError("mapped")

    @workflow(retry=AT_ONCE)
    async def exhausted() -> None:
        turns["exhausted"] += 1
        error = ValueError(f"{turns['exhausted']}")
        error.code = "E7"  # type: ignore[attr-defined]
        raise error

    @workflow(retry=Retry(2))
    async def deadly() -> None:
        turns["deadly"] += 1
        await die(store.database)

    @workflow(retry=AT_ONCE)
    async def lucky(n: int) -> int:
        turns["lucky"] += 1
        if turns["lucky"] == 1:
            raise ValueError("once")
        return n

    @workflow(retry=Retry(2, base=10, jitter=0))
    async def slow() -> None:
        turns["slow"] += 1
        raise ValueError("slow")

    misfit = await begun(store, workflow("lucky") if await _made(store, "lucky") else lucky, "text")
    missing = await begun(store, workflow("media.zip") if await _made(store, "media.zip") else lucky)
    kinds = (permanent, mapped, exhausted, lucky, slow)
    runs = {one.name: await begun(store, one, *([5] if one is lucky else [])) for one in kinds}
    await drained(store, *kinds)
    assert turns == {"permanent": 1, "mapped": 1, "exhausted": 3, "lucky": 2, "slow": 1}
    ended = {name: await store.get_run(run_id) for name, run_id in runs.items()}
    assert (ended["permanent"].status, ended["permanent"].last_error) == ("ERROR", "PermanentError: never")
    assert (ended["mapped"].status, ended["mapped"].attempt) == ("ERROR", 1)
    assert (ended["exhausted"].status, ended["exhausted"].last_error) == ("ERROR", "ValueError: 3")
    assert ended["exhausted"].error is not None
    assert (ended["exhausted"].error["type"], ended["exhausted"].error["code"]) == ("ValueError", "E7")
    assert (ended["lucky"].output(), ended["lucky"].error, ended["lucky"].attempt) == (5, None, 2)
    assert (ended["slow"].status, (await task_of(store, runs["slow"])).ready) == ("PENDING", False)
    clock.advance(10)
    await drained(store, slow)
    assert (await store.get_run(runs["slow"])).status == "ERROR"
    refused = await store.get_run(misfit)
    assert (refused.status, refused.attempt) == ("ERROR", 1)
    assert refused.last_error is not None
    assert refused.last_error.startswith("SerializationError: argument of lucky refused at `$`")
    await drained(store, prefixes=["media."])
    assert (await store.get_run(missing)).last_error == "no_handler_registered"
    more = workflow(name="exhausted", retry=9)(exhausted.fn)
    assert await drained(store, more) == 0  # a dead letter is not revived by more attempts
    dead = await begun(store, deadly)
    for _ in range(3):
        await drained(store, deadly)
    run = await store.get_run(dead)
    assert (run.status, run.attempt, run.last_error, turns["deadly"]) == ("ERROR", 2, "worker_lost", 2)


async def _made(store: Store, name: str) -> bool:
    await store.create_workflow(name)
    return True


@step
async def forever() -> None:
    await asyncio.Event().wait()


@step
async def fine() -> str:
    return "fine"


@workflow
async def limited() -> list[str]:
    found = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await forever()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.gather(forever(), forever()), 0.02)
    found.append(await fine())
    return found


@pytest.mark.proves("E-13", "S-13")
async def test_a_step_that_takes_too_long_fails_and_its_thread_is_waited_for(store: Store) -> None:
    late = threading.Event()
    ended: list[str] = []

    @step(timeout=0.02, retry=1)
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("async")

    @step(timeout=0.02, retry=1, raises=(Timeout,))
    def blocked() -> None:
        late.wait(10)
        ended.append("sync")

    @step(timeout=10, retry=1)
    async def own() -> None:
        raise TimeoutError("of its own")

    @workflow
    async def impatient(ctx: Context) -> list[str]:
        found = []
        try:
            await endless()
        except StepFailed as error:
            found.append(f"{error.type}: {error.message}")
        try:
            await ctx.step(blocked)
        except Timeout as error:
            found.append(str(error))
            late.set()
        try:
            await own()
        except StepFailed as error:
            found.append(error.type)
        return found

    @workflow
    def impatient_too() -> str:
        try:
            blocked()
        except Timeout as error:
            late.set()
            return str(error)
        return "?"

    runs = [await begun(store, one) for one in (impatient, impatient_too, limited)]
    await drained(store, impatient, limited)
    found = (await store.get_run(runs[0])).output()
    assert found[0] == "Timeout: step endless#1 ran longer than 0.02 s"
    assert found[1] == "step blocked#1 ran longer than 0.02 s"
    assert found[2] == "TimeoutError"
    assert ended == ["async", "sync"]  # before the run ended
    assert (await store.get_run(runs[2])).output() == ["fine"]  # limits of its own are its own affair
    late.clear()
    await drained(store, impatient_too)
    assert (await store.get_run(runs[1])).output() == "step blocked#1 ran longer than 0.02 s"
    assert [row.status for row in (await steps_of(store, runs[0])).values()] == ["ERROR"] * 3


@pytest.mark.proves("E-12", "S-06", "R-08")
@pytest.mark.parametrize("wrapped", ["once", "twice", "in a group"])
async def test_a_retry_opens_the_step_behind_an_error_that_was_raised_from_its_own(store: Store, wrapped: str) -> None:
    up = False
    called: list[bool] = []

    @step(retry=1)
    async def charge() -> str:
        called.append(up)
        if not up:
            raise ConnectionError("the bank is down")
        return "receipt"

    @workflow(retry=3)
    async def buy() -> str:
        try:
            return await charge()
        except StepFailed as error:
            if wrapped == "once":
                raise LookupError("order 7") from error
            if wrapped == "twice":
                again = LookupError("order 7")
                again.__cause__ = error
                raise ValueError("order 7") from again
            raise ExceptionGroup("order 7", [error]) from None

    run_id = await begun(store, buy)
    await drained(store, buy)
    run = await store.get_run(run_id)
    assert (run.status, run.attempt) == ("ERROR", 1)  # no replay would call the step again
    up = True
    assert await store.retry(run_id)
    await drained(store, buy)
    assert (await store.get_run(run_id)).output() == "receipt"
    assert called == [False, True]


@pytest.mark.proves("E-12", "S-06")
async def test_an_error_that_was_raised_from_itself_and_one_that_was_not_raised_from_a_steps_are_tried_again(
    store: Store,
) -> None:
    turns: Counter[str] = Counter()

    @step(retry=1)
    async def charge() -> None:
        raise ConnectionError("the bank is down")

    @workflow(retry=Retry(2, base=0))
    async def itself() -> None:
        turns["itself"] += 1
        error = LookupError("order 7")
        raise error from error

    @workflow(retry=Retry(2, base=0))
    async def beside() -> None:
        turns["beside"] += 1
        with contextlib.suppress(StepFailed):
            await charge()
        raise LookupError("order 7")

    for one in (itself, beside):
        await begun(store, one)
        await drained(store, one)
    assert turns == {"itself": 2, "beside": 2}


@pytest.mark.proves("E-12", "S-06")
async def test_what_a_step_gave_up_with_is_final_although_the_run_would_try_such_an_error_again(store: Store) -> None:
    called: list[int] = []

    @step(retry=1, raises=(ConnectionError,))
    async def connect() -> None:
        called.append(current().attempt)
        raise ConnectionError("gone")

    @workflow(retry=Retry(5, base=0, transient=(ConnectionError,)))
    async def hopeful() -> None:
        await connect()

    @workflow(retry=Retry(5, base=0))
    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(connect())
            group.create_task(connect())

    runs = [await begun(store, one) for one in (hopeful, together)]
    await drained(store, hopeful, together)
    for run_id in runs:
        run = await store.get_run(run_id)
        assert (run.status, run.attempt) == ("ERROR", 1)
    assert len(called) in (2, 3)  # the first to fail may have ended the group before the second began
