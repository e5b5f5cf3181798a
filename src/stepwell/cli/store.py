"""Commands for people who look after a store: watch it, examine it, its workers, tables, old tasks, maintenance."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stepwell.cli.command import FAILED, OK, Invocation, asks_store, sure
from stepwell.cli.output import drawable, is_lively, patiently, say, say_json, say_next, table
from stepwell.operate.format import ago, many, short, span

if TYPE_CHECKING:
    from stepwell.operate.doctor import Finding
    from stepwell.operate.status import Overview
    from stepwell.store.projections import ProjectionInfo
    from stepwell.store.store import Store

WIDTH = 4  # of the bar of a queue
MOST = 15  # runs in an overview


@click.command()
@click.option("--once", is_flag=True, help="Print once and end.")
@click.option(
    "--every", type=click.FloatRange(0.1, 60), default=1.0, show_default=True, help="Seconds between two updates."
)
@asks_store
def top(asked: Invocation, *, once: bool, every: float) -> None:
    """Watch queues, workers, projections and runs; Ctrl-C ends it.

    If the output is not a terminal, it prints once and ends.
    """
    asked.do(lambda store: _watch(store, asked, every, once=once))


@click.command()
@click.option("--quiet", is_flag=True, help="Print nothing if there is no problem: for a probe.")
@asks_store
def doctor(asked: Invocation, *, quiet: bool) -> None:
    """Say what is wrong with the store, and which command helps.

    It checks the database, workers, queues and runs. The exit code is 0 without a problem (a warning is not a problem),
    1 with a problem, and 5 if the store cannot be opened at all.
    """
    asked.do(lambda store: _examine(store, asked, quiet=quiet))


@click.command()
@click.option("--all", "everyone", is_flag=True, help="List ended sessions, too.")
@asks_store
def workers(asked: Invocation, *, everyone: bool) -> None:
    """List the workers, what they serve, and when they last gave a sign."""
    asked.do(lambda store: _workers(store, asked, everyone=everyone))


@click.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the statements for an empty database; opens no database.")
@click.option("--verify", is_flag=True, help="Change nothing: compare each table with this release's.")
@asks_store
def migrate(asked: Invocation, *, as_sql: bool, verify: bool) -> None:
    """Create the tables, or upgrade them to this release.

    Any number of processes may do it at once; a process that is killed has changed nothing.

    \b
    Examples:
      stepwell migrate
      stepwell migrate --sql --url postgresql:// > stepwell.sql
    """
    import asyncio

    if as_sql:
        asked.end(lambda: _print_tables(asked))
    elif verify:
        asked.do(lambda store: _verify(store, asked))
    else:
        asked.end(lambda: asyncio.run(_migrate(asked)))


@click.command()
@click.option(
    "--older-than", metavar="SPAN", help="Tasks that finished longer ago [default: what the store keeps, 7d]."
)
@click.option("--dead-letters", is_flag=True, help="Remove dead letters, too; otherwise they are kept.")
@click.option("--dry-run", is_flag=True, help="Only count; remove nothing.")
@asks_store
def prune(asked: Invocation, *, older_than: str | None, dead_letters: bool, dry_run: bool) -> None:
    """Remove tasks for good that finished long ago.

    Unfinished tasks are never removed.
    """
    asked.do(lambda store: _prune(store, asked, older_than, dead_letters=dead_letters, dry_run=dry_run))


@click.command()
@click.argument("subject")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks_store
def forget(asked: Invocation, subject: str, *, yes: bool) -> None:
    """Make all of a subject in an encrypted store unreadable for good.

    A subject is what the header `subject` names, or an instance of a forgettable decider, as TYPE/ID.

    \b
    Examples:
      stepwell forget customer/17
      stepwell forget order/42 --yes
    """
    asked.do(lambda store: _forget(store, asked, subject, yes=yes))


@click.group()
def maintenance() -> None:
    """Stop all claiming, and start it again; no attempt is spent."""


@maintenance.command()
@click.option("--reason", help="The reason; shown by `stepwell doctor`.")
@asks_store
def begin(asked: Invocation, reason: str | None) -> None:
    """Stop all claiming; tasks that are being executed are finished."""
    asked.do(lambda store: _maintain(store, asked, reason, begins=True))


@maintenance.command()
@asks_store
def end(asked: Invocation) -> None:
    """Let workers claim again."""
    asked.do(lambda store: _maintain(store, asked, None, begins=False))


async def _watch(store: Store, asked: Invocation, every: float, *, once: bool) -> None:
    from stepwell.operate.format import plain
    from stepwell.operate.status import as_json, overview_of

    if asked.as_json:
        view = await overview_of(store, MOST)
        runs = [as_json(run) for run in view.runs]
        projections = [{**plain(one), "lag": one.lag} for one in view.projections]
        say_json({"queues": view.queues, "workers": view.workers, "projections": projections, "runs": runs})
    elif once or not is_lively(sys.stdout):
        for line in _overview(await overview_of(store, MOST)):
            say(line)
    else:
        await _redraw(store, every)


async def _redraw(store: Store, every: float) -> None:
    import asyncio

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from stepwell.operate.status import overview_of

    encoding = sys.stdout.encoding  # read before rich replaces stdout
    with Live(console=Console(file=sys.stdout, highlight=False), auto_refresh=False, screen=True) as live:
        while True:
            text = "\n".join(drawable(line, encoding) for line in _overview(await overview_of(store, MOST)))
            live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
            await asyncio.sleep(every)


def _overview(view: Overview) -> list[str]:
    """The lines of an overview."""
    from stepwell.operate.status import state_of, took, word_of

    totals = {name: sum(getattr(one, name) for one in view.queues) for name in ("ready", "running", "waiting", "dead")}
    head = "   ".join(f"{name} {count}" for name, count in totals.items())
    most = max([one.ready for one in view.queues], default=0)
    lines = [f"stepwell top   {head}   workers {len(view.workers)}", ""]
    for one in view.queues:
        bar = "█" * (-(-WIDTH * one.ready // most) if most else 0)
        state = "".join(f"  {word}" for word, so in (("paused", one.paused), ("draining", one.draining)) if so)
        counts = f"{one.ready:>5} ready {one.running:>3} running {one.waiting:>5} waiting {one.dead:>4} dead"
        lines.append(f"  {short(one.queue, 19):<19} {bar:<{WIDTH}} {counts} {span(one.oldest):>5}{state}".rstrip())
    lines += [""] * bool(view.workers) + [
        f"  worker {one.id:<6} {state_of(one):<7} {one.name}  heard of {span(one.silent)} ago" for one in view.workers
    ]
    if view.projections:
        lines += ["", *map(_projection, view.projections)]
    lines += [""] + [
        f"  {word_of(run):<12} {short(run.workflow, 20):<20} {short(run.key or str(int(run.id)), 22):<22} "
        f"{ago(run.created_at):>10} {span(took(run)):>8}  {short(run.last_error or '', 40)}".rstrip()
        for run in view.runs
    ]
    return lines


def _projection(one: ProjectionInfo) -> str:
    """The line of a projection."""
    from stepwell.operate.projection import progress, standing

    name = one.name if one.live else f"{one.name}__{one.build}"
    parked = f"  {one.parked} parked" if one.parked else ""
    return f"  projection {short(name, 24):<24} {standing(one):<20} {progress(one)}{parked}"


async def _examine(store: Store, asked: Invocation, *, quiet: bool) -> int:
    from stepwell.base.redaction import redact_url
    from stepwell.connect import Config
    from stepwell.operate.doctor import findings
    from stepwell.operate.facts import facts_of

    found = findings(await facts_of(store, redact_url(Config(asked.url).url)))
    problems = sum(one.level == "problem" for one in found)
    if asked.as_json:
        say_json({"problems": problems, "findings": found})
    elif problems or not quiet:
        _say_findings(found, problems)
    return FAILED if problems else OK


def _say_findings(found: Sequence[Finding], problems: int) -> None:

    signs = {"good": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✕", "red")}
    for one in found:
        sign, colour = signs[one.level]
        say(f"{click.style(sign, fg=colour)} {one.about:<13} {one.said}", hang=16)
        if one.next is not None:
            say(f"  {'':<13} next: {one.next}", hang=None if one.next.startswith("stepwell") else 16, dim=True)
    warnings = sum(one.level == "warning" for one in found)
    say(f"{many(problems, 'problem')}, {many(warnings, 'warning')}")


async def _workers(store: Store, asked: Invocation, *, everyone: bool) -> None:
    from stepwell.operate.status import state_of

    found = [one for one in await store.workers() if everyone or one.stopped_at is None]
    if asked.as_json:
        say_json(found)
        return
    if not found:
        say("no worker lives")
        say_next("stepwell worker APP")
        return
    rows = [
        (
            one.id,
            state_of(one),
            one.name,
            one.pid,
            span(one.silent),
            span(one.lease),
            ago(one.started_at),
            ", ".join(one.handlers),
        )
        for one in found
    ]
    table(("SESSION", "STATE", "NAME", "PID", "SILENT", "LEASE", "STARTED", "SERVES"), rows)
    say_next("stepwell top")


async def _prune(store: Store, asked: Invocation, given: str | None, *, dead_letters: bool, dry_run: bool) -> None:

    work = store.prune(given, dead_letters=dead_letters, dry_run=dry_run)
    count = await patiently(asked, work, "counting" if dry_run else "removing")
    if asked.as_json:
        say_json({"count": count, "dry_run": dry_run})
        return
    kept = "" if dead_letters else "; dead letters are kept"
    tasks = many(count, "task", "tasks")
    now = "would be" if dry_run else "is" if count == 1 else "are"
    say(f"{tasks} that finished more than {given or span(store.database.options.keep)} ago {now} removed{kept}")
    say_next("the same without --dry-run" if dry_run else "stepwell queue ls")


async def _forget(store: Store, asked: Invocation, subject: str, *, yes: bool) -> int:

    sure(f"Make everything of {subject} unreadable for good?", yes=yes)
    done = await store.forget_subject(subject)
    if asked.as_json:
        say_json({"subject": subject, "forgotten": done})
    elif done:
        say(f"{subject} is forgotten; another process may read it for a minute")
    else:
        say(f"{subject} was forgotten before, or nothing was ever stored of it")
    return OK if done else FAILED


async def _maintain(store: Store, asked: Invocation, reason: str | None, *, begins: bool) -> None:

    await (store.begin_maintenance(reason) if begins else store.end_maintenance())
    now = await store.maintenance()
    if asked.as_json:
        say_json({"maintenance": now})
        return
    say(f"nothing is claimed any more; {now.running} tasks are still being executed" if now else "claiming goes on")
    say_next("stepwell maintenance end" if now else "stepwell queue ls")


async def _migrate(asked: Invocation) -> None:
    """Create or upgrade the tables and print the old and the new schema."""
    from stepwell.base.redaction import redact_url
    from stepwell.connect import Config

    backend, before, now = await patiently(asked, _tables_made(asked), "bringing the tables up to date")
    if asked.as_json:
        say_json({"backend": backend, "schema": now, "before": before})
        return
    place = redact_url(Config(asked.url).url)
    if before == now:
        say(f"{place} has schema {now}, which is this release's: nothing was changed")
    elif before == 0:
        say(f"{place} has its tables now: schema {now}, which is this release's")
    else:
        say(f"{place} went from schema {before} to {now}, which is this release's")
    say_next("stepwell worker APP")


async def _tables_made(asked: Invocation) -> tuple[str, int, int]:
    """The backend, and the schema before and after."""
    from stepwell.cli.open import opened
    from stepwell.store import schema
    from stepwell.store.progress import watched

    applied: list[int] = []
    with watched(applied.append):
        async with opened(asked.url, install=True) as store:
            now = await schema.version(store.database.driver)
            return store.database.driver.name, now - sum(applied), now


async def _verify(store: Store, asked: Invocation) -> None:
    """Compare the tables with this release's; raises what differs."""
    from stepwell.connect import admin

    await admin(store).verify()
    if asked.as_json:
        say_json({"verified": True})
    else:
        say("the tables are exactly this release's")


def _print_tables(asked: Invocation) -> None:
    """Print the statements that create the tables in an empty database."""
    from stepwell.connect import Config
    from stepwell.store import schema
    from stepwell.store.sql import Dialect, Statements

    config = Config(asked.url or "sqlite:///stepwell.db")
    dialect: Dialect = "postgres" if config.url.startswith("postgres") else "sqlite"
    texts = schema.script(Statements(dialect, config.schema))
    if asked.as_json:
        say_json({"dialect": dialect, "statements": texts})
    else:
        for text in texts:
            say(f"{text};\n")
