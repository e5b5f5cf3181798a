"""One commit across models: an input, a run, a message and rows of one's own, all or none; and steps that execute."""

import asyncio
import dataclasses
import itertools
import sqlite3
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from stepwell import Engine, InvalidOption, RunStatus, SerializationError, Store, Worker, connect, step, sync, workflow
from stepwell.base.clock import TestClock
from stepwell.testing.crash_driver import Doomed
from tests.deciders.workbench import Bench, Do, asked, count, double, drained, labels, post, posted, tasks
from tests.workflows.kit import begun, die


@pytest.fixture
async def engine(store: Store) -> Engine:
    text = "create table own (label text)"
    async with store.transaction() as tx:
        await tx.execute(text)
    return Engine(store).register(Bench())


async def all_four(store: Store, engine: Engine, *, fails: bool) -> None:
    mark = "$1" if store.database.driver.name == "postgres" else "?"
    async with store.transaction() as tx:
        receipt = await engine.execute(Do("a", "one", ask="mail"), tx=tx)
        assert receipt.outcome == "applied"
        await store.enqueue(post, "hello", tx=tx)
        await double.trigger(4).options(require_worker="ignore").execute(store, tx=tx)
        await tx.execute(f"insert into own (label) values ({mark})", "mine")
        if fails:
            raise RuntimeError("no")


async def found(store: Store) -> tuple[int, ...]:
    [own] = await asked(store, "select count(*) as rows from own")
    kinds = [len(await tasks(store, kind)) for kind in ("EFFECT", "MESSAGE", "RUN")]
    return (await count(store, "event"), *kinds, own["rows"])


@pytest.mark.proves("M-04", "M-05")
async def test_an_input_a_run_a_message_and_ones_own_rows_are_all_there_or_none_is(
    store: Store, engine: Engine
) -> None:
    with pytest.raises(RuntimeError, match="no"):
        await all_four(store, engine, fails=True)
    assert await found(store) == (0, 0, 0, 0, 0)
    assert [one.id for one in await engine.instances()] == []
    await all_four(store, engine, fails=False)
    assert await found(store) == (1, 1, 1, 1, 1)
    posted.clear()
    await drained(store, engine, post, double)
    assert posted == ["hello"]
    assert await labels(engine) == ["one", "mail answered"]


@pytest.mark.proves("M-04", "M-05", "TU-06")
async def test_whoever_is_cut_off_in_the_middle_of_a_transaction_has_written_nothing_of_it(
    store: Store, engine: Engine
) -> None:
    cut = 0
    there: tuple[int, ...] = ()
    for at in itertools.count(1):
        doomed = Doomed(store.database.driver, at)
        options = dataclasses.replace(store.database.options, listen=False)
        own = Store(doomed, store.database.statements, options, store.database.clock, store.database.telemetry)
        for name in ("bench:effects", "bench:inputs", "posts"):
            await own.database.queue_id(name, create=True)
        doomed.arm()
        work = asyncio.ensure_future(all_four(own, Engine(own).register(Bench()), fails=False))
        died = asyncio.ensure_future(doomed.died.wait())
        await asyncio.wait([work, died], return_when=asyncio.FIRST_COMPLETED)
        doomed.over()  # as a process that is killed: its connection is gone, and with it the transaction
        for one in (work, died):
            one.cancel()
        await asyncio.gather(work, died, return_exceptions=True)
        there = await found(store)
        if there != (0, 0, 0, 0, 0):  # committed: what it would have done since is to wake the workers
            break
        cut += 1
    assert cut >= 10
    assert there == (1, 1, 1, 1, 1)


@pytest.mark.proves("M-04", "M-10")
async def test_inputs_of_one_transaction_see_each_other_and_nobody_else_does(store: Store, engine: Engine) -> None:
    await engine.execute(Do("a", "zero"))
    with pytest.raises(RuntimeError):  # noqa: PT012 - it is the block that ends so
        async with store.transaction() as tx:
            await engine.execute(Do("a", "one", after=5, timer="k"), tx=tx)
            receipt = await engine.execute(Do("a", "two", cancel="k"), key="key", tx=tx)
            assert (receipt.first, receipt.last) == (3, 4)
            assert (await engine.execute(Do("a", "two"), key="key", tx=tx)).outcome == "duplicate"
            raise RuntimeError
    assert await labels(engine) == ["zero"]
    assert (await engine.execute(Do("a", "one"), key="key")).first == 2
    assert await labels(engine) == ["zero", "one"]


@pytest.mark.proves("M-04", "M-05", "M-12", "F-01", "TM-01", "TM-08", "TM-13", "M-29")
@pytest.mark.parametrize("fails", [True, False], ids=["rolled back", "committed"])
async def test_the_end_of_an_instance_and_what_becomes_of_its_timers_go_with_its_events(
    store: Store, fails: bool
) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", "zero", after=60, timer="k"))
    await engine.execute(Do("b", "zero", after=60, timer="k"))
    with suppress(ZeroDivisionError):
        async with store.transaction() as tx:
            await engine.execute(Do("a", "end", ask="mail", end=True), tx=tx)
            await engine.execute(Do("b", "other", cancel="k"), tx=tx)
            await engine.execute(Do("b", "more", after=5, timer="later"), tx=tx)
            if fails:
                raise ZeroDivisionError
    timers = [(one["status"], one["key"] or "") for one in await tasks(store, "TIMER")]
    ended = [one.id for one in await engine.instances() if one.completed_at is not None]
    effects = len(await tasks(store, "EFFECT"))
    if fails:
        assert ([status for status, _ in timers], ended, effects) == (["PENDING"] * 2, [], 0)
        assert (await labels(engine), await labels(engine, "b")) == (["zero"], ["zero"])
    else:
        assert ([status for status, _ in timers], ended, effects) == (["CANCELLED"] * 2 + ["PENDING"], ["a"], 1)
        assert (await labels(engine), await labels(engine, "b")) == (["zero", "end"], ["zero", "other", "more"])


@pytest.mark.proves("M-29")
async def test_of_the_decisions_of_a_transaction_each_is_whole_and_one_that_fails_takes_no_other_with_it(
    store: Store,
) -> None:
    engine = Engine(store).register(Bench())
    async with store.transaction() as tx:
        await engine.execute(Do("a", "one", ask="mail", after=60, timer="k"), tx=tx)
        with pytest.raises(ValueError, match="no"):
            await engine.execute(Do("b", "two", ask="mail", after=60, fail="no"), tx=tx)
        with pytest.raises(SerializationError):
            await engine.execute(Do("c", "three", ask="x" * 2_000_000, after=60), tx=tx)
        await engine.execute(Do("d", "four", ask="mail", after=60, timer="k"), tx=tx)
    assert [one.id for one in await engine.instances()] == ["a", "d"]
    assert [len(await tasks(store, kind)) for kind in ("EFFECT", "TIMER")] == [2, 2]


@pytest.mark.proves("M-04")
async def test_a_transaction_wakes_the_workers_when_it_is_committed(store: Store, engine: Engine) -> None:
    posted.clear()
    async with Worker(store, [engine, post, double], poll=30):
        await all_four(store, engine, fails=False)
        for _ in range(500):
            if posted and len(await labels(engine)) == 2:
                break
            await asyncio.sleep(0.01)
    assert (posted, await labels(engine)) == (["hello"], ["one", "mail answered"])


@pytest.mark.proves("M-04")
async def test_a_transaction_is_its_stores_and_ends_with_its_block(store: Store, engine: Engine) -> None:
    async with store.transaction() as tx:
        await engine.execute(Do("a"), tx=tx)
    for use in (engine.execute(Do("a"), tx=tx), store.enqueue(post, "x", tx=tx), tx.execute("select 1")):
        with pytest.raises(InvalidOption, match="its transaction has ended"):
            await use
    assert await labels(engine) == ["x"]


@pytest.mark.proves("M-04")
@pytest.mark.backends("postgres", "sqlite", reason="Turso does not join a user's own connection")
async def test_an_input_joins_the_transaction_of_a_users_own_connection(
    store_url: str, backend: str, tmp_path: Path
) -> None:
    if backend == "sqlite":
        await asyncio.to_thread(_joined_by_sqlite3, store_url, tmp_path / "store.db")
        return
    async with connect(store_url) as store:
        engine = Engine(store).register(Bench())
        own = await asyncpg.connect(store_url)
        try:
            for label, fails in (("undone", True), ("kept", False)):
                transaction = own.transaction()
                await transaction.start()
                assert (await engine.execute(Do("a", label, ask="mail"), tx=own)).first == 1
                await (transaction.rollback() if fails else transaction.commit())
        finally:
            await own.close()
        assert await labels(engine) == ["kept"]
        assert len(await tasks(store, "EFFECT")) == 1


def _joined_by_sqlite3(url: str, path: Path) -> None:
    with sync.connect(url) as store:
        engine = sync.Engine(store).register(Bench())
        own = sqlite3.connect(path)
        for label, end in (("undone", own.rollback), ("kept", own.commit)):
            own.execute("create table if not exists own (label text)")
            assert engine.execute(Do("a", label), tx=own).first == 1
            assert engine.submit(Do("a", f"{label} later"), tx=own).created
            end()
        own.close()
        assert engine.state(Bench, "a").labels == ("kept",)
        assert sync.Worker(store, [engine]).drain() == 1
        assert engine.state(Bench, "a").labels == ("kept", "kept later")


@pytest.mark.proves("M-16", "M-04")
async def test_a_decision_triggers_a_run_and_sends_a_message_with_its_events(store: Store, engine: Engine) -> None:
    posted.clear()
    await engine.execute(Do("a", run=21, message="from a decision"))
    with pytest.raises(ValueError, match="not"):
        await engine.execute(Do("a", run=1, message="never", fail="not"))
    await drained(store, engine, post, double)
    [run] = await store.runs("double")
    assert (run.status, run.output(), posted) == (RunStatus.SUCCESS, 42, ["from a decision"])


@pytest.mark.proves("II-07", "M-16")
async def test_a_step_that_is_tried_again_decides_once(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Bench())
    tries: list[list[str]] = []

    @step(retry=3)
    async def ask() -> int:
        first = await engine.execute(Do("a", "from a step"))
        second = await engine.execute(Do("a", "from a step"))
        tries.append([first.outcome, second.outcome])
        if len(tries) < 3:
            raise ConnectionError("lost")
        return second.last or 0

    @workflow
    async def asking() -> int:
        return await ask() + await ask()

    run_id = await begun(store, asking)
    for _ in range(4):
        await drained(store, asking)
        clock.advance("10m")
    assert tries == [["applied"] * 2, ["duplicate"] * 2, ["duplicate"] * 2, ["applied"] * 2]
    assert (await store.get_run(run_id)).output() == 2 + 4
    assert await labels(engine) == ["from a step"] * 4


@pytest.mark.proves("II-07")
async def test_a_step_whose_worker_is_lost_after_the_decision_decides_once(store: Store) -> None:
    engine = Engine(store).register(Bench())
    deaths = [True]

    @step
    async def ask() -> str:
        receipt = await engine.execute(Do("a", "once"))
        if deaths:
            deaths.pop()
            await die(store.database)
        return receipt.outcome

    @workflow
    async def asking() -> str:
        return await ask()

    run_id = await begun(store, asking)
    await drained(store, asking)
    await drained(store, asking)
    assert (await store.get_run(run_id)).output() == "duplicate"
    assert await labels(engine) == ["once"]


@pytest.mark.proves("M-16")
async def test_a_workflow_sends_inputs_in_its_steps_only(store: Store) -> None:
    engine = Engine(store).register(Bench())
    refused: list[str] = []

    @workflow
    async def sending() -> None:
        pay = {"Do": {"id": "a"}}
        for call in (
            lambda: engine.execute(Do("a"), key="k"),
            lambda: engine.execute_dynamic("bench", pay),
            lambda: engine.submit(Do("a")),
        ):
            with pytest.raises(InvalidOption, match="every replay would send it again: do it in a step") as error:
                await asyncio.gather(call())
            refused.append(error.value.option)
        await asyncio.gather(ask())

    @step
    async def ask() -> None:
        await engine.execute(Do("a", "from a step"))
        await engine.submit(Do("a", "submitted"))

    run_id = await begun(store, sending)
    await drained(store, sending, engine)
    assert (await store.get_run(run_id)).status is RunStatus.SUCCESS
    assert refused == ["input"] * 3
    assert await labels(engine) == ["from a step", "submitted"]


@pytest.mark.proves("M-16")
def test_a_sync_workflow_sends_inputs_in_its_steps_only() -> None:
    with sync.connect("memory:") as store:
        engine = sync.Engine(store).register(Bench())

        @workflow
        def sending() -> str:
            for call in (engine.execute, engine.submit):
                with pytest.raises(InvalidOption, match="every replay would send it again: do it in a step"):
                    call(Do("a"))
            return ask()

        @step
        def ask() -> str:
            return engine.execute(Do("a", "from a step")).outcome

        run_id = sending.trigger().options(require_worker="ignore").execute(store)
        sync.Worker(store, [sending]).drain()
        assert store.result(run_id, timeout=5) == "applied"


@pytest.mark.proves("M-16")
async def test_a_sync_transaction_takes_part_too(store_url: str) -> None:
    await asyncio.to_thread(_sync_transaction, store_url)


def _sync_transaction(url: str) -> None:
    with sync.connect(url) as store:
        engine = sync.Engine(store).register(Bench())
        with pytest.raises(RuntimeError), store.transaction() as tx:  # noqa: PT012 - it is the block that ends so
            engine.execute(Do("a", "undone"), tx=tx)
            engine.submit(Do("a", "undone"), tx=tx)
            raise RuntimeError
        with store.transaction() as tx:
            tx.execute("create table own (label text)")
            engine.execute(Do("a", "kept", ask="mail"), tx=tx)
            engine.submit(Do("b", "later"), tx=tx)
            store.enqueue(post, "from sync", tx=tx)
            double.trigger(1).options(require_worker="ignore").execute(store, tx=tx)
        posted.clear()
        sync.Worker(store, [engine, post, double]).drain()
        assert engine.state(Bench, "a").labels == ("kept", "mail answered")
        assert engine.state(Bench, "b").labels == ("later",)
        assert posted == ["from sync"]
