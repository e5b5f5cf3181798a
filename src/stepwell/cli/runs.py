"""Commands on runs: list, show, retry and cancel them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.asking import Asked, asks_store

if TYPE_CHECKING:
    from stepwell.records import Run
    from stepwell.store.store import Store

STATUSES = ("pending", "running", "paused", "success", "error", "cancelled")


@click.command()
@click.argument("workflow", required=False)
@click.option("--status", type=click.Choice([*STATUSES, "failed"]), help="Only those with this status.")
@click.option("--key", help="Only those with this key.")
@click.option("--tag", help="Only those with this tag.")
@click.option("--since", metavar="SPAN", help="Only those triggered in the last 90s, 15m, 24h, 7d.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most so many.")
@click.option("--after", metavar="PLACE", help="Go on where a page ended.")
@click.option("--ids", is_flag=True, help="Only the numbers, one a line: for `stepwell retry -`.")
@asks_store
def runs(asked: Asked, workflow: str | None, *, ids: bool, **filters: Any) -> None:
    """List runs, newest first.

    \b
    Examples:
      stepwell runs
      stepwell runs fulfil --status failed --since 24h
      stepwell runs --status failed --ids | stepwell retry -
    """
    asked.do(lambda store: _list(store, asked, workflow, filters, ids=ids))


@click.command()
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Redraw until it is finished.")
@asks_store
def show(asked: Asked, run: str, *, follow: bool) -> None:
    """Show a run as a timeline: its steps, attempts and waits.

    RUN is a run's number, its key, workflow:key, @last or @failed.

    \b
    Examples:
      stepwell show @last
      stepwell show fulfil:order-7 -f
    """
    asked.do(lambda store: _show(store, asked, run, follow=follow))


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@asks_store
def retry(asked: Asked, runs: Sequence[str], *, dry_run: bool) -> None:
    """Execute failed runs again, from the step that failed.

    What their other steps recorded is kept and not done again. RUN is a run's number, its key, workflow:key, @last or
    @failed; `-` reads them from standard input.

    \b
    Examples:
      stepwell retry @failed
      stepwell retry order-7 order-8 --dry-run
    """
    asked.do(lambda store: _retry(store, asked, runs, dry_run=dry_run))


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--reason", help="Why; kept with the run.")
@asks_store
def cancel(asked: Asked, runs: Sequence[str], *, reason: str | None) -> None:
    """Let runs not go on, nor the runs they asked for.

    One that a worker executes is stopped by it soon; what its steps have recorded stays. RUN is a run's number, its
    key, workflow:key, @last or @failed; `-` reads them from standard input.

    \b
    Examples:
      stepwell cancel order-7 --reason "customer called"
    """
    asked.do(lambda store: _cancel(store, asked, runs, reason))


async def _list(store: Store, asked: Asked, workflow: str | None, filters: dict[str, Any], *, ids: bool) -> None:
    from datetime import UTC, datetime, timedelta

    from stepwell.cli.output import say, say_json
    from stepwell.cli.status import as_json
    from stepwell.durations import seconds_of

    if filters["since"] is not None:
        filters["since"] = datetime.now(UTC) - timedelta(seconds=seconds_of(filters["since"], "since"))
    status = filters["status"]
    filters["status"] = {None: None, "failed": "ERROR"}.get(status, status and status.upper())
    if workflow is not None:
        await store.get_workflow(workflow)
    page = await store.runs(workflow, **filters)
    if asked.as_json:
        say_json({"runs": [as_json(run) for run in page], "next": page.next})
    elif ids:
        for run in page:
            say(str(run.id))
    else:
        _tabulate(page, page.next)


def _tabulate(page: Sequence[Run[Any]], more: str | None) -> None:
    from stepwell.cli.output import ago, say, say_next, short, span, table
    from stepwell.cli.status import took, word_of

    if not page:
        say("no runs fit")
        say_next("stepwell trigger WORKFLOW [name=value ...]")
        return
    rows = [
        (
            word_of(run),
            run.id,
            run.workflow,
            run.key,
            ago(run.created_at),
            span(took(run)),
            short(run.last_error or "", 200),
        )
        for run in page
    ]
    table(("STATUS", "RUN", "WORKFLOW", "KEY", "TRIGGERED", "TOOK", "LAST ERROR"), rows)
    say_next(f"stepwell show {page[0].id}" + (f"   more: --after {more}" if more else ""))


async def _show(store: Store, asked: Asked, name: str, *, follow: bool) -> None:
    from stepwell.cli.following import follow_run
    from stepwell.cli.naming import run_named
    from stepwell.cli.output import say, say_json, say_next
    from stepwell.cli.status import as_json
    from stepwell.cli.timeline import lines_of

    run = await run_named(store, name)
    if follow:
        run = await follow_run(store, run, quiet=asked.as_json)
    steps = await store.steps(run.id)
    if asked.as_json:
        say_json({**as_json(run), "steps": steps})
        return
    for line in lines_of(run, steps):
        say(line)
    say()
    say_next(_after_showing(run))


def _after_showing(run: Run[Any]) -> str:
    from stepwell.records import RunStatus

    if run.status == RunStatus.ERROR:
        return f"stepwell retry {run.id} --dry-run"
    return f"stepwell export run {run.id}" if run.status.finished else f"stepwell show {run.id} -f"


async def _retry(store: Store, asked: Asked, names: Sequence[str], *, dry_run: bool) -> int:
    from stepwell.cli.exits import OK, REFUSED
    from stepwell.cli.naming import called, names_given, run_named
    from stepwell.cli.output import say, say_json, say_next
    from stepwell.records import RunStatus

    answers: list[dict[str, Any]] = []
    for name in names_given(names):
        run = await run_named(store, name)
        steps = await store.steps(run.id)
        kept = [step.key for step in steps if step.status == RunStatus.SUCCESS]
        reopened = list((run.error or {}).get("steps", ()))
        fits = run.status == RunStatus.ERROR
        done = fits and (dry_run or await store.retry(run.id))
        answers.append({"run": run.id, "retried": done and not dry_run, "again": reopened, "kept": kept})
        if asked.as_json:
            continue
        if not done:
            why = (
                "its key belongs to another run now"
                if fits
                else f"it is {run.status}, and only failed runs are retried"
            )
            say(f"{called(run)} is left as it is: {why}")
            continue
        say(f"{called(run)} {'would go' if dry_run else 'goes'} on from {', '.join(reopened) or 'its beginning'}")
        say(f"  recorded, will not run again: {', '.join(kept) or 'nothing'}", dim=True)
    if asked.as_json:
        say_json({"dry_run": dry_run, "runs": answers})
    elif not dry_run:
        say_next(f"stepwell show {answers[-1]['run']} -f")
    wanted = [one for one in answers if one["retried"] or dry_run]
    return OK if len(wanted) == len(answers) else REFUSED


async def _cancel(store: Store, asked: Asked, names: Sequence[str], reason: str | None) -> int:
    from stepwell.cli.exits import OK, REFUSED
    from stepwell.cli.naming import called, names_given, run_named
    from stepwell.cli.output import say, say_json, say_next
    from stepwell.records import CancelAnswer

    words = {
        CancelAnswer.CANCELLED: "is cancelled, and the runs it asked for",
        CancelAnswer.REQUESTED: "is being executed: its worker was asked to stop it, and no more of it is recorded",
        CancelAnswer.TOO_LATE: "was finished before; nothing was changed",
    }
    answers = {}
    for name in names_given(names):
        run = await run_named(store, name)
        answers[int(run.id)] = answer = await store.cancel(run.id, reason=reason)
        if not asked.as_json:
            say(f"{called(run)} {words[answer]}")
    if asked.as_json:
        say_json([{"run": run, "answer": answer} for run, answer in answers.items()])
    else:
        say_next(f"stepwell show {max(answers)}")
    return OK if all(answers.values()) else REFUSED
