"""Commands that show runs: a list of them, or one as a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.asking import Asked, asks_store

if TYPE_CHECKING:
    from stepwell.cli.looking import Look
    from stepwell.records import Page, Run, Task
    from stepwell.store.store import Store

STATUSES = ("pending", "running", "paused", "success", "error", "cancelled")
# The words that a list prints where they are no status, and the statuses that runs of each may have.
WORDS = {
    "queued": ("PENDING",),
    "waiting": ("PAUSED", "PENDING"),
    "retrying": ("PENDING",),
    "cancelling": ("RUNNING", "PAUSED", "PENDING"),
}
PAGES_LOOKED_AT = 20  # of each status, for those that a word fits


@click.command()
@click.argument("workflow", required=False)
@click.option("--status", type=click.Choice([*STATUSES, "failed", "succeeded", *WORDS]), help="Only those with it.")
@click.option("--key", help="Only those with this key.")
@click.option("--tag", help="Only those with this tag.")
@click.option("--since", metavar="SPAN", help="Only those triggered in the last 90s, 15m, 24h, 7d.")
@click.option("--parent", metavar="RUN", help="Only those that this run asked for.")
@click.option("--deleted", is_flag=True, help="Only those that were deleted, and can be restored.")
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
      stepwell runs --parent order-7
      stepwell runs --status failed --ids | stepwell retry -
    """
    asked.do(lambda store: _list(store, asked, workflow, filters, ids=ids))


@click.command()
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Redraw until it is finished.")
@asks_store
def show(asked: Asked, run: str, *, follow: bool) -> None:
    """Show a run as a timeline: its steps, attempts, waits and children.

    RUN is a run's number, its key, workflow:key, @last or @failed.

    \b
    Examples:
      stepwell show @last
      stepwell show fulfil:order-7 -f
    """
    asked.do(lambda store: _show(store, asked, run, follow=follow))


async def _list(store: Store, asked: Asked, workflow: str | None, filters: dict[str, Any], *, ids: bool) -> None:
    from datetime import UTC, datetime, timedelta

    from stepwell.cli.naming import run_named
    from stepwell.cli.output import say, say_json
    from stepwell.cli.status import as_json
    from stepwell.durations import seconds_of
    from stepwell.records import Page

    if filters["since"] is not None:
        filters["since"] = datetime.now(UTC) - timedelta(seconds=seconds_of(filters["since"], "since"))
    status = filters["status"]
    named = {None: None, "failed": "ERROR", "succeeded": "SUCCESS"}
    filters["status"] = named.get(status, status and status.upper())
    if workflow is not None:
        await store.get_workflow(workflow)
    if filters["parent"] is not None:
        filters["parent"] = (await run_named(store, filters["parent"])).id
    page = await (_in_words(store, workflow, filters, status) if status in WORDS else store.runs(workflow, **filters))
    if filters["deleted"]:
        page = Page([run for run in page if run.deleted_at is not None], page.next)
    if asked.as_json:
        say_json({"runs": [as_json(run) for run in page], "next": page.next})
    elif ids:
        for run in page:
            say(str(run.id))
    else:
        narrowed = [value for name, value in filters.items() if value and name != "limit"]
        _tabulate(page, page.next, filtered=workflow is not None or bool(narrowed))


async def _in_words(store: Store, workflow: str | None, filters: dict[str, Any], word: str) -> Page[Run[Any]]:
    """The runs that a list calls by this word, newest first: of these only the first pages are looked through."""
    from stepwell.cli.status import word_of
    from stepwell.records import Page

    found: list[Run[Any]] = []
    for status in WORDS[word]:
        after = filters["after"]
        for _ in range(PAGES_LOOKED_AT):
            page = await store.runs(workflow, **{**filters, "status": status, "after": after, "limit": 1_000})
            found += [run for run in page if word_of(run).endswith(word)]
            after = page.next
            if after is None or len(found) >= filters["limit"]:
                break
    found.sort(key=lambda run: (run.created_at, run.id), reverse=True)
    return Page(found[: filters["limit"]], None)


def _tabulate(page: Sequence[Run[Any]], more: str | None, *, filtered: bool) -> None:
    from stepwell.cli.output import ago, say, say_next, short, span, table
    from stepwell.cli.status import took, word_of

    if not page:
        say("no runs fit" if filtered else "there are no runs")
        say_next("stepwell runs" if filtered else "stepwell trigger WORKFLOW [name=value ...]")
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
    from stepwell.cli.looking import look_at
    from stepwell.cli.naming import run_named
    from stepwell.cli.output import say, say_json, say_next
    from stepwell.cli.status import as_json
    from stepwell.cli.timeline import lines_of
    from stepwell.errors import RunNotFound

    try:
        run = await run_named(store, name, deleted=None)
    except RunNotFound as error:
        if (task := await store.get(error.run_id, deleted=True)) is None or task.kind == "run":
            raise
        _show_task(asked, task)
        return
    if follow:
        run = await follow_run(store, run, quiet=asked.as_json)
    look = await look_at(store, run)
    if asked.as_json:
        children = [as_json(child.run) for child in look.children]
        say_json({**as_json(run), "steps": look.steps, "why": look.why, "children": children, "history": look.marks})
        return
    for line in lines_of(look):
        say(line, hang=None if "│" in line else 7)
    say()
    say_next(_after_showing(look))


def _show_task(asked: Asked, task: Task) -> None:
    """A message, or another task that is no run: what is recorded of it."""
    from stepwell.cli.output import ago, say, say_json, say_next, short
    from stepwell.cli.status import glyph_of

    if asked.as_json:
        say_json(task)
        return
    say(f"{task.queue} {task.key or ''}".strip() + f"   {task.kind} {task.id}   {glyph_of(task.status)} {task.status}")
    say(f"enqueued {ago(task.created_at)} · attempt {task.attempt} of {task.max_attempts}")
    if task.last_worker is not None:
        say(f"worker {task.last_worker_name or 'of a session that is removed'} (session {task.last_worker})")
    say(f"input  {short(task.input, 100)}")
    if task.last_error:
        say(f"error  {short(task.last_error, 200)}")
    say_next(f"stepwell dead requeue {task.id}" if task.status == "ERROR" else "stepwell queue ls")


def _after_showing(look: Look) -> str:
    from stepwell.cli.advice import advice
    from stepwell.records import RunStatus

    if look.why is not None:
        return advice(look.run, look.why, look.steps)
    return f"stepwell {'retry' if look.run.status == RunStatus.ERROR else 'export run'} {look.run.id}" + (
        " --dry-run" if look.run.status == RunStatus.ERROR else ""
    )
