"""A deploy renames a step while runs are open: held before the body is called; whatever is only added goes on."""

import asyncio
import gc
import importlib.util
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stepwell import Reason, RunNotFound, Step, Store, Worker, Workflow
from stepwell.base import program
from stepwell.base.clock import TestClock
from stepwell.base.events import Event, RunHeld
from stepwell.runs.journal import Journal
from stepwell.work import upkeep
from stepwell.work.upkeep import Holds
from tests.ground.opened import READS_AUDIT
from tests.ground.waiting import until
from tests.store.seam import ask
from tests.workflows.deploys import DEPLOYS, HEADER, Deploy
from tests.workflows.kit import begun, drained, steps_of, task_of


class Deployed:
    """The code that is deployed: modules written to a folder and imported, of which the process knows no other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ledger: list[str] = []

    def load(self, name: str, text: str, *, sources: bool = True) -> ModuleType:
        """Import a module with this text, or only the code that it was compiled to."""
        file = self._folder / f"{name}.py"
        file.write_text(text)
        if not sources:
            compiled = py_compile.compile(str(file), str(file.with_suffix(".pyc")), doraise=True)
            file.unlink()
            file = Path(str(compiled))
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        vars(module)["ledger"] = self.ledger
        spec.loader.exec_module(module)
        return module

    def stop(self) -> None:
        """End the process that had these modules, as far as anybody can tell."""
        for name, module in self.modules():
            for one in vars(module).values():
                if isinstance(one, Step | Workflow):  # whoever still refers to it, it is not of this process any more
                    program._declared.pop(one, None)
                    program._lasting.pop(one, None)
            del sys.modules[name]
        gc.collect()  # what its functions have made

    def modules(self) -> list[tuple[str, ModuleType]]:
        """What is loaded, for who looks at modules: no other test's."""
        return [(name, module) for name, module in tuple(sys.modules.items()) if self._is_ours(module)]

    def _is_ours(self, module: ModuleType) -> bool:
        return str(getattr(module, "__file__", "")).startswith(str(self._folder))


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    deployed = Deployed(tmp_path)
    monkeypatch.setattr(program, "_loaded", deployed.modules)
    monkeypatch.setattr(program, "_sources", program.Sources())
    yield deployed
    deployed.stop()


def flows(module: ModuleType) -> list[Workflow[..., Any]]:
    """The workflows of a module."""
    return [one for one in vars(module).values() if isinstance(one, Workflow)]


async def asleep(store: Store, clock: TestClock, deployed: Deployed, text: str, count: int) -> list[int]:
    """Runs that have done what their program does before it sleeps; the sleep is over, and so is the process."""
    module = deployed.load("shop", text)
    runs = [int(await begun(store, module.flow)) for _ in range(count)]
    await drained(store, *flows(module))
    assert {(await store.get_run(run_id)).status for run_id in runs} == {"PENDING"}
    clock.advance(60)
    del module
    deployed.stop()
    return runs


async def slept(store: Store, clock: TestClock, deployed: Deployed, text: str) -> int:
    """One such run."""
    [run_id] = await asleep(store, clock, deployed, text, 1)
    return run_id


def named(deploy: Deploy) -> str:
    return deploy.name.replace(" ", "-")


@pytest.mark.proves("R-16")
@pytest.mark.backends("memory", reason="which names a program declares is no matter of a database")
@pytest.mark.parametrize("deploy", DEPLOYS, ids=named)
async def test_a_renamed_step_is_held_before_its_body_and_whatever_else_changes_is_not(
    deploy: Deploy, store: Store, clock: TestClock, deployed: Deployed
) -> None:
    await _is_held_for_a_rename(deploy, store, clock, deployed)


EVERYWHERE = ("decorated", "branch renamed", "sync", "child")  # a recorded name of each kind


@pytest.mark.proves("R-16")
@pytest.mark.parametrize("deploy", [one for one in DEPLOYS if one.name in EVERYWHERE], ids=named)
async def test_on_every_database_a_rename_of_each_kind_is_held(
    deploy: Deploy, store: Store, clock: TestClock, deployed: Deployed
) -> None:
    await _is_held_for_a_rename(deploy, store, clock, deployed)


async def _is_held_for_a_rename(deploy: Deploy, store: Store, clock: TestClock, deployed: Deployed) -> None:
    """The run of a renamed step is held, and goes on when it is accepted; any other goes on by itself."""
    before, after = deploy.texts()
    run_id = await slept(store, clock, deployed, before)
    done = list(deployed.ledger)
    module = deployed.load("shop_now", after)
    await drained(store, *flows(module))
    run = await store.get_run(run_id)
    if deploy.held is not None:
        assert deployed.ledger == done  # nothing was called
        assert (run.status, run.attempt) == ("PAUSED", 0)
        assert run.error is not None
        assert (run.error["type"], run.error["names"][0]) == ("CodeDiffers", deploy.held)
        told = await store.why(run_id)
        assert told.reason is Reason.CODE_DIFFERS
        for said in (deploy.held.rstrip("/()"), f"stepwell accept {run_id}", f"stepwell fork {run_id}"):
            assert said in told.message
        assert await drained(store, *flows(module)) == 0  # the same code does not let it go
        assert await store.accept(run_id)
        await drained(store, *flows(module))
        run = await store.get_run(run_id)
    clock.advance(60)
    await drained(store, *flows(module))
    run = await store.get_run(run_id)
    assert (run.status, run.error) == ("SUCCESS", None)
    assert sorted(deployed.ledger) == sorted(deploy.wanted)
    assert not [key for key in await steps_of(store, run_id) if key.startswith("#")]


RENAMED = next(one for one in DEPLOYS if one.name == "lambda")
ADDED = next(one for one in DEPLOYS if one.name == "added before")
DECORATED = next(one for one in DEPLOYS if one.name == "added before, decorated")
LEVY = '    await ctx.step("levy", lambda: ledger.append("levy"))\n'


async def held(store: Store, clock: TestClock, deployed: Deployed) -> tuple[int, ModuleType]:
    """A run that is held for a renamed step, and the code that holds it."""
    before, after = RENAMED.texts()
    run_id = await slept(store, clock, deployed, before)
    module = deployed.load("shop_now", after)
    await drained(store, module.flow)
    assert (await store.get_run(run_id)).status == "PAUSED"
    return run_id, module


@READS_AUDIT
@pytest.mark.proves("R-16")
async def test_a_deploy_that_keeps_the_name_lets_held_runs_go_without_a_command(
    store: Store, clock: TestClock, deployed: Deployed
) -> None:
    run_id, module = await held(store, clock, deployed)
    del module
    deployed.stop()
    before, after = RENAMED.texts()
    other = deployed.load(
        "other", after.replace("levy_card", "levy_bank")
    )  # another program that has not got it either
    await drained(store, other.flow)
    assert (await store.get_run(run_id)).status == "PAUSED"
    assert deployed.ledger == ["levy"]
    assert await drained(store, other.flow) == 0  # once
    del other
    deployed.stop()
    mended = deployed.load("mended", before)
    await drained(store, mended.flow)
    assert (await store.get_run(run_id)).status == "SUCCESS"
    assert deployed.ledger == ["levy"]
    noted = [note.what for note in await store.history(run_id)]
    assert noted == ["paused", "unpaused", "paused", "unpaused"]


@pytest.mark.proves("R-16")
async def test_what_an_operator_holds_back_too_is_let_go_by_nobody_else(
    store: Store, clock: TestClock, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, module = await held(store, clock, deployed)
    del module
    deployed.stop()
    mended = deployed.load("mended", RENAMED.texts()[0])
    looks: list[int] = []
    look, is_held = Holds.look, asyncio.Event()

    async def counted(self: Holds) -> int:
        looks.append(await look(self) if is_held.is_set() else 0)
        return looks[-1]

    monkeypatch.setattr(Holds, "look", counted)
    monkeypatch.setattr(upkeep, "LOOK_AT_HOLDS_EVERY", 0.01)
    await store.pause(run_id)
    async with Worker(store, [mended.flow]):
        await until(lambda: len(looks) > 1)
        is_held.set()
        await until(lambda: len(looks) > 4)
        assert looks == [0] * len(looks)  # what an operator holds back is let go by nobody else
        assert await store.unpause(run_id)
        await store.result(run_id, timeout=20)
    assert deployed.ledger == ["levy"]


@pytest.mark.proves("R-16")
async def test_a_worker_that_lives_already_lets_go_what_another_holds_later(
    store: Store, clock: TestClock, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, module = await held(store, clock, deployed)
    del module
    deployed.stop()
    mended = deployed.load("mended", RENAMED.texts()[0])
    looks = 0
    look = Holds.look

    async def late(self: Holds) -> int:
        nonlocal looks
        looks += 1
        return await look(self) if looks > 2 else 0

    monkeypatch.setattr(Holds, "look", late)
    monkeypatch.setattr(upkeep, "LOOK_AT_HOLDS_EVERY", 0.01)
    async with Worker(store, [mended.flow]):
        await store.result(run_id, timeout=20)
    assert looks > 2
    assert deployed.ledger == ["levy"]


@READS_AUDIT
@pytest.mark.proves("R-16")
async def test_unpause_alone_changes_nothing_and_an_accepted_name_stays_so(
    store: Store, clock: TestClock, deployed: Deployed
) -> None:
    run_id, module = await held(store, clock, deployed)
    assert (await task_of(store, run_id)).run_at is not None
    assert await store.unpause(run_id)
    assert await drained(store, module.flow) == 1
    run = await store.get_run(run_id)
    assert (run.status, run.attempt) == ("PAUSED", 0)  # held again
    assert deployed.ledger == ["levy"]
    assert [one.needs for one in await store.set_aside()] == ["accept"]
    assert await store.pause(run_id, reason="lunch")
    assert await store.accept(run_id, reason="it is another step")
    assert await drained(store, module.flow) == 0  # the operator holds it back still
    assert not await store.accept(run_id)
    assert (await store.why(run_id)).reason is Reason.HELD
    assert await store.unpause(run_id)
    await drained(store, module.flow)
    assert deployed.ledger == ["levy", "levy_card"]
    forked = await store.fork(run_id, at="sleep")
    await drained(store, module.flow)
    clock.advance(60)
    await drained(store, module.flow)
    assert (await store.get_run(forked)).status == "SUCCESS"
    assert deployed.ledger == ["levy", "levy_card", "levy_card"]  # what was accepted was copied with the rest
    assert [step.key for step in await store.steps(forked)] == ["levy#1", "levy_card#1", "sleep#1"]
    accepted = [note.detail for note in await store.history(run_id) if note.what == "accepted"]
    assert accepted == ["levy: it is another step"]
    with pytest.raises(RunNotFound):
        await store.accept(-5)


@pytest.mark.proves("R-16")
async def test_a_strict_run_is_held_for_any_call_that_comes_too_early(
    store: Store, clock: TestClock, deployed: Deployed
) -> None:
    before, after = (text.replace('name="flow"', 'name="flow", strict=True') for text in ADDED.texts())
    run_id = await slept(store, clock, deployed, before)
    module = deployed.load("shop_now", after)  # `levy` is declared, and comes later
    await drained(store, module.flow)
    run = await store.get_run(run_id)
    assert (run.status, run.attempt, deployed.ledger) == ("PAUSED", 0, ["levy"])
    assert run.error is not None
    assert run.error["names"] == ["levy", "sleep"]
    assert await store.accept(run_id)
    await drained(store, module.flow)
    assert (await store.get_run(run_id)).status == "SUCCESS"
    assert deployed.ledger == ["levy", "weigh"]


@pytest.mark.proves("R-16")
@pytest.mark.parametrize("sources", [True, False])
async def test_names_are_found_in_every_module_and_one_without_sources_declares_what_is_decorated(
    store: Store, clock: TestClock, deployed: Deployed, *, sources: bool
) -> None:
    """Two modules: the workflow in one, what it calls in the other, of which only the compiled code may be there."""
    helper = HEADER + "async def pay(ctx):\n" + LEVY + "@step\nasync def toll() -> None: ledger.append('toll')\n"
    main = HEADER + "import helper\n@workflow(name='flow')\nasync def flow(ctx: Context) -> None:\n"
    calls = "    await helper.toll()\n    await helper.pay(ctx)\n    await ctx.sleep(60)\n"
    deployed.load("helper", helper)
    run_id = await slept(store, clock, deployed, main + calls)
    deployed.load("helper", helper, sources=sources)
    weigh = '    await ctx.step("weigh", lambda: ledger.append("weigh"))\n'
    module = deployed.load("shop_now", main + weigh + calls)
    await drained(store, module.flow)
    run = await store.get_run(run_id)
    if sources:
        assert run.status == "SUCCESS"
    else:  # not declared, for all that anybody can tell: one `accept`
        assert run.error is not None
        assert run.error["names"] == ["levy"]
        assert await store.accept(run_id)
        await drained(store, module.flow)
    assert deployed.ledger == ["toll", "levy", "weigh"]


@pytest.mark.proves("R-16")
async def test_without_a_suspicion_nothing_is_looked_at_and_with_one_each_file_once(
    store: Store, clock: TestClock, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    gone = Journal._beside

    def counted(self: Journal, key: str) -> dict[str, None]:
        asked.append(key)
        return gone(self, key)

    monkeypatch.setattr(Journal, "_beside", counted)
    before, _ = ADDED.texts()
    after = before.replace(
        "ctx.sleep(60)\n", "ctx.sleep(60)\n" + LEVY
    )  # the same name again, behind all that is recorded
    runs = await asleep(store, clock, deployed, before, 3)
    module = deployed.load("shop_now", after)
    await drained(store, module.flow)
    assert {(await store.get_run(run_id)).status for run_id in runs} == {"SUCCESS"}
    assert (asked, program._sources.reads) == ([], 0)
    del module
    deployed.stop()
    runs = await asleep(store, clock, deployed, DECORATED.texts()[0], 3)
    module = deployed.load("shop_decorated", DECORATED.texts()[1])
    await drained(store, module.flow)
    assert {(await store.get_run(run_id)).status for run_id in runs} == {"SUCCESS"}
    assert program._sources.reads == 0
    asked.clear()
    del module
    deployed.stop()
    runs = await asleep(store, clock, deployed, before, 3)
    module = deployed.load("shop_then", ADDED.texts()[1])
    await drained(store, module.flow)
    assert {(await store.get_run(run_id)).status for run_id in runs} == {"SUCCESS"}
    assert len(asked) >= 3
    assert program._sources.reads == 1


@pytest.mark.proves("R-16")
async def test_a_held_run_is_told_of_once_and_shows_nothing_but_its_steps(
    store: Store, clock: TestClock, deployed: Deployed
) -> None:
    told: list[Event] = []
    store.database.telemetry.subscribe(told.append)
    run_id, module = await held(store, clock, deployed)
    assert [event for event in told if isinstance(event, RunHeld)] == [
        RunHeld(run_id, "flow", ("levy",), "levy_card#1")
    ]
    [shown] = await ask(store, "select state, until from {runs}")
    assert (shown["state"], shown["until"]) == (
        "held for its code, until it is accepted or other code is deployed",
        None,
    )
    assert await store.accept(run_id)
    await drained(store, module.flow)
    shown_steps = await ask(store, "select key from {steps} order by place")
    assert [row["key"] for row in shown_steps] == ["levy#1", "sleep#1", "levy_card#1"]
    assert [step.key for step in await store.steps(run_id)] == ["levy#1", "sleep#1", "levy_card#1"]
    measured = await store.metrics_by_workflow("flow", steps=True)
    assert sorted(measured["flow"].steps) == ["levy", "levy_card", "sleep"]
