"""Workflows that are found by their decorators."""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType

import pytest

import stepwell
from tests.seeds.loading import loaded
from tests.shape.sources import ROOT


@pytest.mark.proves("DD-01", "DD-04", "DD-07")
def test_discovered_workflows_make_workers(store_url: str) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.seeds.discovering", store_url]  # it sees its own ones only
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == [["send_emails", "zip_files"], ["Result(done=True)", "Result(done=True)"]]


@pytest.mark.proves("DD-03", "DD-05")
def test_discovery_in_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    @stepwell.workflow
    async def mine() -> None: ...

    @stepwell.workflow
    async def imported() -> None: ...

    workflows = ModuleType("myapp.workflows")
    workflows.__dict__.update(mine=mine, imported=imported)
    mine.fn.__module__ = workflows.__name__
    package = ModuleType("myapp")
    package.__dict__["workflows"] = workflows
    monkeypatch.setitem(sys.modules, "myapp", package)
    program = loaded("discovery_in_a_module", discover_workflows=stepwell.discover_workflows)
    assert program.workflows == {"mine": mine}
