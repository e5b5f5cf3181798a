"""Definitions: a workflow and its queue are made together, once, and are found by name."""

import asyncio
import os
from pathlib import Path

import pytest

from stepwell import InvalidName, QueueInUse, Store, StoreUnavailable, WorkflowNotFound, connect, workflow
from stepwell.errors import Refused
from stepwell.store.workflows import create_workflow
from tests.ground.processes import Crew, wait_for
from tests.queue.raw import ask, change
from tests.runs.kit import Order, fulfil, serve, settle, some, written
from tests.store.seam import watched

ROOT = Path(__file__).parents[2]


@pytest.mark.proves("D-01", "T-10")
async def test_a_workflow_and_its_queue_are_one_transaction(store: Store) -> None:
    over, driver = watched(store)
    await over.create_workflow("zip_files")
    assert driver.transactions == 1
    assert [call.statement for call in driver.said] == ["add_queue", "hold_queue", "add_workflow"]
    assert await ask(store, "select queue.name from {workflow} join {queue} as queue on queue.id = queue_id") == [
        ("zip_files",)
    ]


@pytest.mark.proves("D-01")
async def test_a_failure_between_the_two_rows_leaves_neither(store: Store) -> None:
    def broken() -> object:
        talk = create_workflow({"tenant": ""}, "zip_files")
        answer = None
        for _ in range(2):
            answer = yield talk.send(answer)  # type: ignore[arg-type]
        raise StoreUnavailable("killed")

    with pytest.raises(StoreUnavailable):
        await store.database.driver.transact(broken)  # type: ignore[arg-type]
    assert await written(store) == (0, 0, 0)


@pytest.mark.proves("D-02", "D-08")
async def test_creating_it_again_writes_nothing(store: Store, store_url: str, backend: str) -> None:
    await store.create_workflow("zip_files")
    before = await ask(store, "select * from {workflow}")
    tables = await tables_of(store, backend)
    async with connect(store_url, clock=store.database.clock) as fresh:
        over, driver = watched(fresh)
        await over.create_workflow("zip_files")
        assert driver.transactions == 0
    await store.create_workflow("zip_files")
    made = await store.database.workflow_id("zip_files", create=True)
    assert made == await store.database.workflow_id("zip_files") == await store.database.queue_id("zip_files")
    assert await ask(store, "select * from {workflow}") == before
    await asyncio.gather(*(store.create_workflow(f"type-{number}") for number in range(1_000)))
    assert await tables_of(store, backend) == tables


async def tables_of(store: Store, backend: str) -> list[tuple[object, ...]]:
    if backend == "postgres":
        text = "select table_name from information_schema.tables where table_schema = 'stepwell' order by 1"
    else:
        text = "select name from sqlite_master order by name"
    return await ask(store, text)


@pytest.mark.proves("D-03")
@pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process")
async def test_processes_that_create_at_once_make_one(store_url: str, tmp_path: Path) -> None:
    (tmp_path / "creator.py").write_text(
        "import asyncio, os, sys, time, stepwell\n"
        "async def main():\n"
        "    async with stepwell.connect(sys.argv[1]) as store:\n"
        "        print('ready', flush=True)\n"
        "        while not os.path.exists(sys.argv[2]): time.sleep(0.001)\n"
        "        await asyncio.gather(*(store.create_workflow(f'w{n % 10}') for n in range(100)))\n"
        "        print('done', flush=True)\n"
        "asyncio.run(main())\n"
    )
    go = tmp_path / "go"
    env = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(tmp_path)])}
    async with connect(store_url) as store:
        with Crew("creator", store_url, str(go), size=2, folder=tmp_path, cwd=tmp_path, env=env) as crew:
            wait_for(lambda: all("ready" in member.stdout.read_text() for member in crew.members), 30)
            go.touch()
            wait_for(lambda: not crew.alive, 30)
            assert [member.process.returncode for member in crew.members] == [0, 0], crew.complaints()
        assert await written(store) == (10, 10, 0)


@pytest.mark.proves("D-03", "D-04")
async def test_stores_of_one_process_that_create_at_once_make_one(store_url: str) -> None:
    async with connect(store_url) as one, connect(store_url) as two:
        await asyncio.gather(*((one, two)[number % 2].create_workflow("same") for number in range(20)))
        assert await written(one) == (1, 1, 0)
        assert await one.database.workflow_id("same") == await two.database.workflow_id("same")


@pytest.mark.proves("D-04")
async def test_a_queue_that_is_there_becomes_the_workflows(store: Store) -> None:
    await store.create_queue("mail")
    queue = await store.database.queue_id("mail")
    with pytest.raises(WorkflowNotFound):
        await store.database.workflow_id("mail")
    await store.create_workflow("mail")
    assert await store.database.workflow_id("mail") == queue
    assert await written(store) == (1, 1, 0)


@pytest.mark.proves("D-04")
async def test_the_tables_refuse_a_second_workflow_of_a_queue_and_one_without_a_queue(store: Store) -> None:
    await store.create_workflow("mail")
    queue = await store.database.queue_id("mail")
    for number in (queue, queue + 1):
        with pytest.raises(Refused):
            await change(store, f"insert into {{workflow}} (queue_id, created_at) values ({number}, 1)")
    assert await written(store) == (1, 1, 0)


@pytest.mark.proves("D-05")
async def test_defining_makes_what_is_missing_and_is_remembered(store: Store) -> None:
    over, driver = watched(store)
    first = await over.database.workflow_id("zip_files", create=True)
    assert (
        await over.database.workflow_id("zip_files", create=True)
        == await over.database.workflow_id("zip_files")
        == first
    )
    assert driver.transactions == 1


@pytest.mark.proves("D-06", "D-07")
async def test_names_are_unrelated_and_have_any_number_of_runs(store: Store) -> None:
    for name in ("zip", "zip_v2", "zip-2026.01", "zip:abc123"):
        await store.create_workflow(name)
        await some(store, 3, name=name)
    assert len({run.workflow for run in await store.runs()}) == 4
    assert [run.workflow for run in await store.runs("zip")] == ["zip"] * 3
    with pytest.raises(WorkflowNotFound):
        await store.get_workflow("zip_v3")


@pytest.mark.proves("D-09")
async def test_names_that_are_none_are_refused_before_any_write(store: Store) -> None:
    for name in ("", "a b", "x" * 256, "a/b", "u\u0308", "ü!", 7):
        with pytest.raises(InvalidName):
            await store.create_workflow(name)  # type: ignore[arg-type]
        with pytest.raises(InvalidName):
            workflow(name) if isinstance(name, str) else workflow(name=name)  # type: ignore[call-overload]
    assert await written(store) == (0, 0, 0)
    await store.create_workflow("a-Z_0.9:" + "x" * 247)


@pytest.mark.proves("D-09")
async def test_letters_of_every_script_make_names(store: Store) -> None:
    for name in ("größe", "заказ.v2", "注文", "क्रम", "é" * 255, "\ufb01le", "\uff21"):
        await store.create_workflow(name)
        run_id = await workflow(name).trigger().execute(store)
        assert (await store.get_run(run_id)).workflow == name
        assert [run.id for run in await store.runs(name)] == [run_id]
        await store.create_queue(f"{name[:250]}:mail")
        await store.enqueue(f"{name[:250]}:mail", 1)
        assert await store.counts(f"{name[:250]}:mail") == {"PENDING": 1}


@pytest.mark.proves("D-10")
async def test_workflows_are_listed_and_fetched_by_name(store: Store, store_url: str) -> None:
    await store.create_queue("no-workflow")
    for name in ("b", "a"):
        await store.create_workflow(name)
    assert [one.name for one in await store.workflows()] == ["a", "b"]
    one = await store.get_workflow("a")
    assert (one.name, one.options, one.created_at.isoformat()) == ("a", {}, "2026-01-01T00:00:00+00:00")
    for unknown in ("nobody", "no-workflow"):
        with pytest.raises(WorkflowNotFound, match=unknown):
            await store.get_workflow(unknown)
    async with connect(store_url, tenant="other") as other:
        assert await other.workflows() == []
        with pytest.raises(WorkflowNotFound):
            await other.database.workflow_id("a")


async def test_a_workflow_is_deleted_with_its_queue_when_nothing_uses_it(store: Store) -> None:
    run_id = await fulfil.trigger(Order("a")).execute(store)
    with pytest.raises(QueueInUse, match="delete_workflow"):
        await store.delete_queue("fulfil")
    with pytest.raises(QueueInUse, match="has 1 messages"):
        await store.delete_workflow("fulfil")
    await settle(store, "fulfil")
    assert await store.purge("fulfil") == 1
    worker = await serve(store, "fulfil")
    with pytest.raises(QueueInUse, match="1 living workers"):
        await store.delete_workflow("fulfil")
    await store.database.sessions.end(worker, "stopped")
    await store.delete_workflow("fulfil")
    assert await written(store) == (0, 0, 0)
    with pytest.raises(WorkflowNotFound):
        await store.delete_workflow("fulfil")
    again = await fulfil.trigger(Order("a")).execute(store)  # a workflow makes its definition again
    assert again.created
    assert again != run_id
    await store.create_queue("plain")
    with pytest.raises(WorkflowNotFound):
        await store.delete_workflow("plain")


async def test_what_another_store_deleted_is_made_again_or_said(store: Store, store_url: str) -> None:
    async with connect(store_url, clock=store.database.clock) as other:
        await fulfil.trigger(Order("a")).execute(store)
        await store.purge("fulfil")
        await other.delete_workflow("fulfil")
        assert (await fulfil.trigger(Order("a")).execute(store)).created  # deleted under us; it is its own definition
        await store.purge("fulfil")
        await other.delete_workflow("fulfil")
        with pytest.raises(WorkflowNotFound):
            await workflow("fulfil").trigger({"id": "a"}).execute(store)
    assert await written(store) == (0, 0, 0)
