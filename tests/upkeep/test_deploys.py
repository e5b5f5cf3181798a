"""Two generations of workers on one database, and a database made by an earlier release."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stepwell import Context, Retry, SignalAnswer, Store, Worker, connect, handler, step, workflow
from stepwell.base.clock import TestClock
from stepwell.errors import SchemaNewer
from stepwell.operate.facts import facts_of
from stepwell.store import schema
from stepwell.store.sql import Statements
from tests.ground.waiting import until
from tests.projections.books import Pay, engine_of
from tests.projections.shelves import AccountRow, accounts
from tests.store.place import NextRelease, Place, opened


def generation(name: str, done: list[tuple[str, str, Any]], *queues: str, attempts: int = 3) -> list[Any]:
    """Handlers as one release of a program has them."""

    def served(queue: str) -> Any:
        @handler(queue, retry=Retry(attempts, base="1ms", jitter=0))
        async def work(payload: Any) -> None:
            done.append((name, queue, payload))

        return work

    return [served(queue) for queue in queues]


@pytest.mark.proves("DP-06", "DP-07")
async def test_old_and_new_workers_share_a_database_and_old_ones_leave_new_queues_alone(
    live_store: Store, store_url: str
) -> None:
    done: list[tuple[str, str, Any]] = []
    old = generation("old", done, "mail", "gone")
    new = generation("new", done, "mail", "zip")
    async with connect(store_url, lease=2) as second:
        await second.enqueue_many(new[1], range(5))  # somebody knows the new queue before any worker does
        async with Worker(live_store, old):
            await live_store.enqueue_many(old[0], range(10))
            await live_store.enqueue(old[1], "last")
            await until(lambda: len(done) == 11)
            assert {name for name, _, _ in done} == {"old"}
            assert await live_store.counts("zip") == {"PENDING": 5}
            tasks = [letter for letter in await live_store.dead_letters() if letter.queue == "zip"]
            assert tasks == []
            async with Worker(second, new):
                await until(lambda: sum(queue == "zip" for _, queue, _ in done) == 5)
                await live_store.enqueue_many(old[0], range(10, 60))
                await live_store.enqueue(old[1], "of the old")
                await until(lambda: len(done) == 11 + 5 + 51)
        assert {(name, queue) for name, queue, _ in done if queue != "mail"} == {("old", "gone"), ("new", "zip")}
        assert sorted(payload for _, queue, payload in done if queue == "mail") == list(range(60))
        assert [(one.queue, one.waiting) for one in await second.unserved()] == []


@pytest.mark.proves("DP-07", "E-15")
async def test_raising_the_attempts_needs_nothing_and_revives_nothing(store: Store, clock: TestClock) -> None:
    tried: list[str] = []

    def release(attempts: int) -> Any:
        @handler("mail", retry=attempts)
        async def send(payload: str) -> None:
            tried.append(payload)
            raise ValueError("no")

        return send

    async def days(worker: Worker) -> None:
        for _ in range(6):
            await worker.drain()
            clock.advance("1d")

    old, new = release(1), release(4)
    dead = await store.enqueue(old, "dead")
    await days(Worker(store, [old]))
    assert tried == ["dead"]
    waiting = await store.enqueue(old, "of the old")
    fresh = await store.enqueue(new, "of the new")
    await days(Worker(store, [new]))
    # A message is tried as often as was said when it was written; who reads it needs not know.
    assert [tried.count(payload) for payload in ("dead", "of the old", "of the new")] == [1, 1, 4]
    letters = {letter.id: (letter.attempt, letter.max_attempts) for letter in await store.dead_letters()}
    assert letters == {dead: (1, 1), waiting: (1, 1), fresh: (4, 4)}


@pytest_asyncio.fixture
async def place(store_url: str) -> AsyncIterator[Place]:
    async with opened(store_url) as place:
        await place.install()
        yield place


@pytest.mark.proves("DP-02")
async def test_a_store_of_an_earlier_release_is_brought_up_to_date_with_all_it_holds(
    place: Place, store_url: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await schema.version(place.driver)
    task = "insert into {task} (id, kind, queue_id, status, ready, run_at, max_attempts, created_at, updated_at"
    await place.do(
        "insert into {queue} (name, paused, created_at) values ('mail', false, 1)",
        "insert into {queue} (name, paused, created_at) values ('stopped', true, 1)",
        f"{task}, key, input) values (1001, 'MESSAGE', 1, 'PENDING', true, 1, 3, 1, 1, 'k', '7')",
        f"{task}, finished_at) values (1002, 'MESSAGE', 1, 'SUCCESS', false, 1, 3, 1, 1, 1)",
        f"{task}, finished_at) values (1003, 'MESSAGE', 2, 'ERROR', false, 1, 3, 1, 1, 1)",
        f"{task}, deleted_at) values (1004, 'MESSAGE', 2, 'PENDING', false, 1, 3, 1, 1, 1)",
        "insert into {worker} (name, host, pid, version, handlers, lease, started_at, stopped_at)"
        " values ('w', 'h', 1, '0', '[]', 1, 1, 1)",
    )
    monkeypatch.setattr(Statements, "migrations", NextRelease.migrations)
    async with connect(store_url, clock=clock) as store:
        assert await schema.version(store.database.driver) == schema.latest(store.database.statements) == before + 1
        await schema.verify(store.database.driver, store.database.statements)
        assert [(queue.name, queue.paused, queue.draining) for queue in await store.queues()] == [
            ("mail", False, False),
            ("stopped", True, False),
        ]
        assert (await store.enqueue("mail", 8)).created
        assert await store.maintenance() is None
        [message] = await store.dequeue("mail")
        assert (message.id, message.payload, message.key) == (1001, 7, "k")
        await store.database.retention.round()
        there = [number for number in range(1001, 1005) if await store.get(number, deleted=True)]
        assert there == [1001, 1003]
        assert await store.workers() == []
    rows = await place.ask("select queue, draining, dead from {queue_counts} order by queue")
    assert [(row["queue"], bool(row["draining"]), row["dead"]) for row in rows] == [
        ("mail", False, 0),
        ("stopped", False, 1),
    ]


@step
async def doubled(n: int) -> int:
    return 2 * n


@workflow
async def approved(ctx: Context, n: int) -> int:
    return await doubled(n) + await ctx.wait("more", int)


def widened(statements: Statements) -> list[tuple[int, str, list[str]]]:
    """As the next release could migrate them, with a column more in every table."""
    texts = "".join(path.read_text() for path in Path(schema.__file__).parent.glob("sql/schema/*.sql"))
    tables = sorted({*re.findall(r"create table \{(\w+)\} \(", texts)} - {"block"})  # which Postgres has as a sequence
    *known, (number, name, later) = NextRelease.migrations(statements)  # type: ignore[arg-type]
    columns = "\n".join(f"alter table {{{table}}} add column added_later text default 'then';\n" for table in tables)
    return [*known, (number, name, [*later, *statements._schema_statements(columns)])]


@pytest.mark.proves("promise-19", "DP-02", "DP-06")
async def test_an_open_store_goes_on_beside_the_later_release_that_migrates_it(
    store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the open store has said before it says again, to tables that have a column more."""
    done: list[tuple[str, str, Any]] = []

    async def lived(name: str, store: Store, sent: int) -> None:
        """Use a bit of everything: a message, a run that waits, decisions, and rows of a read model."""
        engine = engine_of(store, accounts)
        worker = Worker(store, [*generation(name, done, "mail"), approved, engine])
        await store.enqueue("mail", sent, key=str(sent))
        run = await approved.trigger(sent).options(require_worker="ignore").execute(store)
        await engine.execute(Pay("a", 1))
        await engine.submit(Pay("b", 1))
        await worker.drain()
        assert await store.signal(run, "more", 1) is SignalAnswer.WOKE
        await worker.drain()
        assert (await store.get_run(run)).output() == 2 * sent + 1
        assert [row.cents for row in await engine.query(AccountRow)] == [sent, sent]
        assert done[-1] == (name, "mail", sent)
        await store.database.retention.round()
        assert (await facts_of(store, "here")).workers is not None

    await store.create_queue("mail")
    await lived("old", store, 1)
    with monkeypatch.context() as later:
        later.setattr(Statements, "migrations", widened)
        async with connect(store_url, clock=store.database.clock) as migrated:
            await lived("old", store, 2)
            await lived("new", migrated, 3)
            await lived("old", store, 4)
    with pytest.raises(SchemaNewer):  # it would install nothing, but may not know what the later release writes
        async with connect(store_url, clock=store.database.clock):
            pass
