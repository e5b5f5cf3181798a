"""A run by its key: every verb that takes a run takes `workflow.with_key(...)` in place of its number."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

import stepwell
from stepwell import (
    CancelAnswer,
    Context,
    InvalidName,
    RunNotFound,
    RunStatus,
    SignalAnswer,
    Store,
    Worker,
    WorkflowNotFound,
    sync,
    workflow,
)
from stepwell.runs import other_run
from stepwell.store.operator_verbs import OperatorVerbs
from tests.ground.opened import READS_AUDIT
from tests.runs.kit import FAILED, Order, Receipt, fulfil, pack, settle


@workflow(retry=1)
async def errand(ctx: Context, number: int) -> str:
    if number == 0:
        raise ValueError("nothing to do")
    first = await ctx.step("double", lambda: 2 * number, returns=int)
    return f"{await ctx.wait('word', str)} {first}"


@READS_AUDIT
@pytest.mark.proves("R-18")
async def test_verbs_take_the_key_of_a_run(store: Store) -> None:
    run_id = await errand.trigger(4).options(key="order-7").execute(store)
    run = errand.with_key("order-7")
    assert (await store.get_run(run)).id == run_id
    assert (await store.why(run)).reason == "UNSERVED"
    assert await store.pause(run, reason="wait")
    assert (await store.get_run(run_id)).held_at is not None
    assert await store.unpause(run)
    async with Worker(store, [errand]):
        assert await store.signal(run, "word", "hello")
        text: str = await store.result(run, timeout=30)
        assert text == "hello 8"
        assert [step.name for step in await store.steps(run)] == ["double", "word"]
        fork = await store.fork(run, at="word")
        assert await store.signal(fork, "word", "again")
        assert await store.result(fork, timeout=30) == "again 8"
    assert await store.signal(run, "word", "late") is SignalAnswer.TOO_LATE
    assert await store.cancel(run) is CancelAnswer.TOO_LATE
    assert {"paused", "forked"} <= {entry.what for entry in await store.history(run)}
    assert await store.runs(parent=run) == []
    assert await store.delete(run, "done with it")
    with pytest.raises(RunNotFound, match="there is no run with the key 'order-7' of workflow 'errand'"):
        await store.result(run)


@pytest.mark.proves("R-18")
async def test_a_failed_run_is_retried_and_a_waiting_one_cancelled_by_key(store: Store) -> None:
    await errand.trigger(0).options(key="a").execute(store)
    await settle(store, "errand", FAILED)
    assert await store.retry(errand.with_key("a"))
    assert await store.cancel(workflow("errand").with_key("a"), reason="no need") is CancelAnswer.CANCELLED
    assert (await store.get_run(errand.with_key("a"))).status is RunStatus.CANCELLED


async def test_a_key_belongs_to_its_workflow_and_a_wrong_one_is_told(store: Store) -> None:
    order = await fulfil.trigger(Order("a")).options(key="k").execute(store)
    await pack.trigger("bucket").options(key="k").execute(store)
    assert (await store.get_run(fulfil.with_key("k"))).id == order
    with pytest.raises(WorkflowNotFound):
        await store.cancel(workflow("unheard").with_key("k"))
    with pytest.raises(RunNotFound) as raised:
        await store.cancel(fulfil.with_key("other"))
    assert (raised.value.key, raised.value.workflow) == ("other", "fulfil")
    with pytest.raises(InvalidName):
        fulfil.with_key("")


async def test_a_signal_in_a_transaction_finds_the_run_that_it_triggers(store: Store) -> None:
    async with store.transaction() as tx:
        run_id = await errand.trigger(1).options(key="new").execute(store, tx=tx)
        assert await store.signal(errand.with_key("new"), "word", "hi", tx=tx) is SignalAnswer.KEPT
    async with Worker(store, [errand]):
        assert await store.result(run_id, timeout=30) == "hi 2"


def test_a_sync_store_takes_keys_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run_id = fulfil.trigger(Order("a")).options(key="k").execute(store)
        assert store.get_run(fulfil.with_key("k")).id == run_id
        assert store.cancel(fulfil.with_key("k"))
        with store.transaction() as tx:
            assert not store.signal(fulfil.with_key("k"), "word", tx=tx)


async def test_a_result_by_key_has_the_type_of_the_workflow(store: Store) -> None:
    await fulfil.trigger(Order("a")).options(key="k").execute(store)
    async with Worker(store, [fulfil]):
        receipt = await store.result(fulfil.with_key("k"), timeout=30)
    assert receipt == Receipt("a")


def test_every_verb_about_a_run_takes_a_key() -> None:
    """A new verb with a run as its first parameter takes a key, too, unless it is listed here."""
    only_ids = {"get", "taken", "release", "archive", "restore"}  # a message, or what was deleted: it has no key
    for name, verb in [*inspect.getmembers(Store, inspect.isfunction), *inspect.getmembers(OperatorVerbs)]:
        if name.startswith("_") or not inspect.isfunction(verb) or name in only_ids:
            continue
        first = next(iter(list(inspect.signature(verb).parameters)[1:]), None)
        hints: dict[str, Any] = get_type_hints(verb, vars(stepwell) | vars(inspect.getmodule(verb)))
        if first is not None and first.endswith(("_id", "run")):
            assert "RunKey" in str(hints[first]), f"{name}({first})"
            assert hasattr(sync.Store, name), f"the sync store has no {name}"


def test_every_verb_about_another_run_takes_a_key_inside_of_a_run_too() -> None:
    for face in (Context, sync.Context):
        for name in ("signal", "cancel", "ask"):
            hints: dict[str, Any] = get_type_hints(getattr(face, name), vars(stepwell) | vars(other_run))
            assert "RunKey" in str(hints["run"]), f"{face.__name__}.{name}"
