import re
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stepwell.store.sql import Statements
from tests.store.place import Place, opened

VIEWS = (
    "heartbeats",
    "tasks",
    "messages",
    "dead_letters",
    "workers",
    "runs",
    "steps",
    "effects",
    "timers",
    "outbox",
    "instances",
    "queue_counts",
)
MICROSECONDS = 1_767_225_600_500_000  # 2026-01-01 00:00:00.500 UTC


@pytest_asyncio.fixture
async def place(store_url: str) -> AsyncIterator[Place]:
    async with opened(store_url) as place:
        yield place


def told(moment: Any) -> str | None:
    """A moment as both kinds of database tell it."""
    if isinstance(moment, datetime):
        assert moment.utcoffset() is not None
        return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    assert moment is None or isinstance(moment, str)
    return moment


def task_row(number: int, kind: str, queue: int, more: str, values: str) -> str:
    columns = "id, kind, queue_id, max_attempts, run_at, created_at, updated_at, ready"
    times = f"3, {MICROSECONDS + number * 1_000_000}, {MICROSECONDS}, {MICROSECONDS}"
    return f"insert into {{task}} ({columns}, {more}) values ({number}, '{kind}', {queue}, {times}, {values})"


TASKS = [
    # number, kind, queue, more columns, `ready` and their values; state, whether `until` is its run_at, its holder
    (1, "MESSAGE", 1, "key", "true, 'order-1'", "ready", False, None),
    (2, "MESSAGE", 1, "key, worker_id", "false, 'order-2', 1", "waiting until run_at", True, None),
    (
        3,
        "MESSAGE",
        1,
        "attempt, last_error",
        "false, 2, 'E: no'",
        "failed, waiting to be tried again at run_at",
        True,
        None,
    ),
    (4, "MESSAGE", 1, "status, owner, attempt", "false, 'RUNNING', 1, 1", "running", False, "crew"),
    (5, "MESSAGE", 1, "status", "false, 'RUNNING'", "taken by hand, comes back if not settled", True, None),
    (6, "MESSAGE", 2, "key", "true, null", "its queue is paused", False, None),
    (7, "RUN", 1, "waiting", "false, 2", "waiting for child runs", True, None),
    (8, "RUN", 1, "status", "false, 'PAUSED'", "paused until resumed, at the latest until run_at", True, None),
    (9, "RUN", 1, "status, finished_at", f"false, 'SUCCESS', {MICROSECONDS}", "succeeded", False, None),
    (
        10,
        "RUN",
        1,
        "status, finished_at, last_error, worker_id",
        f"false, 'ERROR', {MICROSECONDS}, 'E: no', 77",
        "failed",
        False,
        None,
    ),
    (11, "RUN", 1, "status, finished_at", f"false, 'CANCELLED', {MICROSECONDS}", "cancelled", False, None),
    (12, "RUN", 1, "deleted_at", f"false, {MICROSECONDS}", "deleted", False, None),
    (
        13,
        "RUN",
        1,
        "status, owner, cancel_requested_at",
        "false, 'RUNNING', 1, 1",
        "cancelling",
        False,
        "crew",
    ),
    (14, "EFFECT", 1, "instance_id", "true, 1", "ready", False, None),
    (15, "TIMER", 1, "instance_id, key", "false, 1, 'payment'", "waiting until run_at", True, None),
    (16, "OUTBOX", 1, "INPUT", "true, '{\"id\": 1}'", "ready", False, None),
]


async def furnish(place: Place) -> None:
    """Put something into every table that a view shows."""
    await place.install()
    await place.do(
        f"insert into {{queue}} (name, created_at) values ('mail', {MICROSECONDS})",
        f"insert into {{queue}} (name, paused, created_at) values ('stopped', true, {MICROSECONDS})",
        f"insert into {{worker}} (name, host, pid, version, handlers, lease, started_at)"
        f" values ('crew', 'ship', 4711, '0.1', '[]', 30000000, {MICROSECONDS})",
        f"insert into {{beat}} (worker_id, beat_at, heard_at) values (1, 1, {MICROSECONDS})",
        "insert into {instance} (id, type, name, created_at, updated_at) values (1, 'order', '7', 1, 1)",
        f"insert into {{step}} (run_id, key, status, started_at) values (9, 'charge', 'SUCCESS', {MICROSECONDS})",
        *(task_row(*row[:5]) for row in TASKS),
        # What each waits for in vain: no moment at all.
        task_row(17, "RUN", 1, "status", "false, 'PAUSED'"),
        task_row(18, "RUN", 1, "status", "false, 'PENDING'"),
        "update {task} set run_at = null where id > 16",
    )


@pytest.mark.proves("I-10")
async def test_sql_alone_says_why_a_task_waits_until_when_and_who_holds_it(place: Place) -> None:
    await furnish(place)
    for view, column in (("messages", "queue"), ("runs", "workflow")):
        rows = {
            row["id"]: row
            for row in await place.ask(
                f"select id, {column} as line, status, state, until, held_by, held_by_name, held_by_host, held_by_pid,"
                f" held_by_heard_of, attempt, max_attempts, key, last_error, run_at from {{{view}}}"
            )
        }
        expected_here = {row[0]: row for row in TASKS if row[1] == view.removesuffix("s")}
        assert set(expected_here) <= set(rows)
        for number, (_, _, queue, _, _, state, waits, holder) in expected_here.items():
            row = rows[number]
            moment = f"2026-01-01 00:00:{number:02}.500"
            assert row["state"] == state
            assert told(row["run_at"]) == moment
            assert told(row["until"]) == (moment if waits else None)
            assert row["line"] == ("mail" if queue == 1 else "stopped")
            held = (1, holder, "ship", 4711) if holder else (None, None, None, None)
            assert (row["held_by"], row["held_by_name"], row["held_by_host"], row["held_by_pid"]) == held
            assert (row["held_by_heard_of"] is not None) == (holder is not None)
    messages = {
        row["id"]: row for row in await place.ask("select id, attempt, max_attempts, key, last_error from {messages}")
    }
    assert messages[1]["key"] == "order-1"
    assert (messages[3]["attempt"], messages[3]["max_attempts"], messages[3]["last_error"]) == (2, 3, "E: no")
    forever = {row["id"]: row["state"] for row in await place.ask("select id, state from {runs} where until is null")}
    assert (forever[17], forever[18]) == ("paused until a signal or an operator resumes it", "waiting for a signal")


@pytest.mark.proves("I-10")
async def test_every_view_shows_what_it_is_named_for(place: Place) -> None:
    await furnish(place)
    [dead] = await place.ask("select * from {dead_letters}")
    assert (dead["last_worker"], dead["last_worker_name"]) == (77, None), "its session is removed"
    [sent] = await place.ask("select last_worker, last_worker_name from {messages} where id = 2")
    assert (sent["last_worker"], sent["last_worker_name"]) == (1, "crew")
    assert (dead["id"], dead["kind"], dead["queue"], dead["last_error"]) == (10, "RUN", "mail", "E: no")
    assert told(dead["finished_at"]) == "2026-01-01 00:00:00.500"
    [worker] = await place.ask(
        "select name, host, pid, state, holds, lease_seconds, heard_of, started_at from {workers}"
    )
    assert (worker["name"], worker["state"], worker["holds"], float(worker["lease_seconds"])) == (
        "crew",
        "living",
        2,
        30,
    )
    assert told(worker["started_at"]) == "2026-01-01 00:00:00.500"
    [step] = await place.ask("select run_id, workflow, key, status, started_at from {steps}")
    assert (step["run_id"], step["workflow"], step["key"], step["status"]) == (9, "mail", "charge", "SUCCESS")
    [effect] = await place.ask("select id, instance_type, instance, state from {effects}")
    assert tuple(effect.values()) == (14, "order", "7", "ready")
    [timer] = await place.ask("select id, instance_type, instance, key, state, due_at from {timers}")
    assert tuple(timer.values())[:-1] == (15, "order", "7", "payment", "waiting until run_at")
    assert told(timer["due_at"]) == "2026-01-01 00:00:15.500"
    [outbox] = await place.ask("select id, destination, event, state from {outbox}")
    assert tuple(outbox.values()) == (16, "mail", '{"id": 1}', "ready")
    [instance] = await place.ask("select type, name, state, created_at from {instances}")
    assert (instance["type"], instance["name"], instance["state"]) == ("order", "7", "open")
    counts = await place.ask(
        "select queue, ready, waiting, running, dead, oldest_ready, next_due from {queue_counts} order by queue"
    )
    assert [tuple(row.values())[:5] for row in counts] == [("mail", 3, 7, 3, 1), ("stopped", 1, 0, 0, 0)]
    assert told(counts[0]["oldest_ready"]) == "2026-01-01 00:00:01.500"
    assert told(counts[0]["next_due"]) == "2026-01-01 00:00:02.500"
    await place.do("delete from {beat}")
    assert await place.ask("select state, heard_of from {workers}") == [{"state": "lost", "heard_of": None}]


@pytest.mark.backends("postgres", "turso", reason="compared with SQLite")
async def test_views_have_the_same_columns_everywhere(place: Place, tmp_path: Path) -> None:
    await furnish(place)
    async with opened(f"sqlite:///{tmp_path}/other.db") as other:
        await furnish(other)
        for view in VIEWS:
            [here, *_] = await place.ask(f"select * from {{{view}}}")
            [there, *_] = await other.ask(f"select * from {{{view}}}")
            assert list(here) == list(there), view


def test_every_view_is_for_people_and_known_here() -> None:
    for dialect in ("postgres", "sqlite"):
        statements = Statements(dialect, "s")
        texts = [text for _, _, texts in statements.migrations() for text in texts if text.startswith("create view")]
        found = [re.sub(r"^(\"s\"\.|s_)", "", text.split()[2]) for text in texts]
        assert set(found) == set(VIEWS)
