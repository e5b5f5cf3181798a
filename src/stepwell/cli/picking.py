"""Which runs a command is about: those that are named, or all that fit a filter, after a question."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stepwell.cli.asking import Asked, sure

if TYPE_CHECKING:
    from stepwell.records import RunStatus
    from stepwell.store.store import Store

F = TypeVar("F", bound=Callable[..., Any])
MOST_COUNTED = 10_000
FILTERS = ("workflow", "status", "tag", "since", "limit", "everything")


@dataclass(frozen=True, slots=True)
class Picked:
    """The runs that were named, or the filter; one of both."""

    names: Sequence[str]
    filters: dict[str, Any]
    dry_run: bool
    yes: bool

    @property
    def by_filter(self) -> bool:
        """True if no run was named."""
        return not self.names


def picks_runs(statuses: Sequence[str]) -> Callable[[F], F]:
    """Give a command RUN... and the filters that may stand in its place; it gets them as `picked`."""

    def decorate(fn: F) -> F:
        @click.argument("runs", metavar="[RUN]...", nargs=-1)
        @click.option("--workflow", metavar="NAME", help="In place of RUN: all of this workflow.")
        @click.option("--status", type=click.Choice(statuses), help="In place of RUN: all with this status.")
        @click.option("--tag", help="In place of RUN: all with this tag.")
        @click.option("--since", metavar="SPAN", help="In place of RUN: all triggered in the last 15m, 24h, 7d.")
        @click.option("--limit", type=click.IntRange(1), help="With a filter: the newest so many.")
        @click.option("--all", "everything", is_flag=True, help="In place of RUN: every one there is.")
        @click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
        @click.option("--yes", is_flag=True, help="With a filter: do not ask.")
        @functools.wraps(fn)
        def command(*args: Any, runs: Sequence[str], dry_run: bool, yes: bool, **options: Any) -> Any:
            filters = {name: options.pop(name) for name in FILTERS}
            return fn(*args, picked=Picked(runs, filters, dry_run, yes), **options)

        return command  # type: ignore[return-value]

    return decorate


def check_picked(picked: Picked) -> None:
    """End the command if nothing was said, or both names and a filter."""
    from stepwell.cli.exits import USAGE, Stop

    said = [name for name, value in picked.filters.items() if value and name != "limit"]
    if picked.names and (said or picked.filters["limit"] is not None):
        raise Stop(USAGE, "runs are named and a filter is given: say one of both")
    if not picked.names and not said:
        raise Stop(USAGE, "no run was named", "a RUN, or --workflow, --status, --tag, --since, or --all")


async def change_many(
    store: Store,
    asked: Asked,
    picked: Picked,
    change: Callable[..., Any],
    *,
    statuses: Sequence[RunStatus],
    words: tuple[str, str, str],
    then: str,
) -> None:
    """Count what fits, ask, change it, and say how many: `words` are what is asked, is being done, and was done."""
    from stepwell.cli.output import many, say, say_json, say_next
    from stepwell.cli.patience import patiently

    filters = filters_of(picked)
    count = await _count(store, filters, statuses)
    total = count if count < MOST_COUNTED else None
    told = many(count, "run") if total is not None else f"{MOST_COUNTED} runs or more"
    if picked.dry_run:
        say_json({"count": count, "dry_run": True}) if asked.as_json else say(f"{told} would be {words[2]}")
        if not asked.as_json:
            say_next("the same with --yes")
        return
    sure(f"{words[0]} {told}?", yes=picked.yes)
    work = change(**filters, everything=picked.filters["everything"])
    done = await patiently(asked, work, words[1], total)
    if asked.as_json:
        say_json({"count": done, "dry_run": False})
        return
    say(f"{many(done, 'run is', 'runs are')} {words[2]}")
    say_next(then)


def filters_of(picked: Picked) -> dict[str, Any]:
    """The filter as the store takes it."""
    from datetime import UTC, datetime, timedelta

    from stepwell.durations import seconds_of

    filters = {name: value for name, value in picked.filters.items() if name != "everything"}
    if (since := filters["since"]) is not None:
        filters["since"] = datetime.now(UTC) - timedelta(seconds=seconds_of(since, "since"))
    if (status := filters["status"]) is not None:
        filters["status"] = "ERROR" if status == "failed" else status.upper()
    return filters


async def _count(store: Store, filters: dict[str, Any], statuses: Sequence[RunStatus]) -> int:
    """How many runs fit, as far as anybody would count."""
    most = min(filters["limit"] or MOST_COUNTED, MOST_COUNTED)
    wanted = statuses if filters["status"] is None else [filters["status"]]
    found = 0
    for status in wanted:
        found += len(await store.runs(**{**filters, "status": status, "limit": most}))
    return min(found, most)
