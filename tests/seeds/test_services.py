"""Services: one part triggers runs, another executes them, and anybody looks at what became of them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

import stepwell
from stepwell import PermanentError, Store
from stepwell.base import program as defined
from tests.ground.waiting import until
from tests.seeds.loading import Site, loaded

FILES = ["photos/a.jpg", "photos/b.jpg"]


async def download_all(files: list[str]) -> list[str]:
    return [f"/tmp/{name}" for name in files]


def listed(bucket: str, prefix: str) -> list[str]:
    if bucket == "missing":
        raise PermanentError("no such bucket")
    return [name for name in FILES if name.startswith(prefix)]


def zip_files() -> Any:
    archives = SimpleNamespace(create=lambda files: f"/tmp/{len(files)}.zip")
    return loaded("zip_files", s3=SimpleNamespace(list_objects=listed), zip=archives, download_all=download_all)


@contextlib.asynccontextmanager
async def working(main: Coroutine[Any, Any, object], store: Store, workflow: str) -> AsyncIterator[None]:
    """A worker process that is stopped at the end; it has registered when this begins."""
    task = asyncio.create_task(main)

    async def serves() -> bool:
        assert not task.done(), task
        return any(workflow in worker.handlers for worker in await store.workers())

    await until(serves)
    yield
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.proves("T-01", "T-03", "W-01", "S-08", "RS-01", "RS-02", "DD-10")
async def test_zip_files(site: Site, beside: Store, capsys: pytest.CaptureFixture[str]) -> None:
    program = zip_files()
    async with working(program.worker_main(), beside, "zip_files"):
        run_id = await program.handle_upload("holidays", "photos/")
        await beside.result(run_id, timeout=30)
        await program.check_status(run_id)
        run = await stepwell.workflow("zip_files").get_run(run_id, beside)
    assert run.output() == program.ZipResult(archive_path="/tmp/2.zip", file_count=2)
    assert capsys.readouterr().out.splitlines() == [f"Started run: {run_id}", "Done: /tmp/2.zip"]
    steps = [(step.name, str(step.status)) for step in await beside.steps(run_id)]
    assert steps == [("list_files", "SUCCESS"), ("download_files", "SUCCESS"), ("create_archive", "SUCCESS")]


@pytest.mark.proves("R-05", "T-06", "E-01")
async def test_zip_files_before_and_after_it_failed(
    site: Site, beside: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    program = zip_files()
    await beside.create_workflow("zip_files")
    run_id = await program.handle_upload("missing", "")
    await program.check_status(run_id)
    async with working(program.worker_main(), beside, "zip_files"):
        with pytest.raises(stepwell.ExecutionFailed, match="no such bucket"):
            await beside.result(run_id, timeout=30)
    await program.check_status(run_id)
    started, running, failed = capsys.readouterr().out.splitlines()
    assert (started, running) == (f"Started run: {run_id}", "Still running...")
    assert re.match(r"Failed: \{.*no such bucket", failed)


@pytest.mark.proves("RS-02")
async def test_output_where_nobody_knows_the_handler(
    site: Site, beside: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = zip_files()
    async with working(program.worker_main(), beside, "zip_files"):
        run_id = await program.handle_upload("holidays", "photos/")
        await beside.result(run_id, timeout=30)
    monkeypatch.delitem(defined._known, "zip_files")  # as in a process that never saw it ...
    monkeypatch.setattr(beside.database, "definitions", defined.Definitions())  # ... with a store of its own
    run = await stepwell.workflow("zip_files").get_run(int(run_id), beside)
    assert run.output() == {"archive_path": "/tmp/2.zip", "file_count": 2}
    assert run.output(program.ZipResult).archive_path == "/tmp/2.zip"


@pytest.mark.proves("T-01", "RS-01", "D-02")
async def test_process_file(site: Site, beside: Store) -> None:
    s3 = SimpleNamespace(download="{}/{}".format, upload="{}/small {}".format)
    program = loaded("process_file", s3=s3, image=SimpleNamespace(resize=lambda data: data[:4]))
    await beside.create_workflow("process_file")
    answer = await program.handle_upload("holidays", "a.jpg")
    run_id = int(answer.removeprefix("Processing started: run_id="))
    with pytest.raises(RuntimeError, match="Still running"):
        await program.get_result(run_id)
    async with working(program.worker_main(), beside, "process_file"):
        await beside.result(run_id, timeout=30)
    assert await program.get_result(run_id) == program.ProcessFileResult("holidays/small holi", 4)


@pytest.mark.proves("W-04", "W-17")
async def test_many_workers(site: Site, beside: Store) -> None:
    async def zip_files_handler(ctx: stepwell.Context, params: dict[str, str]) -> str:
        raise PermanentError("no archives today")

    async def send_emails_handler(ctx: stepwell.Context, params: list[str]) -> int:
        return len(params)

    program = loaded("many_workers", zip_files_handler=zip_files_handler, send_emails_handler=send_emails_handler)
    async with working(program.multi_worker_main(), beside, "send_emails"):
        failing = await stepwell.workflow("zip_files").trigger({"bucket": "b"}).execute(beside)
        sent = await stepwell.workflow("send_emails").trigger(["ada", "grace"]).wait(30).execute(beside)
        assert sent == 2
        with pytest.raises(stepwell.ExecutionFailed, match="no archives today"):
            await beside.result(failing, timeout=30)
