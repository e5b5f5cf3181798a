"""Projections at work: each event once, in order, with its position in the transaction of the rows."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Never

import pytest

from stepwell import (
    At,
    Decider,
    Decision,
    Engine,
    InvalidOption,
    ProjectionNotFound,
    Store,
    Tx,
    Worker,
    connect,
    projection,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.projections import runner
from stepwell.projections.rounds import Rounds
from tests.deciders.shop import Create, Created, Orders
from tests.deciders.workbench import Bench, Do, Noted, labels
from tests.ground.waiting import until
from tests.projections.books import Accounts, Balances, Noise, Open, Opened, Paid, Pay, balances, engine_of, handled
from tests.store.seam import do


async def paid(engine: Engine, *accounts: str, cents: int = 1) -> None:
    for account in accounts:
        await engine.execute(Pay(account, cents))


@pytest.mark.proves("PJ-01", "PJ-02", "PJ-04", "PJ-05", "PJ-10", "PJ-14", "promise-09")
async def test_a_worker_keeps_a_read_model_up_to_date(store: Store) -> None:
    model = Balances()
    engine = engine_of(store, model).register(Orders())
    await engine.execute(Open("a"))
    await engine.execute(Create("o-1", 7))  # another decider's
    await paid(engine, "a", "b", "a")
    await paid(engine, "a", cents=0)  # an event of another class
    await Worker(store, [engine]).drain()
    assert await balances(store) == {"a": 2, "b": 1}
    assert [event for _, event in model.seen] == [Opened("a"), Paid("a", 1), Paid("b", 1), Paid("a", 1)]
    assert [position for position, *_ in await handled(store)] == [position for position, _ in model.seen]
    [info] = await engine.projections()
    assert (info.name, info.state, info.lag, info.handled, info.parked) == ("balances", "running", 0, 4, 0)
    assert info.position == info.horizon == info.head
    await paid(engine, "b")
    assert (await engine.projections())[0].lag == 1
    model_again = Balances()  # of another process: it goes on
    await Worker(store, [engine_of(store, model_again)]).drain()
    assert await balances(store) == {"a": 2, "b": 2}
    assert [event for _, event in model_again.seen] == [Paid("b", 1)]


@pytest.mark.proves("PJ-06", "PJ-11")
async def test_events_are_handled_in_batches_with_one_position_each(store: Store, monkeypatch: Any) -> None:
    moved: list[tuple[int, int]] = []
    model = Balances()
    engine = engine_of(store, model)
    verbs = store.database.projections
    said = verbs.moved

    def counted(held: Any, position: int, count: int, *, alone: bool = False) -> Any:
        moved.append((position - held.position, count))
        return said(held, position, count, alone=alone)

    monkeypatch.setattr(verbs, "moved", counted)
    async with store.transaction() as tx:
        for number in range(125):
            await engine.execute(Pay(f"a{number % 5}", 1), tx=tx)
    await Worker(store, [engine]).drain()
    assert sum(await balances_of(store)) == 125
    assert [count for _, count in moved if count] == [100, 10, 10, 5]  # ten times as many while it is far behind
    assert (runner.POLL, runner.FIRST_PAUSE, runner.LONGEST_PAUSE) == (0.2, 0.2, 5.0)
    assert inspect.signature(projection).parameters["batch"].default == 100


@pytest.mark.proves("PJ-06")
async def test_a_projection_with_nothing_to_do_looks_again_after_the_same_pause(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    rest = Rounds.rest

    async def noted(self: Rounds, pause: float) -> None:
        pauses.append(pause)
        await rest(self, pause)

    monkeypatch.setattr(Rounds, "rest", noted)
    async with Worker(store, [engine_of(store, Balances())]):
        await until(lambda: pauses[-3:] == [0.2] * 3)


async def balances_of(store: Store) -> list[int]:
    return list((await balances(store)).values())


@pytest.mark.proves("PJ-02", "PJ-04")
async def test_events_come_soon_after_they_are_committed(live_store: Store) -> None:
    engine = engine_of(live_store, Balances())
    async with Worker(live_store, [engine]):
        for number in range(1, 4):
            await paid(engine, "a")
            await until(lambda expected=number: _is(live_store, {"a": expected}))  # type: ignore[misc]
        async with live_store.transaction() as tx:  # no process is told of it
            await engine.execute(Pay("a", 1), tx=tx)
        await until(lambda: _is(live_store, {"a": 4}))


async def _is(store: Store, expected: dict[str, int]) -> bool:
    try:
        return await balances(store) == expected
    except Exception:  # noqa: BLE001 - its table is not there yet
        return False


@pytest.mark.proves("PJ-02", "PJ-03", "promise-09", "rule-26", "protocol-13")
@pytest.mark.backends("postgres", reason="elsewhere there is one writer, and nothing commits late")
async def test_what_commits_late_is_handled_in_its_place(store: Store) -> None:
    """While a transaction that has appended is open, projections wait before its events, however many come after."""
    model, engine = Balances(), engine_of(store)
    served = engine_of(store, model)
    await paid(engine, "first")
    async with store.transaction() as tx:
        await engine.execute(Pay("late", 1), tx=tx)
        await paid(engine, "soon", "soon")
        await Worker(store, [served]).drain()
        assert [name for _, name, _ in await handled(store)] == ["first"]
        [info] = await served.projections()
        assert (info.position, info.handled) == (1, 1)
        assert info.lag > 0
    await Worker(store, [served]).drain()
    assert [name for _, name, _ in await handled(store)] == ["first", "late", "soon", "soon"]
    assert [position for position, *_ in await handled(store)] == [position for position, _ in model.seen]
    [info] = await served.projections()
    assert (info.lag, info.handled) == (0, 4)


@pytest.mark.proves("PJ-05", "promise-09")
async def test_a_read_model_elsewhere_gets_each_event_at_least_once(store: Store) -> None:
    seen: list[tuple[int, int]] = []
    fails = [True]

    @projection("elsewhere", attempts=3)
    class Elsewhere:
        async def handle(self, event: Paid, at: At) -> None:
            seen.append((at.position, event.cents))
            if event.cents == 2 and fails.pop():
                fails.append(False)
                raise OSError("it is away")

    engine = engine_of(store, Elsewhere())
    for cents in (1, 2, 3):
        await paid(engine, "a", cents=cents)
    await Worker(store, [engine]).drain()
    assert [cents for _, cents in seen] == [1, 2, 1, 2, 3]
    assert {position for position, _ in seen} == {1, 2, 3}
    [info] = await engine.projections()
    assert (info.lag, info.failures, info.handled) == (0, 0, 3)


@workflow
async def ends() -> None:
    pass


@pytest.mark.proves("PJ-07")
@pytest.mark.timeout(20)
async def test_a_projection_cannot_decide_enqueue_or_trigger_with_its_transaction_or_without(store: Store) -> None:
    """Whatever writes is refused at once; without `tx` it would wait for the write lock that its own batch has."""
    refused: list[str] = []
    begun = await ends.trigger().options(delay="1h", require_worker="ignore").execute(store)

    async def begins() -> None:
        async with store.transaction():
            pass

    def writes(tx: Tx | None) -> list[Awaitable[object]]:
        run = ends.trigger().options(require_worker="ignore")
        joined: list[Awaitable[object]]
        joined = [engine.execute(Pay("b", 1), tx=tx), engine.submit(Pay("b", 1), tx=tx), store.enqueue("q", 1, tx=tx)]
        joined += [store.enqueue_many("q", [1, 2], tx=tx), store.signal(begun, "s", tx=tx), run.execute(store, tx=tx)]
        return joined if tx else [*joined, store.cancel(begun), store.pause_queue("q"), begins()]

    async def tried(tx: Tx | None) -> None:
        for work in writes(tx):
            try:
                await work
            except InvalidOption as error:
                refused.append(error.why)

    @projection("busy", events=[Paid])
    class Busy:
        async def handle(self, event: Paid, at: At, tx: Tx) -> None:
            await tried(tx)
            await tried(None)

    @projection("elsewhere", events=[Paid])
    class Elsewhere:
        async def handle(self, event: Paid, at: At) -> None:
            await asyncio.create_task(tried(None))
            assert (await store.get_run(begun)).status == "PENDING", "it may read"

    await store.create_queue("q")
    engine = engine_of(store, Busy(), Elsewhere())
    await paid(engine, "a")
    await Worker(store, [engine]).drain()
    assert refused == [runner.OVER] * (6 + 9 + 9)
    assert len((await engine.events_since(0)).events) == 1
    assert [(one.state, one.failures, one.handled) for one in await store.projections()] == [("running", 0, 1)] * 2
    assert (await store.get_run(begun)).status == "PENDING"
    await store.enqueue("q", 1)  # other code of this process writes


@pytest.mark.proves("PJ-07", "PJ-16")
async def test_a_projection_that_is_stuck_holds_up_no_other_and_no_decision(live_store: Store) -> None:
    entered, let_go = asyncio.Event(), asyncio.Event()

    @projection("stuck", events=[Paid])
    class Stuck:
        async def handle(self, event: Paid, at: At) -> None:
            entered.set()
            await let_go.wait()

    engine = engine_of(live_store, Stuck(), Balances())
    async with Worker(live_store, [engine]):
        await paid(engine, "a")
        await entered.wait()
        await until(lambda: _is(live_store, {"a": 1}))
        await paid(engine, "a")
        await until(lambda: _is(live_store, {"a": 2}))
        lags = {one.name: one.lag for one in await engine.projections()}
        assert lags["stuck"] == 2
        let_go.set()


@pytest.mark.proves("PJ-07")
async def test_a_projection_that_fails_fails_no_decision_effect_timer_or_run(store: Store, clock: TestClock) -> None:
    @projection("broken", attempts=1, on_poison="stop")
    class Broken:
        async def handle(self, event: Noted, at: At, tx: Tx) -> None:
            raise ValueError(event.label)

    engine = Engine(store).register(Bench())
    engine.register(Broken())
    run = await ends.trigger().options(require_worker="ignore").execute(store)
    await engine.execute(Do("a", "one", ask="mail", after=60))
    await engine.submit(Do("a", "two"))
    for _ in range(2):
        await Worker(store, [engine, ends]).drain()
        clock.advance(60)
    assert sorted(await labels(engine)) == ["mail answered", "one", "tick", "two"]
    assert (await store.get_run(run)).status == "SUCCESS"
    assert await store.dead_letters() == []
    [info] = await store.projections()
    assert (info.state, info.handled, info.lag > 0) == ("stopped", 0, True)


@dataclass(frozen=True)
class Ring:
    till: str


@dataclass(frozen=True)
class Payment:
    __stepwell_name__ = "Paid"
    account: str


class Tills(Decider[int, Ring, Payment, Never]):
    type = "till"
    route = "till"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Payment) -> int:
        return state

    def decide(self, state: int, input: Ring, now: datetime) -> Decision[Payment, Never, Ring]:
        return Decision.event(Payment(input.till))


@pytest.mark.proves("PJ-10")
async def test_events_of_one_name_and_two_deciders_are_told_apart(store: Store) -> None:
    seen: list[str] = []

    @projection("tills", events=[Payment])
    class OfTills:
        async def handle(self, event: Any, at: At) -> None:
            seen.append(f"{at.type} {event.account}")

    engine = engine_of(store).register(Tills())
    engine.register(OfTills())
    await paid(engine, "a")
    await do(store, "update {event} set type_version = 9")  # no code here can read it, and none has to
    await engine.execute(Ring("t"))
    await Worker(store, [engine]).drain()
    assert seen == ["till t"]


@pytest.mark.proves("PJ-17")
async def test_a_shutdown_finishes_the_events_under_way_and_stores_the_position(live_store: Store) -> None:
    entered, let_go = asyncio.Event(), asyncio.Event()

    begun: list[int] = []

    async def check(event: Any, at: At) -> None:
        begun.append(at.position)
        entered.set()
        await let_go.wait()

    engine = engine_of(live_store, Balances(check))
    worker = Worker(live_store, [engine])
    async with worker:
        await paid(engine, "a", "b")
        await entered.wait()
        ending = asyncio.create_task(worker.__aexit__(None, None, None))
        await asyncio.sleep(0)
        let_go.set()
        await ending
    [info] = await engine.projections()
    assert info.handled == len(await handled(live_store)) == len(begun) >= 1
    assert info.owner is None
    await Worker(live_store, [engine_of(live_store, Balances())]).drain()
    assert await balances(live_store) == {"a": 1, "b": 1}


async def test_a_handler_that_commits_by_itself_is_refused(store: Store) -> None:
    @projection("commits", events=[Paid], attempts=1, on_poison="stop")
    class Commits:
        async def handle(self, event: Paid, at: At, tx: Tx) -> None:
            await tx.execute("commit")

    engine = engine_of(store)
    engine.register(Commits())
    await paid(engine, "a")
    await Worker(store, [engine]).drain()
    [info] = await engine.projections()
    assert (info.state, info.position, info.handled) == ("stopped", 0, 0)
    assert "committed or rolled back" in (info.error or "")


async def test_a_begin_that_fails_is_tried_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FIRST_PAUSE", 0.01)
    tries: list[int] = []

    @projection("slow", events=[Paid])
    class Slow:
        async def begin(self, tx: Tx) -> None:
            tries.append(1)
            if len(tries) < 3:
                raise ValueError("not yet")

        async def handle(self, event: Paid, at: At, tx: Tx) -> None:
            tries.append(at.position)

    engine = engine_of(store)
    engine.register(Slow())
    await paid(engine, "a")
    await Worker(store, [engine]).drain()
    assert tries == [1, 1, 1, 1]
    [info] = await engine.projections()
    assert (info.failures, info.error, info.lag) == (2, None, 0)


def test_what_cannot_be_a_projection_is_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"batch": 0},
        {"attempts": 0},
        {"on_poison": "skip"},
        {"events": []},
        {"events": Paid},
    ]
    for options in wrong:
        with pytest.raises(InvalidOption):
            projection("p", **options)
    with pytest.raises(InvalidOption, match="class"):
        projection("p")(len)


async def test_a_projection_of_unknown_events_or_without_a_handler_is_refused(store: Store) -> None:
    @projection("orders")
    class OfOrders:
        async def handle(self, event: Created, at: At, tx: Tx) -> None: ...

    @projection("sync", events=[Paid])
    class Sync:
        def handle(self, event: Paid, at: At, tx: Tx) -> None: ...

    @projection("few", events=[Paid])
    class Few:
        async def handle(self, event: Paid) -> None: ...

    @projection("any")
    class Unsaid:
        async def handle(self, event, at, tx): ...  # type: ignore[no-untyped-def]

    engine = engine_of(store, Balances())
    with pytest.raises(InvalidOption, match="Register the decider first"):
        engine.register(OfOrders())
    engine.register(Orders()).register(OfOrders())
    wrong: list[Any] = [Sync(), Few(), Unsaid()]
    for one in wrong:
        with pytest.raises(InvalidOption, match=r"handle|has"):
            engine.register(one)
    with pytest.raises(InvalidOption, match="already"):
        engine.register(Balances())
    with pytest.raises(InvalidOption, match="projection of this name"):
        Worker(store, [engine, Engine(store).register(_Others()).register(_OfOthers())])
    with pytest.raises(ProjectionNotFound, match="nothing"):
        await store.pause_projection("nothing")


class _Others(Accounts):
    type = "others"


@projection("balances", events=[Noise])
class _OfOthers:
    async def handle(self, event: Noise, at: At, tx: Tx) -> None: ...


@pytest.mark.backends("postgres", reason="the others have one isolation level")
async def test_a_batch_reads_what_is_committed_whatever_the_default(store_url: str, store: Store) -> None:
    levels: list[str] = []

    @projection("levels", events=[Paid])
    class Levels:
        async def handle(self, event: Paid, at: At, tx: Tx) -> None:
            [row] = await tx.execute("show transaction_isolation")
            levels.append(row[0])

    async with store.transaction() as tx:
        name = (await tx.execute("select current_database()"))[0][0]
        await tx.execute(f"alter database \"{name}\" set default_transaction_isolation = 'repeatable read'")
    async with connect(store_url) as again:
        engine = engine_of(again)
        engine.register(Levels())
        await paid(engine, "a")
        await Worker(again, [engine]).drain()
    assert levels == ["read committed"]
