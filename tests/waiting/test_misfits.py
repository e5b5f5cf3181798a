"""Signals that their wait cannot read: refused where that is known, else set aside, and the run goes on waiting."""

import asyncio
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pydantic
import pytest

from stepwell import Context, Paused, Reason, SerializationError, SignalAnswer, Store, connect, step, sync, workflow
from stepwell.base.events import SignalSetAside
from stepwell.records import RunStatus
from stepwell.values.fields import misfit, schema_of
from tests.queue.raw import ask as ask_raw
from tests.workflows.kit import begun, drained

SENDING = """
import sys
from stepwell import SerializationError, sync
with sync.connect(sys.argv[1]) as store:
    try:
        print(store.signal(int(sys.argv[2]), "approved", {"who": "eve"}))
    except SerializationError as error:
        print(error)
    print(store.signal(int(sys.argv[2]), "approved", {"by": "grace"}))
"""


@dataclass(frozen=True)
class Approval:
    by: str
    level: int = 1


class Model(pydantic.BaseModel):
    by: str


@workflow
async def approve(ctx: Context) -> str:
    return (await ctx.wait("approved", Approval)).by


@workflow
async def modelled(ctx: Context) -> str:
    return (await ctx.wait("approved", Model)).by


@workflow
async def in_time(ctx: Context) -> str:
    approval = await ctx.wait("approved", Approval, timeout="1h")
    return "nobody" if approval is None else approval.by


@step
async def check() -> int:
    raise Paused("look at it")


@workflow
async def checked() -> int:
    return await check()


WRONG: list[Any] = [None, "eve", 7, [], {}, {"who": "eve"}, {"by": 7}, {"by": "eve", "level": "high"}]


async def signals_of(store: Store) -> int:
    [[count]] = await ask_raw(store, "select count(*) from {signal}")
    return int(count)


@pytest.mark.parametrize("data", WRONG, ids=repr)
async def test_one_that_the_waiting_run_could_not_read_is_refused_and_nothing_is_kept(store: Store, data: Any) -> None:
    run_id = await begun(store, approve)
    await drained(store, approve)
    with pytest.raises(SerializationError, match=rf"run {run_id} waits for Approval: .*; nothing was sent"):
        await store.signal(run_id, "approved", data)
    assert await signals_of(store) == 0
    assert await store.signal(run_id, "approved", Approval("grace")) is SignalAnswer.WOKE
    await drained(store, approve)
    assert await store.result(run_id) == "grace"


async def test_it_is_refused_in_a_process_that_has_not_the_code(store: Store, store_url: str, backend: str) -> None:
    run_id = await begun(store, approve)
    await drained(store, approve)
    if backend == "turso":  # serves one process
        with pytest.raises(SerializationError, match="waits for Approval"):
            await store.signal(run_id, "approved", {"who": "eve"})
        return
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SENDING, store_url, str(run_id), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await asyncio.wait_for(child.communicate(), 60)
    refused, woke = said.decode().splitlines()
    assert "waits for Approval: missing `by` at `$`" in refused
    assert "woke" in woke.lower()
    await drained(store, approve)
    assert await store.result(run_id) == "grace"


@pytest.mark.proves("P-04", "S-19")
@pytest.mark.parametrize("flow", [approve, modelled, in_time], ids=repr)
async def test_one_that_came_before_the_wait_is_set_aside_and_the_run_goes_on_waiting(store: Store, flow: Any) -> None:
    told: list[SignalSetAside] = []
    store.database.telemetry.subscribe(lambda event: told.append(event) if isinstance(event, SignalSetAside) else None)
    run_id = await begun(store, flow)
    for data in ("eve", {"who": "eve"}):
        assert await store.signal(run_id, "approved", data) is SignalAnswer.KEPT
    await drained(store, flow)
    assert (await store.get_run(run_id)).status is RunStatus.PAUSED
    assert [(one.run_id, one.signal) for one in told] == [(int(run_id), "approved")] * 2
    why = await store.why(run_id)
    assert why.reason is Reason.WAITING_FOR_SIGNAL
    assert "one that it could not read is set aside: signal approved refused" in why.message
    assert "store.signal" in str(why.next)
    assert await store.signal(run_id, "approved", {"by": "grace"}) is SignalAnswer.WOKE
    await drained(store, flow)
    assert await store.result(run_id) == "grace"
    assert [one.error for one in await store.steps(run_id)] == [None]


async def test_a_good_one_behind_a_bad_one_is_taken_at_once(store: Store) -> None:
    run_id = await begun(store, approve)
    for data in ("eve", {"by": "grace"}, {"by": "late"}):
        await store.signal(run_id, "approved", data)
    await drained(store, approve)
    assert await store.result(run_id) == "grace"


async def test_what_is_sent_unchecked_for_code_to_come_is_set_aside_by_this_one(store: Store) -> None:
    run_id = await begun(store, approve)
    await drained(store, approve)
    assert await store.signal(run_id, "approved", "eve", check=False) is SignalAnswer.WOKE
    await drained(store, approve)
    assert (await store.get_run(run_id)).status is RunStatus.PAUSED


async def test_a_step_that_paused_itself_is_resumed_with_what_it_may_return_alone(store: Store) -> None:
    run_id = await begun(store, checked)
    await drained(store, checked)
    with pytest.raises(SerializationError, match="waits for int: expected integer"):
        await store.resume(run_id, "check", "seven")
    await store.signal(run_id, "check", "seven", check=False)
    await drained(store, checked)
    assert "set aside" in (await store.why(run_id)).message
    assert await store.resume(run_id, "check", 7)
    await drained(store, checked)
    assert await store.result(run_id) == 7


def test_so_it_is_without_asyncio(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run_id = approve.trigger().execute(store)
        sync.Worker(store, [approve]).drain()
        with pytest.raises(SerializationError, match="waits for Approval"):
            store.signal(run_id, "approved", "eve")
        assert store.signal(run_id, "approved", "eve", check=False)


def test_only_what_certainly_does_not_fit_is_called_a_misfit() -> None:
    schema = schema_of(Approval)
    assert schema is not None
    assert misfit(schema, {"by": "a", "more": 1}) is None
    assert misfit(schema, {"by": "a", "level": 2.0}) is None
    assert misfit(schema, {"by": "a", "level": True}) == "expected integer at `$.level`"
    assert schema_of(Any) is None
    assert schema_of(Model) is None
    nested = schema_of(dict[str, list[int | None]])
    assert nested is not None
    assert misfit(nested, {"a": [1, None]}) is None
    assert misfit(nested, {"a": 7}) is None  # keys of a mapping are not looked into: what reads it says so
    listed = schema_of(list[int | None])
    assert listed is not None
    assert misfit(listed, [1, None]) is None
    assert misfit(listed, [1, "b"]) == "expected integer at `$[1]`"
    money = schema_of(list[Decimal])
    assert money is not None
    assert misfit(money, ["1.10", 2]) is None


async def test_a_wait_that_is_over_has_one_moment_and_no_length_by_the_clock_of_the_database(store_url: str) -> None:
    async with connect(store_url) as store:
        run_id = await begun(store, approve)
        await drained(store, approve)
        await store.signal(run_id, "approved", Approval("grace"))
        await drained(store, approve)
        [wait] = await store.steps(run_id)
        assert wait.started_at == wait.finished_at
