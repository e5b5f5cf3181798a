"""The move from pgqrs: counts, states, times and recorded steps agree, and open work is finished here, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from stepwell import (
    Context,
    InvalidOption,
    RunStatus,
    Store,
    StoreUnavailable,
    Worker,
    api,
    compat,
    handler,
    step,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.move import move_from_pgqrs
from stepwell.store.arrivals import Arrivals
from stepwell.store.postgres import pgqrs
from stepwell.store.postgres.pgqrs import Pgqrs
from tests.cli.kit import Cli
from tests.ground.postgres import PostgresServer
from tests.move.pgqrs_shop import Left, left_by_pgqrs
from tests.store.seam import ask

DEFAULT = datetime(2026, 1, 1, tzinfo=UTC)  # where a test clock begins
STATUSES = {"SUCCESS": "SUCCESS", "ERROR": "ERROR", "PAUSED": "PAUSED"}  # of pgqrs; what has another one is waiting
OPEN = "select count(*) as n from pgqrs_messages where archived_at is null"
TIMES = """
select message.id, message.enqueued_at, coalesce(run.completed_at, case when moved.message_id is null
       then message.archived_at end) as finished_at, run.started_at, message.read_ct
  from pgqrs_messages as message left join pgqrs_workflow_runs as run on run.message_id = message.id
  left join stepwell_moved as moved on moved.message_id = message.id
"""


class Shop:
    """The workflow and the handler of the old shop, ported; it counts what it does."""

    def __init__(self) -> None:
        did: Counter[str] = Counter()
        self.did, self.mails = did, list[int]()

        @step
        async def charge(order: dict[str, Any]) -> dict[str, Any]:
            did[f"charge {order['n']}"] += 1
            return {"charged": order["n"]}

        @step
        async def approval(order: dict[str, Any]) -> None:
            did[f"approval {order['n']}"] += 1

        def pack(order: dict[str, Any]) -> str:
            did[f"pack {order['n']}"] += 1
            return "packed"

        @workflow
        async def fulfil(ctx: Context, order: dict[str, Any]) -> list[Any]:
            charged = await charge(order)
            if order["mode"] == "pauses":
                await approval(order)
            return [charged, await ctx.step("pack", lambda: pack(order), returns=str)]

        @handler("mail")
        async def send(mail: dict[str, Any]) -> None:
            self.mails.append(mail["i"])

        self.serves: list[Any] = [fulfil, send]

    async def work(self, store: Store) -> None:
        """Do all that is due."""
        await Worker(store, self.serves).drain()


@pytest.fixture
async def left(postgres_url: str, clock: TestClock) -> Left:
    """A database that pgqrs has made, a moment ago."""
    found = await left_by_pgqrs(postgres_url)
    clock.advance(datetime.now(UTC) - DEFAULT)
    return found


@pytest.mark.proves("DP-04")
async def test_what_pgqrs_has_left_stands_here_with_its_times_and_is_finished_here(
    store: Store, left: Left, clock: TestClock
) -> None:
    [before] = await left.ask(OPEN)
    would = await move_from_pgqrs(store, left.url, dry_run=True)
    assert [before] == await left.ask(OPEN)
    assert not await store.queues()
    assert await move_from_pgqrs(store, left.url) == would
    counted = Counter({(one.queue, str(one.status)): one.tasks for one in would})
    told = await left.ask("select status::text as status, count(*) as n from pgqrs_workflow_runs group by 1")
    waits = 1  # it has no run yet: no worker of pgqrs has seen it
    expected = Counter({("fulfil", "PENDING"): waits, ("mail", "SUCCESS"): 1, ("mail", "PENDING"): 6})
    for row in told:
        expected[("fulfil", STATUSES.get(row["status"], "PENDING"))] += row["n"]
    assert counted == expected
    [steps] = await left.ask("select count(*) as n from pgqrs_workflow_steps")
    assert sum(one.steps for one in would) == steps["n"]
    await same_times(store, left)

    shop = Shop()
    await shop.work(store)
    assert sorted(shop.mails) == [1, 2, 3, 4, 5]  # not the one that was done, and not the one for later
    clock.advance("10m")
    await shop.work(store)
    clock.advance("1h")
    await shop.work(store)
    assert sorted(shop.mails) == [1, 2, 3, 4, 5, 6]
    # What was recorded there is not done again: only the run that nobody had begun is charged.
    assert shop.did == {"charge 5": 1, "approval 3": 1, "pack 2": 1, "pack 3": 1, "pack 4": 1, "pack 5": 1}
    runs = await store.runs("fulfil")
    assert Counter(run.status for run in runs) == {RunStatus.SUCCESS: 5, RunStatus.ERROR: 1}
    outputs = {run.key: await store.result(run.id) for run in runs if run.status is RunStatus.SUCCESS}
    assert outputs == {f"pgqrs/{number + 8}": [{"charged": number}, "packed"] for number in (0, 2, 3, 4, 5)}
    [failed] = await store.dead_letters()
    assert failed.key == "pgqrs/9"
    assert failed.last_error == "no box"

    assert not await left.ask("select * from pgqrs_messages where archived_at is null")
    await move_from_pgqrs(store, left.url)
    await shop.work(store)
    assert len(shop.mails) == 6
    assert sum(shop.did.values()) == 6
    assert len(await store.runs("fulfil")) == 6


@pytest.mark.proves("DP-04")
@pytest.mark.parametrize("stage", ["take", "add", "arrived"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
async def test_a_move_that_was_interrupted_is_called_again_and_nothing_is_lost_or_moved_twice(
    store: Store, left: Left, monkeypatch: pytest.MonkeyPatch, stage: str, is_done: bool
) -> None:
    monkeypatch.setattr(pgqrs, "PAGE", 4)
    owner: Any = Arrivals if stage == "add" else Pgqrs
    original, calls = getattr(owner, stage), list[int]()

    async def interrupted(*args: Any, **options: Any) -> None:
        calls.append(1)
        fails = len(calls) == (1 if stage == "take" else 2)
        if not fails or is_done:
            await original(*args, **options)
        if fails:
            raise StoreUnavailable("the mover was killed")

    monkeypatch.setattr(owner, stage, interrupted)
    with pytest.raises(StoreUnavailable):
        await move_from_pgqrs(store, left.url)
    # What is taken there and has not arrived here is nowhere to be claimed; what has arrived may be done at once.
    shop = Shop()
    await shop.work(store)
    await move_from_pgqrs(store, left.url)
    await shop.work(store)
    assert sorted(shop.mails) == [1, 2, 3, 4, 5]
    assert shop.did["charge 5"] == shop.did["pack 5"] == 1
    assert len(await store.runs("fulfil")) == 6


@pytest.mark.proves("DP-04")
@pytest.mark.backends("sqlite", reason="it is about the database of pgqrs")
async def test_what_workers_of_pgqrs_may_be_at_work_on_is_not_moved(store: Store, left: Left) -> None:
    await left.ask("update pgqrs_messages set consumer_worker_id = 1 where id = 12")  # its time is not over
    with pytest.raises(InvalidOption, match="1 of its messages are with a consumer"):
        await move_from_pgqrs(store, left.url)
    assert await left.ask(OPEN) != [(0,)]
    assert not await store.runs("fulfil")
    await left.ask("update pgqrs_messages set consumer_worker_id = null")
    await left.ask("update pgqrs_workers set status = 'polling', heartbeat_at = now() where id = 1")
    with pytest.raises(InvalidOption, match="1 of its workers have polled"):
        await move_from_pgqrs(store, left.url)
    await move_from_pgqrs(store, left.url, anyway=True)
    assert len(await store.runs("fulfil")) == 6


@pytest.mark.proves("DP-04")
async def test_what_pgqrs_has_given_up_is_a_dead_letter_here_and_can_be_tried_again(store: Store, left: Left) -> None:
    await left.ask("update pgqrs_messages set read_ct = 5 where id in (4, 13)")
    await left.ask("update pgqrs_messages set read_ct = 5, archived_at = now(), vt = now() where id = 5")
    await left.ask("update pgqrs_messages set archived_at = now() where id = 10")
    await move_from_pgqrs(store, left.url)
    dead = {one.key: one for one in await store.dead_letters()}
    assert set(dead) == {"pgqrs/4", "pgqrs/5", "pgqrs/9", "pgqrs/10", "pgqrs/13"}
    assert dead["pgqrs/4"].last_error == "pgqrs has delivered it 5 times"
    shop = Shop()
    for one in dead.values():
        await store.requeue(one.id)
    await shop.work(store)
    assert sorted(shop.mails) == [1, 2, 3, 4, 5]
    assert shop.did["pack 5"] == 1


@pytest.mark.proves("DP-04")
@pytest.mark.backends("sqlite", reason="it is about the database of pgqrs")
async def test_a_second_database_needs_a_name_of_its_own_and_others_are_refused(
    store: Store, left: Left, postgres_server: PostgresServer
) -> None:
    with pytest.raises(InvalidOption, match="it has not the tables of pgqrs"):
        await move_from_pgqrs(store, postgres_server.url())
    with pytest.raises(InvalidOption, match="pgqrs is moved from Postgres"):
        await move_from_pgqrs(store, "sqlite:///old.db")
    other = await left_by_pgqrs(postgres_server.url())
    await move_from_pgqrs(store, left.url)
    with pytest.raises(InvalidOption, match="give this database another name"):
        await move_from_pgqrs(store, other.url)
    await move_from_pgqrs(store, other.url, name="second")
    keys = {run.key for run in await store.runs("fulfil")}
    assert keys == {f"{name}/{number}" for name in ("pgqrs", "second") for number in range(8, 14)}


@pytest.mark.proves("DP-04")
@pytest.mark.backends("sqlite", reason="a command, whatever the store")
def test_the_command_moves_and_tells_what(store_url: str, backend: str, postgres_url: str) -> None:
    left = asyncio.run(left_by_pgqrs(postgres_url))
    cli = Cli(store_url)
    cli("migrate")
    would = cli("move", "pgqrs", left.url, "--dry-run", "--json").json
    did = cli("move", "pgqrs", left.url, "--json").json
    assert would["moved"] == did["moved"]
    assert sum(one["tasks"] for one in did["moved"]) == 13
    again = cli("move", "pgqrs", left.url).out
    assert "3 tasks moved" in again  # what was done there; it arrives once


@pytest.mark.proves("DP-05")
@pytest.mark.parametrize("old", sorted(compat.ALIASES))
def test_an_old_name_is_a_deprecated_alias(old: str) -> None:
    new = compat.ALIASES[old]
    with pytest.warns(DeprecationWarning, match=f"{old} is called {new} here") as told:
        found = getattr(compat, old)
    assert found is getattr(api, new)
    assert told[0].filename == __file__


@pytest.mark.proves("DP-05")
def test_a_name_that_never_was_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"stepwell\.compat has no 'Nothing'"):
        _ = compat.Nothing
    assert "PausedError" in dir(compat)


async def same_times(store: Store, left: Left) -> None:
    """Every task here has the moments of its message, and of the run of that."""
    ids = [row["id"] for row in await ask(store, "select id from {task}")]
    tasks = {task.key: task for task_id in ids if (task := await store.get(task_id)) is not None}
    rows = await left.ask(TIMES)
    assert len(tasks) == len(rows)
    for row in rows:
        task = tasks[f"pgqrs/{row['id']}"]
        assert (task.created_at, task.finished_at, task.started_at, task.attempt) == (
            row["enqueued_at"],
            row["finished_at"],
            row["started_at"],
            row["read_ct"],
        )
