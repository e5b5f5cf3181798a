"""An instance with everything that belongs to it, as it was at one moment."""

import asyncio
import itertools

import pytest

from stepwell import DeciderNotFound, EffectContext, Engine, InvalidOption, PermanentError, Store
from stepwell.base.clock import TestClock
from tests.deciders.shop import Create, Orders, Pay
from tests.deciders.workbench import BEGINNING, Ask, Bench, Do, asked, drained
from tests.store.seam import begin, claim

VERSIONS = 25  # that are seen in the making


async def refused(effect: Ask, ctx: EffectContext) -> Do | None:
    if effect.label == "mail":
        return None
    raise PermanentError(f"no {effect.label}")


@pytest.mark.proves("I-08", "M-22")
async def test_an_inspection_has_all_that_belongs_to_an_instance_and_nothing_of_another(
    store: Store, clock: TestClock
) -> None:
    engine = Engine(store).register(Bench(refused))
    for name in "ab":
        await engine.execute(Do(name, "one", ask="parcel", after=3600, timer="pay"))
        await engine.execute(Do(name, "two", ask="letter", after=7200))
    await drained(store, engine)  # four effects are dead
    clock.advance(1)
    await engine.execute(Do("a", "three", ask="mail"))
    await engine.submit(Do("a", "later"), key="k", delay=1800)
    await engine.submit(Do("a", "now"))
    await engine.submit(Do("b", "now"))
    await engine.submit(Do("b", "later"), delay=1800)
    look = await engine.inspect(Bench, "a")
    assert (look.type, look.id, look.version, look.at, look.status) == ("bench", "a", 3, 3, None)
    assert look.state.labels == ("one", "two", "three")
    assert [one.event.label for one in look.events] == ["one", "two", "three"]
    assert [(one.kind, one.name, one.key) for one in look.outstanding] == [
        ("EFFECT", "Ask", None),
        ("TIMER", "Do", "pay"),
        ("TIMER", "Do", None),
        ("INPUT", "Do", "k"),
        ("INPUT", "Do", None),
    ]
    assert [(one.kind, one.last_error) for one in look.dead_letters] == [
        ("EFFECT", "PermanentError: no parcel"),
        ("EFFECT", "PermanentError: no letter"),
    ]
    assert look.completed_at is None
    assert (look.created_at or BEGINNING) < (look.last_event_at or BEGINNING)
    [info] = [one for one in await engine.instances("bench") if one.id == "a"]
    assert (info.created_at, info.last_event_at) == (look.created_at, look.last_event_at)


async def test_what_an_instance_was_at_a_version_is_shown_beside_what_it_waits_for_now(store: Store) -> None:
    engine = Engine(store).register(Bench(), snapshot_every=3)
    for number in range(7):
        await engine.execute(Do("a", str(number), after=60, timer="t", end=number == 6))
    for at in range(9):
        look = await engine.inspect(Bench, "a", at=at, limit=2)
        assert (look.version, look.at, len(look.state.labels)) == (8, at, min(at, 7))
        assert [one.version for one in look.events] == [one for one in (at - 1, at) if one > 0], "the last two"
    look = await engine.inspect(Bench, "a")
    assert (look.completed_at is not None, look.outstanding, look.state.has_ended) == (True, [], True)
    with pytest.raises(InvalidOption, match="bench a has 8 events"):
        await engine.inspect(Bench, "a", at=9)


async def test_an_instance_without_events_has_its_initial_state_and_what_waits_for_it(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await engine.submit(Do("a"))
    look = await engine.inspect(Bench, "a")
    assert (look.version, look.state.labels, look.events, look.created_at) == (0, (), [], None)
    assert [one.kind for one in look.outstanding] == ["INPUT"]
    with pytest.raises(DeciderNotFound):
        await engine.inspect("order", "a")
    with pytest.raises(InvalidOption, match="limit"):
        await engine.inspect(Bench, "a", limit=0)


async def test_by_the_type_of_its_decider_the_state_is_json(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", "one"))
    assert (await engine.inspect("bench", "a")).state == {"labels": ["one"], "has_ended": False}


@pytest.mark.proves("I-08")
async def test_under_writers_an_inspection_never_shows_a_state_that_does_not_fit_its_history(store: Store) -> None:
    """Each input leaves one timer of its writer, named as the state's last label of that writer: they must agree."""
    engines = [Engine(store).register(Bench(), snapshot_every=5) for _ in range(3)]
    done = asyncio.Event()

    async def write(engine: Engine, writer: str) -> None:
        for number in itertools.count(1):
            before, name = f"{writer}{number - 1}", f"{writer}{number}"
            await engine.execute(Do("a", name, after=3600, timer=name, cancel=before))
            if done.is_set():
                return

    async def look() -> None:
        versions = set[int]()
        while len(versions) < VERSIONS:
            seen = await engines[2].inspect(Bench, "a", limit=10_000)
            noted = [one.event.label for one in seen.events if one.type == "Noted"]
            assert (list(seen.state.labels), len(seen.events)) == (noted, seen.version)
            last = {label[0]: label for label in seen.state.labels}
            assert sorted(one.key or "" for one in seen.outstanding) == sorted(last.values())
            assert seen.last_event_at == (seen.events[-1].recorded_at if seen.events else None)
            versions.add(seen.version)
        done.set()

    async with asyncio.timeout(60):
        await asyncio.gather(look(), write(engines[0], "x"), write(engines[1], "y"))


async def test_an_inspection_waits_for_no_writer(store_url: str, store: Store) -> None:
    if store_url.startswith(("memory:", "turso:")):
        pytest.skip("it has one connection, which reads and writes")
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", "one"))
    async with store.transaction() as tx:
        await engine.execute(Do("a", "two"), tx=tx)
        assert (await engine.inspect(Bench, "a")).version == 1
    assert (await engine.inspect(Bench, "a")).version == 2


async def test_a_snapshot_that_fails_leaves_its_connection_usable(store: Store) -> None:
    engine = Engine(store).register(Orders())
    await engine.execute(Create("7", 1900))
    broken = Engine(store).register(Orders())
    broken.registry.of_type("order").decider.evolve = None  # type: ignore[method-assign, assignment]
    for _ in range(3):
        with pytest.raises(TypeError):
            await broken.inspect(Orders, "7")
    await engine.execute(Pay("7"))
    assert (await engine.inspect(Orders, "7")).state.status == "paid", "not what an old snapshot saw"


@pytest.mark.proves("I-10")
async def test_sql_alone_says_what_an_instance_waits_for_until_when_and_who_holds_it(store: Store) -> None:
    engine = Engine(store).register(Bench())
    for name in "ab":
        await engine.execute(Do(name, "zero", ask="mail", after=3600, timer="pay"))
    [held] = await claim(store, await begin(store), "bench:effects")
    await engine.submit(Do("a", "one"))
    await engine.submit(Do("a", "two"))
    await engine.submit(Do("a", "later"), delay=1800)
    rows = await asked(
        store,
        "select task.id, task.kind, task.state, task.until, task.held_by_name, task.held_by_pid from {tasks} as task"
        " where task.finished_at is null and (task.instance_id = (select one.id from {instances} as one"
        " where one.type = 'bench' and one.name = 'a') or (task.queue = 'bench:inputs' and task.input ->> 'id' = 'a'))"
        " order by task.id",
    )
    said = {
        (row["kind"], row["state"]): (row["until"] is None, row["held_by_name"], row["held_by_pid"]) for row in rows
    }
    assert said == {
        ("EFFECT", "running"): (True, "seam", 1),
        ("TIMER", "waiting until run_at"): (False, None, None),
        ("INPUT", "ready"): (True, None, None),
        ("INPUT", "waits for the one before it in its group"): (True, None, None),
        ("INPUT", "waiting until run_at"): (False, None, None),
    }
    assert [row["id"] for row in rows if row["kind"] == "EFFECT"] == [held.id]
    due = [str(row["until"])[:19] for row in rows if row["until"] is not None]
    assert due == ["2026-01-01 01:00:00", "2026-01-01 00:30:00"]
    [effect] = await asked(store, "select state, held_by_name from {effects} where instance = 'a'")
    [timer] = await asked(store, "select state, key, due_at from {timers} where instance = 'a'")
    assert (effect["state"], effect["held_by_name"]) == ("running", "seam")
    assert (timer["state"], timer["key"].endswith(":pay"), str(timer["due_at"])[:19]) == (
        "waiting until run_at",
        True,
        due[0],
    )
