"""Programs of users that a type checker has nothing to say about, however strict."""
# pyright: strict
# ruff: noqa: N818, T201 - they talk to a person

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Never
from uuid import UUID

import stepwell
from stepwell import (
    Context,
    Decider,
    Decision,
    EffectContext,
    Engine,
    Execute,
    Paused,
    Receipt,
    Retry,
    Run,
    RunId,
    SignalAnswer,
    Skipped,
    StateInfo,
    StateMachine,
    StateMachineDefinition,
    StepInfo,
    Store,
    Transition,
    Worker,
    Workflow,
    condition,
    connect,
    handler,
    step,
    workflow,
)
from stepwell.testing import given

# ---- a queue


@dataclass(frozen=True)
class Mail:
    to: str
    text: str


@handler("emails", retry=5, timeout="30s")
async def send_mail(mail: Mail) -> None:
    print(mail.to)


@handler("clicks", batch=100)
async def count_clicks(clicks: list[int]) -> None:
    print(len(clicks))


async def queue_async() -> None:
    async with connect("sqlite:///shop.db") as store:
        async with Worker(store, [send_mail, count_clicks], concurrency=50):
            message = await store.enqueue(send_mail, Mail("ada@example.com", "hi"), key="welcome-1", delay="5m")
            print(message, message.created)
            await store.enqueue_many(count_clicks, range(1000))
        for taken in await store.dequeue("emails", 10, type=Mail, until=5):
            print(taken.payload.to, taken.attempt)
            if not await taken.archive():
                print("no longer ours")
        for dead in await store.dead_letters(queue="emails"):
            await store.requeue(dead.id)


def queue_sync() -> None:
    with stepwell.sync.connect("postgresql://localhost/shop") as store:
        store.enqueue(send_mail, Mail("ada@example.com", "hi"))
        stepwell.sync.Worker(store, [send_mail]).run(signals=True)


# ---- workflows


@dataclass(frozen=True)
class Parcel:
    sku: str


@dataclass(frozen=True)
class Order:
    id: str
    cents: int
    parcels: list[Parcel] = field(default_factory=list[Parcel])


@dataclass(frozen=True)
class Approval:
    by: str


class Declined(Exception):
    pass


@step(retry=5, timeout="30s", raises=(Declined,))
async def charge(order: Order) -> str:
    return f"{order.cents}:{stepwell.current().key}"


@step(id="refund", retry=Retry(3, base="10s"))
async def refund(receipt: str) -> None:
    print(receipt)


@step
async def pack(parcel: Parcel, *, gift: bool = False) -> str:
    return f"{parcel.sku} {gift}"


@workflow
async def ship(parcel: Parcel) -> str:
    await stepwell.sleep("1h")
    return parcel.sku


@workflow
async def fulfil(order: Order) -> list[str]:
    try:
        receipt: str = await charge(order)
    except Declined:
        return []
    packed: list[str] = await asyncio.gather(*(pack(parcel, gift=True) for parcel in order.parcels))
    if not packed:
        await refund(receipt)
    return [receipt, *packed, await ship(Parcel("extra"))]


@workflow(name="zip_files", retry=5, concurrency=2, dead_letter="failed", strict=True)
async def zip_files(ctx: Context, bucket: str, prefix: str = "") -> int:
    files = await ctx.step("list", lambda: [bucket, prefix])
    tracked: str = await ctx.step(charge, Order(files[0], 1))
    number: int = await ctx.step("fetch", sync_fetch, "http://x")
    also: int = await ctx.step(sync_fetch, url="http://x")
    await ctx.sleep(timedelta(hours=1))
    moment: datetime = ctx.now()
    name: UUID = ctx.uuid()
    print(ctx.run_id, ctx.workflow, ctx.key, ctx.attempt, moment, name, ctx.random(), tracked)
    match await ctx.acquire("by hand"):
        case Execute() as guard:
            await guard.fail_transient(OSError(), retry_after="30s")
            await guard.success(1)
        case Skipped(value):
            print(value)
    return len(files) + number + also


@workflow
async def typed_lambda(ctx: Context, order: Order) -> str:
    approval = await ctx.step("ask", lambda: {"by": "ann"}, returns=Approval)
    return approval.by + order.id


async def workflow_async(order: Order) -> None:
    async with connect() as store, Worker(store, [fulfil, ship, zip_files], concurrency=200):
        run_id = await fulfil.trigger(order).options(key=f"order-{order.id}", priority=5).execute(store)
        shipped: list[str] = await store.result(run_id, timeout=30)
        run = await fulfil.get_run(run_id, store)
        print(run.status == "SUCCESS", run.output()[0], shipped, run_id.created)
        number: int = await zip_files.trigger("b", prefix="p").wait(timeout=300).execute(store)
        by_name = await workflow("zip_files").trigger({"bucket": "b"}).wait().timeout(300).execute(store)
        print(number, by_name)
        read: Approval = await store.result(int(run_id), Approval)
        other: Approval = run.output(Approval)
        unknown: object = await store.result(7)
        print(read, other, unknown)
        await looked_after(store, run_id)


async def looked_after(store: Store, run_id: RunId[list[str]]) -> None:
    many: list[RunId[list[str]]] = await store.trigger_many(fulfil.trigger(Order(str(n), n)) for n in range(3))
    found: Run[list[str]] | None = await fulfil.find("order-42", store)
    if found is not None:
        first: str = found.output()[0]
        print(first, many)
    steps: Sequence[StepInfo] = await store.steps(run_id)
    page = await store.runs("fulfil", status="ERROR", limit=10)
    again = [await store.retry(run.id) for run in page]
    print([one.name for one in steps], page.next, again)
    worker = await stepwell.consumer("worker-1", 8080, "zip_files").handler(zip_files).create(store)
    await worker.poll_forever()
    known: dict[str, Workflow[..., object]] = stepwell.discover_workflows()
    print(known)


# ---- waiting, racing, children


@step(queue="gpu", retry=3, raises=(Declined,))
async def render(parcel: Parcel, *, scale: int = 1) -> bytes:
    return parcel.sku.encode() * scale


@step(queue="gpu")
def sync_render(parcel: Parcel) -> int:
    return len(parcel.sku)


@step
async def gate(order: Order) -> Approval:
    raise Paused(f"order {order.id} is not paid", resume_condition="paid")


@condition("paid")
async def is_paid(run: Run[object]) -> Approval | None:
    return Approval(str(run.input())) if run.progress else None


@condition("opened")
def is_open(run: Run[object]) -> bool:
    return run.attempt > 0


@workflow
async def approved(ctx: Context, order: Order) -> str:
    approval: Approval = await ctx.wait("approved", Approval)
    in_time: Approval | None = await ctx.wait("approved", Approval, timeout="1d")
    nobody: Approval | str = await stepwell.wait("approved", Approval, timeout=60, default="nobody")
    numbers: list[int] = await stepwell.wait("numbers", list[int])
    anything = await ctx.wait("anything")
    paid: Approval = await gate(order)
    print(approval.by, in_time and in_time.by, nobody, numbers, anything, paid.by)
    place, word = await ctx.race(
        ctx.wait("word", str), pack(Parcel("a")), ship.trigger(Parcel("b")).wait().execute(ctx)
    )
    late, either = await stepwell.race(charge(order), ctx.sleep("1h"), ctx.step(sync_fetch, "x"))
    number: int = place + late
    text: str | int | None = either
    return f"{word.upper()} {number} {text}"


@workflow
async def parent(ctx: Context, order: Order) -> list[str]:
    one: str = await ship.trigger(Parcel("a")).wait(timeout="1h").execute(ctx)
    also: str = await ship.trigger(Parcel("a")).wait().execute()
    child: RunId[str] = await ship.trigger(Parcel("b")).options(key="b").execute(ctx)
    ids: list[RunId[str]] = await ctx.trigger_many(ship.trigger(parcel) for parcel in order.parcels)
    shipped: list[str] = await ctx.results([child, *ids])
    frames: list[bytes] = await asyncio.gather(*(render(parcel, scale=2) for parcel in order.parcels))
    size: int = await ctx.step(sync_render, Parcel("c"))
    return [one, also, *shipped, str(len(frames) + size)]


async def signals(store: Store, run_id: RunId[list[str]], tx: object) -> None:
    answer: SignalAnswer = await store.signal(run_id, "approved", Approval("ann"), key="click-1", tx=tx)
    if answer is SignalAnswer.WOKE or not await store.resume(run_id, "gate", Approval("bob")):
        print(answer)
    async with Worker(store, [render, sync_render, parent]):
        pass


# ---- without asyncio


@step
def sync_fetch(url: str) -> int:
    return len(url)


@workflow
def sync_fulfil(order: Order) -> list[int]:
    futures = [sync_fetch.start(order.id) for _ in range(3)]
    fetched: list[int] = [future.result() for future in futures]
    stepwell.sync.sleep("1m")
    return [*fetched, sync_fetch(url="x")]


@workflow
def seed_style(ctx: stepwell.sync.Context, url: str) -> int:
    receipt: str = ctx.step(charge, Order("1", 2))
    ctx.sleep(5)
    return len(ctx.step("fetch", lambda: url)) + len(receipt)


@workflow
def sync_parent(ctx: stepwell.sync.Context, order: Order) -> list[str]:
    approval: Approval = ctx.wait("approved", Approval)
    in_time: Approval | None = stepwell.sync.wait("approved", Approval, timeout="1d")
    word: str = ctx.wait("word", str, timeout=1, default="none")
    one: str = ship.trigger(Parcel("a")).wait(timeout="1h").execute(ctx)
    child: RunId[str] = ship.trigger(Parcel("b")).execute(ctx)
    shipped: list[str] = ctx.results([child, *ctx.trigger_many([ship.trigger(Parcel("c"))])])
    size: int = sync_render(Parcel("c")) + sync_render.start(Parcel("d")).result()
    return [approval.by, in_time.by if in_time else word, one, *shipped, str(size)]


def sync_signals(store: stepwell.sync.Store, run_id: int, tx: object) -> None:
    answer: SignalAnswer = store.signal(run_id, "approved", Approval("ann"), key="click-1", tx=tx)
    again: SignalAnswer = store.resume(run_id, "gate", data=Approval("ann"))
    print(answer, again)


def workflow_sync(order: Order) -> None:
    with stepwell.sync.connect("sqlite:///shop.db") as store:
        run_id = sync_fulfil.trigger(order).execute(store)
        fetched: list[int] = store.result(run_id, timeout=30)
        number: int = seed_style.trigger("http://x").wait(timeout=3).execute(store)
        run = sync_fulfil.get_run(run_id, store)
        first: int = run.output()[0]
        print(fetched, number, first)
        with stepwell.sync.Worker(store, [sync_fulfil, seed_style]):
            worker = stepwell.consumer("worker-2", 8081, "seed_style").handler(seed_style).create(store)
            worker.close()


# ---- deciders


@dataclass(frozen=True)
class Create:
    order_id: str
    cents: int


@dataclass(frozen=True)
class Pay:
    order_id: str


@dataclass(frozen=True)
class Expire:
    order_id: str


@dataclass(frozen=True)
class Created:
    cents: int


@dataclass(frozen=True)
class Paid:
    pass


@dataclass(frozen=True)
class Expired:
    pass


@dataclass(frozen=True)
class Ignored:
    why: str


@dataclass(frozen=True)
class SendEmail:
    to: str


Input = Create | Pay | Expire
Event = Created | Paid | Expired | Ignored


@dataclass(frozen=True)
class State:
    status: str = "new"


class Orders(Decider[State, Input, Event, SendEmail]):
    type = "order"
    route = "order_id"

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case Created():
                return replace(state, status="created")
            case Paid():
                return replace(state, status="paid")
            case Expired():
                return replace(state, status="expired")
            case Ignored():
                return state

    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, SendEmail, Input]:
        match input:
            case Create(id, cents) if state.status == "new":
                return (
                    Decision.event(Created(cents))
                    .with_effect(SendEmail(id))
                    .with_timer_after("1h", Expire(id), key="payment")
                    .with_message(send_mail, Mail(id, "thank you"))
                    .with_message("letters", {"to": id})
                )
            case Pay() if state.status == "created":
                paid = Decision.event(Paid()).and_event(Ignored("a second event"))
                return paid.cancel_timer("payment").with_trigger(fulfil.trigger(Order("1", 2)))
            case Expire() if state.status == "created":
                return Decision.event(Expired()).with_timer_at(now + timedelta(days=1), Pay("7"))
            case _:
                return Decision.event(Ignored(type(input).__name__))

    def is_terminal(self, state: State) -> bool:
        return state.status == "expired"

    async def handle(self, effect: SendEmail, ctx: EffectContext) -> Input | None:
        print(effect.to, ctx.key, ctx.attempt, ctx.id)
        return Pay(ctx.id)

    def on_dead_letter(self, effect: SendEmail, error: str) -> Input | None:
        return Expire(effect.to)

    def state_info(self, state: State) -> StateInfo:
        return StateInfo(state.status, fields={"status": state.status}, terminal=self.is_terminal(state))

    def transitions(self, state: State) -> Sequence[Transition]:
        return [Transition("Create", "created", effects=["SendEmail"], timers=["payment"])]

    def states(self) -> Sequence[State]:
        return [State("new"), State("created")]


class Counters(Decider[int, Pay, Paid, Never]):
    """No effects, and a state that is no class."""

    type = "counter"

    def identify(self, input: Pay) -> str:
        return input.order_id

    def key_of(self, input: Pay) -> str | None:
        return None

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Paid) -> int:
        return state + 1

    def decide(self, state: int, input: Pay, now: datetime) -> Decision[Paid, Never, Pay]:
        return Decision.event(Paid())


class Desk:
    @step
    async def weigh(self, grams: int) -> float:
        return grams / 1000

    @workflow
    async def receive(self, ctx: Context, parcel: str) -> float:
        await ctx.tag("vip")
        return await self.weigh(500) + await ctx.step(self.weigh, 5)

    @workflow
    def count(self, ctx: stepwell.sync.Context, parcels: list[str]) -> int:
        ctx.untag("new")
        return len(parcels)

    @workflow
    async def plain(self, parcel: str) -> str:
        return parcel

    @handler("parcels")
    async def take(self, parcel: Mail) -> None:
        print(parcel)


async def methods(store: Store) -> None:
    desk = Desk()
    run = await Desk.receive.trigger("lamp").execute(store)
    weight: float = await store.result(run)
    count: int = await store.result(await desk.count.trigger(["a"]).execute(store))
    text: str = await store.result(await desk.plain.trigger("a").execute(store))
    await store.enqueue(desk.take, Mail("a", "b"))
    async with Worker(store, [desk, fulfil]):
        print(weight, count, text, await desk.weigh(5), await desk.weigh.local(5))


async def steering(store: Store, run: RunId[int]) -> None:
    if await store.reschedule(run, delay="5m", priority=3, actor="ann"):
        print(await store.signal_many([(run, "go"), (fulfil.with_key("7"), "paid", 5)], keys=["a", "b"]))
    found = await store.runs("fulfil", status=["ERROR", "CANCELLED"], tag=("vip", "eu"), key_prefix="order-")
    again: RunId[int] = await store.fork(run)
    listed = await store.signals(run, state="waiting")
    print(found.next, again, [one.taken_by for one in listed])


def decision_of_several_classes() -> None:
    both: Decision[Paid | Expired, Never, Never] = Decision.event(Paid(), Expired())
    three: Decision[Paid | Expired | Ignored, Never, Never] = Decision.event(Paid(), Expired(), Ignored("a"))
    more: Decision[Created | Paid | Expired, Never, Never] = Decision.event(Created(1)).and_event(Paid(), Expired())
    print(both, three, more)


def decider_by_calling() -> None:
    created = given(Orders()).when(Create("7", 1900))
    created.then(Created(1900)).then_effects(SendEmail("7")).then_timers(payment="1h").then_cancelled()
    created.after("2h").then(Expired()).then_state(lambda state: state.status == "expired")
    given(Counters(), Paid()).when(Pay("7")).then(Paid()).then_state(lambda count: count > 1)
    drawn: StateMachineDefinition[State] = Orders()
    machine = StateMachine.of(Orders())
    print(machine.mermaid(State("created")), machine.dot(), drawn.states())


async def decider_async() -> None:
    async with connect("memory:") as store:
        engine = Engine(store).register(Orders(), workers=5).register(Counters())
        receipt: Receipt = await engine.execute(Create("123", 1900), key="req-1")
        print(receipt.outcome, receipt.first, receipt.last)
        await engine.execute_dynamic("order", {"Pay": {"order_id": "123"}})
        state: State = await engine.state(Orders, "123")
        earlier = await engine.state(Orders, "123", at=1)
        count: int = await engine.state(Counters, "123")
        print(state.status, earlier.status, count, (await engine.state("order", "123"))["status"])
        print([recorded.event for recorded in await engine.events("order", "123", after=1)])
        dry = await engine.dry_run(Pay("123"))
        print(dry.version, dry.state, None if dry.decision is None else dry.decision.events)
        look = await engine.inspect(Orders, "123", at=1)
        told: State = look.state
        print(told.status, look.status, look.events, look.outstanding, look.dead_letters, look.completed_at)
        await engine.execute(Pay("123"), expected_version=look.version)
        async with store.transaction() as tx:
            await engine.execute(Pay("123"), tx=tx)
            await store.enqueue(send_mail, Mail("a", "b"), tx=tx)
            await fulfil.trigger(Order("1", 2)).execute(store, tx=tx)
        async with Worker(store, [engine, fulfil, send_mail]):
            await engine.run(asyncio.sleep(1))


def decider_sync() -> None:
    with stepwell.sync.connect("sqlite:///shop.db") as store:
        engine = stepwell.sync.Engine(store).register(Orders())
        engine.execute(Create("123", 1900))
        state = engine.state(Orders, "123")
        print(state.status)
