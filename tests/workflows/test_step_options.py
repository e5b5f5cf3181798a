"""Options for one call of a step, and a policy that looks at the exception."""

import asyncio
from typing import Any

import pytest

from stepwell import (
    Context,
    InvalidOption,
    PermanentError,
    Retry,
    StepFailed,
    Store,
    Timeout,
    TransientError,
    current,
    handler,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.testing import world
from tests.workflows.kit import begun, drained, executed, steps_of

tried: list[str] = []


@step(retry=1, raises=(Timeout,))
async def fetch(name: str) -> str:
    tried.append(name)
    if name == "slow":
        await asyncio.Event().wait()
    if name == "broken":
        raise OSError("unplugged")
    return name


@step
def fetch_in_thread(name: str) -> str:
    tried.append(name)
    raise OSError(name)


@pytest.fixture(autouse=True)
def nothing_was_tried() -> None:
    tried.clear()


@pytest.mark.proves("compose-04", "S-11")
async def test_a_call_has_its_own_limit_and_attempts_and_the_next_has_not(store: Store, clock: TestClock) -> None:
    patient = fetch.options(retry=Retry(3, base=1, jitter=0))

    @workflow
    async def careful() -> list[str]:
        found = []
        try:
            await fetch.options(timeout=0.02)("slow")
        except Timeout:
            found.append("late")
        for one in (patient, fetch):
            try:
                await one("broken")
            except StepFailed as error:
                found.append(error.step)
        return found

    run_id = await begun(store, careful)
    for _ in range(4):
        await drained(store, careful)
        clock.advance(4)
    assert (await store.get_run(run_id)).output() == ["late", "fetch#2", "fetch#3"]
    assert [row.attempt for row in (await steps_of(store, run_id)).values()] == [1, 3, 1]
    assert tried == ["slow", "broken", "broken", "broken", "broken"]


@pytest.mark.proves("compose-04")
async def test_a_replay_and_other_options_find_what_is_recorded(store: Store, clock: TestClock) -> None:
    limits = iter([5, 60])

    @workflow
    async def changed(ctx: Context) -> str:
        said = await fetch.options(timeout=next(limits))("once")
        await ctx.sleep("1h")
        return said

    run_id = await begun(store, changed)
    await drained(store, changed)
    clock.advance(3601)
    await drained(store, changed)
    assert (await store.get_run(run_id)).output() == "once"
    assert tried == ["once"]


@pytest.mark.proves("compose-04", "S-14")
async def test_a_call_goes_to_another_queue(store: Store) -> None:
    elsewhere = fetch.options(queue="gpu")

    @workflow
    async def sends() -> list[str]:
        return [await elsewhere("far"), await fetch("near")]

    run_id = await begun(store, sends)
    await drained(store, sends)
    assert tried == []
    await drained(store, elsewhere)
    await drained(store, sends)
    assert (await store.get_run(run_id)).output() == ["far", "near"]


@pytest.mark.proves("compose-04")
async def test_sync_steps_and_their_background_have_options_too(store: Store) -> None:
    once = fetch_in_thread.options(retry=1)

    @workflow
    def in_a_thread(ctx: sync.Context) -> list[str]:
        begun = once.start("background")
        with pytest.raises(StepFailed):
            once("here")
        with pytest.raises(StepFailed):
            begun.result()
        with pytest.raises(StepFailed):
            ctx.step(once, "by context")
        return sorted(tried)

    assert (await executed(store, in_a_thread)).output() == ["background", "by context", "here"]


@pytest.mark.proves("compose-04")
def test_options_that_do_not_fit_are_refused_and_a_plain_call_stays_one() -> None:
    @step(queue="gpu")
    async def elsewhere() -> None: ...

    @step(at_most_once=True)
    async def once() -> None: ...

    with pytest.raises(InvalidOption, match="workers of the queue gpu"):
        elsewhere.options(timeout=1)
    with pytest.raises(InvalidOption, match="workers of the queue other"):
        fetch.options(queue="other", retry=2)
    for wrong in ({"retry": 2}, {"queue": "gpu"}):
        with pytest.raises(InvalidOption, match="at_most_once"):
            once.options(**wrong)
    with pytest.raises(InvalidOption):
        fetch.options(timeout=-1)
    assert elsewhere.options(queue=None).definition.queue is None
    assert fetch.options(timeout=1).options(retry=2).definition.timeout == 1
    assert fetch.options(retry=5).definition.raises == (Timeout,)
    assert (
        asyncio.run(fetch.options(timeout=1).local("plain")) == asyncio.run(fetch.options(retry=2)("plain")) == "plain"
    )


@workflow
async def faked_flow() -> str:
    return await hasty("broken")


hasty = fetch.options(retry=1)


@pytest.mark.proves("compose-04", "TU-04")
async def test_a_fake_of_the_step_counts_for_its_options() -> None:
    async with world(faked_flow) as w:
        w.fake(fetch, returns="faked")
        run_id = await faked_flow.trigger().execute(w.store)
        await w.drain()
        assert (await w.store.get_run(run_id)).output() == "faked"


def _busy(error: BaseException) -> bool:
    tried.append("asked")
    return isinstance(error, OSError) and "busy" in str(error)


WHEN = Retry(3, base=1, jitter=0, permanent=(LookupError,), when=_busy)


@pytest.mark.proves("compose-04", "E-03")
async def test_a_policy_may_look_at_the_exception_where_its_class_says_nothing(store: Store, clock: TestClock) -> None:
    @step(retry=WHEN)
    async def failing(kind: str) -> None:
        tried.append(kind)
        raise {
            "busy": OSError("busy"),
            "gone": OSError("gone"),
            "lost": LookupError("busy"),
            "later": TransientError("no"),
            "never": PermanentError("busy"),
        }[kind]

    @workflow
    async def tries(kind: str) -> str:
        try:
            await failing(kind)
        except StepFailed:
            return kind
        return "?"

    for kind, attempts, asked in (("busy", 3, 3), ("gone", 1, 1), ("lost", 1, 0), ("later", 3, 0), ("never", 1, 0)):
        tried.clear()
        run_id = await begun(store, tries, kind)
        for _ in range(4):
            await drained(store, tries)
            clock.advance(5)
        assert (await store.get_run(run_id)).output() == kind
        assert (tried.count(kind), tried.count("asked")) == (attempts, asked)


@pytest.mark.proves("compose-04")
async def test_handlers_and_runs_ask_it_too_and_one_that_raises_counts_as_none(store: Store, clock: TestClock) -> None:
    def broken(error: BaseException) -> bool:
        raise ZeroDivisionError(str(error))

    @handler("mail", retry=Retry(2, base=1, jitter=0, when=broken))
    async def send(to: str) -> None:
        tried.append(to)
        raise ValueError("full")

    @workflow(retry=Retry(3, base=1, when=lambda error: "again" in str(error)))
    async def fails(word: str) -> None:
        tried.append(f"{word} {current().attempt}")
        raise ValueError(word)

    message = await store.enqueue(send, "ann")
    for word in ("again", "enough"):
        await begun(store, fails, word)
    for _ in range(4):
        await drained(store, send, fails)
        clock.advance(10)
    assert sorted(tried) == ["again 1", "again 2", "again 3", "ann", "ann", "enough 1"]
    dead = await store.get(message)
    assert dead is not None
    error: dict[str, Any] = dict(dead.error or {})
    assert error["message"] == "full"
    assert "`when` of its Retry raised ZeroDivisionError: full" in error["traceback"]


@pytest.mark.proves("compose-04")
def test_what_is_no_predicate_is_refused() -> None:
    async def later(_: BaseException) -> bool:
        return True

    for wrong in ("busy", later, 5):
        with pytest.raises(InvalidOption, match="a plain function"):
            Retry(when=wrong)  # type: ignore[arg-type]
