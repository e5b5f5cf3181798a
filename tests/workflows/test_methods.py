"""Methods as steps, workflows and handlers: the instance is the worker's, and only arguments are stored."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import Context, InvalidOption, Store, Worker, current, handler, step, sync, workflow
from tests.workflows.kit import drained, executed


class Billing:
    """What a program gives to its worker; `rate` and `calls` never reach the store."""

    def __init__(self, rate: int = 10) -> None:
        self.rate = rate
        self.calls: list[str] = []

    @step
    async def charge(self, cents: int) -> str:
        self.calls.append(f"charge {cents}")
        return f"{cents * self.rate} for {current().step_id}"

    @step(id="billing.tax")
    def tax(self, cents: int) -> int:
        return cents // self.rate

    @step(queue="billing.print")
    async def printed(self, receipt: str) -> str:
        self.calls.append("print")
        return f"printed {receipt}"

    @workflow
    async def settle(self, order: str, cents: int) -> str:
        receipt = await self.charge(cents)
        await current().sleep("1h")
        return f"{order}: {receipt}"

    @workflow(name="billing.print_all")
    async def print_all(self, ctx: Context, receipt: str) -> str:
        return await self.printed(receipt)

    @workflow
    def quick(self, ctx: sync.Context, cents: int) -> int:
        return self.tax(cents)

    @handler("bills")
    async def bill(self, text: str) -> None:
        self.calls.append(text)


class Cheap(Billing):
    """A subclass serves what it inherits, under the names of the class that has it."""


@pytest.mark.proves("methods-01")
async def test_a_run_is_executed_on_the_instance_of_its_worker(store: Store, clock: Any) -> None:
    run = await Billing.settle.trigger("order-7", 5).execute(store)
    await Worker(store, [Billing(rate=10)]).drain()
    clock.advance("2h")
    later = Billing(rate=99)
    await Worker(store, [later]).drain()
    assert await store.result(run, timeout=0) == "order-7: 50 for Billing.charge"
    assert later.calls == [], "the recorded step is not executed again"
    stored = await store.get_run(run)
    assert (stored.workflow, stored.input()) == ("Billing.settle", {"order": "order-7", "cents": 5})
    assert [one.key for one in await store.steps(run)] == ["Billing.charge#1", "sleep#1"]


CHARGE: Any = Billing.charge


class Hurried(Billing):
    """Calls a step of its own with other options: on the instance, on the class, and by a name in the class."""

    soon: Any = CHARGE.options(timeout="9s")

    @workflow
    async def hurry(self) -> list[str]:
        once = await self.charge.options(retry=1)(1)
        again = await CHARGE.options(retry=1)(self, 2)
        return [once, again, await self.soon(3)]


@pytest.mark.proves("methods-01", "compose-04")
async def test_a_method_with_other_options_is_executed_on_its_instance(store: Store) -> None:
    run = await Hurried.hurry.trigger().execute(store)
    hurried = Hurried(rate=2)
    await Worker(store, [hurried]).drain()
    said = ["2 for Billing.charge", "4 for Billing.charge", "6 for Billing.charge"]
    assert await store.result(run, timeout=0) == said
    assert hurried.calls == ["charge 1", "charge 2", "charge 3"]


@pytest.mark.proves("methods-02")
async def test_names_are_those_of_the_class_or_said(store: Store) -> None:
    billing = Cheap(rate=5)
    assert (billing.settle.name, billing.charge.id, billing.tax.id) == (
        "Billing.settle",
        "Billing.charge",
        "billing.tax",
    )
    run = await billing.print_all.trigger("r").execute(store)
    fast = await billing.quick.trigger(50).execute(store)
    await drained(store, billing)
    assert await store.result(run, timeout=0) == "printed r"
    assert await store.result(fast, timeout=0) == 10
    assert (await store.get_run(fast)).workflow == "Billing.quick"


@pytest.mark.proves("methods-01")
async def test_a_handler_and_a_step_of_a_queue_get_the_instance_too(store: Store) -> None:
    billing = Billing()
    await store.enqueue(billing.bill, "hello")
    await store.enqueue(Billing.bill, "world")
    await billing.print_all.trigger("r").execute(store)
    await Worker(store, [billing]).drain()
    assert sorted(billing.calls) == ["hello", "print", "world"]


@pytest.mark.proves("methods-03")
async def test_outside_of_a_run_a_call_calls_the_method() -> None:
    class Plain:
        @step
        def double(self, number: int) -> int:
            return 2 * number

        @workflow
        def twice(self, number: int) -> int:
            return self.double(self.double(number))

        @handler("numbers")
        def take(self, number: int) -> None:
            assert number == 3

    plain = Plain()
    by_class: Any = Plain.double
    assert plain.double(2) == plain.double.local(2) == by_class(plain, 2) == 4
    assert plain.twice(1) == 4
    plain.take(3)
    with pytest.raises(TypeError, match="call it on an instance of its class"):
        by_class()


@pytest.mark.proves("methods-04")
async def test_mistakes_are_told_at_registration(store: Store) -> None:
    class Odd:
        @staticmethod
        @workflow
        def lost(number: int) -> int:
            return number

    class Selfless:
        @workflow
        def forgotten(number: int) -> int:  # noqa: N805
            return number

    for serves, why in (
        ([Billing.settle], r"serve an instance of its class, `Worker\(store, \[Billing\(...\)\]\)`"),
        ([Billing.bill], "serve an instance of its class"),
        ([Billing], r"it is a class: serve an instance of it, `Worker\(store, \[Billing\(...\)\]\)`"),
        ([Billing(), Billing()], "is served by another instance already"),
        ([Billing(), Cheap()], "is served by another instance already"),
        ([Odd()], "Odd.lost is no method of an instance: give it `self`"),
        ([Selfless()], "Selfless.forgotten is no method of an instance: give it `self`"),
        ([object()], "an instance of a class with such methods"),
    ):
        with pytest.raises(InvalidOption, match=why):
            Worker(store, serves)
    billing = Billing()
    Worker(store, [billing, billing])


@pytest.mark.proves("methods-04")
def test_mistakes_are_told_where_a_method_is_declared() -> None:
    def declared(decorate: Any, fn: Any) -> None:
        decorate(fn)

    def stray(self: Any, number: int) -> int:
        return number

    class Place:
        def compute(self, number: int) -> int:
            return number

        def of_class(cls, number: int) -> int:  # noqa: N805
            return number

    for decorate, fn, why in (
        (step, staticmethod(stray), "leave @staticmethod or @classmethod out"),
        (workflow, classmethod(stray), "leave @staticmethod or @classmethod out"),
        (step, stray, "it takes `self` and stands in no class"),
        (workflow, Place.of_class, "a class cannot be stored"),
        (step(tx=True), Place.compute, "a method has none"),
        (step(executor="process"), Place.compute, "a method has none"),
        (handler("q", executor="process"), Place.compute, "a method has none"),
    ):
        with pytest.raises(InvalidOption, match=why):
            declared(decorate, fn)


@pytest.mark.proves("methods-01")
async def test_a_step_of_an_object_is_called_by_any_workflow(store: Store) -> None:
    billing = Billing(rate=2)

    @workflow(name="elsewhere")
    async def elsewhere(ctx: Context, cents: int) -> str:
        return f"{await billing.charge(cents)}, {await ctx.step(billing.charge, 1)}"

    run = await executed(store, elsewhere, 3)
    assert run.output() == "6 for Billing.charge, 2 for Billing.charge"


@pytest.mark.proves("methods-01")
def test_a_sync_worker_serves_an_instance_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        billing = Billing(rate=5)
        run = billing.quick.trigger(50).execute(store)
        sync.Worker(store, [billing]).drain()
        assert store.result(run, timeout=0) == 10
