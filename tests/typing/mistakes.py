"""Mistakes of users: a type checker reports each at its line, which ends with `# error`, and nothing else."""
# ruff: noqa: B018, T201 - a mistake needs no use

from __future__ import annotations

from datetime import datetime

from programs import (
    Approval,
    Create,
    Created,
    Event,
    Input,
    Mail,
    Order,
    Orders,
    Paid,
    Parcel,
    Pay,
    SendEmail,
    State,
    charge,
    count_clicks,
    fulfil,
    pack,
    render,
    send_mail,
    ship,
    sync_fetch,
    sync_render,
    zip_files,
)

import stepwell
from stepwell import Context, Decision, Engine, Paused, RunId, Store, Worker, condition, handler, step, workflow
from stepwell.testing import given


async def queues(store: Store) -> None:
    await store.enqueue(send_mail, "not a mail")  # error: the payload is a Mail
    await store.enqueue(send_mail, Mail("a", "b"), prioritty=3)  # error: a misspelt option
    await store.enqueue_many(count_clicks, ["a"])  # error: the payloads are numbers
    for message in await store.dequeue("emails", type=Mail):
        message.payload.subject  # error: a Mail has none


@handler("readings", batch=10)  # error: a batch is a list
async def one_reading(reading: int) -> None: ...


async def triggers(store: Store, order: Order) -> None:
    fulfil.trigger("not an order")  # error: the argument is an Order
    fulfil.trigger(order, 3)  # error: there is no second argument
    fulfil.trigger()  # error: the argument is missing
    zip_files.trigger("bucket", prefixx="p")  # error: a misspelt argument
    zip_files.trigger(7)  # error: the context is not given, the bucket is a text
    fulfil.trigger(order).options(keys="x")  # error: a misspelt option
    fulfil.trigger(order).options(unique="finished")  # error: "ever" or "unfinished"
    fulfil.trigger(order).execute(store)  # error: a forgotten await
    fulfil.trigger(order).execute(store).created  # error: a forgotten await
    await store.trigger_many([order])  # error: triggers, not their arguments
    await fulfil.trigger(order).execute("sqlite:///shop.db")  # error: an open store, not its address


async def results(store: Store, order: Order) -> None:
    run_id = await fulfil.trigger(order).execute(store)
    number: int = await store.result(run_id)  # error: it returns a list of texts
    read: Order = await store.result(int(run_id), Approval)  # error: it was read as an Approval
    text: str = (await fulfil.get_run(run_id, store)).output()  # error: it returns a list of texts
    waited: str = await ship.trigger(Parcel("a")).wait(5).execute(store)
    wrong: int = await ship.trigger(Parcel("a")).wait(5).execute(store)  # error: it returns a text
    print(number, read, text, waited, wrong)


async def steps(ctx: Context, order: Order) -> None:
    await charge("x")  # error: the argument is an Order
    await pack(Parcel("a"), True)  # error: by keyword only
    receipt: int = await charge(order)  # error: it returns a text
    await ctx.step(charge, "x")  # error: the argument is an Order
    await ctx.step("fetch", sync_fetch, 7)  # error: the argument is a text
    asked: Order = await ctx.step("ask", lambda: {"by": "ann"}, returns=Approval)  # error: it comes back as an Approval
    await ctx.sleep([1])  # error: a span or a moment
    charge(order)  # error: a forgotten await
    ctx.step(charge, order)  # error: a forgotten await
    ctx.sleep("1h")  # error: a forgotten await
    await sync_fetch("x")  # error: a sync step is awaited through the context
    text: str = sync_fetch.start("x").result()  # error: it returns a number
    print(receipt, asked, text)


async def waits(ctx: Context) -> None:
    number: int = await ctx.wait("approved", Approval)  # error: it comes as an Approval
    (await ctx.wait("approved", Approval, timeout="1h")).by  # error: None, if it does not come in time
    some: Approval = await ctx.wait("approved", Approval, timeout="1h", default="nobody")  # error: or a text
    await ctx.wait("approved", Approval, default="nobody")  # error: without a timeout there is no default
    await ctx.wait("approved", "Approval")  # error: a type, not its name
    await ctx.wait(Approval)  # error: the name of the signal comes first
    await stepwell.wait("approved", Approval, timout=5)  # error: a misspelt option
    free: int = await stepwell.wait("approved", str)  # error: it comes as a text
    ctx.wait("approved", Approval)  # error: a forgotten await
    print(number, some, free)


async def signals(store: Store, run_id: RunId[str]) -> None:
    await store.signal("approved", run_id)  # error: the run comes first
    await store.signal(run_id)  # error: the name of the signal is missing
    await store.signal(run_id, "approved", Approval("ann"), id="click-1")  # error: a misspelt option
    await store.resume(run_id, charge, Approval("ann"))  # error: the name of the step, not the step
    store.signal(run_id, "approved")  # error: a forgotten await
    raise Paused("not yet", condition="paid")  # error: a misspelt option


async def races(ctx: Context, order: Order) -> None:
    receipt: str = await ctx.race(charge(order), pack(Parcel("a")))  # error: its place, and what it returned
    place, length = await ctx.race(ctx.step(sync_fetch, "x"))
    length.upper()  # error: it returns a number
    await ctx.race(charge, pack(Parcel("a")))  # error: a call, not the step
    stepwell.race(charge(order), pack(Parcel("a")))  # error: a forgotten await
    print(receipt, place)


async def children(ctx: Context) -> None:
    number: int = await ship.trigger(Parcel("a")).wait().execute(ctx)  # error: it returns a text
    child: RunId[int] = await ship.trigger(Parcel("a")).execute(ctx)  # error: of a run that returns a text
    ids = await ctx.trigger_many([ship.trigger(Parcel("a"))])
    shipped: list[int] = await ctx.results(ids)  # error: they return texts
    await ctx.trigger_many([Parcel("a")])  # error: triggers, not their arguments
    await ctx.results([ship.trigger(Parcel("a"))])  # error: runs, not triggers
    ctx.trigger_many([ship.trigger(Parcel("a"))])  # error: a forgotten await
    await ship.trigger(Parcel("a")).wait().execute(7)  # error: a store or a context
    print(number, child, shipped)


async def spawned(ctx: Context) -> None:
    await render("a")  # error: the argument is a Parcel
    text: str = await render(Parcel("a"))  # error: it returns bytes
    await sync_render(Parcel("a"))  # error: a sync step is awaited through the context
    print(text)


@step(queue=7)  # error: a name is a text
async def numbered_queue() -> None: ...


@condition("paid")  # error: it is called with a run
async def two_runs(run: int, other: int) -> bool:
    return run == other


@step(retrys=3)  # error: a misspelt option
async def misspelt() -> None: ...


@step(raises=ValueError)  # error: a tuple of classes
async def declined() -> None: ...


@workflow(name=7)  # error: a name is a text
async def numbered() -> None: ...


@workflow
def sync_workflow(ctx: stepwell.sync.Context, url: str) -> int:
    length: str = ctx.step(sync_fetch, url)  # error: it returns a number
    receipt: str = charge(Order("1", 2))  # error: an async step goes through the context
    return len(length + receipt)


@workflow
def sync_waits(ctx: stepwell.sync.Context) -> str:
    number: int = ctx.wait("approved", Approval)  # error: it comes as an Approval
    stepwell.sync.wait("approved", Approval, timeout="1h").by  # error: None, if it does not come in time
    child: int = ship.trigger(Parcel("a")).wait().execute(ctx)  # error: it returns a text
    shipped: list[int] = ctx.results(ctx.trigger_many([ship.trigger(Parcel("a"))]))  # error: they return texts
    later: str = ship.trigger(Parcel("a")).wait().execute()  # error: in a sync workflow the context is given
    return f"{number} {child} {shipped} {later}"


@workflow
async def wrong_context(ctx: stepwell.sync.Context, url: str) -> int:
    return len(url)


wrong_context.trigger("x")  # error: an async workflow's context is `stepwell.Context`


def colours(store: Store, sync_store: stepwell.sync.Store) -> None:
    with stepwell.connect("sqlite:///shop.db"):  # error: `async with`, or `stepwell.sync.connect`
        pass
    Worker(sync_store, [fulfil])  # error: the worker of a sync store is `stepwell.sync.Worker`
    stepwell.sync.Worker(store, [fulfil])  # error: an async store's is `stepwell.Worker`
    number: int = ship.trigger(Parcel("a")).wait().execute(sync_store)  # error: it returns a text
    later: str = ship.trigger(Parcel("a")).wait().execute(store)  # error: a forgotten await
    print(number, later)


class Confused(Orders):
    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, SendEmail, Input]:
        match input:
            case Create(id, _):
                return Decision.event(SendEmail(id))  # error: an effect is no event
            case Pay(id):
                return Decision.event(Paid()).with_effect(Created(1))  # error: an event is no effect
            case _:
                return Decision.event(Paid()).with_timer_after("1h", Paid())  # error: a timer delivers an input

    def evolve(self, state: State, event: Input) -> State:  # error: events are evolved
        return state


class Desk:
    @step
    async def weigh(self, grams: int) -> float:
        return grams / 1000

    @workflow
    async def receive(self, ctx: Context, parcel: str) -> str:
        await self.weigh(parcel)  # error: grams are a number
        weight: str = await self.weigh(5)  # error: a weight is a number
        return f"{weight}"


async def methods(store: Store) -> None:
    Desk.receive.trigger(5)  # error: a parcel is a text
    number: int = await store.result(Desk().receive.with_key("k"))  # error: it returns a text
    print(number)


def decisions(decider: Orders) -> None:
    Decision.event(Paid()).with_message(send_mail, "not a mail")  # error: the payload is a Mail
    Decision.event(Paid()).with_timer_at("tomorrow", Pay("7"))  # error: a moment
    Decision.event(Paid()).with_trigger(fulfil)  # error: a trigger, not its workflow
    Decision.event(Paid()).events = ()  # error: a decision does not change
    given(decider, Pay("7"))  # error: an input where an event belongs
    given(decider, Created(1)).when(Created(1))  # error: an event where an input belongs
    given(decider).when(Pay("7")).then(Pay("7"))  # error: an input where an event belongs
    given(decider).when(Pay("7")).then_effects(Paid())  # error: an event where an effect belongs
    given(decider).when(Pay("7")).then_state(lambda state: state.total > 1)  # error: the state has no total
    given(Orders, Created(1))  # error: the class where an instance belongs


async def engines(store: Store, engine: Engine) -> None:
    Engine("sqlite:///shop.db")  # error: an open store, not its address
    Engine(store).register(Orders)  # error: an instance, not its class
    engine.execute(Pay("7"))  # error: a forgotten await
    await engine.execute(Pay("7"), keys="x")  # error: a misspelt option
    number: int = await engine.state(Orders, "7")  # error: the state is a State
    print(number, (await engine.state(Orders, "7")).total)  # error: the state has no total
