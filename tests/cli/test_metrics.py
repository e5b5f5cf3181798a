"""`stepwell metrics`: what workflows did lately, for people, programs and Prometheus; on every backend."""

import asyncio
from typing import Any

import pytest

from stepwell import Store, Worker, workflow
from stepwell.cli.health import healthy
from tests.cli.kit import APP, Cli
from tests.ground.ports import free_port


@pytest.fixture
def worked(cli: Cli, sold_out: set[str]) -> Cli:
    """The command line on a store in which three runs and a message have ended, and one run has not."""
    sold_out.add("the moon")
    cli("trigger", "fulfil", "cents:=1900", 'parcels:=["lamp","desk"]')
    cli("trigger", "welcome", "ada@example.org")
    cli("trigger", "welcome", "the moon")
    cli("send", "emails", "nobody")
    cli.work()
    cli("trigger", "wait_long", "1h")
    cli.serve()
    return cli


@pytest.mark.proves("MM-01", "MM-03", "MM-04", "MM-05", "MM-06")
def test_workflows_are_told_as_a_table_and_as_json(worked: Cli) -> None:
    told = worked("metrics").out
    assert [line.split()[:6] for line in told.splitlines()[1:5]] == [
        ["fulfil", "0", "1", "0", "0", "100.0%"],
        ["wait_long", "1", "0", "0", "0", "0"],
        ["welcome", "0", "1", "1", "0", "50.0%"],
        [],
    ]
    [emails] = [line.split() for line in told.splitlines() if line.startswith("emails ") and "MESSAGE" not in line]
    assert emails[:4] == ["emails", "0", "1", "0"]
    assert "DEAD LETTERS" in told
    assert "next: stepwell dead" in told
    answer = worked("metrics", "--json").json
    assert answer["dead_letters"] == [
        {"queue": "emails", "kind": "MESSAGE", "count": 1},
        {"queue": "welcome", "kind": "RUN", "count": 1},
    ]
    assert {name: one["failed"] for name, one in answer["queues"].items()} == {
        "emails": 1,
        "fulfil": 0,
        "wait_long": 0,
        "welcome": 1,
    }
    assert 0 < answer["queues"]["welcome"]["turns"]["p50"] < 60
    assert answer["queues"]["emails"]["waits"]["count"] == 1
    welcome = answer["workflows"]["welcome"]
    assert (welcome["success_rate"], welcome["dead_letters"]) == (0.5, 1)
    assert (welcome["runs"]["SUCCESS"], welcome["runs"]["ERROR"], welcome["runs"]["PENDING"]) == (1, 1, 0)
    assert 0 < welcome["durations"]["p50"] <= welcome["durations"]["longest"] < 60
    assert (welcome["steps"]["ship"]["succeeded"], welcome["steps"]["ship"]["failed"]) == (1, 1)
    assert (welcome["workers"]["live"], welcome["workers"]["stale"]) == (0, 0)
    assert welcome["workers"]["last_seen"] > welcome["since"]


@pytest.mark.proves("MM-05")
def test_one_workflow_is_told_with_its_steps(worked: Cli) -> None:
    lines = worked("metrics", "fulfil").out.splitlines()
    begins = [line.split()[0] for line in lines if line]
    assert begins == ["WORKFLOW", "fulfil", "TIME", "fulfil", "STEP", "charge", "ship", "sleep", "next:"]
    [ship] = [line.split() for line in lines if line.startswith("ship")]
    assert ship[:4] == ["ship", "fulfil", "2", "0"]
    assert ship[5] in ("ms", "s")
    assert "no workflow" in worked("metrics", "fulfill", code=3).error
    assert "window" in worked("metrics", "--window", "soon", code=2).error


@pytest.mark.proves("MM-09")
def test_versions_are_told_together(empty: Cli) -> None:
    empty("worker", "tests.cli.versions", "--once")
    apart = empty("metrics", "pay*", "--json").json["workflows"]
    assert [one["workflows"] for one in apart.values()] == [[name] for name in apart]
    assert "pay_v1" in apart
    joined = empty("metrics", "pay_*", "--join-versions", "--json").json["workflows"]
    assert {name: one["workflows"] for name, one in joined.items()} == {"pay": ["pay_v1"]}


@pytest.mark.proves("MM-11")
def test_everything_is_printed_for_prometheus(worked: Cli) -> None:
    told = worked("metrics", "--prometheus", "--window", "10m").out.splitlines()
    assert "stepwell_window_seconds 600" in told
    assert 'stepwell_workflow_runs_ended{workflow="welcome",base="welcome",status="ERROR"} 1' in told
    assert 'stepwell_dead_letters{queue="emails",kind="MESSAGE"} 1' in told
    assert not any("events_total" in line for line in told), "of a process that has just begun"
    assert "whole store" in worked("metrics", "welcome", "--prometheus", code=2).error


def test_a_store_without_workflows_says_so(empty: Cli) -> None:
    empty("worker", f"{APP}:send", "--once")
    assert "there is no workflow" in empty("metrics").out


async def scraped(port: int, path: str = "/metrics?all=1") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


@pytest.mark.proves("MM-11")
async def test_a_worker_answers_a_scrape_and_says_when_it_cannot(store: Store) -> None:
    port = free_port()
    worker = Worker(store, [])
    async with healthy(str(port), store, worker):
        head, _, body = (await scraped(port)).partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 OK\r\n")
        assert "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in head
        assert f"Content-Length: {len(body)}\r\n" in head
        assert 'stepwell_workers{state="live"} 0\n' in body
        assert 'stepwell_events_total{event="task_died"} 0\n' in body
        await store.close()
        assert (await scraped(port)).startswith("HTTP/1.1 503 Service Unavailable\r\n")


@pytest.mark.proves("MM-03")
async def test_a_worker_is_ready_when_its_workflows_are_made_not_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow(name="late")
    async def late() -> None: ...

    asked, go_on, register = asyncio.Event(), asyncio.Event(), store.database.register_workflow

    async def registering(*args: Any) -> int:
        asked.set()
        await go_on.wait()
        return await register(*args)

    monkeypatch.setattr(store.database, "register_workflow", registering)
    port, worker = free_port(), Worker(store, [late])
    async with healthy(str(port), store, worker):
        starting = asyncio.create_task(worker.__aenter__())
        await asyncio.wait_for(asked.wait(), 20)
        assert worker.id
        assert "503" in (await scraped(port, "/readyz")).partition("\r\n")[0]
        go_on.set()
        await starting
        assert (await scraped(port, "/readyz")).endswith(f"session {worker.id}\n")
        assert [one.name for one in await store.workflows()] == ["late"]
        await worker.__aexit__(None, None, None)
