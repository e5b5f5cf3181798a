"""An input that expects a version is decided on that one or not at all."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

import stepwell.sync
from stepwell import Engine, InvalidOption, Receipt, Store, StoreUnavailable, VersionConflict
from tests.deciders.workbench import Bench, Do, count, labels, names, tasks, versions
from tests.store.seam import once, watched

LOST = StoreUnavailable("reset after the work was done")


@pytest.mark.proves("M-10", "M-14")
@pytest.mark.parametrize("known", [True, False], ids=["known here", "read anew"])
async def test_an_input_is_decided_on_the_version_that_it_expects_and_on_no_other(store: Store, known: bool) -> None:
    first = Engine(store).register(Bench())
    receipt = await first.execute(Do("a", "one"), expected_version=0)
    assert (receipt.version, receipt.last) == (1, 1)
    engine = first if known else Engine(store).register(Bench())
    for wrong in (0, 2, 7):
        with pytest.raises(VersionConflict) as refused:
            await engine.execute(Do("a", "no", ask="mail", after=5), key="k", expected_version=wrong)
        error = refused.value
        assert (error.type, error.id, error.expected, error.actual) == ("bench", "a", wrong, 1)
        assert f"bench 'a' is at version 1, not at {wrong} as expected: nothing was written" in str(error)
    assert (await versions(engine), await count(store, "receipt")) == ([1], 0), "its key is still free"
    assert (await tasks(store, "EFFECT"), await tasks(store, "TIMER")) == ([], [])
    assert (await engine.execute(Do("a", "two", end=True), key="k", expected_version=1)).version == 3
    assert await labels(engine) == ["one", "two"]


async def test_a_version_that_an_instance_has_not_reached_makes_no_instance(store: Store) -> None:
    engine = Engine(store).register(Bench())
    with pytest.raises(VersionConflict, match="is at version 0, not at 1"):
        await engine.execute(Do("a"), expected_version=1)
    assert await count(store, "instance") == 0
    with pytest.raises(InvalidOption, match="expected_version"):
        await engine.execute(Do("a"), expected_version=-1)


async def test_the_state_at_hand_is_not_what_a_version_is_compared_with(store: Store) -> None:
    """Another process has moved the instance on; this one still knows the earlier state."""
    here, there = Engine(store).register(Bench()), Engine(store).register(Bench())
    await here.execute(Do("a", "one"))
    await there.execute(Do("a", "two"))
    assert (await here.execute(Do("a", "three"), expected_version=2)).version == 3
    await there.execute(Do("a", "four"))
    await there.execute(Do("a", "five"))
    with pytest.raises(VersionConflict) as refused:
        await here.execute(Do("a", "no"), expected_version=3)
    assert refused.value.actual == 5
    await there.execute(Do("a", "six"))
    with pytest.raises(VersionConflict):
        await here.execute(Do("a", fail="decided on a state that is old"), expected_version=5)


@pytest.mark.parametrize("together", [True, False], ids=["mailbox", "one by one"])
async def test_of_all_that_expect_one_version_one_is_decided_and_the_others_decide_again(
    store: Store, together: bool
) -> None:
    engines = [Engine(store, together=together).register(Bench()) for _ in range(2)]

    async def insist(engine: Engine, label: str) -> int:
        refused, version = 0, 0
        while True:
            try:
                await engine.execute(Do("a", label), expected_version=version)
            except VersionConflict as conflict:
                refused, version = refused + 1, conflict.actual
            else:
                return refused

    refused = await asyncio.gather(*(insist(engine, str(number)) for number in range(4) for engine in engines))
    assert sorted(await labels(engines[0])) == sorted(2 * [str(number) for number in range(4)])
    assert sum(refused) >= 7, "at version 0 seven of eight were refused"
    events = await engines[0].events("bench", "a")
    assert [one.event.before for one in events] == list(range(8))


async def test_each_input_of_a_transaction_is_compared_with_what_those_before_it_led_to(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", "one", after=60, timer="pay"))
    answers = await asyncio.gather(
        engine.execute(Do("a", "two"), expected_version=1),
        engine.execute(Do("a", "no"), expected_version=1),
        engine.execute(Do("a", "three", cancel="pay"), expected_version=2),
        engine.execute(Do("a", "four", cancel="unknown"), expected_version=4),
        engine.execute(Do("a", "five"), expected_version=5),
        engine.execute(Do("a", "six")),
        return_exceptions=True,
    )
    assert [getattr(answer, "version", type(answer)) for answer in answers] == [2, VersionConflict, 4, 5, 6, 7]
    assert await labels(engine) == ["one", "two", "three", "four", "five", "six"], "in the order in which they came"
    assert await names(engine) == ["Noted", "Noted", "Noted", "stepwell.TimerCancelled", "Noted", "Noted", "Noted"]


@pytest.mark.proves("II-01")
async def test_a_duplicate_is_answered_as_one_whatever_it_expects(store: Store) -> None:
    bench = Bench()
    engine = Engine(store).register(bench)
    first = await engine.execute(Do("a", "one"), key="k", expected_version=0)
    await engine.execute(Do("a", "two"))
    for again in (engine, Engine(store).register(bench)):
        answer = await again.execute(Do("a", "one"), key="k", expected_version=0)
        assert (answer, answer.version) == (Receipt("duplicate", 1, 1), 1), "the version that the first led to"
    both = await asyncio.gather(*(engine.execute(Do("b"), key="k", expected_version=0) for _ in range(2)))
    assert sorted(one.outcome for one in both) == ["applied", "duplicate"]
    assert (first.version, await labels(engine)) == (1, ["one", "two"])


async def test_an_instance_that_has_ended_answers_so_only_at_its_version(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", end=True))
    assert await engine.execute(Do("a", "late"), expected_version=2) == Receipt("completed")
    assert (await engine.execute(Do("a", "late"), expected_version=2)).version is None
    receipts = await count(store, "receipt")
    with pytest.raises(VersionConflict, match="is at version 2, not at 1"):
        await engine.execute(Do("a", "late"), expected_version=1)
    assert await count(store, "receipt") == receipts


@pytest.mark.parametrize("warm", [True, False], ids=["known", "unknown"])
async def test_a_decision_whose_reply_is_lost_is_no_conflict_with_itself(store: Store, warm: bool) -> None:
    store, driver = watched(store)
    engine = Engine(store).register(Bench())
    await Engine(store).register(Bench()).execute(Do("a", "before"))
    if warm:
        await labels(engine)
    await store.database.decisions.supply(100)
    await asyncio.gather(*(store.database.queue_id(name, create=True) for name in ("bench:effects", "bench:inputs")))
    driver.after = once(LOST)
    receipt = await engine.execute(Do("a", "once"), expected_version=1)
    assert (receipt.outcome, receipt.version) == ("applied", 2)
    assert await labels(engine) == ["before", "once"]


async def test_in_a_transaction_of_the_user_a_conflict_leaves_the_rest_of_it(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", "one"))
    async with store.transaction() as tx:
        assert (await engine.execute(Do("a", "two"), expected_version=1, tx=tx)).version == 2
        for name, expected in (("a", 1), ("new", 3)):
            with pytest.raises(VersionConflict):
                await engine.execute(Do(name, "no"), key="k", expected_version=expected, tx=tx)
        assert (await engine.execute(Do("a", "three"), expected_version=2, tx=tx)).version == 3
    assert (await labels(engine), await count(store, "instance"), await count(store, "receipt")) == (
        ["one", "two", "three"],
        1,
        0,
    )


async def test_json_may_expect_a_version_too(store: Store) -> None:
    engine = Engine(store).register(Bench())
    assert (await engine.execute_dynamic("bench", {"Do": {"id": "a"}}, expected_version=0)).version == 1
    with pytest.raises(VersionConflict):
        await engine.execute_dynamic("bench", {"Do": {"id": "a"}}, expected_version=0)


def test_the_sync_face_compares_versions_too(store_url: str) -> None:
    with stepwell.sync.connect(store_url) as store:
        engine = stepwell.sync.Engine(store).register(Bench())
        assert engine.execute(Do("a"), expected_version=0).version == 1
        with pytest.raises(VersionConflict):
            engine.execute(Do("a"), expected_version=0)
        with pytest.raises(VersionConflict):
            engine.execute_dynamic("bench", {"Do": {"id": "a"}}, expected_version=0)
        with store.transaction() as tx:
            assert engine.execute(Do("a"), expected_version=1, tx=tx).version == 2
            with pytest.raises(VersionConflict):
                engine.execute(Do("a"), expected_version=1, tx=tx)
        assert engine.state(Bench, "a").labels == ("x", "x")


def test_a_sync_connection_of_the_user_is_left_as_it_was(tmp_path: Path) -> None:
    with stepwell.sync.connect(f"sqlite:///{tmp_path}/store.db") as store:
        engine = stepwell.sync.Engine(store).register(Bench())
        engine.execute(Do("a"))
        own = sqlite3.connect(tmp_path / "store.db")
        own.execute("create table paid (id text)")
        own.execute("insert into paid values ('a')")
        with pytest.raises(VersionConflict):
            engine.execute(Do("a"), expected_version=0, tx=own)
        assert engine.execute(Do("a"), expected_version=1, tx=own).version == 2
        own.commit()
        assert own.execute("select count(*) from paid").fetchone() == (1,)
        own.close()
        assert engine.state(Bench, "a").labels == ("x", "x")
