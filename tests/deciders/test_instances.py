"""What is known of an instance: its state now and earlier, read from a snapshot and what came after it."""

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from stepwell import (
    Decision,
    EffectContext,
    Engine,
    InvalidOption,
    PermanentError,
    SerializationError,
    Store,
    handler,
)
from stepwell.base.clock import TestClock
from stepwell.deciders.mailbox import KnownInstance, Memory
from stepwell.errors import DeciderNotFound
from tests.deciders.shop import Create, Orders, Pay
from tests.deciders.workbench import Ask, Bench, Do, Event, Input, Noted, State, asked, drained, labels, versions
from tests.store.seam import Watched, watched


class Counting(Bench):
    """Has evolved so many events."""

    evolved = 0

    def evolve(self, state: State, event: Event) -> State:
        self.evolved += 1
        return replace(state, labels=(event.label,)) if isinstance(event, Noted) else super().evolve(state, event)


@pytest.mark.proves("M-21", "M-22")
async def test_a_process_that_never_saw_an_instance_reads_one_snapshot_and_its_tail(store: Store, backend: str) -> None:
    engine = Engine(store).register(Counting(), snapshot_every=100)
    rounds = 5 if backend == "turso" else 25  # a tenth of the others' speed, and the same code
    for _ in range(rounds):
        await asyncio.gather(*(engine.execute(Do("a", str(number))) for number in range(400)))
    await engine.execute(Do("a", "last"))
    [instance] = await asked(store, "select version, snapshot_version from {instance}")
    assert instance["version"] == rounds * 400 + 1
    tail = instance["version"] - instance["snapshot_version"]
    assert tail <= 500
    cold = Counting()
    assert (await Engine(store).register(cold).state(Counting, "a")).labels == ("last",)
    assert cold.evolved == tail
    cold.evolved = 0
    own, driver = watched(store)
    await Engine(own).register(cold).execute(Do("a", "one more"))
    assert cold.evolved == tail + 1
    assert _rows_read(driver) == {"snapshots": 1, "events": tail}


def _rows_read(driver: Watched) -> dict[str, int]:
    asked_for = {call.statement: call for call in driver.said}
    [(_, after, until)] = asked_for["events_after"].rows or ()
    assert isinstance(after, int)
    assert isinstance(until, int)
    return {"snapshots": len(asked_for["lock_instances"].rows or ()), "events": until - after}


async def test_what_an_instance_still_waits_for(store: Store) -> None:
    engine = Engine(store).register(Orders())
    await engine.execute(Create("a", 5))
    await engine.execute(Create("b", 5))
    effect, timer = await Engine(store).outstanding("order", "a")
    assert (effect.kind, effect.name, effect.key, effect.status) == ("EFFECT", "SendEmail", None, "PENDING")
    assert (timer.kind, timer.name, timer.key) == ("TIMER", "Expire", "payment")
    assert timer.due is not None
    assert effect.due is not None
    assert timer.due > effect.due
    await engine.execute(Pay("a"))
    assert [one.kind for one in await engine.outstanding("order", "a")] == ["EFFECT"], "the timer was cancelled"
    assert await engine.outstanding("order", "nobody") == await Engine(store).outstanding("order", "nobody") == []
    with pytest.raises(DeciderNotFound, match="gate"):
        await engine.outstanding("gate", "a")


class Doomed(Bench):
    """Fails in all that it is asked later."""

    retry = 1

    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, Ask, Input]:
        if state.labels and isinstance(input, Do):
            raise PermanentError(input.label)
        return super().decide(state, input, now)

    async def handle(self, effect: Ask, ctx: EffectContext) -> Input | None:
        raise PermanentError(effect.label)

    def on_dead_letter(self, effect: Ask, error: str) -> Input | None:
        return Do(effect.id, "given up")


@pytest.mark.proves("F-06", "TM-05", "IN-07")
async def test_dead_letters_are_found_by_their_instance(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Doomed())

    @handler("bench:effects.old", retry=1)
    async def refuse(payload: Any) -> None:
        raise PermanentError("no")

    with pytest.raises(DeciderNotFound, match="'bench' is known here"):
        await store.dead_letters(instance=("bench", "1"))
    for name in ("1", "2"):
        await engine.execute(Do(name, "first", ask="mail", after=60))
        await engine.submit(Do(name, "submitted"))
    await store.enqueue(refuse, {"id": "1"})
    for _ in range(2):
        await drained(store, engine, refuse)
        clock.advance("2m")
    assert len(await store.dead_letters()) == 9
    letters = await store.dead_letters(instance=("bench", "1"))
    assert sorted((one.kind, one.last_error) for one in letters) == [
        ("EFFECT", "PermanentError: mail"),
        ("INPUT", "PermanentError: given up"),
        ("INPUT", "PermanentError: submitted"),
        ("TIMER", "PermanentError: tick"),
    ]
    assert {one.payload["id"] for one in letters} == {"1"}
    page = await store.dead_letters(instance=("bench", "1"), limit=3)
    rest = await store.dead_letters(instance=("bench", "1"), after=page.next)
    assert [*page, *rest] == letters
    assert [one.kind for one in await store.dead_letters(instance=("bench", "2"), kind="TIMER")] == ["TIMER"]
    assert await store.dead_letters(instance=("bench", "nobody")) == []
    with pytest.raises(DeciderNotFound, match="'bank' is known here, there are bench"):
        await store.dead_letters(instance=("bank", "1"))
    for wrong in ("bench/1", ("bench", 1), ("bench",)):
        with pytest.raises(InvalidOption, match="type and id"):
            await store.dead_letters(instance=wrong)  # type: ignore[arg-type]


@pytest.mark.proves("M-21")
async def test_a_snapshot_that_other_code_wrote_is_not_believed(store: Store) -> None:
    engine = Engine(store).register(Bench(), snapshot_every=2)
    for number in range(5):
        await engine.execute(Do("a", str(number)))
    type_ = "json" if store.database.driver.name == "postgres" else "text"
    other = f"""cast(replace(cast(snapshot as text), '"0"', '"wrong"') as {type_})"""
    await asked(store, f"update {{instance}} set snapshot_schema = 7, snapshot = {other}")
    fresh = Engine(store).register(Bench(), snapshot_every=2)
    assert await labels(fresh) == list("01234")
    await fresh.execute(Do("a", "5"))
    [instance] = await asked(store, "select version, snapshot_version, snapshot_schema from {instance}")
    assert (instance["snapshot_version"], instance["snapshot_schema"] != 7) == (6, True)


@pytest.mark.proves("M-21", "M-22")
async def test_a_state_can_be_looked_at_as_it_was(store: Store) -> None:
    engine = Engine(store).register(Bench(), snapshot_every=3)
    for number in range(7):
        await engine.execute(Do("a", str(number)))
    for at in range(8):
        assert (await engine.state(Bench, "a", at=at)).labels == tuple("0123456"[:at])
    with pytest.raises(InvalidOption, match="bench a has 7 events"):
        await engine.state(Bench, "a", at=8)
    assert await engine.state(Bench, "nobody") == State()
    assert [one.version for one in await engine.events("bench", "a", after=5)] == [6, 7]
    assert await engine.events("bench", "nobody") == []


@pytest.mark.proves("M-22")
async def test_a_state_is_read_as_json_by_the_type_of_its_decider(store: Store) -> None:
    engine = Engine(store).register(Bench(), snapshot_every=2)
    for label in ("0", "1", "2"):
        await engine.execute(Do("a", label))
    assert await engine.state("bench", "a") == {"labels": ["0", "1", "2"], "has_ended": False}
    assert await engine.state("bench", "a", at=1) == {"labels": ["0"], "has_ended": False}
    assert await engine.state("bench", "nobody") == {"labels": [], "has_ended": False}
    assert await engine.state(Bench, "a") == State(("0", "1", "2")), "by its class it is the state itself"
    with pytest.raises(InvalidOption, match="bench a has 3 events"):
        await engine.state("bench", "a", at=4)
    with pytest.raises(DeciderNotFound, match="'bench' is known here"):
        await Engine(store).state("bench", "a")  # its events are there, and the code that makes a state of them is not


@pytest.mark.proves("M-22")
async def test_a_state_that_json_cannot_hold_is_refused_by_name(store: Store) -> None:
    class Opaque(Bench):
        def initial(self) -> Any:
            return State((object(),))  # type: ignore[arg-type]

    with pytest.raises(SerializationError, match="state of bench a"):
        await Engine(store).register(Opaque()).state("bench", "a")


@pytest.mark.proves("M-21", "M-10")
async def test_a_state_at_hand_is_brought_up_to_date_and_never_written_from(store: Store) -> None:
    first, second = (Engine(store).register(Bench(), snapshot_every=4) for _ in range(2))
    await first.execute(Do("a", "0"))
    for number in range(1, 10):
        await second.execute(Do("a", str(number)))
    receipt = await first.execute(Do("a", "10"))
    assert receipt.first == 11
    assert (await first.events("bench", "a"))[-1].event.before == 10
    assert await versions(first) == list(range(1, 12))


def test_memory_is_bounded_and_keeps_what_was_used_last() -> None:
    memory = Memory(2)
    held = [KnownInstance(number, number, None, is_completed=False, snapshot_version=0) for number in range(4)]
    memory.put(("t", "a"), held[1])
    memory.put(("t", "b"), held[1])
    assert memory.get(("t", "a")) is held[1]
    memory.put(("t", "c"), held[1])
    assert memory.get(("t", "b")) is None
    memory.put(("t", "a"), held[3])
    memory.put(("t", "a"), held[2])
    assert memory.get(("t", "a")) is held[3], "an older state is not put in place of a newer one"
