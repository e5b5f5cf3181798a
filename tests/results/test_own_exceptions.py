"""The caller of a workflow gets the program's own exception."""
# ruff: noqa: N818 - a user's own exceptions have names of their own

import asyncio
import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pytest

from stepwell import (
    Context,
    ExecutionFailed,
    InvalidOption,
    PermanentError,
    Store,
    step,
    sync,
    workflow,
)
from stepwell.base import program
from stepwell.base.clock import TestClock
from stepwell.testing import world
from tests.workflows.kit import begun, drained


class CardDeclined(PermanentError):
    """Makes its message of something else."""

    def __init__(self, code: int, bank: str = "a bank") -> None:
        super().__init__(f"declined with {code} by {bank}")
        self.code = code
        self.bank = bank


class CardStolen(CardDeclined):
    """Below the class that is named."""


@dataclass
class ByName(PermanentError):
    reason: str
    items: list[str] | None = None
    kind: Literal["a", "b"] = "a"

    def __str__(self) -> str:
        return f"because of {self.reason}"


class Unnamed(PermanentError): ...


@step(raises=(CardDeclined,))
async def charge(code: int) -> None:
    raise CardDeclined(code)


@workflow(raises=(CardDeclined, ByName))
async def pay(kind: str) -> None:
    match kind:
        case "declined":
            raise CardDeclined(51)
        case "stolen":
            raise CardStolen(43, "mine")
        case "named":
            raise ByName("rain", items=["x"])
        case "step":
            await charge(7)
        case _:
            raise Unnamed("nobody named it")


@workflow(raises=(ByName,))
async def shop(ctx: Context, kind: str) -> list[Any]:
    found: list[Any] = []
    try:
        await pay.trigger(kind).wait().execute(ctx)
    except CardDeclined as error:
        found.append([type(error).__name__, str(error), error.code, error.bank])
    ids = await ctx.trigger_many([pay.trigger(kind)])
    try:
        await ctx.results(ids)
    except CardDeclined as error:
        cause = error.__cause__
        found.append([isinstance(cause, ExecutionFailed) and cause.run_id == ids[0], error.code])
    await ctx.sleep("1h")
    return found


@pytest.mark.proves("compose-05")
async def test_a_parent_gets_it_and_a_replay_the_same(store: Store, clock: TestClock) -> None:
    ids = {kind: await begun(store, shop, kind) for kind in ("declined", "stolen", "step")}
    for _ in range(2):
        for _ in range(4):
            await drained(store, shop, pay)
        clock.advance(3601)
    await drained(store, shop, pay)
    for kind, code, bank in (("declined", 51, "a bank"), ("stolen", 43, "mine"), ("step", 7, "a bank")):
        told = ["CardDeclined", f"declined with {code} by {bank}", code, bank]
        assert (await store.get_run(ids[kind])).output() == [told, [True, code]]


@pytest.mark.proves("compose-05")
async def test_who_waits_for_the_result_gets_it_with_the_run_as_its_cause(store: Store) -> None:
    declined, named = await begun(store, pay, "declined"), await begun(store, pay, "named")
    await drained(store, pay)
    with pytest.raises(CardDeclined) as caught:
        await store.result(declined)
    assert (caught.value.code, caught.value.args) == (51, ("declined with 51 by a bank",))
    assert isinstance(caught.value.__cause__, ExecutionFailed)
    assert caught.value.__cause__.run_id == declined
    with pytest.raises(ByName, match="because of rain") as also:
        await store.result(int(named))
    assert (also.value.reason, also.value.items, also.value.kind) == ("rain", ["x"], "a")
    with pytest.raises(CardDeclined):
        (await store.get_run(declined)).output()


@pytest.mark.proves("compose-05")
async def test_what_is_not_named_or_not_known_here_is_a_failed_execution(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    unnamed, declined = await begun(store, pay, "?"), await begun(store, pay, "declined")
    await drained(store, pay)
    with pytest.raises(ExecutionFailed, match="nobody named it"):
        await store.result(unnamed)
    monkeypatch.setitem(program._known, "pay", ())  # as in a process that knows it by name only ...
    monkeypatch.setattr(store.database, "definitions", program.Definitions())  # ... with a store of its own
    with pytest.raises(ExecutionFailed, match="declined with 51"):
        await store.result(int(declined))


@pytest.mark.proves("compose-05")
async def test_a_fork_of_the_parent_gets_it_from_a_child_that_is_gone(store: Store, clock: TestClock) -> None:
    @workflow
    async def gathers(ctx: Context) -> list[Any]:
        [child] = await ctx.trigger_many([pay.trigger("declined")])
        try:
            await ctx.results([child])
        except CardDeclined as error:
            return [error.code]
        return []

    run_id = await begun(store, gathers)
    for _ in range(3):
        await drained(store, gathers, pay)
    copy = await store.fork(run_id, at="results()#1")
    [child] = [run.id for run in await store.runs("pay")]
    await store.delete(child)
    await drained(store, gathers)
    assert (await store.get_run(copy)).output() == (await store.get_run(run_id)).output() == [51]


@pytest.mark.proves("compose-05")
def test_a_sync_program_gets_it(store_url: str) -> None:
    @workflow(raises=(CardDeclined,))
    def refuses() -> None:
        raise CardDeclined(5)

    told = pytest.raises(CardDeclined, match="declined with 5")
    with sync.connect(store_url) as store, sync.Worker(store, [refuses]), told:
        refuses.trigger().wait(20).execute(store)


@pytest.mark.proves("compose-05")
def test_a_class_that_could_not_be_built_again_is_refused_where_it_is_named() -> None:
    class When(Exception):
        def __init__(self, at: datetime) -> None:
            super().__init__(at)

    class Holds(Exception):
        def __init__(self, code: int, peers: list[socket.socket]) -> None:
            super().__init__(code, peers)

    class Base(Exception, ABC):
        @abstractmethod
        def why(self) -> str: ...

    for wrong, why in (
        (When, "its `at` is a datetime"),
        (Holds, "its `peers`"),
        (Base, "it is abstract"),
        (ExceptionGroup, "a group holds exceptions"),
        (KeyboardInterrupt, "a tuple of exception classes"),
        ("CardDeclined", "a tuple of exception classes"),
    ):
        with pytest.raises(InvalidOption, match=why):
            workflow(raises=(wrong,))(_nothing)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="a tuple of exception classes"):
        workflow(raises=CardDeclined)(_nothing)  # type: ignore[call-overload]
    assert workflow(raises=(CardDeclined, OSError, asyncio.QueueFull))(_nothing).raises


async def _nothing() -> None: ...


@workflow
async def survives(ctx: Context) -> int:
    try:
        await pay.trigger("declined").wait().execute(ctx)
    except CardDeclined as error:
        await ctx.sleep("1h")
        return error.code
    return 0


@pytest.mark.proves("compose-05", "TU-06")
async def test_it_survives_a_crash_at_every_call() -> None:
    async with world(survives, pay) as w:
        await w.crash_everywhere(survives.trigger())
        run_id = await survives.trigger().execute(w.store)
        await w.advance("2h")
        assert (await w.store.get_run(run_id)).output() == 51
