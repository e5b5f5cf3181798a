"""A step whose body begins at most once: after a crash in it a hook or a person says what became of it."""

import asyncio
from typing import Any

import pytest

from stepwell import (
    InvalidOption,
    NotInDoubt,
    Reconciliation,
    SignalAnswer,
    Store,
    current,
    step,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.store.why import Reason
from tests.workflows.kit import begun, die, drained, executed, statuses

ONCE = pytest.mark.proves("promise-07", "S-29")


class Bank:
    """What was begun and done outside."""

    def __init__(self, store: Store, *, dies: int = 1) -> None:
        self.begun: list[str] = []
        self.asked: list[str] = []
        self._store = store
        self._dies = dies

    async def wire(self, cents: int) -> str:
        """Wire the money; the process may be taken for dead meanwhile, and then records nothing."""
        self.begun.append(current().key)
        if len(self.begun) <= self._dies:
            await die(self._store.database)
        return f"{cents} wired"


async def in_doubt(store: Store, flow: Any, *args: Any) -> int:
    """A run that waits for a person."""
    run_id = await begun(store, flow, *args)
    for _ in range(2):
        await drained(store, flow)
    assert (await store.why(run_id)).reason is Reason.STEP_IN_DOUBT
    return int(run_id)


@ONCE
@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
async def test_an_unknown_end_waits_for_a_person_and_the_body_begins_again_only_if_it_is_not_done(
    store: Store, is_done: bool
) -> None:
    bank = Bank(store, dies=2)

    @step(at_most_once=True)
    async def wire(cents: int) -> str:
        return await bank.wire(cents)

    @step
    async def note(text: str) -> str:
        return f"noted: {text}"

    @workflow
    async def pay(cents: int) -> str:
        return await note(await wire(cents))

    run_id = await in_doubt(store, pay, 5)
    told_why = await store.why(run_id)
    assert "step wire#1 has begun and is not known to have ended" in told_why.message
    assert told_why.waits_for == ("wire#1",)
    await drained(store, pay)
    assert bank.begun == [bank.begun[0]]
    with pytest.raises(NotInDoubt, match="has no one step 'note' that is in doubt; in doubt are: wire#1"):
        await store.resolve(run_id, "note", done=True)
    if not is_done:
        assert await store.resolve(run_id, "wire", done=False) is SignalAnswer.WOKE
        for _ in range(2):
            await drained(store, pay)
        assert len(bank.begun) == 2, "the second death leaves it in doubt again, and an old decision says nothing"
        assert (await store.why(run_id)).reason is Reason.STEP_IN_DOUBT
        assert len(set(bank.begun)) == 1, "the key of a step is the same in every attempt"
    await store.resolve(run_id, "wire#1", done=True, value="5 wired, says grace", actor="grace")
    await drained(store, pay)
    assert (await store.get_run(run_id)).output() == "noted: 5 wired, says grace"
    assert (await statuses(store, run_id))["wire#1"] == "SUCCESS"
    with pytest.raises(NotInDoubt):
        await store.resolve(run_id, "wire", done=True)


@ONCE
async def test_a_hook_says_what_became_of_an_interrupted_body(store: Store, clock: TestClock) -> None:
    """Asked by the key of the body; if it fails it is asked again, and if it does not know a person is."""
    outcomes: list[Any] = [Reconciliation.done("found"), Reconciliation.not_done(), Reconciliation.unknown(), OSError()]
    bank = Bank(store)
    asked: list[str] = []

    async def look(cents: int) -> Reconciliation:
        asked.append(current().key)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, Reconciliation)
        return outcome

    @step(at_most_once=True, reconcile=look)
    async def wire(cents: int) -> str:
        return await bank.wire(cents)

    @workflow
    async def pay(cents: int) -> str:
        return await wire(cents)

    ends: list[Any] = []
    for outcome in outcomes:  # noqa: B007 - the hook reads it
        bank.begun.clear()
        asked.clear()
        run_id = await begun(store, pay, 5)
        for _ in range(5):
            await drained(store, pay)
            clock.advance(60)
        run = await store.get_run(run_id)
        assert set(asked) == set(bank.begun)
        ends.append(
            (len(bank.begun), len(asked), run.output() if run.status == "SUCCESS" else await why(store, run_id))
        )
    assert ends == [
        (1, 1, "found"),
        (2, 1, "5 wired"),
        (1, 1, Reason.STEP_IN_DOUBT),
        (1, 3, Reason.STEP_IN_DOUBT),
    ]


async def why(store: Store, run_id: int) -> Reason:
    return (await store.why(run_id)).reason


@ONCE
async def test_what_the_body_raises_is_final_and_a_retry_of_the_run_asks_a_person(store: Store) -> None:
    bank: list[int] = []

    @step(at_most_once=True)
    def wire(cents: int) -> str:
        bank.append(cents)
        raise ConnectionError("no answer")

    @workflow(retry=1)
    async def pay(cents: int) -> str:
        return await current().step(wire, cents)

    run = await executed(store, pay, 5)
    assert (run.status, await statuses(store, run.id)) == ("ERROR", {"wire#1": "ERROR"})
    for _ in range(2):
        await store.retry(run.id)
        await drained(store, pay)
        assert await why(store, run.id) is Reason.STEP_IN_DOUBT
        assert len(bank) == 1 + _
        await store.resolve(run.id, "wire", done=False)
        await drained(store, pay)
        assert (await store.get_run(run.id)).status == "ERROR"
        assert len(bank) == 2 + _
    await store.retry(run.id)
    await drained(store, pay)
    await store.resolve(run.id, "wire", done=True, value="by hand")
    await drained(store, pay)
    assert (await store.get_run(run.id)).output() == "by hand"


@ONCE
async def test_a_value_that_the_step_could_not_return_decides_nothing(store: Store) -> None:
    bank = Bank(store)

    @step(at_most_once=True)
    async def wire(cents: int) -> str:
        return await bank.wire(cents)

    @workflow
    async def pay(cents: int) -> str:
        return await wire(cents)

    run_id = await in_doubt(store, pay, 5)
    await store.resolve(run_id, "wire", done=True, value=7)
    await drained(store, pay)
    assert await why(store, run_id) is Reason.STEP_IN_DOUBT
    assert "one that it could not read is set aside" in (await store.why(run_id)).message
    await store.resolve(run_id, "wire", done=True, value="7")
    await drained(store, pay)
    assert (await store.get_run(run_id)).output() == "7"


@ONCE
async def test_doubts_in_two_branches_are_decided_apart(store: Store) -> None:
    both = asyncio.Barrier(2)
    begun_bodies: list[int] = []

    @step(at_most_once=True)
    async def wire(cents: int) -> str:
        begun_bodies.append(cents)
        await both.wait()
        await die(store.database)
        return ""

    async def branch(cents: int) -> str:
        return await wire(cents)

    @workflow
    async def pay() -> list[str]:
        return list(await asyncio.gather(branch(1), branch(2)))

    run_id = await in_doubt(store, pay)
    with pytest.raises(NotInDoubt) as raised:
        await store.resolve(run_id, "wire", done=True, value="x")
    assert len(raised.value.doubts) == len(begun_bodies) == 2
    for key in reversed(raised.value.doubts):
        await store.resolve(run_id, key, done=True, value=key)
    await drained(store, pay)
    assert (await store.get_run(run_id)).output() == list(raised.value.doubts)


@ONCE
async def test_a_step_that_begins_at_most_once_takes_no_option_that_begins_it_again(store: Store) -> None:
    async def wire() -> None: ...

    for options in ({"retry": 3}, {"tx": True}, {"queue": "q"}):
        with pytest.raises(InvalidOption, match="has no `tx`, no `queue` and no `retry`"):
            step(at_most_once=True, **options)(wire)
    with pytest.raises(InvalidOption, match="it is for steps with `at_most_once=True`"):
        step(reconcile=wire)(wire)
