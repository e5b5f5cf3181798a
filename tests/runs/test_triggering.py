"""Triggering: one run row, written once, with what was asked for; or nothing at all."""

import asyncio
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from stepwell import (
    IdempotencyConflict,
    InvalidName,
    InvalidOption,
    NotInRun,
    PayloadTooLarge,
    QueueDraining,
    RunId,
    SerializationError,
    Store,
    Worker,
    WorkflowNotFound,
    connect,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.values.arguments import Arguments
from stepwell.workflow import Workflow
from tests.ground.processes import Crew, wait_for
from tests.queue.raw import ask
from tests.runs.kit import FAILED, Order, Receipt, fulfil, pack, settle, tick, written
from tests.store.seam import begin, claim, row_of, watched

ROOT = Path(__file__).parents[2]


@pytest.mark.proves("R-01", "R-10", "T-01", "T-02", "T-09")
async def test_a_trigger_writes_one_pending_run_with_its_input_and_returns_its_number(store: Store) -> None:
    await store.database.workflow_id("fulfil", create=True)
    over, driver = watched(store)
    run_id = await fulfil.trigger(Order("a", 5)).execute(over)
    assert isinstance(run_id, RunId)
    assert (run_id.created, run_id.returns) == (True, Receipt)
    assert [[call.statement for call in flush] for flush in driver.flushes] == [["add_tasks"]]
    assert await written(store) == (1, 1, 1)
    row = await row_of(store, run_id)
    assert (row["kind"], row["status"], bool(row["ready"]), row["attempt"]) == ("RUN", "PENDING", True, 0)
    empty = ("started_at", "paused_at", "finished_at", "output", "error", "last_error", "owner", "deleted_at")
    assert {name: row[name] for name in empty} == dict.fromkeys(empty)
    run = await fulfil.get_run(run_id, store)
    assert (run.input(), run.input(Order)) == ({"id": "a", "cents": 5}, Order("a", 5))
    assert (run.status, run.workflow, run.key, run.worker, run.tags) == ("PENDING", "fulfil", None, None, ())
    [task] = await claim(store, await begin(store), "fulfil")  # the run is its own entry in the queue
    assert (task.id, task.input) == (run_id, '{"id":"a","cents":5}')


@pytest.mark.proves("R-09")
async def test_the_same_trigger_again_is_another_run(store: Store) -> None:
    trigger = fulfil.trigger(Order("a"))
    first = await trigger.execute(store)
    second = await trigger.execute(store)
    assert first != second
    assert (first.created, second.created) == (True, True)
    assert [run.id for run in await store.runs("fulfil")] == [second, first]


@pytest.mark.proves("R-12", "R-13")
async def test_the_row_carries_the_life_of_its_run_and_says_when_it_changed(store: Store, clock: TestClock) -> None:
    run_id = await pack.trigger("b", prefix="p").options(key="k", priority=3, tags=["x"]).execute(store)
    moments = [(await store.get_run(run_id)).updated_at]
    clock.advance("1s")
    worker = await begin(store)
    [task] = await claim(store, worker, "zip.files")
    running = await store.get_run(run_id)
    assert (running.status, running.worker, running.attempt, running.max_attempts) == ("RUNNING", worker, 1, 7)
    assert running.started_at == running.updated_at
    moments.append(running.updated_at)
    clock.advance("1s")
    await store.database.tasks.settle(task.id, worker, task.turn, FAILED)
    failed = await store.get_run(run_id)
    assert (failed.status, failed.worker, failed.last_error) == ("ERROR", None, "E: m")
    assert failed.error == {"type": "E", "message": "m"}
    assert (failed.key, failed.priority, failed.tags) == ("k", 3, ("x",))
    assert (failed.created_at, failed.started_at, failed.finished_at) == (moments[0], moments[1], failed.updated_at)
    moments.append(failed.updated_at)
    for change in (store.retry(run_id), store.delete(run_id), store.restore(run_id)):
        clock.advance("1s")
        assert await change
        moments.append((await store.get_run(run_id, deleted=True)).updated_at)
    assert moments == sorted(set(moments))


@pytest.mark.proves("T-03", "R-10")
async def test_arguments_are_stored_by_what_the_workflow_takes(store: Store) -> None:
    triggers = {
        "null": tick.trigger(),
        '{"id":"a","cents":0}': fulfil.trigger(Order("a")),
        '{"bucket":"b"}': pack.trigger("b"),
        '{"bucket":"b","prefix":"p"}': pack.trigger("b", prefix="p"),
    }
    for text, trigger in triggers.items():
        run = await store.get_run(await trigger.execute(store))
        assert run.input_text == text
    by_name = workflow("fulfil")
    for given, trigger in ((None, by_name.trigger()), ([1], by_name.trigger([1])), ({"a": 1}, by_name.trigger(a=1))):
        assert (await store.get_run(await trigger.execute(store))).input() == given
    assert (await store.get_run(await by_name.trigger(Order("z")).execute(store))).input(Order) == Order("z")


@pytest.mark.proves("T-03")
async def test_the_one_argument_of_a_trigger_by_name_may_be_given_by_its_name(store: Store) -> None:
    taken: list[object] = []

    @workflow(retry=1)
    async def bill(cents: int) -> None:
        taken.append(cents)

    @workflow
    async def tell(cents: dict[str, int]) -> None:
        taken.append(cents)

    for one in (bill, tell):
        await store.create_workflow(one.name)
    for trigger in (workflow("bill").trigger(cents=1), workflow("tell").trigger(cents=1)):
        await trigger.options(require_worker="ignore").execute(store)
    wrong = await workflow("bill").trigger(euros=1).options(require_worker="ignore").execute(store)
    await Worker(store, [bill, tell]).drain()
    assert sorted(taken, key=str) == [1, {"cents": 1}]  # what fits as it is, is not taken apart
    assert "Expected `int`" in str((await store.get_run(wrong)).last_error)


@pytest.mark.proves("T-03")
@pytest.mark.parametrize(("text", "given"), [("null", "nothing"), ("7", "one value without a name")])
def test_arguments_that_are_missing_are_named(text: str, given: str) -> None:
    def pay(cents: int, parcels: list[str], note: str = "") -> None: ...

    with pytest.raises(SerializationError, match=f"argument of pay .*: it needs cents, parcels, and was given {given}"):
        Arguments.of(pay, "workflow").decode(text)


@dataclass
class Terms:
    days: int = 30


class TermsStruct(msgspec.Struct, omit_defaults=True):
    days: int = 30


class TermsModel(pydantic.BaseModel):
    days: int = 30


class TermsDict(TypedDict, total=False):
    days: int


@pytest.mark.proves("T-03")
@pytest.mark.parametrize("kind", [Terms, TermsStruct, TermsModel, TermsDict])
def test_an_argument_that_needs_nothing_is_not_taken_for_empty_when_it_is_given_by_its_name(kind: Any) -> None:
    def bill(terms: Any) -> None: ...

    def own(days: Any) -> None: ...

    def note(terms: dict[str, Any]) -> None: ...

    bill.__annotations__["terms"] = own.__annotations__["days"] = kind
    given = Arguments.of(bill, "workflow")
    assert given.decode('{"terms":{"days":5}}') == given.decode('{"days":5}') != given.decode("{}")
    assert given.decode('{"terms":5}') == given.decode("{}"), "what does not fit so is read as it was"
    its_own = Arguments.of(own, "workflow")
    assert its_own.decode('{"days":30}') == {"days": given.decode('{"days":30}')["terms"]}
    assert its_own.decode('{"days":5}') == {"days": given.decode('{"days":5}')["terms"]}
    plain = {"terms": {"days": 5}}
    assert Arguments.of(note, "workflow").decode(json.dumps(plain)) == {"terms": plain}


@pytest.mark.proves("T-04")
async def test_arguments_that_do_not_fit_are_refused_before_anything_is_written(store: Store) -> None:
    untyped: Workflow[..., Any] = fulfil
    for wrong in (object(), {"id": 7}, {"cents": 1}, float("nan"), {"id": "a\0"}):
        with pytest.raises(SerializationError, match="argument of fulfil"):
            untyped.trigger(wrong)
    with pytest.raises(SerializationError):
        workflow("fulfil").trigger(object())
    calls: list[tuple[tuple[int, ...], dict[str, int]]] = [((), {}), ((1, 2), {}), ((), {"nothing": 1})]
    for args, kwargs in calls:
        with pytest.raises(TypeError, match="fulfil"):
            untyped.trigger(*args, **kwargs)
    with pytest.raises(TypeError, match="by name only"):
        workflow("fulfil").trigger(1, 2)
    assert await written(store) == (0, 0, 0)


@pytest.mark.proves("V-08")
async def test_the_stores_own_limit_holds_for_inputs(store_url: str) -> None:
    async with connect(store_url, payload_limit=100) as small, connect(store_url, payload_limit=3_000_000) as large:
        await small.create_workflow("w")
        for text in ("x" * 99, "ü" * 60):
            with pytest.raises(PayloadTooLarge, match=r"input refused .* the limit is 100"):
                await workflow("w").trigger(text).execute(small)
        assert await written(small) == (1, 1, 0)
        assert (await workflow("w").trigger("x" * 2_000_000).execute(large)).created
        assert (await workflow("w").trigger("x" * 98).execute(small)).created


@pytest.mark.proves("T-05", "V-01")
async def test_an_unknown_name_is_refused_and_nothing_is_written(store: Store) -> None:
    await store.create_queue("plain")
    for name in ("nobody", "plain"):
        with pytest.raises(WorkflowNotFound, match=name):
            await workflow(name).trigger(1).execute(store)
    with pytest.raises(WorkflowNotFound, match="nobody"):
        await store.trigger_many([fulfil.trigger(Order("a")), workflow("nobody").trigger(1)])
    assert await written(store) == (1, 0, 0)


@pytest.mark.proves("T-06", "V-06")
async def test_a_workflow_that_nobody_has_defined_or_serves_is_triggered_through_its_function(store: Store) -> None:
    run_id = await fulfil.trigger(Order("a")).execute(store)  # a fresh database: the definition is made
    assert await written(store) == (1, 1, 1)
    elsewhere = await workflow("fulfil").trigger({"id": "b"}).execute(store)  # by a process without the code
    orphans = await ask(store, "select count(*) from {task} where queue_id not in (select queue_id from {workflow})")
    assert orphans == [(0,)]
    assert [task.id for task in await claim(store, await begin(store), "fulfil", 5)] == [run_id, elsewhere]


@pytest.mark.proves("T-08")
async def test_options_are_stored_and_obeyed(store: Store, clock: TestClock) -> None:
    due = datetime(2026, 1, 2, tzinfo=UTC)
    plain = await fulfil.trigger(Order("a")).execute(store)
    urgent = await fulfil.trigger(Order("b")).options(priority=9, max_attempts=11).execute(store)
    delayed = await fulfil.trigger(Order("c")).options(delay="1h").options(tags=["a", "b", "a"]).execute(store)
    later = await fulfil.trigger(Order("d")).options(run_at=due, key="k").execute(store)
    worker = await begin(store)
    assert [task.id for task in await claim(store, worker, "fulfil", 9)] == [urgent, plain]
    runs = {run.id: run for run in await store.runs("fulfil")}
    assert (runs[urgent].priority, runs[urgent].max_attempts, runs[plain].max_attempts) == (9, 11, 3)
    assert (runs[delayed].tags, runs[later].run_at, runs[later].key) == (("a", "b"), due, "k")
    clock.advance("2h")
    await store.database.tasks.wake()
    assert [task.id for task in await claim(store, worker, "fulfil", 9)] == [delayed]


async def test_wrong_options_are_refused_before_anything_is_written(store: Store) -> None:
    trigger = fulfil.trigger(Order("a"))
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (InvalidOption, {"priority": "high"}),
        (InvalidOption, {"delay": 1, "run_at": datetime(2026, 1, 1, tzinfo=UTC)}),
        (InvalidOption, {"run_at": datetime(2026, 1, 1)}),  # noqa: DTZ001
        (InvalidOption, {"unique": "never"}),
        (InvalidOption, {"require_worker": "maybe"}),
        (InvalidOption, {"max_attempts": 0}),
        (InvalidOption, {"tags": "one"}),
        (InvalidName, {"key": ""}),
        (TypeError, {"keys": "k"}),
        (TypeError, {"workflow": "other"}),
    ]
    for error, options in wrong:
        with pytest.raises(error):
            await trigger.options(**options).execute(store)
    for on in (object(), store.database.driver):
        with pytest.raises(InvalidOption, match="open store"):
            trigger.execute(on)  # type: ignore[call-overload]
        with pytest.raises(InvalidOption, match="open store"):
            trigger.wait().execute(on)  # type: ignore[call-overload]
    with pytest.raises(NotInRun):
        await trigger.execute()
    with pytest.raises(InvalidOption, match="pass triggers"):
        await store.trigger_many([fulfil])  # type: ignore[arg-type]
    assert await written(store) == (0, 0, 0)


@pytest.mark.proves("T-09")
async def test_every_builder_returns_a_builder_and_changes_nothing(store: Store) -> None:
    plain = fulfil.trigger(Order("a"))
    keyed = plain.options(key="k")
    urgent = keyed.options(priority=2)
    assert (plain.key, keyed.key, urgent.key, keyed.priority, urgent.priority) == (None, "k", "k", 0, 2)
    waited = urgent.wait()
    assert (waited.seconds, waited.timeout("5m").seconds, urgent.wait(timeout=3).seconds) == (None, 300.0, 3.0)
    assert (await plain.execute(store)) != (await urgent.execute(store))


@pytest.mark.proves("T-08", "PR-05")
async def test_a_key_names_one_run(store: Store) -> None:
    first = await fulfil.trigger(Order("a")).options(key="k").execute(store)
    again = await workflow("fulfil").trigger({"cents": 0, "id": "a"}).options(key="k").execute(store)
    assert (again, again.created) == (first, False)
    with pytest.raises(IdempotencyConflict, match="another payload"):
        await fulfil.trigger(Order("b")).options(key="k").execute(store)
    assert (await pack.trigger("b").options(key="k").execute(store)).created  # another workflow, another key
    found = await fulfil.find("k", store)
    assert found is not None
    assert found.id == first
    await settle(store, "fulfil")
    assert not (await fulfil.trigger(Order("a")).options(key="k").execute(store)).created
    assert (await store.find_run("fulfil", "k")) is not None
    assert await fulfil.find("other", store) is None


@workflow
async def greet(names: set[int], more: Any = None) -> None: ...


@pytest.mark.proves("PR-05", "PR-08")
@pytest.mark.parametrize("asked", [greet, workflow("greet")], ids=["defined", "by name"])
async def test_a_set_in_another_order_is_the_same_input(store: Store, asked: Workflow[..., Any]) -> None:
    await store.database.workflow_id("greet", create=True)
    one, two = set((0, 8)), set((8, 0))  # noqa: C405 - these keep the order of their making, as texts do that of a seed
    assert list(one) != list(two)
    first = await asked.trigger(names=one, more=[{None, *one}]).options(key="k").execute(store)
    again = asked.trigger(names=two, more=[{None, *two}]).options(key="k")
    assert await again.execute(store) == first
    assert [each.created for each in await store.trigger_many([again, again.options(key="l")])] == [False, True]
    with pytest.raises(IdempotencyConflict):
        await asked.trigger(names={8, 1}).options(key="k").execute(store)
    assert (await store.get_run(first)).input()["names"] == [0, 8], "what is stored stays as it was given"


@pytest.mark.proves("PR-08")
async def test_a_key_belongs_to_the_input_as_it_was_when_it_was_given(store: Store) -> None:
    await store.database.workflow_id("greet", create=True)
    names: set[Any] = {1}
    trigger = greet.trigger(names).options(key="k")
    names.add(2)
    first = await trigger.execute(store)
    names.add(1j)  # which cannot be stored
    assert await trigger.execute(store) == first
    assert (await greet.trigger({1}).options(key="k").execute(store)) == first
    with pytest.raises(IdempotencyConflict):
        await greet.trigger({1, 2}).options(key="k").execute(store)


async def test_a_key_that_is_unique_while_unfinished_is_free_afterwards(store: Store) -> None:
    trigger = tick.trigger().options(key="k", unique="unfinished")
    first = await trigger.execute(store)
    assert await trigger.execute(store) == first
    await settle(store, "tick")
    assert await tick.find("k", store) is None
    second = await trigger.execute(store)
    assert (second.created, second == first) == (True, False)
    assert [run.id for run in await store.runs("tick", key="k")] == [second, first]


async def test_finding_through_a_workflow_before_its_first_run_finds_nothing(store: Store) -> None:
    assert await fulfil.find("k", store) is None
    with pytest.raises(WorkflowNotFound):
        await workflow("fulfil").find("k", store)


@pytest.mark.proves("T-10")
async def test_many_triggers_are_all_there_or_none(store: Store) -> None:
    await tick.trigger().options(key="taken").execute(store)
    mixed = [
        fulfil.trigger(Order("a")),
        pack.trigger("b").options(key="k"),
        tick.trigger().options(delay="1h"),
        pack.trigger("b").options(key="k"),
        tick.trigger().options(key="taken"),
    ]
    over, driver = watched(store)
    ids = await over.trigger_many(mixed)
    assert [run_id.created for run_id in ids] == [True, True, True, False, False]
    assert [run_id.returns for run_id in ids] == [Receipt, int, type(None), int, type(None)]
    assert ids[1] == ids[3]
    assert [(await store.get_run(run_id)).workflow for run_id in ids] == [
        "fulfil",
        "zip.files",
        "tick",
        "zip.files",
        "tick",
    ]
    writing = [call.statement for call in driver.said if call.statement.startswith("add_tasks")]
    assert writing == ["add_tasks_once"]
    before = await written(store)
    with pytest.raises(IdempotencyConflict):
        await store.trigger_many([fulfil.trigger(Order("c")), pack.trigger("other").options(key="k")])
    await store.drain_queue("tick")
    with pytest.raises(QueueDraining):
        await store.trigger_many([fulfil.trigger(Order("c")), tick.trigger()])
    assert await written(store) == before
    assert await store.trigger_many([]) == []


@pytest.mark.proves("T-10")
async def test_many_of_one_workflow_are_one_transaction_in_order(store: Store) -> None:
    await store.database.workflow_id("fulfil", create=True)
    over, driver = watched(store)
    ids = await over.trigger_many(fulfil.trigger(Order(str(number))) for number in range(2_500))
    assert driver.transactions <= 2  # the ids, and the rows
    assert len(set(ids)) == 2_500
    last = await store.get_run(ids[-1])
    assert last.input(Order) == Order("2499")
    assert await ask(store, "select count(*) from {task} where kind = 'RUN' and ready") == [(2_500,)]


@pytest.mark.backends("sqlite", "turso", "postgres", reason="in memory a commit is over before much waits for it")
@pytest.mark.proves("T-11")
async def test_a_hundred_triggers_at_once_share_flushes(store: Store) -> None:
    await store.database.workflow_id("tick", create=True)
    over, driver = watched(store)
    ids = await asyncio.gather(*(tick.trigger().execute(over) for _ in range(100)))
    assert len(set(ids)) == 100
    assert driver.transactions < 80, "each has a flush of its own"  # how many share one is up to the machine


@pytest.mark.proves("T-11", "T-06")
@pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process")
async def test_processes_trigger_at_once_without_the_workflows_code(store_url: str, tmp_path: Path) -> None:
    (tmp_path / "asker.py").write_text(
        "import asyncio, sys, stepwell\n"
        "async def main():\n"
        "    async with stepwell.connect(sys.argv[1]) as store:\n"
        "        asked = stepwell.workflow('fulfil').trigger({'id': 'a'})\n"
        "        await asyncio.gather(*(asked.execute(store) for _ in range(50)),\n"
        "                             *(asked.options(key=f'k{n}').execute(store) for n in range(20)))\n"
        "asyncio.run(main())\n"
    )
    env = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(tmp_path)])}
    async with connect(store_url) as store:
        await store.create_workflow("fulfil")
        with Crew("asker", store_url, size=2, folder=tmp_path, cwd=tmp_path, env=env) as crew:
            wait_for(lambda: not crew.alive, 60)
            assert [member.process.returncode for member in crew.members] == [0, 0], crew.complaints()
        assert await store.counts("fulfil") == {"PENDING": 120}


@pytest.mark.proves("T-01", "T-09")
def test_the_same_builder_works_with_a_sync_store(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run_id = fulfil.trigger(Order("a")).options(key="k").execute(store)
        assert (run_id.created, run_id.returns) == (True, Receipt)
        run = fulfil.get_run(run_id, store)
        assert (run.status, run.input(Order)) == ("PENDING", Order("a"))
        found = fulfil.find("k", store)
        assert found is not None
        assert found.id == run_id
        many = store.trigger_many([tick.trigger(), fulfil.trigger(Order("b"))])
        assert [one.id for one in store.runs(limit=2)] == sorted(many, reverse=True)
        assert [one.name for one in store.workflows()] == ["fulfil", "tick"]
        assert store.find_run("fulfil", "k") == run
        assert store.get_workflow("tick").name == "tick"
        assert list(store.steps(run_id)) == []
        assert store.retry(run_id) is False


@dataclass
class Mutable:
    items: list[int]


async def test_what_is_changed_after_the_trigger_is_not_sent(store: Store) -> None:
    @workflow(name="mutable")
    async def take(given: Mutable) -> None: ...

    given = Mutable([1])
    trigger = take.trigger(given)
    given.items.append(2)
    assert (await store.get_run(await trigger.execute(store))).input() == {"items": [1]}
