"""What becomes of a run, its place in the queue and its steps, in each case of the documents' table.

"Archived" is a final status: nobody claims the run again. "Visible after" is `run_at`. A run that waits for its next
attempt is PENDING, with `run_at` in the future; the documents call it running.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from stepwell import (
    Context,
    Paused,
    PermanentError,
    Run,
    Store,
    TransientError,
    Worker,
    Workflow,
    condition,
    connect,
    consumer,
    workflow,
)
from stepwell.base.clock import TestClock
from tests.seeds.dying import program
from tests.shape.sources import ROOT

Statuses = list[tuple[str, str]]


def downloaded() -> str:
    return "data"


def not_found() -> str:
    raise PermanentError("File not found")


class RateLimit:
    """An API that is busy at first."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls == 1:
            raise TransientError.with_backoff(30)
        return "data"


def handler_of(body: Callable[[], str]) -> Workflow[[], str]:
    @workflow
    async def handler(ctx: Context) -> str:
        first = await ctx.step("download", body)
        return await ctx.step("process", str.upper, first)

    return handler


async def ran(store: Store, body: Callable[[], str]) -> int:
    """Trigger a run of two steps and let a worker do what is due; the run's number."""
    handler = handler_of(body)
    run_id = await handler.trigger().execute(store)
    await Worker(store, [handler]).drain()
    return run_id


async def state(store: Store, run_id: int) -> tuple[Run[object], Statuses]:
    steps = [(step.name, str(step.status)) for step in await store.steps(run_id)]
    return await store.get_run(run_id), steps


@workflow(name="handler")
async def unexpected(ctx: Context) -> str:
    raise AssertionError("a finished run was executed again")


@pytest.mark.proves("Q-18", "R-04", "R-07")
async def test_success(store: Store, clock: TestClock) -> None:
    run, steps = await state(store, await ran(store, downloaded))
    assert (run.status, run.output()) == ("SUCCESS", "DATA")
    assert run.finished_at is not None
    assert steps == [("download", "SUCCESS"), ("process", "SUCCESS")]
    await assert_archived(store, clock)


@pytest.mark.proves("Q-18", "R-05", "R-07")
async def test_permanent_error(store: Store, clock: TestClock) -> None:
    run, steps = await state(store, await ran(store, not_found))
    assert run.status == "ERROR"
    assert run.finished_at is not None
    assert run.error is not None
    assert "File not found" in run.error["message"]
    assert steps == [("download", "ERROR")]
    await assert_archived(store, clock)


async def assert_archived(store: Store, clock: TestClock) -> None:
    clock.advance("1d")
    assert await Worker(store, [unexpected]).drain() == 0


@pytest.mark.proves("Q-18", "E-02", "S-22", "R-08", "R-11")
async def test_transient_error(store: Store, clock: TestClock) -> None:
    api = RateLimit()
    run_id = await ran(store, api)
    run, steps = await state(store, run_id)
    assert run.status == "PENDING"
    assert run.run_at is not None
    assert run.run_at - run.created_at == timedelta(seconds=30)
    assert (run.worker, run.finished_at) == (None, None)
    assert steps == [("download", "PENDING")]
    clock.advance(29)
    assert await Worker(store, [unexpected]).drain() == 0
    clock.advance(1)
    await Worker(store, [handler_of(api)]).drain()
    again, steps = await state(store, run_id)
    assert (again.id, again.status, again.output()) == (run_id, "SUCCESS", "DATA")
    assert (api.calls, steps) == (2, [("download", "SUCCESS"), ("process", "SUCCESS")])


@condition("seeds.approved")
def approved(run: Run[object]) -> str | None:
    asked.append((int(run.id), str(run.status)))
    return answers.pop()


asked: list[tuple[int, str]] = []  # what the condition was asked about
answers: list[str | None] = []  # what it says, the last one first


def not_approved() -> str:
    raise Paused("Waiting for approval", resume_condition="seeds.approved")


@pytest.mark.proves("Q-18", "P-01", "P-02", "P-03", "P-10")
async def test_paused(store: Store, clock: TestClock) -> None:
    answers[:], asked[:] = ["data", None], []
    run_id = await ran(store, not_approved)
    paused, steps = await state(store, run_id)
    hour = timedelta(hours=1)
    assert (paused.status, paused.worker, paused.finished_at) == ("PAUSED", None, None)
    assert (paused.paused_at, paused.run_at) == (paused.created_at, paused.created_at + hour)
    assert steps == [("download", "PAUSED")]
    [step] = await store.steps(run_id)
    assert step.error is not None
    assert (step.error["message"], step.error["resume_condition"]) == ("Waiting for approval", "seeds.approved")
    clock.advance(3599)
    assert (await Worker(store, [unexpected]).drain(), asked) == (0, [])

    clock.advance(1)  # checked, not met: bumped
    await Worker(store, [handler_of(not_approved)]).drain()
    later, steps = await state(store, run_id)
    assert (later.status, later.attempt, steps) == ("PAUSED", 0, [("download", "PAUSED")])
    assert (later.run_at, asked) == (paused.created_at + 2 * hour, [(run_id, "RUNNING")])

    clock.advance(3600)  # checked, met: the run goes on with what the condition said
    await Worker(store, [handler_of(not_approved)]).drain()
    last, steps = await state(store, run_id)
    assert (last.status, last.output(), last.attempt) == ("SUCCESS", "DATA", 1)
    assert steps == [("download", "SUCCESS"), ("process", "SUCCESS")]


@pytest.mark.proves("Q-18", "R-03", "R-06", "S-02")
async def test_worker_crash(store_url: str, backend: str, tmp_path: Path) -> None:
    url, ledger = f"{store_url}?lease=1", tmp_path / "ledger"
    die(url, ledger)
    async with connect(url) as store:
        [crashed] = await store.runs("process_file")
        before, steps = await state(store, crashed.id)
        assert (before.status, before.finished_at) == ("RUNNING", None)
        assert steps == [("download", "SUCCESS")]

        handler = program(ledger, dies=False).process_file_handler
        worker = await consumer("worker-2", 8080, "process_file").handler(handler).create(store)
        async with worker:
            result = await store.result(crashed.id, timeout=30)
        after, steps = await state(store, crashed.id)
        assert (after.status, after.started_at, result) == ("SUCCESS", before.started_at, after.output())
        assert steps == [("download", "SUCCESS"), ("process", "SUCCESS")]
    assert ledger.read_text().splitlines() == ["download", "process"]


def die(url: str, ledger: Path) -> None:
    command = [sys.executable, "-m", "tests.seeds.dying", url, str(ledger)]
    died = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL, died.stdout + died.stderr
