"""Which runs a person asks for, in words such as `status:failed workflow:fulfil tag:vip`, and what fits them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from stepwell.base.durations import seconds_of
from stepwell.errors import InvalidOption, RunNotFound
from stepwell.operate.format import IN_PART, STATUS_WORDS
from stepwell.operate.lookup import NameRefused, run_named, runs_in
from stepwell.records import Page, Run, RunStatus
from stepwell.store.store import Store

_WORD: Final = re.compile(r'(\w+):("[^"]*"|\S+)|"[^"]*"|\S+')


@dataclass(frozen=True, slots=True)
class RunQuery:
    """What runs are asked for; a field that is None matches all. `text` is what was said without a name."""

    status: str | None = None
    workflow: str | None = None
    key: str | None = None
    tag: str | None = None
    error: str | None = None
    since: str | None = None
    until: str | None = None
    parent: str | None = None
    deleted: str | None = None
    text: str | None = field(default=None)

    @classmethod
    def parsed(cls, said: str) -> RunQuery:
        """Read a line of words; what has no known name before its colon is the text."""
        known = {each.name for each in fields(cls)} - {"text"}
        named: dict[str, str] = {}
        rest: list[str] = []
        for found in _WORD.finditer(said[:1000]):
            name, value = found.group(1), found.group(2)
            if name in known:
                named[name] = value.strip('"')
            else:
                rest.append(found.group(0).strip('"'))
        if "status" in named and named["status"].lower() not in STATUS_WORDS:
            raise InvalidOption("status", named["status"], f"it is one of {', '.join(STATUS_WORDS)}")
        return cls(**named, text=" ".join(rest) or None)

    def __str__(self) -> str:
        """The line of words that says the same."""
        words = [(each.name, getattr(self, each.name)) for each in fields(self) if each.name != "text"]
        said = [f"{name}:{_quoted(value)}" for name, value in words if value]
        return " ".join([*said, *([self.text] if self.text else [])])

    def but(self, **changes: str | None) -> RunQuery:
        """The same with other fields."""
        return replace(self, **changes)

    @property
    def is_narrow(self) -> bool:
        """True if it leaves out any run."""
        return any(getattr(self, each.name) for each in fields(self))

    def filters(self, now: datetime) -> dict[str, Any]:
        """The filter of `store.runs`, without the status."""
        return {
            "workflow": self.workflow,
            "key": self.key,
            "tag": self.tag,
            "since": _moment("since", self.since, now),
            "until": _moment("until", self.until, now),
        }


async def listed(
    store: Store, query: RunQuery, *, limit: int, after: str | None = None, floor: datetime | None = None
) -> Page[Run[Any]]:
    """The runs that fit, newest first, without payloads; with an error, those of the newest 100,000 tasks that failed.

    No run from before the `floor` is looked at.
    """
    now = datetime.now(UTC)
    if query.workflow is not None:
        await store.get_workflow(query.workflow)
    if query.error is not None:
        page = await store.database.excerpts.failed_with(query.error, limit=limit, after=after)
        return Page([run for run in page if _fits(run, query, now)], page.next)
    filters = query.filters(now)
    filters["since"] = max(filter(None, (floor, filters["since"])), default=None)
    if query.parent is not None:
        filters["parent"] = (await run_named(store, query.parent)).id
    word = None if query.status is None else query.status.lower()
    if word not in IN_PART:
        filters["after"] = after
    page = await runs_in(store, word, limit, whole=False, **filters, deleted=query.deleted is not None)
    if query.deleted is not None:
        return Page([run for run in page if run.deleted_at is not None], page.next)
    return page


async def matching(
    store: Store, query: RunQuery, statuses: Collection[RunStatus], *, limit: int
) -> tuple[Sequence[int], bool]:
    """The ids of the runs that fit and have one of these statuses, newest first, and whether there are more."""
    word = None if query.status is None else query.status.lower()
    if query.error is not None or word in IN_PART:
        found = await listed(store, query.but(text=None), limit=limit)
        return [int(run.id) for run in found if run.status in statuses], found.next is not None
    wanted = [one for one in RunStatus if one in statuses and (word is None or one in STATUS_WORDS[word])]
    parent = None if query.parent is None else int((await run_named(store, query.parent)).id)
    filters: Any = query.filters(datetime.now(UTC))
    page = await store.database.runs.numbers(filters, wanted, parent=parent, limit=limit)
    return page, page.next is not None


async def floor_of(store: Store, query: RunQuery) -> datetime | None:
    """From when on a query that has to read each run looks; None if it reads all there are, or need not."""
    if query.key is None and query.tag is None and query.text is None:
        return None
    return await store.database.excerpts.searched_since(query.workflow)


async def found_by_name(store: Store, name: str, since: datetime | None) -> Run[Any] | None:
    """The run that a text names by its number or key, if it names exactly one."""
    try:
        return await run_named(store, name, deleted=None, since=since)
    except (NameRefused, RunNotFound):
        return None


def _fits(run: Run[Any], query: RunQuery, now: datetime) -> bool:
    since, until = _moment("since", query.since, now), _moment("until", query.until, now)
    return (
        query.workflow in (None, run.workflow)
        and query.key in (None, run.key)
        and (query.tag is None or query.tag in run.tags)
        and (since is None or run.created_at >= since)
        and (until is None or run.created_at < until)
        and (query.status is None or "ERROR" in STATUS_WORDS[query.status.lower()])
    )


def _moment(option: str, said: str | None, now: datetime) -> datetime | None:
    """A moment: how long ago (24h), or ISO 8601 in UTC."""
    if said is None:
        return None
    try:
        at = datetime.fromisoformat(said)
    except ValueError:
        return now - timedelta(seconds=seconds_of(said, option))
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def _quoted(value: str) -> str:
    return f'"{value}"' if re.search(r"\s", value) else value
