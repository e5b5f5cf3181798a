"""Commands that change runs, named ones or all that fit a filter: retry, cancel, delete, restore."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stepwell.cli.command import (
    OK,
    REFUSED,
    USAGE,
    ChangeAnswer,
    Invocation,
    Stop,
    asks_store,
    change_each,
    names_given,
    sure,
)
from stepwell.cli.output import patiently, say, say_json, say_next
from stepwell.operate.format import CANCELLED_WORDS, FAILED_WORDS, IN_PART, STATUS_WORDS, UNFINISHED_WORDS, many

if TYPE_CHECKING:
    from stepwell.records import Run, RunStatus
    from stepwell.store.store import Store

F = TypeVar("F", bound=Callable[..., Any])
MOST_COUNTED = 10_000
FILTERS = ("workflow", "status", "tag", "since", "limit", "everything")


@dataclass(frozen=True, slots=True)
class Picked:
    """The runs that were named, or the filter."""

    names: Sequence[str]
    filters: dict[str, Any]
    dry_run: bool
    yes: bool

    @property
    def by_filter(self) -> bool:
        """True if no run was named."""
        return not self.names


def picks_runs(statuses: Collection[str]) -> Callable[[F], F]:
    """Add RUN... and the filters that may replace it to a command, which gets them as `picked`."""
    one_of = click.Choice(list(statuses), case_sensitive=False)

    def decorate(fn: F) -> F:
        @click.argument("runs", metavar="[RUN]...", nargs=-1)
        @click.option("--workflow", metavar="NAME", help="In place of RUN: all of this workflow.")
        @click.option("--status", type=one_of, help="In place of RUN: all with this status.")
        @click.option("--tag", help="In place of RUN: all with this tag.")
        @click.option("--since", metavar="SPAN", help="In place of RUN: all triggered in the last 15m, 24h, 7d.")
        @click.option("--limit", type=click.IntRange(1), help="With a filter: maximum number of runs, newest first.")
        @click.option("--all", "everything", is_flag=True, help="In place of RUN: all runs.")
        @click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
        @click.option("--yes", is_flag=True, help="With a filter: do not ask for confirmation.")
        @functools.wraps(fn)
        def command(*args: Any, runs: Sequence[str], dry_run: bool, yes: bool, **options: Any) -> Any:
            filters = {name: options.pop(name) for name in FILTERS}
            return fn(*args, picked=Picked(runs, filters, dry_run, yes), **options)

        return command  # type: ignore[return-value]

    return decorate


@click.command()
@picks_runs((*FAILED_WORDS, *CANCELLED_WORDS))
@click.option("--from", "at", metavar="STEP", help="Begin a new run at this step, as `stepwell fork` does.")
@asks_store
def retry(asked: Invocation, picked: Picked, *, at: str | None) -> None:
    """Execute failed runs again, from the step that failed.

    It is the same run: its recorded steps are kept and not executed again. Runs that were cancelled go on where they
    were; a filter takes them with --status cancelled. With --from it is a new run, which keeps
    what was recorded before that step. RUN is a run's number, its key, workflow:key, @last or @failed; `-` reads them
    from standard input.

    \b
    Examples:
      stepwell retry @failed
      stepwell retry order-7 order-8 --dry-run
      stepwell retry order-7 --from charge
      stepwell retry --workflow fulfil --since 24h --yes
      stepwell retry --workflow fulfil --status cancelled --dry-run
    """
    asked.do(lambda store: _retry(store, asked, picked, at))


@click.command()
@picks_runs(UNFINISHED_WORDS)
@click.option("--reason", help="The reason; kept with the run.")
@asks_store
def cancel(asked: Invocation, picked: Picked, *, reason: str | None) -> None:
    """Cancel runs and their children.

    If a worker executes a run, it stops it soon; recorded steps are kept. RUN is a run's number, its
    key, workflow:key, @last or @failed; `-` reads them from standard input.

    \b
    Examples:
      stepwell cancel order-7 --reason "customer called"
      stepwell cancel --workflow export --tag nightly --dry-run
      stepwell cancel --workflow export --tag nightly --yes
    """
    asked.do(lambda store: _cancel(store, asked, picked, reason))


@click.command()
@picks_runs(STATUS_WORDS)
@click.option("--reason", help="The reason; kept with the run.")
@asks_store
def delete(asked: Invocation, picked: Picked, *, reason: str | None) -> None:
    """Delete runs so that they can be restored, until they are pruned.

    They are no longer executed or listed, and their keys are free at once. RUN is a run's number, its key,
    workflow:key, @last or @failed; `-` reads them from standard input.

    \b
    Examples:
      stepwell delete order-7
      stepwell delete --workflow export --status cancelled --yes
    """
    asked.do(lambda store: _delete(store, asked, picked, reason))


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@asks_store
def restore(asked: Invocation, runs: Sequence[str]) -> None:
    """Bring deleted runs back as they were.

    `stepwell runs --deleted` lists them. A run that was waiting or queued goes on. It is refused if another run has its
    key now.

    \b
    Examples:
      stepwell restore 7
    """
    asked.do(lambda store: _restore(store, asked, runs))


async def _retry(store: Store, asked: Invocation, picked: Picked, at: str | None) -> int | None:
    from stepwell.cli.control import forked
    from stepwell.records import RunStatus

    check_picked(picked)
    if at is not None:
        if len(picked.names) != 1:
            raise Stop(USAGE, "--from goes on with one run", f"stepwell retry RUN --from {at}")
        await forked(store, asked, picked.names[0], at, dry_run=picked.dry_run)
        return None
    if not picked.by_filter:
        return await _retry_named(store, asked, picked)
    asking = "Execute again, from the step that failed,"
    words = (asking, "queueing again", "queued again; what other steps recorded is kept")
    failed = (RunStatus.ERROR,)
    await change_many(
        store, asked, picked, store.retry_runs, store.retry, statuses=failed, words=words, then="stepwell runs"
    )
    return None


async def _retry_named(store: Store, asked: Invocation, picked: Picked) -> int:
    from stepwell.operate.lookup import run_named
    from stepwell.records import RunStatus

    answers: list[dict[str, Any]] = []
    for name in names_given(picked.names):
        run = await run_named(store, name)
        steps = await store.steps(run.id)
        kept = [step.key for step in steps if step.status == RunStatus.SUCCESS]
        again = list((run.error or {}).get("steps", ()))
        fits = run.status in (RunStatus.ERROR, RunStatus.CANCELLED)
        done = fits and (picked.dry_run or await store.retry(run.id))
        answers.append({"run": run.id, "retried": done and not picked.dry_run, "again": again, "kept": kept})
        if not asked.as_json:
            _say_retried(run, again, kept, fits=fits, done=done, dry_run=picked.dry_run)
    if asked.as_json:
        say_json({"dry_run": picked.dry_run, "runs": answers})
    else:
        say_next("the same without --dry-run" if picked.dry_run else f"stepwell show {answers[-1]['run']} -f")
    wanted = [one for one in answers if one["retried"] or picked.dry_run]
    return OK if len(wanted) == len(answers) else REFUSED


def _say_retried(
    run: Run[Any], again: Sequence[str], kept: Sequence[str], *, fits: bool, done: bool, dry_run: bool
) -> None:
    from stepwell.operate.lookup import called

    if not done:
        taken = "its key belongs to another run now"
        why = taken if fits else f"it is {run.status}, and only failed and cancelled runs are retried"
        say(f"{called(run)} is left as it is: {why}")
        return
    say(f"{called(run)} {'would go' if dry_run else 'goes'} on from {', '.join(again) or 'its beginning'}")
    say(f"  recorded, will not run again: {', '.join(kept) or 'nothing'}", dim=True)


async def _cancel(store: Store, asked: Invocation, picked: Picked, reason: str | None) -> int | None:
    from functools import partial

    from stepwell.records import CancelAnswer
    from stepwell.store.bulk import UNFINISHED

    check_picked(picked)
    change_one = partial(store.cancel, reason=reason)
    if picked.by_filter:
        words = ("Cancel", "cancelling", "cancelled, or the worker asked to stop; the runs asked for by them too")
        change = partial(store.cancel_runs, reason=reason)
        then = "stepwell runs --status cancelled"
        await change_many(store, asked, picked, change, change_one, statuses=UNFINISHED, words=words, then=then)
        return None
    said = {
        None: "would be cancelled, and the runs it asked for",
        CancelAnswer.CANCELLED: "is cancelled, and the runs it asked for",
        CancelAnswer.REQUESTED: "is being executed: its worker was asked to stop it, and no more of it is recorded",
        CancelAnswer.TOO_LATE: "was finished before; nothing was changed",
    }
    return await _each(store, asked, picked, change_one, said=said, then="show")


async def _delete(store: Store, asked: Invocation, picked: Picked, reason: str | None) -> int | None:
    from functools import partial

    from stepwell.records import RunStatus

    check_picked(picked)
    change_one = partial(store.delete, reason=reason)
    if picked.by_filter:
        words = ("Delete", "deleting", "deleted; until pruned, they can be restored")
        change = partial(store.delete_runs, reason=reason)
        then = "stepwell runs --deleted"
        await change_many(store, asked, picked, change, change_one, statuses=tuple(RunStatus), words=words, then=then)
        return None
    said = {
        None: "would be deleted, and could be restored until it is pruned",
        "deleted": "is deleted, and can be restored until it is pruned; it is no longer executed",
        "gone": "was deleted before; nothing was changed",
    }
    return await _each(store, asked, picked, partial(_deleted, store, reason), said=said, then="restore")


async def _deleted(store: Store, reason: str | None, run_id: int) -> str:
    return "deleted" if await store.delete(run_id, reason) else "gone"


async def _each(
    store: Store, asked: Invocation, picked: Picked, change: Any, *, said: dict[Any, str], then: str
) -> int:
    """Change the named runs one by one, and print the result of each."""
    from stepwell.operate.lookup import called, run_named

    refused = list(said)[-1]

    async def changed(name: str) -> ChangeAnswer:
        run = await run_named(store, name)
        answer = None if picked.dry_run else await change(run.id)
        record = {"run": run.id, "answer": answer}
        return ChangeAnswer(record, f"{called(run)} {said[answer]}", done=answer != refused)

    def following(last: ChangeAnswer) -> str:
        return "the same without --dry-run" if picked.dry_run else f"stepwell {then} {last.record['run']}"

    return await change_each(asked, names_given(picked.names), changed, following)


async def _restore(store: Store, asked: Invocation, names: Sequence[str]) -> int:
    from stepwell.operate.lookup import called, run_named

    async def restored(name: str) -> ChangeAnswer:
        run = await run_named(store, name, deleted=True)
        done = await store.restore(run.id)
        back = "is back as it was: what it recorded is kept, and what it waited for still counts"
        said = back if done else "was not deleted; nothing was changed"
        return ChangeAnswer({"run": run.id, "restored": done}, f"{called(run)} {said}", done=done)

    return await change_each(asked, names_given(names), restored, lambda last: f"stepwell show {last.record['run']}")


def check_picked(picked: Picked) -> None:
    """End the command if neither names nor a filter were given, or both."""
    said = [name for name, value in picked.filters.items() if value and name != "limit"]
    if picked.names and (said or picked.filters["limit"] is not None):
        raise Stop(USAGE, "runs are named and a filter is given: give one of the two")
    if not picked.names and not said:
        raise Stop(USAGE, "no run was named", "a RUN, or --workflow, --status, --tag, --since, or --all")


async def change_many(
    store: Store,
    asked: Invocation,
    picked: Picked,
    change: Callable[..., Any],
    change_one: Callable[[int], Awaitable[object]],
    *,
    statuses: Sequence[RunStatus],
    words: tuple[str, str, str],
    then: str,
) -> None:
    """Count what fits, ask, change it, and say how many: `words` are what is asked, is being done, and was done.

    `change` takes the filter; `change_one` is called for each run if the status is a word that the store does not know.
    """
    filters = filters_of(picked)
    listed = None
    if picked.filters["status"] in IN_PART:
        listed = await _listed(store, filters)
    count = await _count(store, filters, statuses) if listed is None else len(listed)
    total = count if count < MOST_COUNTED else None
    told = many(count, "run") if total is not None else f"{MOST_COUNTED} runs or more"
    if picked.dry_run:
        say_json({"count": count, "dry_run": True}) if asked.as_json else say(f"{told} would be {words[2]}")
        if not asked.as_json:
            say_next("the same with --yes")
        return
    sure(f"{words[0]} {told}?", yes=picked.yes)
    work = (
        change(**filters, everything=picked.filters["everything"])
        if listed is None
        else _change_listed(listed, change_one)
    )
    done = await patiently(asked, work, words[1], total)
    if asked.as_json:
        say_json({"count": done, "dry_run": False})
        return
    say(f"{many(done, 'run is', 'runs are')} {words[2]}")
    say_next(then if listed is None or total is not None else "the same once more, for the rest")


def filters_of(picked: Picked) -> dict[str, Any]:
    """The filter as the store takes it; a status that the store does not know is left as it was given."""
    from datetime import UTC, datetime, timedelta

    from stepwell.base.durations import seconds_of

    filters = {name: value for name, value in picked.filters.items() if name != "everything"}
    if (since := filters["since"]) is not None:
        filters["since"] = datetime.now(UTC) - timedelta(seconds=seconds_of(since, "since"))
    if (status := filters["status"]) is not None and status not in IN_PART:
        filters["status"] = STATUS_WORDS[status][0]
    return filters


async def _count(store: Store, filters: dict[str, Any], statuses: Sequence[RunStatus]) -> int:
    """How many runs fit; counting ends at a maximum."""
    most = min(filters["limit"] or MOST_COUNTED, MOST_COUNTED)
    wanted = statuses if filters["status"] is None else [filters["status"]]
    found = 0
    for status in wanted:
        found += len(await store.runs(**{**filters, "status": status, "limit": most}))
    return min(found, most)


async def _listed(store: Store, filters: dict[str, Any]) -> list[int]:
    """The runs that fit, where the status is a word that means only some runs of a status."""
    from stepwell.operate.lookup import runs_in

    rest = {name: value for name, value in filters.items() if name not in ("status", "limit")}
    most = min(filters["limit"] or MOST_COUNTED, MOST_COUNTED)
    return [run.id for run in await runs_in(store, filters["status"], most, whole=False, **rest)]


async def _change_listed(ids: Sequence[int], change_one: Callable[[int], Awaitable[object]]) -> int:
    from stepwell.store.progress import tell_done

    changed = 0
    for run_id in ids:
        changed += bool(await change_one(run_id))
        tell_done(1)
    return changed
