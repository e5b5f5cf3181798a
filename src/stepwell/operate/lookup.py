"""The run that a name means: its number (`@7` if that may be a key), its key, `workflow:key`, `@last`, `@failed`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

from stepwell.errors import RunNotFound, StepwellError
from stepwell.operate.format import IN_PART, STATUS_WORDS
from stepwell.operate.status import word_of
from stepwell.records import Page, Run, RunStatus
from stepwell.store.store import Store

PAGES: Final = 20  # pages of each status that are read for a word such as "waiting"
PAGE: Final = 1_000


class NameRefused(StepwellError):  # noqa: N818 - named for what happened, as the errors of the API
    """A name does not lead to one thing: nothing has it, several have it, or it cannot be a name.

    `instead` says what to give in its place.
    """

    def __init__(self, reason: Literal["missing", "several", "malformed"], said: str, instead: str) -> None:
        super().__init__(said)
        self.reason = reason
        self.instead = instead


async def run_named(
    store: Store, name: str, *, deleted: bool | None = False, since: datetime | None = None
) -> Run[Any]:
    """The run that a name means; raises `NameRefused` or `RunNotFound` if that is none, or several.

    With `deleted` a key means a deleted run, and a number means any run; with None only a number finds a deleted run.
    A number that is also the key of another run is refused, with both readings. A key that is free again is looked for
    among the runs that were asked for `since` then.
    """
    if name.startswith("@") and not name[1:].isdecimal():
        return await _newest(store, name)
    if name.startswith("@"):
        return await store.get_run(int(name[1:]), deleted=deleted is not False)
    found = await _deleted_with_key(store, name) if deleted else await _with_key(store, name, since)
    if name.isdecimal():
        return await _numbered(store, int(name), found, deleted=deleted is not False)
    if not found:
        said = f"no {'deleted ' if deleted else ''}run has the key {name!r}"
        raise NameRefused("missing", said, f"stepwell runs{' --deleted' if deleted else ''}")
    if len(found) > 1:
        meant = " or ".join(str(run.id) if deleted else f"{run.workflow}:{run.key}" for run in found)
        raise NameRefused("several", f"{name!r} is the key of {len(found)} runs", f"one of {meant}")
    return found[0]


def called(run: Run[Any]) -> str:
    """A run in words: its number, workflow and key."""
    return f"run {run.id} ({run.workflow}{f' {run.key}' if run.key else ''})"


async def runs_in(store: Store, word: str | None, limit: int, *, whole: bool = True, **filters: Any) -> Page[Run[Any]]:
    """The runs with this word for a status (None: all), newest first; without payloads unless they are to be whole.

    A word such as "waiting" means only some runs of a status: then only the first pages of it are read, and the result
    is the whole answer, without a next page.
    """
    filters["whole"] = whole
    if word is None or word not in IN_PART:
        status = None if word is None else STATUS_WORDS[word][0]
        return await run_page(store, limit, **filters, status=status)
    found: list[Run[Any]] = []
    for status in IN_PART[word]:
        found += await _in_part(store, word, limit, {**filters, "status": status})
    found.sort(key=lambda run: (run.created_at, run.id), reverse=True)
    return Page(found[:limit], None)


async def run_page(
    store: Store,
    limit: int,
    *,
    whole: bool = False,
    parent: int | None = None,
    deleted: bool = False,
    after: str | None = None,
    **which: Any,
) -> Page[Run[Any]]:
    """As `store.runs`; for lists that show no payload these are not read."""
    wanted: Any = which
    place: dict[str, Any] = {"limit": limit, "after": after, "whole": whole}
    return await store.database.runs.page(wanted, parent=parent, deleted=deleted, **place)


async def _in_part(store: Store, word: str, limit: int, filters: dict[str, Any]) -> list[Run[Any]]:
    found: list[Run[Any]] = []
    for _ in range(PAGES):
        page = await run_page(store, PAGE, **filters)
        found += [run for run in page if word_of(run).endswith(f" {word}")]
        if page.next is None or len(found) >= limit:
            break
        filters = {**filters, "after": page.next}
    return found


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
        raise NameRefused("several", f"{number} is {called(run)}, and the key of {meant}", f"@{number}, or {keys}")
    return run


async def _newest(store: Store, name: str) -> Run[Any]:
    if name not in ("@last", "@failed"):
        raise NameRefused(
            "malformed", f"{name} names no run", "@last, @failed, @ and a number, a number, a key, or workflow:key"
        )
    found = await store.runs(status=RunStatus.ERROR if name == "@failed" else None, limit=1)
    if not found:
        said = "no run has failed" if name == "@failed" else "there are no runs"
        raise NameRefused("missing", said, "stepwell runs")
    return found[0]


async def _with_key(store: Store, name: str, since: datetime | None) -> list[Run[Any]]:
    """The runs of any workflow that have this key now; else, where keys are reused, the newest that had it."""
    held = await _places(store, name)
    found = [run for workflow, key in held if (run := await store.find_run(workflow, key)) is not None]
    if found:
        return found
    return [run for workflow, key in held for run in await store.runs(workflow, key=key, since=since, limit=1)]


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
