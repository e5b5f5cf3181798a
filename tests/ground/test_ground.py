"""The ground holds: what the other tests rely on is shown here, without the library."""

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import turso

from tests.ground.databases import host_and_port, run_apart, run_sql
from tests.ground.engines import engine_name
from tests.ground.faultproxy import FaultProxy
from tests.ground.ledger import Ledger
from tests.ground.postgres import PostgresServer
from tests.ground.processes import Crew, NotInTimeError, until, wait_for

CREWMATE = "tests.ground.crewmate"

# How asyncpg words a lost connection. The last one comes when a server's farewell arrived while nothing was asked.
LOST = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class TestPostgresServer:
    def test_keeps_data_over_a_crash_and_a_restart(self, postgres_server: PostgresServer) -> None:
        url = postgres_server.url()
        run_sql(url, "create table kept (n int)", "insert into kept values (1)")
        starts = set(run_sql(url, "select pg_postmaster_start_time()::text"))
        for end in (postgres_server.kill, postgres_server.kill, postgres_server.stop):
            end()
            assert not postgres_server.is_running
            with pytest.raises(OSError, match="Connect call failed"):
                run_sql(url, "select 1")
            postgres_server.start()
            assert run_sql(url, "select count(*) from kept") == [1]
            starts |= set(run_sql(url, "select pg_postmaster_start_time()::text"))
        assert len(starts) == 4

    def test_answers_on_its_socket_and_takes_settings(self) -> None:
        with PostgresServer(durable=True, work_mem="7MB") as server:
            questions = ("show work_mem", "show fsync", "show timezone", "show max_connections")
            assert run_sql(server.socket_url(), *questions) == ["7MB", "on", "UTC", "200"]
        assert not server.is_running
        assert not server.folder.exists()

    def test_ends_with_the_process_that_started_it(self, tmp_path: Path) -> None:
        program = (
            "import sys, time\n"
            "from tests.ground.postgres import PostgresServer\n"
            "server = PostgresServer().__enter__()\n"
            "print(server.port, server._process.pid, server.folder, flush=True)\n"
            "time.sleep(60)\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
            assert owner.stdout is not None
            port, pid, folder = owner.stdout.readline().split()
            run_sql(f"postgresql://postgres@127.0.0.1:{port}/postgres", "select 1")
            owner.kill()
        wait_for(lambda: not _is_process(int(pid)), 10, message="end of the server of a killed process")
        subprocess.run(["rm", "-rf", folder], check=True)

    def test_a_person_can_have_one(self) -> None:
        command = [sys.executable, "-m", "tests.ground.postgres"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            url = program.stdout.readline().strip()
            assert run_sql(url, "select 1") == [1]
            program.terminate()
        assert program.returncode == 0
        with pytest.raises(OSError, match="Connect call failed"):
            run_sql(url, "select 1")


class TestRoundTrips:
    async def test_a_prepared_question_is_one(self, connection: asyncpg.Connection, proxy: FaultProxy) -> None:
        assert await connection.fetchval("select $1::int", 1) == 1
        before, turns = proxy.round_trips, proxy.turns
        for number in range(5):
            assert await connection.fetchval("select $1::int", number) == number
        assert proxy.round_trips - before == 5
        assert proxy.trips_of == [proxy.round_trips]
        assert proxy.turns - turns == 5

    async def test_the_first_time_a_question_is_two(self, connection: asyncpg.Connection, proxy: FaultProxy) -> None:
        before = proxy.round_trips
        assert await connection.fetchval("select 42") == 42
        assert proxy.round_trips - before == 2

    async def test_a_transaction_counts_its_brackets(self, connection: asyncpg.Connection, proxy: FaultProxy) -> None:
        before = proxy.round_trips
        async with connection.transaction():
            await connection.execute("select 1; select 2")
        assert proxy.round_trips - before == 3
        assert list(proxy.statements)[-3:] == ["BEGIN;", "select 1; select 2", "COMMIT;"]

    async def test_a_pipelined_batch_is_told_from_many(self, connection: asyncpg.Connection, proxy: FaultProxy) -> None:
        await connection.execute("create table many (n int)")
        await connection.executemany("insert into many values ($1)", [(0,)])
        before = proxy.round_trips
        await connection.executemany("insert into many values ($1)", [(n,) for n in range(2000)])
        assert proxy.round_trips - before <= 2
        assert await connection.fetchval("select count(*) from many") == 2001

    async def test_large_values_pass_whole(self, connection: asyncpg.Connection) -> None:
        text = "stepwell" * 500_000
        assert await connection.fetchval("select $1::text", text) == text


class TestFaults:
    async def test_dropped_reply_is_done_and_not_told(
        self, connection: asyncpg.Connection, proxy: FaultProxy, postgres_url: str
    ) -> None:
        await connection.execute("create table done (n int)")
        statement = "insert into done values ($1)"
        await connection.execute(statement, 1)
        trap = proxy.drop_reply("insert into done")
        with pytest.raises(LOST):
            await connection.execute(statement, 2)
        assert trap.sprung.is_set()
        assert trap.sql == statement
        assert run_sql(postgres_url, "select array_agg(n order by n) from done") == [[1, 2]]

    async def test_a_reply_is_dropped_when_the_server_is_done_and_not_before(
        self, connection: asyncpg.Connection, proxy: FaultProxy, postgres_url: str
    ) -> None:
        await connection.execute("create table done (n int)")
        trap = proxy.drop_reply("pg_sleep")
        body = "raise notice 'early bytes'; perform pg_sleep(0.3); insert into done values (1);"
        asking = asyncio.create_task(connection.execute(f"do $$ begin {body} end $$"))
        await until(trap.sprung.is_set)
        assert run_sql(postgres_url, "select count(*) from done") == [1]
        with pytest.raises(LOST):
            await asking

    async def test_dropped_reply_of_a_commit(
        self, connection: asyncpg.Connection, proxy: FaultProxy, postgres_url: str
    ) -> None:
        await connection.execute("create table done (n int)")
        trap = proxy.drop_reply("^commit")
        with pytest.raises(LOST):
            async with connection.transaction():
                await connection.execute("insert into done values (1)")
        assert trap.sprung.is_set()
        assert run_sql(postgres_url, "select count(*) from done") == [1]

    async def test_cut_request_is_not_done(
        self, connection: asyncpg.Connection, proxy: FaultProxy, postgres_url: str
    ) -> None:
        await connection.execute("create table done (n int)")
        trap = proxy.cut_request("^commit")
        with pytest.raises(LOST):
            async with connection.transaction():
                await connection.execute("insert into done values (1)")
        assert trap.sprung.is_set()
        assert run_sql(postgres_url, "select count(*) from done") == [0]

    async def test_a_trap_catches_one_request(self, proxied_url: str, proxy: FaultProxy) -> None:
        trap = proxy.cut_request("select 7")
        with pytest.raises(LOST):
            await _ask(proxied_url, "select 7")
        assert trap.sprung.is_set()
        assert await _ask(proxied_url, "select 7") == 7

    async def test_stalled_requests_arrive_after_healing(
        self, connection: asyncpg.Connection, proxy: FaultProxy
    ) -> None:
        await connection.execute("create table done (n int)")
        proxy.stall()
        asking = asyncio.create_task(connection.execute("insert into done values (1)"))
        await asyncio.sleep(0.2)
        assert not asking.done()
        proxy.heal()
        assert await asyncio.wait_for(asking, 5) == "INSERT 0 1"

    async def test_a_stall_may_turn_into_one_of_replies_only(
        self, connection: asyncpg.Connection, proxy: FaultProxy, postgres_url: str
    ) -> None:
        await connection.execute("create table done (n int)")
        proxy.stall()
        asking = asyncio.create_task(connection.execute("insert into done values (1)"))
        await asyncio.sleep(0.1)
        proxy.stall_replies()
        await until(lambda: run_sql(postgres_url, "select count(*) from done") == [1])
        assert not asking.done()
        proxy.heal()
        await asyncio.wait_for(asking, 5)

    async def test_stalled_replies_are_of_work_that_was_done(
        self, connection: asyncpg.Connection, proxy: FaultProxy, postgres_url: str
    ) -> None:
        await connection.execute("create table done (n int)")
        proxy.stall_replies()
        asking = asyncio.create_task(connection.execute("insert into done values (1)"))
        await until(lambda: run_sql(postgres_url, "select count(*) from done") == [1])
        assert not asking.done()
        proxy.heal()
        assert await asyncio.wait_for(asking, 5) == "INSERT 0 1"

    async def test_reset_ends_what_is_open_even_while_stalled(
        self, connection: asyncpg.Connection, proxy: FaultProxy, proxied_url: str
    ) -> None:
        proxy.stall()
        asking = asyncio.create_task(connection.fetchval("select 1"))
        await asyncio.sleep(0.1)
        assert proxy.reset() == 1
        with pytest.raises(LOST):
            await asyncio.wait_for(asking, 5)
        proxy.heal()
        assert await _ask(proxied_url, "select 1") == 1
        assert proxy.counters.resets == 1

    async def test_refuse_keeps_the_old_and_turns_the_new_away(
        self, connection: asyncpg.Connection, proxy: FaultProxy, proxied_url: str
    ) -> None:
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await _ask(proxied_url, "select 1")
        assert await connection.fetchval("select 1") == 1
        proxy.heal()
        assert await _ask(proxied_url, "select 1") == 1

    async def test_delay_is_paid_in_each_direction(self, connection: asyncpg.Connection, proxy: FaultProxy) -> None:
        await connection.fetchval("select 1")
        proxy.delay(0.1)
        start = time.monotonic()
        await connection.fetchval("select 1")
        assert 0.2 <= time.monotonic() - start < 10

    async def test_a_blocked_loop_does_not_block_the_proxy(self, proxy: FaultProxy, proxied_url: str) -> None:
        assert run_apart(_ask(proxied_url, "select 1")) == 1  # this blocks the test's own loop

    async def test_runs_on_the_loop_of_the_test(self, postgres_url: str) -> None:
        async with FaultProxy(*host_and_port(postgres_url)) as proxy:
            assert await _ask(proxy.url(postgres_url), "select 1") == 1
            assert proxy.open_connections <= 1
            proxy.refuse()
            with pytest.raises(ConnectionRefusedError):
                await _ask(proxy.url(postgres_url), "select 1")

    async def test_a_server_that_is_gone_is_seen_through_the_proxy(self, postgres_server: PostgresServer) -> None:
        with FaultProxy.in_thread("127.0.0.1", postgres_server.port) as proxy:
            url = proxy.url(postgres_server.url())
            connection = await asyncpg.connect(url)
            await asyncio.to_thread(postgres_server.kill)

            async def is_lost() -> bool:
                try:
                    await connection.fetchval("select 1")
                except LOST:
                    return True
                return False

            await until(is_lost)  # a backend outlives its killed parent by a moment
            with pytest.raises(LOST):
                await _ask(url, "select 1")
            await asyncio.to_thread(postgres_server.start)
            assert await _ask(url, "select 1") == 1
            connection.terminate()


class TestLedger:
    def test_holds_every_line_of_four_processes(self, tmp_path: Path) -> None:
        with Ledger(tmp_path / "ledger") as ledger:
            with Crew(CREWMATE, str(ledger.path), "500", size=4, folder=tmp_path) as crew:
                wait_for(lambda: ledger.counts("phase")["end"] == 4, 30, message="four ends")
                pids = {member.pid for member in crew.members}
            counts = ledger.counts("key", phase="line")
            assert len(counts) == 4 * 500
            assert set(counts.values()) == {1}
            assert set(ledger.counts("pid")) == pids

    def test_a_torn_last_line_is_not_read(self, tmp_path: Path) -> None:
        with Ledger(tmp_path / "ledger") as ledger:
            assert ledger.read() == []
            ledger.write(key="a")
            with ledger.path.open("ab") as file:
                file.write(b'{"key": ')
            assert [line["key"] for line in ledger.read()] == ["a"]


class TestCrew:
    def test_a_killed_member_is_replaced_and_all_end_with_the_block(self, tmp_path: Path) -> None:
        with Ledger(tmp_path / "ledger") as ledger:
            with Crew(CREWMATE, str(ledger.path), "2", size=3, folder=tmp_path) as crew:
                wait_for(lambda: ledger.counts("phase")["end"] == 3, 30)
                dead = crew.kill_random()
                assert dead.process.returncode == -signal.SIGKILL
                assert len(crew.alive) == 2
                assert crew.respawn() == 1
                wait_for(lambda: ledger.counts("phase")["end"] == 4, 30, message=crew.complaints())
                frozen = crew.kill_random(signal.SIGSTOP)
                assert frozen.is_alive
            assert len(crew.members) == 4
            assert not crew.alive

    def test_stop_tells_how_each_ended(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger"
        with Ledger(path) as ledger, Crew(CREWMATE, str(path), "2", size=2, folder=tmp_path) as crew:
            wait_for(lambda: ledger.counts("phase")["end"] == 2, 30)
            assert crew.stop(signal.SIGTERM) == [-signal.SIGTERM] * 2

    def test_a_member_that_fails_says_why(self, tmp_path: Path) -> None:
        with Crew("tests.ground.no_such_module", size=1, folder=tmp_path) as crew:
            wait_for(lambda: not crew.alive, 30)
            assert "no_such_module" in crew.complaints()

    def test_members_outlive_the_thread_that_asked_for_them_but_not_the_process(self, tmp_path: Path) -> None:
        program = (
            "import pathlib, sys, threading, time\n"
            "from tests.ground.ledger import Ledger\n"
            "from tests.ground.processes import Crew, wait_for\n"
            "path = pathlib.Path(sys.argv[1])\n"
            f"crew = Crew({CREWMATE!r}, str(path / 'ledger'), '2', size=2, folder=path)\n"
            "def start():\n"
            "    crew.__enter__()\n"
            "    wait_for(lambda: Ledger(path / 'ledger').counts('phase')['end'] == 2, 30)\n"
            "starter = threading.Thread(target=start)\n"
            "starter.start()\n"
            "starter.join()\n"
            "time.sleep(0.2)\n"
            "print(*[member.pid for member in crew.alive], flush=True)\n"
            "time.sleep(60)\n"
        )
        command = [sys.executable, "-c", program, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
            assert owner.stdout is not None
            pids = [int(pid) for pid in owner.stdout.readline().split()]
            owner.kill()
        assert len(pids) == 2
        wait_for(lambda: not any(_is_process(pid) for pid in pids), 10, message="end of a killed process's crew")


class TestWaiting:
    async def test_says_what_did_not_happen(self) -> None:
        with pytest.raises(NotInTimeError, match=r"0\.1 s: the sky falls; last value 0; asked at .*test_ground"):
            wait_for(lambda: 0, 0.1, message="the sky falls")
        with pytest.raises(NotInTimeError):
            await until(lambda: asyncio.sleep(0, False), timeout=0.1)
        assert await until(lambda: asyncio.sleep(0, "yes")) == "yes"


class TestStores:
    def test_every_backend_has_a_fresh_place(self, backend: str, store_url: str, tmp_path: Path) -> None:
        if backend == "postgres":
            assert run_sql(store_url, "select count(*) from pg_tables where schemaname = 'public'") == [0]
        else:
            assert store_url == f"{backend}:///{tmp_path}/store.db"

    @pytest.mark.backends("sqlite", "turso", reason="Postgres is asked by its own protocol")
    def test_the_engine_says_its_own_name(self, backend: str) -> None:
        connection = turso.connect(":memory:") if backend == "turso" else sqlite3.connect(":memory:")
        assert engine_name(connection) == backend
        connection.close()

    def test_no_listener_is_in_the_range_of_outgoing_ports(self, proxy: FaultProxy) -> None:
        with socket.create_connection((proxy.host, proxy.port)) as connection:
            assert proxy.port < 32768 <= connection.getsockname()[1]


class TestSelection:
    def test_a_marker_restricts_and_an_option_restricts(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            test_it="""
            import pytest

            def test_all(backend): pass

            @pytest.mark.backends("sqlite", "postgres", reason="because")
            def test_two(backend): pass

            def test_one(postgres_url): pass

            def test_pure(): pass
            """
        )
        everything = _collect(pytester)
        assert everything == {
            *(f"test_all[{name}]" for name in ("sqlite", "turso", "postgres")),
            *("test_two[sqlite]", "test_two[postgres]", "test_one", "test_pure"),
        }
        assert _collect(pytester, "--backend=turso") == {"test_all[turso]", "test_pure"}
        assert _collect(pytester, "--backend=postgres,sqlite") == everything - {"test_all[turso]"}

    @pytest.mark.proves("TU-07")
    def test_the_conformance_suite_runs_in_memory_too(self, pytester: pytest.Pytester) -> None:
        text = """
            import pytest

            @pytest.fixture
            def other(store_url): pass

            def test_store(store): pass

            def test_live(live_store): pass

            @pytest.mark.backends("memory", "sqlite", reason="because")
            def test_two(store): pass

            def test_second(store, other): pass

            def test_address(store, store_url): pass

            def test_name(backend): pass
            """
        pytester.makepyfile(**{"deciders/test_it": text, "crash/test_it": text})
        options = ("-p", "tests.ground.opened", "--import-mode=importlib")
        found = _collect(pytester, "--backend=memory", *options, "deciders")
        assert found == {"test_store[memory]", "test_live[memory]", "test_two[memory]"}
        assert _collect(pytester, "--backend=memory", *options, "crash") == {"test_two[memory]"}
        everywhere = {f"test_store[{name}]" for name in ("sqlite", "turso", "postgres", "memory")}
        assert everywhere < _collect(pytester, *options, "deciders")

    @pytest.mark.parametrize("marker", ['backends("sqlite")', 'backends("oracle", reason="x")', 'backends(reason="x")'])
    def test_a_marker_without_a_reason_or_a_known_name_is_refused(self, pytester: pytest.Pytester, marker: str) -> None:
        pytester.makepyfile(test_it=f"import pytest\n@pytest.mark.{marker}\ndef test_it(backend): pass\n")
        result = pytester.runpytest_inprocess("-p", "tests.ground.stores", "--collect-only")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*@pytest.mark.backends *"])

    def test_an_unknown_backend_is_refused(self, pytester: pytest.Pytester) -> None:
        result = pytester.runpytest_inprocess("-p", "tests.ground.stores", "--backend=oracle")
        assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.fixture
async def connection(proxied_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(proxied_url)
    yield connection
    connection.terminate()


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs that these tests start, in whatever folder, import the ground too."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))


async def _ask(url: str, question: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        connection.terminate()


def _collect(pytester: pytest.Pytester, *options: str) -> set[str]:
    result = pytester.runpytest_inprocess("-p", "tests.ground.stores", "--collect-only", "-q", *options)
    return {line.partition("::")[2] for line in result.outlines if "::" in line}


def _is_process(pid: int) -> bool:
    """Whether the process runs; one that ended but was not reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
