"""Equal inputs without a key count once, for a while, where a decider asks for that."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Never

import pytest

from stepwell import Decider, Decision, Engine, InvalidOption, Receipt, Store, connect
from stepwell.base.clock import TestClock
from stepwell.deciders.registry import Family
from tests.deciders.workbench import Bench, Do, Keyed, Noted, count, drained, labels, tasks


class Once(Bench):
    """A bench whose equal inputs count once in ten minutes."""

    dedupe = "10m"


@pytest.mark.proves("II-04")
async def test_an_equal_input_is_a_duplicate_until_the_time_is_over_and_then_begins_it_anew(
    store: Store, clock: TestClock
) -> None:
    bench = Once()
    engines = [Engine(store).register(bench) for _ in range(2)]
    for number in (1, 2, 3):
        assert await engines[number % 2].execute(Do("a", "x")) == Receipt("applied", number, number)
        clock.advance("9m")
        decided = bench.decided
        for engine in engines:
            assert await engine.execute(Do("a", "x")) == Receipt("duplicate", number, number)
        assert bench.decided == decided
        clock.advance("1m")
    assert (await labels(engines[0]), await count(store, "receipt")) == (["x"] * 3, 1)


class Few(Bench):
    """A bench that remembers the last two inputs of an instance."""

    dedupe, dedupe_last = "10m", 2


@pytest.mark.proves("II-04")
async def test_no_more_inputs_are_remembered_than_the_decider_says(store: Store) -> None:
    engine = Engine(store).register(Few())
    for label in "xyz":
        assert (await engine.execute(Do("a", label))).outcome == "applied"
        assert (await engine.execute(Do("b", "x"))).outcome == ("applied" if label == "x" else "duplicate")
    await engine.execute(Do("a", "keyed"), key="k")  # a key of its own is no content
    assert [(await engine.execute(Do("a", label))).outcome for label in "zy"] == ["duplicate"] * 2
    assert (await engine.execute(Do("a", "x"))).outcome == "applied"
    assert [(await engine.execute(Do("a", label))).outcome for label in "zx"] == ["duplicate"] * 2
    assert (await engine.execute(Do("a", "y"))).outcome == "applied"
    assert (await engine.execute(Do("a", "keyed"), key="k")).outcome == "duplicate"
    assert await count(store, "receipt") == 2 + 1 + 1


@pytest.mark.proves("II-04")
@pytest.mark.parametrize(("dedupe", "last", "why"), [(None, 5, "it goes with `dedupe`"), ("1m", 0, "between 1 and")])
async def test_a_number_that_cannot_be_is_refused(dedupe: Any, last: int, why: str) -> None:
    wrong = type("Wrong", (Bench,), {"dedupe": dedupe, "dedupe_last": last})
    async with connect("memory:") as store:
        with pytest.raises(InvalidOption, match=why):
            Engine(store).register(wrong())


@pytest.mark.proves("II-04")
async def test_another_input_another_instance_or_a_key_is_no_duplicate(store: Store) -> None:
    engine = Engine(store).register(Once())
    sent = [(Do("a", "x"), None), (Do("a", "y"), None), (Do("b", "x"), None), (Do("a", "x"), "1"), (Do("a", "x"), "2")]
    receipts = [await engine.execute(asked, key=key) for asked, key in sent]
    assert [one.outcome for one in receipts] == ["applied"] * 5
    assert (await engine.execute(Do("a", "y"))).outcome == "duplicate"
    assert (await engine.execute(Keyed("a", "z"))).outcome == "applied"
    assert (await engine.execute(Keyed("a", "z"))).outcome == "duplicate"


@pytest.mark.proves("II-04")
async def test_it_is_off_unless_asked_for(store: Store) -> None:
    engine = Engine(store).register(Bench())
    assert [(await engine.execute(Do("a", "x"))).outcome for _ in range(2)] == ["applied"] * 2
    assert await count(store, "receipt") == 0


@pytest.mark.proves("II-04")
@pytest.mark.parametrize("together", [True, False], ids=["mailbox", "one by one"])
async def test_equal_inputs_at_the_same_moment_are_decided_once(store: Store, together: bool) -> None:
    engines = [Engine(store, together=together).register(Once()) for _ in range(2)]
    sent = [engine.execute(Do("a", label)) for label in "xyz" for engine in engines for _ in range(3)]
    receipts = await asyncio.gather(*sent)
    assert sorted(one.outcome for one in receipts) == ["applied"] * 3 + ["duplicate"] * 15
    assert sorted(await labels(engines[0])) == ["x", "y", "z"]


@pytest.mark.proves("II-04")
async def test_what_timers_and_effects_send_is_decided_each_time(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Once())
    await engine.execute(Do("a", "go", after=60, timer="again", again=60))
    await engine.execute(Do("a", "one", ask="mail"))
    await engine.execute(Do("a", "two", ask="mail"))
    await drained(store, engine)
    for _ in range(2):
        clock.advance(60)
        await drained(store, engine)
    assert await labels(engine) == ["go", "one", "two", "mail answered", "mail answered", "tick", "tick"]


@pytest.mark.proves("II-04")
async def test_equal_inputs_that_are_submitted_are_decided_once(store: Store, clock: TestClock) -> None:
    bench = Once()
    engine = Engine(store).register(bench)
    assert [(await engine.submit(Do("a", "x"))).created for _ in range(2)] == [True, True]
    await engine.submit(Do("a", "x"), delay="10m")
    assert await drained(store, engine) == 2
    assert (await engine.execute(Do("a", "x"))).outcome == "duplicate"
    assert (await labels(engine), bench.decided) == (["x"], 1)
    clock.advance("10m")
    assert await drained(store, engine) == 1
    assert await labels(engine) == ["x", "x"]
    assert [one["status"] for one in await tasks(store, "INPUT")] == ["SUCCESS"] * 3


@pytest.mark.proves("II-04")
async def test_what_was_not_decided_or_was_undone_is_not_remembered(store: Store) -> None:
    engine = Engine(store).register(Once())
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await engine.execute(Do("a", fail="no"))
    with pytest.raises(RuntimeError):
        await _undone(store, engine)
    assert (await engine.execute(Do("a", "x"))).outcome == "applied"


async def _undone(store: Store, engine: Engine) -> None:
    async with store.transaction() as tx:
        assert (await engine.execute(Do("a", "x"), tx=tx)).outcome == "applied"
        assert (await engine.execute(Do("a", "x"), tx=tx)).outcome == "duplicate"
        raise RuntimeError


@pytest.mark.proves("II-04")
async def test_equal_inputs_that_came_too_late_are_told_so_again_after_the_time(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Once())
    await engine.execute(Do("a", end=True))
    for _ in range(2):
        late = await asyncio.gather(*(engine.execute(Do("a", "late")) for _ in range(2)))
        assert {one.outcome for one in late} == {"completed"}
        assert (await engine.execute(Do("a", "late"))).outcome == "duplicate"
        clock.advance("10m")
    assert (await count(store, "receipt"), await count(store, "event")) == (2, 2)


@dataclass(frozen=True)
class Order:
    """An input of parts that have no order of their own."""

    id: str
    prices: dict[str, int] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Offer:
    """An input with the same fields."""

    id: str
    prices: dict[str, int] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()


class Trade(Decider[int, Order | Offer, Noted, Never]):
    """Decides nothing: it is asked for fingerprints only."""

    type, route = "trade", "id"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Noted) -> int:
        return state

    def decide(self, state: int, input: Order | Offer, now: datetime) -> Decision[Noted, Never, Order | Offer]:
        return Decision.event(Noted("x", 0))


@pytest.mark.proves("II-04")
def test_equal_inputs_have_one_fingerprint_and_others_another() -> None:
    of = Family.of(Trade()).fingerprint
    one = of(Order("a", {"x": 1, "y": 2}, frozenset("abc")))
    assert of(Order("a", {"y": 2, "x": 1}, frozenset("cba"))) == one
    different = [Order("a", {"x": 2, "y": 1}, frozenset("abc")), Offer("a", {"x": 1, "y": 2}, frozenset("abc"))]
    assert len({one, *map(of, different)}) == 3


@pytest.mark.proves("II-04")
@pytest.mark.parametrize(
    ("dedupe", "why"),
    [(0, "it is a span like '10m'"), ("soon", "dedupe"), (True, "dedupe"), ("8d", "the store keeps receipts for")],
)
async def test_a_time_that_cannot_be_is_refused(dedupe: Any, why: str) -> None:
    wrong = type("Wrong", (Bench,), {"dedupe": dedupe})
    async with connect("memory:") as store:
        engine = Engine(store)
        with pytest.raises(InvalidOption, match=why):
            engine.register(wrong())
        assert len(engine.registry) == 0
    async with connect("memory:", keep=None) as store:
        Engine(store).register(type("Long", (Bench,), {"dedupe": timedelta(days=8)})())
