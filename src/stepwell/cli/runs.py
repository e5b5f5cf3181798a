"""Commands that show runs: a list of them, or one as a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.command import Invocation, asks_store
from stepwell.cli.output import say, say_json, say_next, table
from stepwell.operate.format import STATUS_WORDS, ago, short, span

if TYPE_CHECKING:
    from stepwell.operate.run_view import RunView
    from stepwell.records import Run, Task
    from stepwell.store.store import Store


@click.command()
@click.argument("workflow", required=False)
@click.option(
    "--status",
    "words",
    type=click.Choice(list(STATUS_WORDS), case_sensitive=False),
    multiple=True,
    help="Only runs with this status, or one of these.",
)
@click.option("--key", help="Only runs with this key.")
@click.option("--key-prefix", metavar="TEXT", help="Only runs whose key begins so, in the order of their keys.")
@click.option("--tag", multiple=True, help="Only runs with this tag, or all of these.")
@click.option("--since", metavar="SPAN", help="Only runs triggered in the last 90s, 15m, 24h, 7d.")
@click.option("--parent", metavar="RUN", help="Only children of this run.")
@click.option("--deleted", is_flag=True, help="Only deleted runs, which can be restored.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of rows.")
@click.option("--after", metavar="PLACE", help="Continue after the page that printed this PLACE.")
@click.option("--ids", is_flag=True, help="Print only the numbers, one per line: for `stepwell retry -`.")
@asks_store
def runs(asked: Invocation, workflow: str | None, *, ids: bool, **filters: Any) -> None:
    """List runs, newest first.

    \b
    Examples:
      stepwell runs
      stepwell runs fulfil --status failed --status cancelled --since 24h
      stepwell runs --tag vip --tag eu --key-prefix order-2026-
      stepwell runs --parent order-7
      stepwell runs --status failed --ids | stepwell retry -
    """
    asked.do(lambda store: _list(store, asked, workflow, filters, ids=ids))


@click.command()
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Redraw until the run is finished.")
@asks_store
def show(asked: Invocation, run: str, *, follow: bool) -> None:
    """Show a run as a timeline: its steps, attempts, waits and children.

    RUN is a run's number, its key, workflow:key, @last or @failed.

    \b
    Examples:
      stepwell show @last
      stepwell show fulfil:order-7 -f
    """
    asked.do(lambda store: _show(store, asked, run, follow=follow))


async def _list(store: Store, asked: Invocation, workflow: str | None, filters: dict[str, Any], *, ids: bool) -> None:
    from datetime import UTC, datetime, timedelta

    from stepwell.base.durations import seconds_of
    from stepwell.operate.format import statuses_in
    from stepwell.operate.lookup import run_named, runs_in
    from stepwell.operate.status import as_json
    from stepwell.records import Page

    words = filters.pop("words")
    if filters["since"] is not None:
        filters["since"] = datetime.now(UTC) - timedelta(seconds=seconds_of(filters["since"], "since"))
    if workflow is not None:
        await store.get_workflow(workflow)
    if filters["parent"] is not None:
        filters["parent"] = (await run_named(store, filters["parent"])).id
    filters["tag"] = filters["tag"] or None
    narrowed = bool(workflow or words) or any(value for name, value in filters.items() if name != "limit")
    if len(words) > 1:
        page = await store.runs(workflow, status=statuses_in(words), **filters)
    else:
        page = await runs_in(store, words[0] if words else None, workflow=workflow, **filters)
    if filters["deleted"]:
        page = Page([run for run in page if run.deleted_at is not None], page.next)
    if asked.as_json:
        say_json({"runs": [as_json(run) for run in page], "next": page.next})
    elif ids:
        for run in page:
            say(str(run.id))
    else:
        _tabulate(page, page.next, filtered=narrowed)


def _tabulate(page: Sequence[Run[Any]], more: str | None, *, filtered: bool) -> None:
    from stepwell.operate.status import took, word_of

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


async def _show(store: Store, asked: Invocation, name: str, *, follow: bool) -> None:
    from stepwell.cli.timeline import follow_run, lines_of
    from stepwell.errors import RunNotFound
    from stepwell.operate.lookup import run_named
    from stepwell.operate.run_view import view_of
    from stepwell.operate.status import as_json

    try:
        run = await run_named(store, name, deleted=None)
    except RunNotFound as error:
        if (task := await store.get(error.run_id, deleted=True)) is None or task.kind == "RUN":
            raise
        _show_task(asked, task)
        return
    if follow:
        run = await follow_run(store, run, quiet=asked.as_json)
    look = await view_of(store, run)
    if asked.as_json:
        children = [as_json(child.run) for child in look.children]
        say_json(
            {
                **as_json(run),
                "steps": look.steps,
                "why": look.why,
                "children": children,
                "history": look.marks,
                "values": look.values,
            }
        )
        return
    for line in lines_of(look):
        say(line, hang=None if "│" in line else 7)
    say()
    say_next(_after_showing(look))


def _show_task(asked: Invocation, task: Task) -> None:
    """A message, or another task that is no run: what is recorded of it."""
    from stepwell.operate.status import glyph_of

    if asked.as_json:
        say_json(task)
        return
    say(
        f"{task.queue} {task.key or ''}".strip()
        + f"   {task.kind.lower()} {task.id}   {glyph_of(task.status)} {task.status}"
    )
    say(f"enqueued {ago(task.created_at)} · attempt {task.attempt} of {task.max_attempts}")
    if task.last_worker is not None:
        say(f"worker {task.last_worker_name or 'of a session that is removed'} (session {task.last_worker})")
    say(f"input  {short(task.input, 100)}")
    if task.last_error:
        say(f"error  {short(task.last_error, 200)}")
    say_next(f"stepwell dead requeue {task.id}" if task.status == "ERROR" else "stepwell queue ls")


def _after_showing(look: RunView) -> str:
    from stepwell.operate.run_view import advice
    from stepwell.records import RunStatus

    if look.why is not None:
        return advice(look.run, look.why, look.steps)
    return f"stepwell {'retry' if look.run.status == RunStatus.ERROR else 'export run'} {look.run.id}" + (
        " --dry-run" if look.run.status == RunStatus.ERROR else ""
    )


@click.group()
def export() -> None:
    """Write a run as JSON, or its steps as a graph."""


@export.command("run")
@click.argument("run")
@asks_store
def export_run(asked: Invocation, run: str) -> None:
    """Write a run and everything it recorded as JSON.

    Inputs and outputs are included.

    \b
    Examples:
      stepwell export run order-7 > order-7.json
    """
    asked.do(lambda store: _run(store, run))


@export.command("graph")
@click.argument("run")
@click.option("--format", "kind", type=click.Choice(["mermaid", "dot"]), default="mermaid", show_default=True)
@asks_store
def export_graph(asked: Invocation, run: str, *, kind: str) -> None:
    """Write the steps of a run as a graph.

    The graph shows what this run did, in the order of its calls, not what the workflow could do. Steps that overlapped
    in time stand side by side.

    \b
    Examples:
      stepwell export graph @last
      stepwell export graph order-7 --format dot | dot -Tsvg > order-7.svg
    """
    asked.do(lambda store: _graph(store, asked, run, kind))


async def _run(store: Store, name: str) -> None:
    from stepwell.operate.lookup import run_named
    from stepwell.operate.status import as_json

    run = await run_named(store, name)
    say_json({"format": 1, "run": as_json(run), "steps": await store.steps(run.id)})


async def _graph(store: Store, asked: Invocation, name: str, kind: str) -> None:
    from stepwell.operate.lookup import run_named
    from stepwell.operate.run_view import dot, mermaid, ranks_of

    run = await run_named(store, name)
    ranks = ranks_of(await store.steps(run.id))
    if asked.as_json:
        say_json({"workflow": run.workflow, "ranks": [[step.key for step in rank] for rank in ranks]})
        return
    for line in (mermaid if kind == "mermaid" else dot)(run.workflow, ranks):
        say(line)
