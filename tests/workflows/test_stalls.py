"""A run that waits in its process for what nothing records: `why` names what it waits for."""

import asyncio

import pytest

from stepwell import Context, Store, Worker, step, workflow
from stepwell.runs import stalls
from stepwell.store.why import Reason
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.workflows.kit import begun, drained


class Approval:
    """Keeps its events in attributes."""

    def __init__(self) -> None:
        self.given = asyncio.Event()
        self.lock = asyncio.Lock()

    async def wait(self) -> None:
        await self.given.wait()


approvals: list[Approval] = []


@step
async def note() -> None:
    """Record something."""


@pytest.fixture(autouse=True)
def looks_are_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "LOOK_EVERY", 0.01)
    approvals.clear()


@workflow
async def approved(ctx: Context) -> str:
    await note()
    approvals.append(approval := Approval())
    await approval.wait()
    return "given"


@pytest.mark.proves("compose-06")
async def test_why_names_the_event_in_an_attribute_until_it_comes(store: Store) -> None:
    run_id = await begun(store, approved)

    async def told() -> bool:
        return "Event.wait" in (await store.why(run_id)).message

    async with Worker(store, [approved]):
        await until(told)
        why = await store.why(run_id)
        assert why.reason is Reason.RUNNING
        assert "waited for Event.wait in Approval.wait, " in why.message
        assert "test_stalls.py, line " in why.message
        assert why.next is not None
        assert "ctx.wait" in why.next
        approvals[0].given.set()
        assert await store.result(run_id) == "given"
    assert [row.key for row in await store.steps(run_id)] == ["note#1"]
    assert await ask(store, "select status from {step} where key = '#outside'") in ([("CANCELLED",)], [["CANCELLED"]])


@pytest.mark.proves("compose-06")
async def test_it_is_told_of_a_branch_beside_a_durable_wait_and_no_more_when_that_is_over(store: Store) -> None:
    approvals.append(Approval())
    await approvals[0].lock.acquire()

    @workflow
    async def two(ctx: Context) -> list[str]:
        async def locked() -> str:
            async with approvals[0].lock:
                return "locked"

        async with asyncio.TaskGroup() as group:
            one, other = group.create_task(locked()), group.create_task(ctx.wait("go", str))
        return [one.result(), other.result()]

    run_id = await begun(store, two)

    async def told() -> bool:
        return "Lock.acquire" in (await store.why(run_id)).message

    async def is_over() -> bool:
        return (await store.why(run_id)).reason is Reason.WAITING_FOR_SIGNAL

    async with Worker(store, [two]):
        await until(told)
        approvals[0].lock.release()
        await until(is_over)
        await store.signal(run_id, "go", "on")
        assert await store.result(run_id) == ["locked", "on"]


@pytest.mark.proves("compose-06")
async def test_runs_that_wait_in_their_steps_are_not_told_of(store: Store) -> None:
    seen = asyncio.Event()

    @step
    async def slow() -> None:
        await asyncio.sleep(0.1)
        seen.set()

    @workflow
    async def works() -> None:
        await slow()

    run_id = await begun(store, works)
    await drained(store, works)
    assert seen.is_set()
    assert await ask(store, f"select key from {{step}} where run_id = {int(run_id)} and key like '#%'") == []
