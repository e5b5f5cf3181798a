"""Events, inputs and effects of older versions: read through upcasters, wherever an engine reads them."""

from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from stepwell import Decider, Decision, EffectContext, Engine, Store, UnknownRecord, UpcastFailed, sync, upcast
from stepwell.base.clock import TestClock
from stepwell.deciders.registry import Family
from tests.deciders.workbench import asked, count, drained, tasks

done: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


def in_cents(old: dict[str, Any]) -> dict[str, Any]:
    return {"id": old["id"], "cents": 100 * old["price"]}


def program(version: int, up: Any = in_cents, *, drops: bool = False, type_: str = "till") -> Any:
    """A till that counts what is paid; from version 2 on in cents."""

    def changed(name: str) -> Any:
        fields = {"id": str, "cents" if version > 1 else "price": int}
        cls: Any = dataclass(frozen=True)(type(name, (), {"__annotations__": fields, "__stepwell_version__": version}))
        cls.__module__ = __name__
        for number in range(1, version):
            upcast(cls, number)(up if number == 1 else (lambda old: old))
        return cls

    Pay, Paid, Tell = changed("Pay"), changed("Paid"), changed("Tell")  # noqa: N806 - they are classes

    @dataclass(frozen=True)
    class Later:
        id: str

    @dataclass(frozen=True)
    class Waited:
        id: str

    class Till(Decider[int, Any, Any, Any]):
        type, route = type_, "id"

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Any) -> int:
            if isinstance(event, Waited):
                return state + 1
            return state + int(event.cents if version > 1 else event.price)

        def decide(self, state: int, input: Any, now: datetime) -> Decision[Any, Any, Any]:
            if isinstance(input, Later):
                return Decision.event(Waited(input.id))
            amount = getattr(input, "cents", None) or input.price
            paid: Decision[Any, Any, Any] = Decision.event(Paid(input.id, amount)).with_effect(Tell(input.id, amount))
            return paid if drops else paid.with_timer_after("1h", Later(input.id), key="later")

        async def handle(self, effect: Any, ctx: EffectContext) -> Any:
            done.append(effect)
            return None

    classes = (Pay, Paid, Tell) if drops else (Pay | Later, Paid | Waited, Tell)
    bases: Any = Decider.__class_getitem__((int, *classes))  # type: ignore[attr-defined]
    Till.__orig_bases__ = (bases,)  # type: ignore[attr-defined]
    return SimpleNamespace(**locals())


ONE, TWO, THREE = program(1), program(2), program(3)


def engine_of(store: Store, shop: Any, every: int = 100) -> Engine:
    return Engine(store).register(shop.Till(), snapshot_every=every)


@pytest.mark.proves("U-02", "U-05", "U-07", "M-25")
async def test_events_effects_timers_and_inputs_of_an_older_version_are_read(store: Store, clock: TestClock) -> None:
    one = engine_of(store, ONE)
    await one.execute(ONE.Pay("a", 3))
    await one.submit(ONE.Pay("a", 4), key="once")
    three = engine_of(store, THREE)
    assert await three.state(THREE.Till, "a") == 300
    assert await three.state("till", "a", at=1) == 300
    dry = await three.dry_run(THREE.Pay("a", 5))
    assert dry.decision is not None
    assert (dry.decision.events, dry.state) == ((THREE.Paid("a", 5),), 305)
    await three.submit(THREE.Pay("a", 4), key="once")
    await drained(store, three)
    assert [(type(one), one.cents) for one in done] == [(THREE.Tell, 300), (THREE.Tell, 400)]
    clock.advance("2h")
    await drained(store, three)
    assert await three.state(THREE.Till, "a") == 701
    rows = await asked(store, "select type, type_version from {event} order by version")
    assert [tuple(row) for row in rows] == [("Paid", 1), ("Paid", 3), ("Waited", 1)]


@pytest.mark.proves("U-04")
async def test_an_event_that_is_newer_is_named_and_nothing_is_decided(store: Store) -> None:
    await engine_of(store, TWO).execute(TWO.Pay("a", 300))
    before = [await count(store, table) for table in ("event", "task", "receipt")]
    told = "event 1 of till a refused .* it was stored as Paid, version 2, and this code has version 1"
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("execute", (ONE.Pay("a", 1),), {"key": "k"}),
        ("state", (ONE.Till, "a"), {}),
        ("state", (ONE.Till, "a"), {"at": 1}),
        ("events", ("till", "a"), {}),
    ]
    for name, args, options in calls:
        with pytest.raises(UnknownRecord, match=told):
            await getattr(engine_of(store, ONE), name)(*args, **options)
    assert [await count(store, table) for table in ("event", "task", "receipt")] == before


@pytest.mark.proves("U-04")
async def test_an_upcaster_that_fails_costs_an_attempt_and_changes_nothing(store: Store, clock: TestClock) -> None:
    await engine_of(store, ONE).execute(ONE.Pay("a", 3))
    broken = engine_of(store, program(2, lambda old: old["nothing"]))
    with pytest.raises(UpcastFailed, match="event 1 of till a cannot be read: the upcaster of Paid 1 failed"):
        await broken.state("till", "a")
    await drained(store, broken)
    [effect] = await tasks(store, "EFFECT")
    assert (effect["status"], effect["attempt"], done) == ("PENDING", 1, [])
    assert "the upcaster of Tell 1 failed" in effect["last_error"]
    clock.advance("1m")
    await drained(store, engine_of(store, TWO))
    assert [one.cents for one in done] == [300]


@pytest.mark.proves("U-02")
async def test_a_snapshot_that_another_upcaster_has_led_to_is_not_used(store: Store) -> None:
    one = engine_of(store, ONE)
    for _ in range(2):
        await one.execute(ONE.Pay("a", 1))
    two = engine_of(store, TWO, every=2)
    for _ in range(2):
        await two.execute(TWO.Pay("a", 100))
    [row] = await asked(store, "select snapshot_version from {instance}")
    assert row["snapshot_version"] == 3
    corrected = program(2, lambda old: {"id": old["id"], "cents": 1000 * old["price"]})
    assert await engine_of(store, corrected).state("till", "a") == 2200
    prints = {Family.of(one.Till()).states.fingerprint for one in (TWO, program(2), corrected)}
    assert len(prints) == 2, "the same code has the same"


@pytest.mark.proves("U-03", "U-07")
async def test_a_variant_that_was_removed_is_dropped_from_histories_and_timers(store: Store, clock: TestClock) -> None:
    old, new = program(1, type_="drawer"), program(1, drops=True, type_="drawer")
    engine = engine_of(store, old)
    await engine.execute(old.Pay("a", 3))
    await engine.execute(old.Later("a"))
    for name in ("Later", "Waited"):
        upcast(name, 1, to=(), decider="drawer")(lambda _: [])
    engine = engine_of(store, new)
    assert await engine.state("drawer", "a") == 3
    assert [one.type for one in await engine.events("drawer", "a")] == ["Paid"]
    clock.advance("2h")
    await drained(store, engine)
    [timer] = await tasks(store, "TIMER")
    assert (timer["status"], timer["attempt"]) == ("SUCCESS", 1)
    assert await count(store, "event") == 2


@pytest.mark.backends("sqlite", reason="the sync face is the same code on every database")
@pytest.mark.proves("U-02")
def test_a_sync_engine_reads_older_versions_too(store_url: str, backend: str) -> None:
    with sync.connect(store_url) as store:
        sync.Engine(store).register(ONE.Till()).execute(ONE.Pay("a", 3))
        engine = sync.Engine(store).register(TWO.Till())
        assert engine.state(TWO.Till, "a") == 300
        assert engine.execute(TWO.Pay("a", 5)).outcome == "applied"
        assert next(iter(store.stored_versions())).name == "Paid"
