"""What this code cannot read is left to other code, says so, and is a dead letter in the end."""

from collections.abc import Awaitable, Callable

import pytest

from stepwell import EffectContext, Engine, Store
from stepwell.base.clock import TestClock
from stepwell.base.events import TaskUnreadable
from tests.deciders.workbench import Ask, Bench, Do, asked, drained, labels, tasks

Beginning = Callable[[Engine], Awaitable[object]]


async def renamed(store: Store, old: str, new: str) -> None:
    """Have the tasks name a class that this code does not have, or has again."""
    type_ = "json" if store.database.driver.name == "postgres" else "text"
    text = f"""cast(replace(cast(input as text), '"{old}"', '"{new}"') as {type_})"""
    await asked(store, f"update {{task}} set input = {text}")


async def effect(engine: Engine) -> None:
    await engine.execute(Do("a", ask="mail"))
    await renamed(engine.store, "Ask", "Newer")


async def timer(engine: Engine) -> None:
    await engine.execute(Do("a", after=0.0))
    await renamed(engine.store, "Do", "Newer")


async def input_(engine: Engine) -> None:
    await engine.submit(Do("a"))
    await renamed(engine.store, "Do", "Newer")


async def stream(engine: Engine) -> None:
    """An input that can be read, of an instance with an event that cannot."""
    await engine.execute(Do("a"))
    await asked(engine.store, "update {event} set type = 'Newer'")
    await engine.submit(Do("a"))


async def changed_stream(engine: Engine) -> None:
    """An input that can be read, of an instance with an event whose class has changed under its name."""
    store = engine.store
    await engine.execute(Do("a"))
    type_ = "json" if store.database.driver.name == "postgres" else "text"
    text = f"""cast(replace(cast(data as text), '"label"', '"named"') as {type_})"""
    await asked(store, f"update {{event}} set data = {text}")
    await engine.submit(Do("a"))


BEGINNINGS = pytest.mark.parametrize(
    ("kind", "begin"), [("EFFECT", effect), ("TIMER", timer), ("INPUT", input_), ("INPUT", stream)]
)


@pytest.mark.proves("F-15", "DP-06", "DP-07")
@BEGINNINGS
async def test_what_this_code_cannot_read_is_left_to_other_code_and_says_so(
    store: Store, clock: TestClock, kind: str, begin: Beginning
) -> None:
    told: list[TaskUnreadable] = []
    store.database.telemetry.subscribe(lambda event: told.append(event) if isinstance(event, TaskUnreadable) else None)
    engine = Engine(store).register(Bench())
    await begin(engine)
    engine = Engine(store).register(Bench())  # a process that remembers nothing of the instance
    spans, task = [], None
    for _ in range(4):
        await drained(store, engine)
        [task] = await tasks(store, kind)
        assert (task["status"], task["attempt"]) == ("PENDING", 0)
        assert task["last_error"].startswith("NotThisCode: ")
        assert "Newer, version 1" in task["last_error"]
        spans.append((task["run_at"] - clock.now()) / 1_000_000)
        clock.advance("1m")
    assert spans == [1, 60, 60, 60]
    assert task is not None
    [stats] = [one for one in await store.queue_stats() if one.unreadable]
    assert (stats.queue, stats.unreadable) == (f"bench:{'effects' if kind == 'EFFECT' else 'inputs'}", 1)
    assert {(one.task_id, one.queue) for one in told} == {(task["id"], stats.queue)}
    assert "Newer, version 1" in str(told[0])
    assert await store.history(task["id"]) == [], "it is no failed attempt"


@pytest.mark.proves("F-15", "F-06")
@BEGINNINGS
async def test_what_no_code_can_read_for_a_week_is_a_dead_letter(
    store: Store, clock: TestClock, kind: str, begin: Beginning
) -> None:
    engine = Engine(store).register(Bench())
    await begin(engine)
    engine = Engine(store).register(Bench())
    clock.advance("30d")  # however long it has waited before: the week begins when somebody cannot read it
    for after in ("6d", "2d"):
        await drained(store, engine)
        assert await store.dead_letters() == []
        clock.advance(after)
    await drained(store, engine)
    [letter] = await store.dead_letters()
    assert (letter.kind, letter.attempt) == (kind, 1)
    assert "Newer, version 1" in str(letter.last_error)
    await store.requeue(letter.id)
    await drained(store, engine)
    assert await store.dead_letters() == [], "requeued, it has a week again"


@pytest.mark.proves("F-15", "DP-07")
async def test_what_could_not_be_read_is_carried_out_by_code_that_can(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Bench())
    await effect(engine)
    await drained(store, engine)
    await renamed(store, "Newer", "Ask")
    clock.advance("1m")
    await drained(store, engine)
    [done] = await tasks(store, "EFFECT")
    assert (done["status"], done["attempt"], done["last_error"], done["error"]) == ("SUCCESS", 1, None, None)
    assert await labels(engine) == ["x", "mail answered"]


@pytest.mark.proves("F-15")
async def test_a_worker_warns_once_of_what_it_cannot_read(store: Store) -> None:
    told: list[object] = []
    store.database.telemetry.subscribe(lambda event: told.append(event) if isinstance(event, TaskUnreadable) else None)
    engine = Engine(store).register(Bench())
    await engine.execute(Do("b", ask="mail"))
    await effect(engine)
    assert await drained(store, engine) == 2
    assert len(told) == 1


@pytest.mark.proves("F-15", "F-13")
async def test_an_answer_to_a_decider_that_is_not_here_is_left_to_code_that_has_it(store: Store) -> None:
    bench = Bench()
    engine = Engine(store).register(bench)
    await engine.execute(Do("a", ask="mail"))
    kept = '{"id":"a","type":"Do","version":1,"data":{"id":"a","label":"told"},"owner":"other"}'
    await asked(store, f"update {{task}} set turn = 1, output = '{kept}'")  # as an earlier turn has kept an answer
    await drained(store, engine)
    [task] = await tasks(store, "EFFECT")
    assert (task["status"], task["attempt"], bench.asked) == ("PENDING", 0, [])
    assert "no decider of type 'other' is known here" in task["last_error"]


@pytest.mark.proves("F-15", "DP-06")
async def test_a_class_that_has_changed_under_its_name_is_left_to_the_code_that_wrote_it(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", ask="mail"))
    await renamed(store, "label", "named")
    await drained(store, engine)
    [task] = await tasks(store, "EFFECT")
    assert (task["status"], task["attempt"]) == ("PENDING", 0)
    assert task["last_error"].startswith("NotThisCode: effect Ask of bench refused at `$`")


@pytest.mark.proves("F-15", "DP-06")
async def test_an_input_waits_for_code_that_reads_an_event_whose_class_has_changed(store: Store) -> None:
    await changed_stream(Engine(store).register(Bench()))
    await drained(store, Engine(store).register(Bench()))
    [task] = await tasks(store, "INPUT")
    assert (task["status"], task["attempt"]) == ("PENDING", 0)
    assert task["last_error"].startswith("NotThisCode: event 1 of bench a refused at `$`: it was stored as Noted")
    assert "does not fit here at `$`: Object missing required field `label`" in task["last_error"]


@pytest.mark.proves("F-15", "F-13")
async def test_a_handler_that_meets_what_this_code_cannot_read_has_acted_and_spends_an_attempt(store: Store) -> None:
    async def asks_another(_: Ask, __: EffectContext) -> Do | None:
        await Engine(store).register(Bench()).execute(Do("unreadable"))  # which knows no state of it
        return None

    bench = Bench(asks_another)
    engine = Engine(store).register(bench)
    await engine.execute(Do("unreadable"))
    await asked(store, "update {event} set type = 'Newer'")
    await engine.execute(Do("a", ask="mail"))
    await drained(store, Engine(store).register(bench))
    [task] = await tasks(store, "EFFECT")
    assert (task["status"], task["attempt"], len(bench.asked)) == ("PENDING", 1, 1)
    assert "it was stored as Newer, version 1" in task["last_error"]
