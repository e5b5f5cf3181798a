"""`receive`: the next signal of several names, in the order in which they came."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import (
    Context,
    InvalidOption,
    RunStatus,
    SerializationError,
    SignalAnswer,
    Store,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.store.why import Reason
from stepwell.testing import world
from tests.queue.raw import change
from tests.workflows.kit import begun, drained, statuses

WOKE, KEPT = SignalAnswer.WOKE, SignalAnswer.KEPT


@dataclass(frozen=True)
class Edit:
    text: str
    line: int = 1


@workflow
async def editor(ctx: Context, count: int) -> list[Any]:
    got: list[Any] = []
    for _ in range(count):
        match await ctx.receive({"edit": Edit, "approve": str, "stop": type(None)}):
            case ("edit", Edit(text, line)):
                got.append(f"{line}: {text}")
            case (name, data):
                got.append([name, data])
    return got


@pytest.mark.proves("compose-02", "protocol-18")
async def test_signals_come_in_the_order_of_their_arrival_whatever_their_names(store: Store) -> None:
    run_id = await begun(store, editor, 5)
    for name, data in (("stop", None), ("approve", "ann"), ("edit", {"text": "a"}), ("approve", "bob")):
        assert await store.signal(run_id, name, data) is KEPT
    assert await store.signal(run_id, "edit", {"text": "b", "line": 2}) is KEPT
    await drained(store, editor)
    assert (await store.get_run(run_id)).output() == [
        ["stop", None],
        ["approve", "ann"],
        "1: a",
        ["approve", "bob"],
        "2: b",
    ]


@pytest.mark.proves("compose-02")
async def test_many_signals_of_many_senders_come_in_one_order_once(store: Store) -> None:
    run_id = await begun(store, editor, 60)
    sent: list[str] = []

    async def send(sender: int) -> None:
        for number in range(20):
            name = random.choice(("approve", "stop", "edit"))
            data = {"text": "x", "line": number} if name == "edit" else None if name == "stop" else f"{sender}-{number}"
            await store.signal(run_id, name, data)
            sent.append(name)

    await asyncio.gather(*map(send, range(3)), drained(store, editor))
    await drained(store, editor)
    output = (await store.get_run(run_id)).output()
    assert len(output) == len(sent) == 60
    for sender in range(3):
        numbers = [int(data.split("-")[1]) for name, data in _approvals(output) if data.startswith(f"{sender}-")]
        assert numbers == sorted(numbers)


def _approvals(output: list[Any]) -> list[list[str]]:
    return [one for one in output if isinstance(one, list) and one[0] == "approve"]


@pytest.mark.proves("compose-02")
async def test_a_wait_of_one_name_and_of_several_do_not_take_the_same(store: Store) -> None:
    @workflow
    async def both(ctx: Context) -> list[Any]:
        one, [name, data] = await asyncio.gather(ctx.wait("a", int), ctx.receive({"a": int, "b": int}))
        return [one, name, data, await ctx.wait("b", int, timeout="1h", default=-1)]

    run_id = await begun(store, both)
    assert await store.signal(run_id, "a", 1) is KEPT
    assert await store.signal(run_id, "a", 2) is KEPT
    await drained(store, both)
    assert await store.signal(run_id, "b", 3) is WOKE
    await drained(store, both)
    assert sorted((await store.get_run(run_id)).output(), key=str) == [1, 2, 3, "a"]


@pytest.mark.proves("compose-02", "protocol-19")
async def test_nothing_in_time_is_its_default_or_is_raised_and_a_later_signal_is_kept(
    store: Store, clock: TestClock
) -> None:
    @workflow
    async def impatient(ctx: Context) -> list[Any]:
        first = await ctx.receive({"a": int, "b": int}, timeout="1h")
        second = await ctx.receive({"a": int, "b": int}, timeout="1h", default="none")
        with pytest.raises(ValueError, match="nothing"):
            await ctx.receive({"a": int}, timeout="1h", default=ValueError("nothing"))
        fourth = await ctx.receive({"a": int, "b": int}, timeout="1h")
        return [first, second, list(fourth or ())]

    run_id = await begun(store, impatient)
    for _ in range(3):
        await drained(store, impatient)
        clock.advance(3601)
    await drained(store, impatient)
    assert await store.signal(run_id, "b", 4) is WOKE
    await drained(store, impatient)
    assert (await store.get_run(run_id)).output() == [None, "none", ["b", 4]]


@pytest.mark.proves("compose-02")
async def test_each_name_has_its_type_for_senders_and_for_the_run(store: Store) -> None:
    run_id = await begun(store, editor, 2)
    await drained(store, editor)
    with pytest.raises(SerializationError, match="waits for Edit"):
        await store.signal(run_id, "edit", "no edit")
    assert await store.signal(run_id, "edit", {"wrong": 1}, check=False) is WOKE
    await drained(store, editor)  # it is set aside
    assert (await store.get_run(run_id)).status is RunStatus.PAUSED
    assert await store.signal(run_id, "approve", "ann") is WOKE
    await drained(store, editor)
    assert await store.signal(run_id, "edit", {"text": "last"}) is WOKE
    await drained(store, editor)
    assert (await store.get_run(run_id)).output() == [["approve", "ann"], "1: last"]


@pytest.mark.proves("compose-02")
async def test_why_and_the_dashboard_name_each_signal_that_it_waits_for(store: Store) -> None:
    run_id = await begun(store, editor, 1)
    await drained(store, editor)
    why = await store.why(run_id)
    assert why.reason is Reason.WAITING_FOR_SIGNAL
    assert why.waits_for == ("edit", "approve", "stop")
    awaited = await store.database.excerpts.awaited(await store.get_run(run_id))
    assert [(one.name, one.type) for one in awaited] == [("edit", "Edit"), ("approve", "str"), ("stop", "NoneType")]
    [step] = await store.steps(run_id)
    assert (record := await store.database.excerpts.step(await store.get_run(run_id), step.key)) is not None
    assert record.step.name == "receive()"
    assert await store.resume(run_id, "approve", "by hand")
    await drained(store, editor)
    assert (await store.get_run(run_id)).output() == [["approve", "by hand"]]


@pytest.mark.proves("compose-02")
async def test_signals_that_an_earlier_release_kept_come_first(store: Store) -> None:
    run_id = await begun(store, editor, 2)
    await store.signal(run_id, "edit", {"text": "new"})
    await store.signal(run_id, "approve", "old")
    await change(store, "update {signal} set arrival = null where name = 'approve'")
    await drained(store, editor)
    assert (await store.get_run(run_id)).output() == [["approve", "old"], "1: new"]


@pytest.mark.proves("compose-02")
async def test_in_a_race_it_takes_nothing_after_it_has_lost(store: Store, clock: TestClock) -> None:
    @workflow
    async def racing(ctx: Context) -> list[Any]:
        place, _ = await ctx.race(ctx.receive({"a": int, "b": int}), ctx.sleep("1h"))
        return [place, await ctx.wait("b", int, timeout="1h")]

    run_id = await begun(store, racing)
    await drained(store, racing)
    clock.advance(3601)
    await drained(store, racing)
    assert (await statuses(store, run_id))["receive()#1"] == "CANCELLED"
    assert await store.signal(run_id, "b", 2) is WOKE
    await drained(store, racing)
    assert (await store.get_run(run_id)).output() == [1, 2]


@pytest.mark.proves("compose-02")
async def test_a_sync_workflow_and_the_next_generation_receive_too(store: Store) -> None:
    @workflow
    def entity(ctx: sync.Context, got: list[str]) -> list[str]:
        name, data = ctx.receive({"add": str, "end": str})
        if name == "end":
            return [*got, data]
        return ctx.restart([*got, data])

    run_id = await begun(store, entity, [])
    for name, data in (("add", "a"), ("add", "b"), ("end", "c"), ("add", "late")):
        await store.signal(run_id, name, data)
    await drained(store, entity)
    assert (await store.get_run(run_id)).output() == ["a", "b", "c"]


@pytest.mark.proves("compose-02")
async def test_names_and_types_are_checked_before_anything_is_written(store: Store) -> None:
    @workflow
    async def wrong(ctx: Context) -> int:
        for given in ({}, ["a"], {"a": int} | {f"n{number}": int for number in range(100)}):
            with pytest.raises(InvalidOption, match="1 to 100 names"):
                await ctx.receive(given)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="needs a `timeout`"):
            await ctx.receive({"a": int}, default=1)  # type: ignore[call-overload]
        return len(await store.steps(ctx.id))

    run_id = await begun(store, wrong)
    await drained(store, wrong)
    assert (await store.get_run(run_id)).output() == 0


@workflow
async def telling(ctx: Context) -> list[Any]:
    got: list[Any] = [await ctx.receive({"a": int, "b": int}, timeout="2h", default="none")]
    return [*got, *await ctx.receive({"a": int, "b": int}, timeout="2h", default=("c", 3))]


@pytest.mark.proves("compose-02", "TU-06")
async def test_it_survives_a_crash_at_every_call() -> None:
    async with world(telling) as w:
        await w.crash_everywhere(telling.trigger())
        run_id = await telling.trigger().execute(w.store)
        await w.advance("3h")
        await w.store.signal(run_id, "b", 7)
        await w.advance("3h")
        assert (await w.store.get_run(run_id)).output() == ["none", "b", 7]
