"""One input: where it goes, what it is decided on, and that all it leads to is there, or nothing."""

import asyncio
import dataclasses
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Never

import pytest

from stepwell import (
    Decider,
    DeciderNotFound,
    Decision,
    DuplicateDecider,
    Engine,
    InvalidOption,
    QueueDraining,
    SerializationError,
    Store,
    VersionConflict,
    connect,
    upcast,
)
from stepwell.base.clock import TestClock
from stepwell.deciders.proposal import Envelope
from tests.deciders.workbench import (
    BEGINNING,
    Ask,
    Bench,
    Do,
    Event,
    Keyed,
    State,
    asked,
    count,
    labels,
    tasks,
    versions,
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def engine(store: Store, bench: Bench) -> Engine:
    return Engine(store).register(bench)


@pytest.mark.proves("M-03", "M-04", "M-06", "M-16", "F-01", "TM-01", "M-22", "promise-08")
async def test_an_input_makes_its_instance_and_all_it_leads_to_is_there_at_once(engine: Engine, store: Store) -> None:
    receipt = await engine.execute(Do("a", "one", ask="mail", after=60, timer="pay"))
    assert (receipt.outcome, receipt.first, receipt.last) == ("applied", 1, 1)
    assert await labels(Engine(store).register(Bench())) == ["one"], "read by somebody who knows nothing"
    [effect], [timer] = await tasks(store, "EFFECT"), await tasks(store, "TIMER")
    assert (effect["status"], bool(effect["ready"]), effect["max_attempts"]) == ("PENDING", True, 5)
    assert (timer["status"], bool(timer["ready"]), timer["max_attempts"]) == ("PENDING", False, 5)
    assert timer["run_at"] - timer["created_at"] == 60_000_000
    assert (timer["key"] or "").endswith(":pay")
    assert (Envelope.read(timer["input"]).id, b"tick" in bytes(Envelope.read(timer["input"]).data)) == ("a", True)
    [event] = await engine.events("bench", "a")
    assert (event.version, event.type, event.event.label) == (1, "Noted", "one")
    await engine.execute(Do("a", "two", after=5))
    assert (await tasks(store, "TIMER"))[-1]["key"] is None


@pytest.mark.proves("M-06")
@pytest.mark.backends("sqlite", "postgres", reason="the others serve one connection, which would see what it has begun")
async def test_whoever_reads_elsewhere_when_the_call_returns_sees_its_events(store_url: str) -> None:
    async with connect(store_url) as here, connect(store_url) as there:
        engine, reader = Engine(here).register(Bench()), Engine(there).register(Bench())
        for number in range(20):
            receipt = await engine.execute(Do("a", str(number)))
            assert (await labels(reader), receipt.last) == ([*map(str, range(number + 1))], number + 1)


@pytest.mark.proves("M-03")
async def test_the_first_input_makes_the_instance_that_its_type_and_id_select_and_no_other_does(
    engine: Engine, store: Store
) -> None:
    class Other(Bench):
        type = "other"

    async def instances() -> list[tuple[str, str, int]]:
        return sorted((one.type, one.id, one.version) for one in await engine.instances())

    assert await instances() == []
    await engine.execute(Do("a"))
    assert await instances() == [("bench", "a", 1)]
    await engine.execute(Do("a"))
    await engine.execute(Do("b"))
    await Engine(store).register(Other()).execute(Do("a"))
    assert await instances() == [("bench", "a", 2), ("bench", "b", 1), ("other", "a", 1)]


@pytest.mark.proves("M-02")
async def test_equal_ids_of_two_types_are_two_instances(engine: Engine, store: Store) -> None:
    class Other(Bench):
        type = "other"

    other = Engine(store).register(Other())
    await engine.execute(Do("a", "here"))
    await other.execute(Do("a", "there"))
    assert await labels(engine) == ["here"]
    assert (await other.state(Other, "a")).labels == ("there",)


@pytest.mark.proves("M-05", "M-14")
async def test_a_decider_that_raises_leaves_nothing_and_raises_to_its_caller_alone(
    engine: Engine, store: Store
) -> None:
    inputs = [Do("a", "one"), Do("a", fail="no"), Do("b", fail="never"), Do("a", "two"), Do("c", "three")]
    answers = await asyncio.gather(*map(engine.execute, inputs), return_exceptions=True)
    assert [type(answer).__name__ for answer in answers] == [
        "Receipt",
        "ValueError",
        "ValueError",
        "Receipt",
        "Receipt",
    ]
    assert (await labels(engine, "a"), await labels(engine, "c")) == (["one", "two"], ["three"])
    assert [one.id for one in await engine.instances("bench")] == ["a", "c"], "b was never decided"
    assert await count(store, "event") == 3


@pytest.mark.proves("M-05")
async def test_what_cannot_be_stored_undoes_the_whole_decision_and_no_other(engine: Engine, store: Store) -> None:
    class Large(Bench):
        def decide(self, state: State, input: Any, now: datetime) -> Decision[Event, Ask, Any]:
            decision = super().decide(state, input, now)
            return decision.with_effect(Ask("x" * 2_000_000, "a")) if input.label == "large" else decision

    large = Engine(store).register(Large())
    answers = await asyncio.gather(
        large.execute(Do("a", "large", after=1)), large.execute(Do("a", "small")), return_exceptions=True
    )
    assert isinstance(answers[0], SerializationError)
    assert await labels(engine) == ["small"]
    assert (await tasks(store, "EFFECT"), await tasks(store, "TIMER")) == ([], [])


@pytest.mark.proves("M-05")
async def test_a_queue_that_takes_nothing_refuses_the_decision_and_not_those_beside_it(
    engine: Engine, store: Store
) -> None:
    await engine.execute(Do("a", "one"))
    await store.drain_queue("bench:effects")
    answers = await asyncio.gather(
        engine.execute(Do("a", "two", ask="mail")),
        engine.execute(Do("a", "three")),
        engine.execute(Do("b", "four")),
        return_exceptions=True,
    )
    assert isinstance(answers[0], QueueDraining)
    assert (await labels(engine), await labels(engine, "b")) == (["one", "three"], ["four"])


@pytest.mark.proves("M-09", "M-10")
@pytest.mark.parametrize("together", [True, False], ids=["mailbox", "one by one"])
async def test_inputs_of_an_instance_are_decided_in_turn_each_on_what_the_one_before_led_to(
    store: Store, together: bool
) -> None:
    engine = Engine(store, together=together).register(Bench())
    receipts = await asyncio.gather(*(engine.execute(Do("a", str(number))) for number in range(30)))
    assert sorted(receipt.first or 0 for receipt in receipts) == list(range(1, 31))
    assert await versions(engine) == list(range(1, 31))
    events = await engine.events("bench", "a")
    assert [one.event.before for one in events] == list(range(30))
    assert await labels(engine) == [str(number) for number in range(30)], "in the order in which they were sent"


@pytest.mark.proves("M-10", "M-09")
async def test_an_engine_that_was_overtaken_decides_on_what_the_other_has_done(store: Store) -> None:
    first, second = Engine(store).register(Bench()), Engine(store).register(Bench())
    for number in range(6):
        await (first if number % 2 else second).execute(Do("a", str(number)))
    assert [one.event.before for one in await first.events("bench", "a")] == list(range(6))


@pytest.mark.proves("M-11", "M-29")
async def test_inputs_of_many_instances_share_transactions(store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock) as store:
        engine = Engine(store).register(Bench())
        await engine.execute(Do("warm"))
        before = await positions(store)
        await asyncio.gather(*(engine.execute(Do(str(number))) for number in range(50)))
        assert await positions(store) == before + 50
        assert {one.version for one in await engine.instances("bench", limit=51)} == {1}


async def positions(store: Store) -> int:
    [row] = await asked(store, "select max(position) as last from {event}")
    last: int = row["last"]
    return last


@pytest.mark.proves("M-11", "protocol-14")
async def test_what_one_transaction_has_no_room_for_waits_for_the_next(engine: Engine) -> None:
    decide, batches = engine._mailbox.decide, 0

    async def counted(batch: Any, patience: float | None = None) -> None:
        nonlocal batches
        batches += 1
        await decide(batch, patience)

    await engine.execute(Do("a", "first"))
    engine._mailbox.decide = counted
    large = "x" * 900_000
    receipts = await asyncio.gather(*(engine.execute(Do(name, large)) for name in "aabbbaabbb" + "cde"))
    assert {receipt.outcome for receipt in receipts} == {"applied"}
    assert batches >= 2
    assert (await versions(engine, "a"), await versions(engine, "b")) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6])


@pytest.mark.proves("M-12", "M-13", "TM-13")
async def test_an_instance_that_has_ended_answers_completed_and_has_no_timers(
    engine: Engine, store: Store, bench: Bench
) -> None:
    await engine.execute(Do("a", "one", after=5, timer="k"))
    await engine.execute(Do("a", "two", after=6))
    await engine.execute(Do("a", "three", end=True, after=7))
    decided = bench.decided
    for reader in (engine, Engine(store).register(bench)):
        receipt = await reader.execute(Do("a", "late", ask="mail"))
        assert (receipt.outcome, receipt.first, receipt.last) == ("completed", None, None)
    assert bench.decided == decided
    assert await labels(engine) == ["one", "two", "three"]
    assert await tasks(store, "EFFECT") == []
    assert [timer["status"] for timer in await tasks(store, "TIMER")] == ["CANCELLED", "CANCELLED"]
    [info] = await engine.instances("bench")
    assert info.completed_at is not None


@pytest.mark.proves("M-13")
async def test_an_input_that_ends_an_instance_ends_it_for_those_behind_it(engine: Engine) -> None:
    receipts = await asyncio.gather(*(engine.execute(Do("a", label, end=label == "2")) for label in "1234"))
    assert [receipt.outcome for receipt in receipts] == ["applied", "applied", "completed", "completed"]
    assert await labels(engine) == ["1", "2"]


@pytest.mark.proves("M-15")
async def test_an_input_as_json_is_the_same_as_the_input(engine: Engine, store: Store) -> None:
    receipt = await engine.execute_dynamic("bench", {"Do": {"id": "a", "label": "one"}}, key="k")
    assert receipt.first == 1
    assert (await engine.execute(Do("a", "one"), key="k")).outcome == "duplicate"
    with pytest.raises(DeciderNotFound, match="no decider of type 'bank' is known here, there are bench"):
        await engine.execute_dynamic("bank", {"Do": {"id": "a"}})
    with pytest.raises(SerializationError):
        await engine.execute_dynamic("bench", {"Do": {"label": "one"}})
    assert await labels(engine) == ["one"]
    with pytest.raises(VersionConflict):
        await engine.execute_dynamic("bench", {"Do": {"id": "a", "label": "no"}}, expected_version=7)
    with suppress(ZeroDivisionError):
        async with store.transaction() as tx:
            assert (await engine.execute_dynamic("bench", {"Do": {"id": "a", "label": "no"}}, tx=tx)).first == 2
            raise ZeroDivisionError
    assert await labels(engine) == ["one"], "it was decided in the transaction that was undone"


@pytest.mark.proves("M-17", "M-18")
async def test_a_type_or_input_is_registered_once(engine: Engine) -> None:
    with pytest.raises(DuplicateDecider):
        engine.register(Bench())


@pytest.mark.proves("M-20", "M-21", "M-22")
async def test_a_dry_run_says_what_would_be_decided_and_writes_nothing(engine: Engine, store: Store) -> None:
    await engine.execute(Do("a", "one"))
    dry = await engine.dry_run(Do("a", "two", ask="mail"))
    assert dry.decision is not None
    assert [event.before for event in dry.decision.events] == [1]
    assert dry.decision.effects == (Ask("mail", "a"),)
    assert (dry.version, dry.state.labels) == (1, ("one", "two")), "the state after it"
    assert await engine.dry_run(Do("a", "two", ask="mail")) == dry
    assert (await labels(engine), await count(store, "event"), await count(store, "task")) == (["one"], 1, 0)


@pytest.mark.proves("M-13", "M-20")
async def test_a_dry_run_is_refused_as_the_input_would_be(engine: Engine, store: Store, bench: Bench) -> None:
    with pytest.raises(ValueError, match="no"):
        await engine.dry_run(Do("a", fail="no"))
    with pytest.raises(SerializationError):
        await engine.dry_run(Do("a", ask="x" * 2_000_000))
    assert await count(store, "instance") == 0
    await engine.execute(Do("a", "one", end=True))
    decided = bench.decided
    late = await Engine(store).register(bench).dry_run(Do("a", "late"))
    assert (late.decision, late.state.labels, late.version, bench.decided) == (None, ("one",), 2, decided)


@pytest.mark.proves("M-23")
async def test_instances_are_listed_in_pages(engine: Engine) -> None:
    for number in range(5):
        await engine.execute(Do(f"{number}:x"))
    page = await engine.instances("bench", limit=3)
    rest = await engine.instances("bench", limit=3, after=page.next)
    assert [one.id for one in (*page, *rest)] == [f"{number}:x" for number in range(5)]
    assert rest.next is None
    assert await engine.instances("none") == []


@pytest.mark.proves("M-23")
async def test_an_instance_is_listed_with_its_times_and_how_many_events_it_has(
    engine: Engine, clock: TestClock
) -> None:
    await engine.execute(Do("a"))
    clock.advance(60)
    await engine.execute(Do("a"))
    clock.advance(60)
    await engine.execute(Do("b", end=True))
    minutes = [BEGINNING + timedelta(minutes=number) for number in range(3)]
    assert [dataclasses.astuple(one) for one in await engine.instances("bench")] == [
        ("bench", "a", 2, minutes[0], minutes[1], None),
        ("bench", "b", 2, minutes[2], minutes[2], minutes[2]),
    ]


@pytest.mark.proves("U-01", "PJ-13")
async def test_the_version_of_its_type_stands_in_the_row_of_each_event(store: Store) -> None:
    @dataclass(frozen=True)
    class Rung:
        __stepwell_version__ = 3

    for version in (1, 2):
        upcast(Rung, version)(lambda old: old)

    class Bells(Decider[int, Poke, Poked | Rung, Never]):
        type, route = "bell", "id"

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Poked | Rung) -> int:
            return state + 1

        def decide(self, state: int, input: Poke, now: datetime) -> Decision[Poked | Rung, Never, Poke]:
            return Decision.event(Poked(1)).and_event(Rung())

    await Engine(store).register(Bells()).execute(Poke("a"))
    rows = await asked(store, "select type, type_version from {event} order by version")
    assert [tuple(row) for row in rows] == [("Poked", 1), ("Rung", 3)]


@pytest.mark.proves("M-25", "U-04")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("type = 'Gone'", "stored as Gone, version 1"),
        ("type_version = 7", "Noted.*version 7, and this code has version 1"),
    ],
)
async def test_an_event_that_cannot_be_read_stops_its_instance_and_no_other(
    engine: Engine, store: Store, change: str, told: str
) -> None:
    await engine.execute(Do("a", "one"))
    await engine.execute(Do("a", "two"))
    await asked(store, f"update {{event}} set {change} where version = 2")
    before = await asked(store, "select * from {instance}")
    fresh = Engine(store).register(Bench())
    answers = await asyncio.gather(
        fresh.execute(Do("a", "three")), fresh.execute(Do("b", "four")), return_exceptions=True
    )
    assert isinstance(answers[0], SerializationError)
    assert re.search(f"event 2 of bench a.*{told}", str(answers[0]))
    assert await labels(fresh, "b") == ["four"]
    assert await count(store, "event") == 3
    assert (await asked(store, "select * from {instance} order by id"))[:1] == before


@dataclass(frozen=True)
class Poke:
    id: str


@dataclass(frozen=True)
class Poked:
    times: int
    by: str = "nobody"


@pytest.mark.proves("M-24", "M-26", "M-01", "DP-07")
async def test_a_decider_without_effects_reads_a_stream_that_an_older_one_wrote(store: Store) -> None:
    class Pokes(Decider[int, Poke, Poked, Never]):
        type, route = "poke", "id"

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Poked) -> int:
            return state + event.times

        def decide(self, state: int, input: Poke, now: datetime) -> Decision[Poked, Never, Poke]:
            return Decision.event(Poked(1))

    engine = Engine(store).register(Pokes())
    await engine.execute(Poke("a"))
    await asked(store, "update {event} set data = '{\"times\":5}'")
    assert await Engine(store).register(Pokes()).state(Pokes, "a") == 5
    assert [served.queue for served in engine.served()] == ["poke:effects", "poke:inputs"]


@dataclass(frozen=True)
class Stroked:
    """An event that the older code does not know."""

    softly: bool


@pytest.mark.proves("M-26")
async def test_a_new_kind_of_event_leaves_old_streams_and_snapshots_loadable(store: Store) -> None:
    class Old(Decider[int, Poke, Poked, Never]):
        type, route = "cat", "id"

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Poked) -> int:
            return state + event.times

        def decide(self, state: int, input: Poke, now: datetime) -> Decision[Poked, Never, Poke]:
            return Decision.event(Poked(1))

    class New(Decider[int, Poke, Poked | Stroked, Never]):
        type, route = "cat", "id"

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Poked | Stroked) -> int:
            return state + (event.times if isinstance(event, Poked) else 100)

        def decide(self, state: int, input: Poke, now: datetime) -> Decision[Poked | Stroked, Never, Poke]:
            return Decision.event(Stroked(softly=True))

    for every in (100, 2):  # without a snapshot, and with one
        old = Engine(store).register(Old(), snapshot_every=every)
        for _ in range(3):
            await old.execute(Poke(f"cat {every}"))
        new = Engine(store).register(New(), snapshot_every=every)
        assert await new.state(New, f"cat {every}") == 3
        assert (await new.execute(Poke(f"cat {every}"))).first == 4
        assert await new.state(New, f"cat {every}") == 103
        assert [one.type for one in await new.events("cat", f"cat {every}")] == ["Poked"] * 3 + ["Stroked"]


@pytest.mark.proves("M-27", "M-14", "V-07")
async def test_what_is_no_input_or_no_key_is_refused_before_anything_is_written(engine: Engine, store: Store) -> None:
    for wrong in ("text", object(), Ask("x", "a")):
        with pytest.raises(InvalidOption, match="no registered decider has inputs of this class"):
            await engine.execute(wrong)
    with pytest.raises(ValueError, match="1 to 255 characters"):
        await engine.execute(Do(""))
    with pytest.raises(ValueError, match="1 to 255 characters"):
        await engine.execute(Do("a"), key="")
    assert await count(store, "instance") == 0


@pytest.mark.proves("M-22", "M-09")
async def test_positions_rise_with_the_versions_of_an_instance(engine: Engine) -> None:
    await asyncio.gather(*(engine.execute(Do(letter)) for letter in "abab" * 5))
    for letter in "ab":
        events = await engine.events("bench", letter)
        assert [one.position for one in events] == sorted(one.position for one in events)
        assert len({one.position for one in events}) == 10


@pytest.mark.proves("M-03")
async def test_an_input_may_name_its_key_itself(engine: Engine) -> None:
    assert (await engine.execute(Keyed("a", "r1"))).outcome == "applied"
    assert (await engine.execute(Keyed("a", "r1"))).outcome == "duplicate"
    assert (await engine.execute(Keyed("b", "r1"))).outcome == "applied"
