"""Commands of those who look after a store: its workers, tables, old tasks, and maintenance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell.cli.asking import Asked, asks_store

if TYPE_CHECKING:
    from stepwell.records import WorkerInfo
    from stepwell.store.store import Store


@click.command()
@click.option("--all", "everyone", is_flag=True, help="Ended sessions too.")
@asks_store
def workers(asked: Asked, *, everyone: bool) -> None:
    """List the workers, what they serve and when they were heard of."""
    asked.do(lambda store: _workers(store, asked, everyone=everyone))


@click.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the statements for an empty database; asks no database.")
@click.option("--verify", is_flag=True, help="Change nothing: compare the tables with this release's, one by one.")
@asks_store
def migrate(asked: Asked, *, as_sql: bool, verify: bool) -> None:
    """Make the tables, or bring them up to this release's.

    Any number of processes may do it at once; one that is killed has changed nothing.

    \b
    Examples:
      stepwell migrate
      stepwell migrate --sql --url postgresql:// > stepwell.sql
    """
    import asyncio

    from stepwell.cli.migrating import migrated, printed, verified

    if as_sql:
        asked.end(lambda: printed(asked))
    elif verify:
        asked.do(lambda store: verified(store, asked))
    else:
        asked.end(lambda: asyncio.run(migrated(asked)))


@click.command()
@click.option("--older-than", metavar="SPAN", help="What finished before that [default: what the store keeps, 7d].")
@click.option("--dead-letters", is_flag=True, help="Dead letters too; else they are kept.")
@click.option("--dry-run", is_flag=True, help="Count, and remove nothing.")
@asks_store
def prune(asked: Asked, *, older_than: str | None, dead_letters: bool, dry_run: bool) -> None:
    """Remove for good what finished long ago.

    What is not finished is never touched.
    """
    asked.do(lambda store: _prune(store, asked, older_than, dead_letters=dead_letters, dry_run=dry_run))


@click.group()
def maintenance() -> None:
    """Stop all claiming, and let it go on; no attempt is spent."""


@maintenance.command()
@click.option("--reason", help="Why; shown by `stepwell doctor`.")
@asks_store
def begin(asked: Asked, reason: str | None) -> None:
    """Let nobody claim anything; what is under way goes on."""
    asked.do(lambda store: _maintain(store, asked, reason, begins=True))


@maintenance.command()
@asks_store
def end(asked: Asked) -> None:
    """Let everybody claim again."""
    asked.do(lambda store: _maintain(store, asked, None, begins=False))


async def _workers(store: Store, asked: Asked, *, everyone: bool) -> None:
    from stepwell.cli.output import ago, say, say_json, say_next, span, table

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


def state_of(one: WorkerInfo) -> str:
    """How a session stands, in a word."""
    if one.stopped_at is not None:
        return one.stop_reason or "ended"
    return "silent" if (one.silent or 0.0) > one.lease else "alive" if one.alive else "gone"


async def _prune(store: Store, asked: Asked, given: str | None, *, dead_letters: bool, dry_run: bool) -> None:
    from stepwell.cli.output import many, say, say_json, say_next, span
    from stepwell.cli.patience import patiently

    work = store.prune(given, dead_letters=dead_letters, dry_run=dry_run)
    count = await patiently(asked, work, "counting" if dry_run else "removing")
    if asked.as_json:
        say_json({"count": count, "dry_run": dry_run})
        return
    kept = "" if dead_letters else "; dead letters are kept"
    tasks = many(count, "task", "tasks")
    now = "would be" if dry_run else "is" if count == 1 else "are"
    say(f"{tasks} that finished more than {given or span(store.options.keep)} ago {now} removed{kept}")
    say_next("the same without --dry-run" if dry_run else "stepwell queue ls")


async def _maintain(store: Store, asked: Asked, reason: str | None, *, begins: bool) -> None:
    from stepwell.cli.output import say, say_json, say_next

    await (store.begin_maintenance(reason) if begins else store.end_maintenance())
    now = await store.maintenance()
    if asked.as_json:
        say_json({"maintenance": now})
        return
    say(f"nothing is claimed any more; {now.running} tasks are still being executed" if now else "claiming goes on")
    say_next("stepwell maintenance end" if now else "stepwell queue ls")
