"""How a run is named on the command line: by its number (`@7` if it may be a key), its key, `workflow:key`, `@last`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from stepwell.cli.exits import NOT_FOUND, REFUSED, USAGE, Stop
from stepwell.errors import RunNotFound
from stepwell.records import Run, RunStatus
from stepwell.store.store import Store


async def run_named(store: Store, name: str, *, deleted: bool | None = False) -> Run[Any]:
    """The run that is meant; ends the command if there is none, or several.

    With `deleted` a key means one that is deleted, and a number any run; with None only a number finds deleted ones.
    A number that is also the key of another run is refused, with both readings.
    """
    if name.startswith("@") and not name[1:].isdecimal():
        return await _newest(store, name)
    if name.startswith("@"):
        return await store.get_run(int(name[1:]), deleted=deleted is not False)
    found = await _deleted_with_key(store, name) if deleted else await _with_key(store, name)
    if name.isdecimal():
        return await _numbered(store, int(name), found, deleted=deleted is not False)
    if not found:
        said = f"no {'deleted ' if deleted else ''}run has the key {name!r}"
        raise Stop(NOT_FOUND, said, f"stepwell runs{' --deleted' if deleted else ''}")
    if len(found) > 1:
        meant = " or ".join(str(run.id) if deleted else f"{run.workflow}:{run.key}" for run in found)
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


async def _numbered(store: Store, number: int, keyed: Sequence[Run[Any]], *, deleted: bool) -> Run[Any]:
    """The run of this number, or the one that has it as its key; refused if these are two."""
    others = [run for run in keyed if run.id != number]
    try:
        run = await store.get_run(number, deleted=deleted)
    except RunNotFound:
        if len(others) != 1:
            raise
        return others[0]
    if others:
        meant = ", ".join(called(one) for one in others)
        keys = " or ".join(f"{one.workflow}:{one.key}" for one in others)
        raise Stop(REFUSED, f"{number} is {called(run)}, and the key of {meant}", f"@{number}, or {keys}")
    return run


async def _newest(store: Store, name: str) -> Run[Any]:
    if name not in ("@last", "@failed"):
        raise Stop(USAGE, f"{name} names no run", "@last, @failed, @ and a number, a number, a key, or workflow:key")
    found = await store.runs(status=RunStatus.ERROR if name == "@failed" else None, limit=1)
    if not found:
        raise Stop(NOT_FOUND, "no run has failed" if name == "@failed" else "there are no runs", "stepwell runs")
    return found[0]


async def _with_key(store: Store, name: str) -> list[Run[Any]]:
    """The runs that have this key now, in whatever workflow; else the newest that had it, where keys are reused."""
    held = await _places(store, name)
    found = [run for workflow, key in held if (run := await store.find_run(workflow, key)) is not None]
    if found:
        return found
    return [run for workflow, key in held for run in await store.runs(workflow, key=key, limit=1)]


async def _deleted_with_key(store: Store, name: str) -> list[Run[Any]]:
    """The deleted runs that had this key."""
    pages = [await store.runs(workflow, key=key, deleted=True) for workflow, key in await _places(store, name)]
    return [run for page in pages for run in page if run.deleted_at is not None]


async def _places(store: Store, name: str) -> list[tuple[str, str]]:
    """Each workflow with the key that the name may mean in it."""
    workflows = [each.name for each in await store.workflows()]
    held = [(each, name) for each in workflows]
    return held + [
        (each, name[len(each) + 1 :]) for each in workflows if name.startswith(f"{each}:") and name != f"{each}:"
    ]
