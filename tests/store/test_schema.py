import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio

from stepwell.connect import admin
from stepwell.errors import InvalidName, Refused, SchemaDiffers, SchemaMissing, SchemaNewer
from stepwell.store import schema
from stepwell.store.driver import Script
from stepwell.store.sql import Dialect, Statements
from tests.ground.processes import Crew, wait_for
from tests.ground.scale import Scale
from tests.store.place import NextRelease, Place, opened

ROOT = Path(__file__).parents[2]
ENV = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


@pytest_asyncio.fixture
async def place(store_url: str) -> AsyncIterator[Place]:
    async with opened(store_url) as place:
        yield place


# Installing


@pytest.mark.proves("DP-01")
async def test_installing_twice_changes_nothing(place: Place) -> None:
    await place.install()
    before = await place.everything()
    await place.do("insert into {queue} (name, created_at) values ('kept', 1)")
    await place.install()
    assert await place.everything() == before
    assert await place.ask("select name from {queue}") == [{"name": "kept"}]
    await place.verify()


@pytest.mark.proves("DP-01", "promise-19")
async def test_twenty_stores_of_one_process_install_at_once(store_url: str) -> None:
    async with AsyncExitStack() as stack:
        places = [await stack.enter_async_context(opened(store_url)) for _ in range(20)]
        await asyncio.gather(*(place.install() for place in places))
        for place in places:
            await place.verify()
        noted = await places[0].ask("select number from {migration} order by number")
    assert [row["number"] for row in noted] == [number for number, _, _ in places[0].statements.migrations()]


@pytest.mark.proves("DP-01", "promise-19")
@pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process")
async def test_six_processes_install_at_once(store_url: str, tmp_path: Path) -> None:
    moment = str(time.time() + 2)
    arguments = ("install", store_url, "stepwell", moment)
    with Crew("tests.store.migrator", *arguments, size=6, folder=tmp_path, env=ENV, cwd=ROOT) as crew:
        wait_for(lambda: not crew.alive, 60, message="the end of six installs")
        assert [member.process.returncode for member in crew.members] == [0] * 6, crew.complaints()


@pytest.mark.backends("postgres", reason="only there does waiting for another migrator have a deadline of the server")
async def test_a_migrator_is_waited_for_longer_than_a_statement_may_take(store_url: str) -> None:
    async with opened(store_url) as patient, opened(store_url, timeout=0.4) as impatient:
        other = await asyncpg.connect(store_url)
        [text] = [token for token in patient.statements["lock_schema"].tokens if isinstance(token, str)]
        async with other.transaction():
            await other.fetch(text)
            installing = asyncio.create_task(impatient.install())
            await asyncio.sleep(1.2)
            assert not installing.done()
        await installing
        await other.close()
        await patient.verify()


@pytest.mark.proves("DP-01", "promise-19")
@pytest.mark.timeout(600)
async def test_a_migrator_may_die_at_any_statement(store_url: str, scale: Scale) -> None:
    step = scale.of(15, 1)
    command = [sys.executable, "-m", "tests.store.migrator", "sweep", store_url, str(step)]
    ended = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, env=ENV, capture_output=True, text=True, timeout=590
    )
    assert ended.returncode == 0, ended.stderr
    dialect: Dialect = "postgres" if store_url.startswith("postgresql") else "sqlite"
    statements = Statements(dialect, "stepwell")
    texts = sum(len(texts) for _, _, texts in statements.migrations()) + len(statements.bootstrap())
    assert int(ended.stdout) >= texts // step > 3


# Versions


@pytest.mark.proves("DP-02")
async def test_nothing_installed_is_said(place: Place) -> None:
    for check in (schema.check_version, schema.verify):
        with pytest.raises(SchemaMissing, match="connect once with `install=True`"):
            await check(place.driver, place.statements)
    assert await schema.version(place.driver) == 0


@pytest.mark.proves("DP-02")
async def test_an_older_schema_is_said_with_numbers_and_upgraded_in_place(place: Place) -> None:
    await place.install()
    await place.do("insert into {queue} (name, created_at) values ('kept', 1)")
    known = schema.latest(place.statements)
    later = NextRelease(place.statements.dialect, "stepwell")
    for check in (schema.check_version, schema.verify):
        with pytest.raises(SchemaMissing, match=f"has schema {known}, this release needs {known + 1}"):
            await check(place.driver, later)
    await schema.install(place.driver, later)
    await schema.verify(place.driver, later)
    assert await schema.version(place.driver) == known + 1
    assert await place.ask("select name from {queue}") == [{"name": "kept"}]


@pytest.mark.proves("DP-02")
async def test_a_store_of_the_release_before_is_upgraded_with_all_that_is_in_it(place: Place) -> None:
    await place.install()
    await place.do(
        "insert into {queue} (name, created_at) values ('q', 1)",
        "insert into {worker} (name, host, pid, version, handlers, lease, started_at)"
        " values ('w', 'h', 1, '', '[]', 5, 1)",
        f"{TASK}) values (1, 'MESSAGE', 1, true, 3, 1, 1)",
        f"{TASK}, status, owner, attempt) values (2, 'RUN', 1, false, 3, 1, 1, 'RUNNING', 1, 1)",
        f"{TASK}, status, held_at) values (3, 'RUN', 1, false, 3, 1, 1, 'PAUSED', 1)",
        f"{TASK}, status, finished_at) values (4, 'RUN', 1, false, 3, 1, 1, 'ERROR', 1)",
        "insert into {step} (run_id, key, status) values (2, 'charge', 'SUCCESS')",
    )
    later = NextRelease(place.statements.dialect, "stepwell")
    await schema.install(place.driver, later)
    await schema.verify(place.driver, later)
    rows = await place.ask("select id, status, ready, losses, later from {task} order by id")
    assert [(row["status"], bool(row["ready"]), row["losses"], row["later"]) for row in rows] == [
        ("PENDING", True, 0, "then"),
        ("RUNNING", False, 0, "then"),
        ("PAUSED", False, 0, "then"),
        ("ERROR", False, 0, "then"),
    ]
    assert await place.ask("select run_id, key from {step}") == [{"run_id": 2, "key": "charge"}]
    for text in (
        f"{TASK}, losses) values (5, 'RUN', 1, true, 3, 1, 1, 1)",
        f"{TASK}) values (5, 'X', 1, true, 3, 1, 1)",
    ):
        with pytest.raises(Refused):
            await place.do(text)


@pytest.mark.proves("DP-02")
async def test_steps_are_known_by_their_generation_too(place: Place) -> None:
    await place.install()
    await place.do(
        "insert into {queue} (name, created_at) values ('q', 1)",
        f"{TASK}) values (1, 'RUN', 1, true, 3, 1, 1)",
        "insert into {step} (run_id, key, status) values (1, 'a#1', 'SUCCESS')",
    )
    with pytest.raises(Refused):
        await place.do("insert into {step} (run_id, generation, key, status) values (1, 0, 'a#1', 'SUCCESS')")
    await place.do("insert into {step} (run_id, generation, key, status) values (1, 1, 'a#1', 'SUCCESS')")
    assert await place.ask("select generation from {steps}") == [{"generation": 0}], "only of the run's generation"


@pytest.mark.proves("DP-02")
async def test_a_newer_schema_is_refused_and_left_alone(place: Place) -> None:
    known = schema.latest(place.statements)
    await schema.install(place.driver, NextRelease(place.statements.dialect, "stepwell"))
    before = await place.everything()
    for refuse in (schema.check_version, schema.verify, schema.install):
        with pytest.raises(SchemaNewer) as refused:
            await refuse(place.driver, place.statements)
        assert (refused.value.found, refused.value.known) == (known + 1, known)
    assert await place.everything() == before


async def test_a_migrator_overtaken_by_a_later_release_does_nothing(place: Place) -> None:
    later = NextRelease(place.statements.dialect, "stepwell")
    transact = place.driver.transact

    async def overtaken(script: Callable[[], Script[Any]], **options: Any) -> Any:
        place.driver.transact = transact  # type: ignore[method-assign]
        await schema.install(place.driver, later)
        return await transact(script, **options)

    place.driver.transact = overtaken  # type: ignore[method-assign]
    with pytest.raises(SchemaNewer):
        await place.install()
    await schema.verify(place.driver, later)


@pytest.mark.proves("DP-02")
async def test_admin_is_the_door(place: Place) -> None:
    store: Any = SimpleNamespace(database=SimpleNamespace(driver=place.driver, statements=place.statements))
    with pytest.raises(SchemaMissing):
        await admin(store).verify()
    await admin(store).install()
    await admin(store).verify()


# What verify sees


def remade(place: Place, table: str, old: str, new: str) -> tuple[str, ...]:
    """Statements that make a table once more, with something changed in its definition."""
    text = place.statement(f"create table {{{table}}} (")
    assert old in text
    and_views = " cascade" if place.statements.dialect == "postgres" else ""
    later = [place.statement(f"alter table {{{table}}} add column {name}") for name in ADDED.get(table, ())]
    return f"drop table {{{table}}}{and_views}", text.replace(old, new, 1), *later


# What later migrations have added to a table.
ADDED: Final = {
    "task": (
        *("group_key", "position", "waits_for_previous", "limit_key", "schedule_id", "cost bigint"),
        *("key_until_begun", "replaced_by", "expires_at", "keeps_result", "headers"),
        *("timeout bigint", "deadline_at bigint", "on_parent_end", "ends_children"),
    )
}


DAMAGES: dict[str, tuple[Callable[[Place], tuple[str, ...]], str]] = {
    "no table": (lambda _: ("drop table {receipt}",), r"table \S+receipt is missing"),
    "no column": (
        lambda place: remade(place, "event", "    type_version bigint not null default 1,\n", ""),
        r"table \S+event has no column type_version \(bigint not null default 1",
    ),
    "one column more": (
        lambda _: ("alter table {rollup} add column extra bigint",),
        r"table \S+rollup has a column it should not have: extra bigint",
    ),
    "another type": (
        lambda place: remade(place, "rollup", "failed bigint", "failed text"),
        r"column failed of table \S+rollup is `text not null default .*, it should be `bigint not null default 0`",
    ),
    "may be null": (
        lambda place: remade(place, "receipt", "recorded_at bigint not null", "recorded_at bigint"),
        r"column recorded_at of table \S+receipt is `bigint` \(may be null\), it should be `bigint not null`",
    ),
    "another default": (
        lambda place: remade(place, "task", "default 'ever'", "default 'unfinished'"),
        r"column key_scope of table \S+task is `text not null default 'unfinished'.*, it should be .*'ever'",
    ),
    "no check of a table": (
        lambda place: remade(
            place, "task", "constraint task_owned_while_running check (owner is null or status = 'RUNNING'),", ""
        ),
        r"table \S+task lacks .*check \(owner is null or status = 'RUNNING'",
    ),
    "no check of a column": (
        lambda place: remade(place, "receipt", " check (outcome in ('applied', 'completed'))", ""),
        r"table \S+receipt lacks check \(outcome",
    ),
    "another check": (
        lambda place: remade(place, "receipt", "('applied', 'completed')", "('applied', 'completed', 'lost')"),
        r"table \S+receipt lacks check \(outcome",
    ),
    "no unique": (
        lambda place: remade(place, "event", ",\n    unique (instance_id, version)", ""),
        r"table \S+event lacks unique \(instance_id, version\)",
    ),
    "no foreign key": (
        lambda place: remade(place, "workflow", "primary key references", "primary key, -- "),
        r"workflow .*references queue",
    ),
    "no index": (lambda _: ("drop index {task_due}",), r"index \S+task_due is missing"),
    "another index": (
        lambda place: (
            "drop index {task_due}",
            place.statement("create index {task_due}").replace("(run_at)", "(run_at, id)"),
        ),
        r"index \S+task_due is `.*\(run_at, id\).*`, it should be `.*\(run_at\)",
    ),
    "not unique": (
        lambda place: (
            "drop index {task_key}",
            place.statement("create unique index {task_key}").replace("unique ", ""),
        ),
        r"index \S+task_key is `create index",
    ),
    "no view": (lambda _: ("drop view {workers}",), r"view \S+workers is missing"),
    "another view": (
        lambda _: ("drop view {workers}", "create view {workers} as select id, name from {worker}"),
        r"view \S+workers is defined otherwise",
    ),
}


@pytest.mark.proves("DP-02")
@pytest.mark.parametrize("damage", DAMAGES)
async def test_verify_names_the_difference(place: Place, damage: str) -> None:
    await place.install()
    await place.verify()
    statements, words = DAMAGES[damage]
    await place.do(*statements(place))
    before = await place.everything()
    with pytest.raises(SchemaDiffers) as differs:
        await place.verify()
    assert re.search(words, differs.value.difference), differs.value.difference
    assert await place.everything() == before


async def test_verify_leaves_nothing_behind_and_what_users_add_alone(place: Place) -> None:
    await place.install()
    await place.do(
        "create table {mine} (id bigint)",
        "create view {my_view} as select id from {queue}",
        f"create index my_index on {place.name('task')} (created_at)",
    )
    before = await place.everything()
    await place.verify()
    await place.verify()
    assert await place.everything() == before
    catalogue = "pg_class where relname like '%scratch%' or relnamespace = pg_my_temp_schema()"
    embedded = "sqlite_master where name like '%scratch%'"
    source = catalogue if place.statements.dialect == "postgres" else embedded
    assert await place.ask(f"select count(*) as count from {source}") == [{"count": 0}]


# Names


BAD_NAMES = ["", "Stepwell", "step well", 'a"b', "a;drop table x", "1st", "a-b", "a.b", "é", "a" * 49, "a\n", None, 3]


@pytest.mark.proves("CF-08")
@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_a_bad_schema_name_is_refused_before_there_is_a_statement(dialect: Dialect, name: Any) -> None:
    with pytest.raises(InvalidName):
        Statements(dialect, name)


@pytest.mark.proves("CF-08")
async def test_a_bad_schema_name_writes_nothing(store_url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidName):
        async with opened(store_url, "no good"):
            pass
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


@pytest.mark.proves("CF-08")
async def test_schemas_stand_side_by_side(store_url: str) -> None:
    names = ["one", "one_two", "task", "a" * 48]
    async with AsyncExitStack() as stack:
        places = [await stack.enter_async_context(opened(store_url, name)) for name in names]
        for place in places:
            await place.install()
            await place.do(f"insert into {{queue}} (name, created_at) values ('of_{place.statements.schema}', 1)")
        for place in places:
            await place.verify()
            assert await place.ask("select name from {queue}") == [{"name": f"of_{place.statements.schema}"}]
        await places[0].do("drop index {task_due}")
        with pytest.raises(SchemaDiffers):
            await places[0].verify()
        for place in places[1:]:
            await place.verify()


# Foreign keys and checks


TASK = "insert into {task} (id, kind, queue_id, ready, max_attempts, created_at, updated_at"
REFUSED = [
    "insert into {queue} (name, created_at) values ('', 1)",
    "insert into {queue} (name, created_at) values ('q', 1)",
    "insert into {queue} (name) values ('no_time')",
    "insert into {workflow} (queue_id, created_at) values (99, 1)",
    "insert into {fence} (worker_id, slot) values (99, 0)",
    "insert into {beat} (worker_id, beat_at) values (99, 0)",
    "insert into {worker} (name, host, pid, version, handlers, lease, started_at) values ('w', 'h', 1, '', '[]', 0, 1)",
    f"{TASK}) values (2, 'job', 1, true, 3, 1, 1)",
    f"{TASK}) values (2, 'MESSAGE', 99, true, 3, 1, 1)",
    f"{TASK}) values (1, 'MESSAGE', 1, true, 3, 1, 1)",
    f"{TASK}) values (2, 'MESSAGE', 1, true, 0, 1, 1)",
    f"{TASK}, attempt) values (2, 'MESSAGE', 1, true, 3, 1, 1, -1)",
    f"{TASK}, status) values (2, 'MESSAGE', 1, false, 3, 1, 1, 'DONE')",
    f"{TASK}, owner) values (2, 'MESSAGE', 1, false, 3, 1, 1, 1)",
    f"{TASK}, status) values (2, 'MESSAGE', 1, true, 3, 1, 1, 'RUNNING')",
    f"{TASK}, deleted_at) values (2, 'MESSAGE', 1, true, 3, 1, 1, 1)",
    f"{TASK}, status) values (2, 'MESSAGE', 1, false, 3, 1, 1, 'SUCCESS')",
    f"{TASK}, finished_at) values (2, 'MESSAGE', 1, false, 3, 1, 1, 1)",
    f"{TASK}, key_scope) values (2, 'MESSAGE', 1, true, 3, 1, 1, 'never')",
    f"{TASK}, key) values (2, 'MESSAGE', 1, true, 3, 1, 1, 'taken')",
    "insert into {step} (run_id, key, status) values (1, 'k', 'DONE')",
    "insert into {event} (instance_id, version, type, recorded_at) values (99, 1, 't', 1)",
    "delete from {queue}",
]
# A task's queue is checked by whoever adds it, under a lock, because a foreign key is a third of what adding costs on
# Postgres: see its table in 0001_initial.sql, and tests/queue/test_enqueue.py for the race with a delete.
# An event's instance is checked by whoever appends, who has locked it.
LOCKED = {
    f"{TASK}) values (2, 'MESSAGE', 99, true, 3, 1, 1)",
    "delete from {queue}",
    "insert into {event} (instance_id, version, type, recorded_at) values (99, 1, 't', 1)",
}


@pytest.mark.proves("B-08")
async def test_foreign_keys_and_checks_are_enforced(place: Place) -> None:
    await place.install()
    await place.do(
        "insert into {queue} (name, created_at) values ('q', 1)",
        f"{TASK}, key) values (1, 'MESSAGE', 1, true, 3, 1, 1, 'taken')",
    )
    for text in REFUSED:
        if text in LOCKED and place.statements.dialect == "postgres":
            continue
        try:
            await place.do(text)
        except Refused:
            continue
        pytest.fail(f"not refused: {text}")
    assert await place.ask("select count(*) as tasks from {task}") == [{"tasks": 1}]
    await place.do(f"{TASK}, key) values (2, 'MESSAGE', 1, true, 3, 1, 1, 'free')")


# The .sql files


SPELLED_TWICE = {
    "append_events",
    "appenders",
    "horizon",
    "begin_writing",
    "catalogue",
    "check_turns",
    "health",
    "claim",
    "count_settled",
    "find_runs",
    "find_tagged_runs",
    "has_schema",
    "lock_ending",
    "lock_families",
    "lock_schema",
    "lock_trees",
    "look_in",
    "note",
    "take",
    "reserve_blocks",
    "take_time",
}
SQLITE_ONLY = {"keep_limiter", "keys_ahead", "open_limiter", "ready_of_key", "take_picked"}  # steps of `claim_limited`
POSTGRES_ONLY = {
    "claim_limited",
    "claim_above",
    "decide_at_once",
    "end_if_idle",
    "held_tasks",
    "isolation",
    "lock_events",
    "lock_rows_of_keys",
    "mark",
    "notify",
    "oldest_writer",
    "patience",
    "use_tables",
}


def headings() -> list[tuple[str, str, str, str]]:
    """Every named statement: its file, name, dialect and the lines up to the next one."""
    found = []
    for file in resources.files("stepwell.store").joinpath("sql").iterdir():
        if file.name.endswith(".sql"):
            parts = re.split(r"^-- name: (\w+)(?: \[(\w+)\])?\n", file.read_text("utf-8"), flags=re.MULTILINE)[1:]
            found += [
                (file.name, name, dialect or "", body)
                for name, dialect, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
            ]
    return found


def test_every_statement_says_what_it_promises() -> None:
    mute = []
    for file, name, _, body in headings():
        comment = re.match(r"((?:--.*\n)+)", body)
        lines = comment.group(1).splitlines() if comment else []
        words = " ".join(line[3:] for line in lines if not re.match(r"-- (bound|unbounded|scans \w+): ", line))
        if not re.match(r"[A-Z].{15,}[.:;]", words):
            mute.append(f"{file}: {name}")
    assert headings()
    assert not mute


def test_few_statements_are_spelled_twice_and_those_have_both_spellings() -> None:
    spellings: dict[str, list[str]] = {}
    for _, name, dialect, _ in headings():
        spellings.setdefault(name, []).append(dialect)
    assert {name for name, dialects in spellings.items() if sorted(dialects) == ["postgres", "sqlite"]} == SPELLED_TWICE
    assert {name for name, dialects in spellings.items() if dialects == ["postgres"]} == POSTGRES_ONLY
    assert {name for name, dialects in spellings.items() if dialects == ["sqlite"]} == SQLITE_ONLY
    known = SPELLED_TWICE | POSTGRES_ONLY | SQLITE_ONLY
    rest = {name: dialects for name, dialects in spellings.items() if name not in known}
    assert all(dialects == [""] for dialects in rest.values()), rest


def test_a_mark_of_a_dialect_opens_its_statement() -> None:
    folder = resources.files("stepwell.store").joinpath("sql/schema")
    for file in (file for file in folder.iterdir() if file.name.endswith(".sql")):
        parts = [part.strip() for part in file.read_text("utf-8").split(";\n")]
        assert not [part for part in parts if re.search(r"\n-- \[\w+\]", part)], file.name


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [number for number, _, _ in Statements("sqlite", "s").migrations()]
    assert numbers == list(range(1, len(numbers) + 1))
