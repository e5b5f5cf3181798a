"""One worker serves everything: deciders beside workflows and handlers, in both colours, until it is told to stop."""

import asyncio
from types import ModuleType

import pytest

from stepwell import Engine, InvalidOption, Store, Worker, compat, sync
from stepwell.deciders.modules import deciders_in, engines_in
from stepwell.testing import world
from tests.deciders.workbench import Bench, Do, double, drained, labels, post, posted
from tests.ground.waiting import until


@pytest.mark.proves("M-18", "M-19")
async def test_an_engine_runs_until_its_shutdown_is_done(store: Store) -> None:
    engine = Engine(store).register(Bench())
    await engine.execute(Do("a", "no worker", ask="mail"))
    assert await labels(engine) == ["no worker"], "executing needs none"
    shutdown = asyncio.Event()
    running = asyncio.ensure_future(engine.run(shutdown.wait()))
    await until(lambda: _has(engine, 2))
    shutdown.set()
    await asyncio.wait_for(running, 10)


async def _has(engine: Engine, count: int) -> bool:
    return len(await labels(engine)) == count


@pytest.mark.proves("M-16", "M-19", "W-06")
async def test_one_worker_serves_deciders_workflows_and_handlers(store: Store) -> None:
    class Other(Bench):
        type = "other"

    posted.clear()
    engine = Engine(store).register(Bench())
    other = Engine(store).register(Other())
    await engine.execute(Do("a", ask="mail", run=2, message="hi"))
    await other.execute(Do("a", ask="mail"))
    assert await drained(store, engine, other, post, double) == 4
    assert (await labels(engine), posted) == (["x", "mail answered"], ["hi"])


@pytest.mark.proves("M-19")
async def test_a_decider_is_served_by_itself_and_an_engine_by_the_worker_of_its_store(
    store: Store, store_url: str
) -> None:
    bench = Bench()
    engine = Engine(store).register(bench)
    await engine.execute(Do("a", ask="mail"))
    assert await drained(store, Bench()) == 1
    assert await labels(engine) == ["x", "mail answered"]
    with pytest.raises(InvalidOption, match="two engines of one worker"):
        Worker(store, [engine, Bench()])
    other = Store(
        store.database.driver,
        store.database.statements,
        store.database.options,
        store.database.clock,
        store.database.telemetry,
    )
    with pytest.raises(InvalidOption, match="it is the engine of another store"):
        Worker(other, [engine])
    with pytest.raises(InvalidOption, match="pass an open store"):
        Engine(bench)  # type: ignore[arg-type]


class Told(Bench):
    """One that cannot be made without arguments."""

    type = "told"

    def __init__(self, secret: str) -> None:
        super().__init__()
        self.secret = secret


def module_of(**members: object) -> ModuleType:
    """A module that defines these: its classes are its own."""
    module = ModuleType("shop")
    for name, member in members.items():
        own = type(name, (member,), {"__module__": "shop"}) if isinstance(member, type) else member
        setattr(module, name, own)
    return module


@pytest.mark.proves("M-19")
async def test_a_worker_serves_the_deciders_and_engines_of_a_module(store: Store) -> None:
    engine = Engine(store).register(Bench())
    for module in (
        module_of(Orders=Bench, bench=Bench()),  # the one that it has made
        module_of(Orders=Bench, double=double),
        module_of(engine=engine, Orders=Bench),  # the engine knows it already
    ):
        await engine.execute(Do("a", ask="mail"))
        assert await drained(store, module) == 1
    assert (await labels(engine)).count("mail answered") == 3
    await engine.execute(Do("a", ask="mail"))
    assert await drained(store, module_of(Orders=Bench, told=Told("x")), engine) == 1


@pytest.mark.proves("M-19")
async def test_what_a_module_only_imports_or_cannot_make_is_not_served(store: Store) -> None:
    imported = ModuleType("shop")
    imported.Bench = Bench  # type: ignore[attr-defined]
    assert list(deciders_in([imported])) == []
    with pytest.raises(InvalidOption, match="'Told': it cannot be made without arguments"):
        Worker(store, [module_of(Told=Told)])
    other = Store(
        store.database.driver,
        store.database.statements,
        store.database.options,
        store.database.clock,
        store.database.telemetry,
    )
    strange = module_of(engine=Engine(other).register(Bench()))
    assert list(deciders_in([strange])) == []
    assert engines_in([strange], store) == []
    assert len(engines_in([strange], other)) == 1


def test_a_sync_worker_serves_the_engines_of_a_module() -> None:
    with sync.connect("memory:") as store, sync.connect("memory:") as other:
        engine = sync.Engine(store).register(Told("x"))
        engine.execute(Do("a", ask="mail"))
        module = module_of(engine=engine, strange=sync.Engine(other).register(Told("y")), Told=Told)
        assert sync.Worker(store, [module]).drain() == 1
        assert engine.state(Told, "a").labels == ("x", "mail answered")


@pytest.mark.proves("TU-03", "TU-04", "TU-05")
async def test_a_world_serves_deciders_and_moves_their_time(store_url: str) -> None:
    bench = Bench()
    async with world(bench, url=store_url) as w:
        engine = Engine(w.store).register(bench)
        await engine.execute(Do("a", "go", ask="mail", after=3600, timer="k"))
        assert await w.drain() == 1
        assert await labels(engine) == ["go", "mail answered"]
        await w.advance("1h")
        assert await labels(engine) == ["go", "mail answered", "tick"]


@pytest.mark.proves("M-18", "M-19", "TU-04")
async def test_the_sync_engine_is_the_same(store_url: str) -> None:
    await asyncio.to_thread(_in_sync, store_url)


def _in_sync(url: str) -> None:
    with sync.connect(url) as store:
        engine = sync.Engine(store).register(Bench())
        assert engine.execute(Do("a", "one", ask="mail"), key="k").first == 1
        assert engine.execute(Do("a", "one"), key="k").outcome == "duplicate"
        assert engine.execute_dynamic("bench", {"Do": {"id": "a", "label": "two"}}).first == 2
        assert engine.submit(Do("a", "three")).created
        sync.Worker(store, [engine]).drain()
        assert sorted(engine.state(Bench, "a").labels) == ["mail answered", "one", "three", "two"]
        assert engine.state(Bench, "a", at=1).labels == ("one",)
        assert [one.version for one in engine.events("bench", "a")] == [1, 2, 3, 4]
        assert [one.id for one in engine.instances("bench")] == ["a"]
        assert engine.dry_run(Do("a", "four")).state.labels[-1] == "four"
        assert engine.inspect(Bench, "a").version == engine.inspect("bench", "a").at == 4


@pytest.mark.proves("M-18")
async def test_the_builders_of_the_older_design_make_an_engine_a_worker_and_both(store: Store) -> None:
    with pytest.warns(DeprecationWarning, match="Engine"):
        service = compat.build_service(store, Bench())
    await service.execute(Do("a", "no worker", ask="mail"))
    assert await store.workers() == [], "a service starts none"
    with pytest.warns(DeprecationWarning, match="Worker"):
        runtime = compat.build_runtime(store, Bench())
    assert await runtime.drain() == 1
    assert await labels(service) == ["no worker", "mail answered"]
    with pytest.warns(DeprecationWarning, match="Engine"):
        both = compat.build_engine(store, Bench())
    await both.execute(Do("b", ask="mail"))
    shutdown = asyncio.Event()
    running = asyncio.ensure_future(both.run(shutdown.wait()))
    await until(lambda: _answered(both))
    shutdown.set()
    await asyncio.wait_for(running, 10)


async def _answered(engine: Engine) -> bool:
    return len(await engine.events("bench", "b")) == 2
