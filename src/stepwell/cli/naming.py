"""How a run is named on the command line: by its number, its key, `workflow:key`, `@last` or `@failed`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from stepwell.cli.exits import NOT_FOUND, REFUSED, USAGE, Stop
from stepwell.records import Run, RunStatus
from stepwell.store.store import Store


async def run_named(store: Store, name: str) -> Run[Any]:
    """The run that is meant; ends the command if there is none, or several."""
    if name.startswith("@"):
        return await _newest(store, name)
    if name.isdecimal():
        return await store.get_run(int(name))
    found = await _with_key(store, name)
    if not found:
        raise Stop(NOT_FOUND, f"no run has the key {name!r}", "stepwell runs")
    if len(found) > 1:
        meant = " or ".join(f"{run.workflow}:{run.key}" for run in found)
        raise Stop(REFUSED, f"{name!r} is the key of {len(found)} runs", f"one of {meant}")
    return found[0]


def names_given(names: Sequence[str]) -> list[str]:
    """The names, `-` as those on standard input."""
    given = [each for name in names for each in (sys.stdin.read().split() if name == "-" else [name])]
    if not given:
        raise Stop(USAGE, "no run was named")
    return given


def called(run: Run[Any]) -> str:
    """A run as people say it."""
    return f"run {run.id} ({run.workflow}{f' {run.key}' if run.key else ''})"


async def _newest(store: Store, name: str) -> Run[Any]:
    if name not in ("@last", "@failed"):
        raise Stop(USAGE, f"{name} names no run", "@last, @failed, a number, a key, or workflow:key")
    found = await store.runs(status=RunStatus.ERROR if name == "@failed" else None, limit=1)
    if not found:
        raise Stop(NOT_FOUND, "no run has failed" if name == "@failed" else "there are no runs", "stepwell runs")
    return found[0]


async def _with_key(store: Store, name: str) -> list[Run[Any]]:
    """The runs that have this key now, in whatever workflow; else the newest that had it, where keys are reused."""
    workflows = [each.name for each in await store.workflows()]
    held = [(each, name) for each in workflows]
    held += [(each, name[len(each) + 1 :]) for each in workflows if name.startswith(f"{each}:") and name != f"{each}:"]
    found = [run for workflow, key in held if (run := await store.find_run(workflow, key)) is not None]
    if found:
        return found
    return [run for workflow, key in held for run in await store.runs(workflow, key=key, limit=1)]
