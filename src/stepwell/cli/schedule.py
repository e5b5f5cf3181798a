"""Commands on schedules: list them, show one and its next ticks, its history; pause, resume, run now."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.command import OK, REFUSED, Invocation, asks_store, sure
from stepwell.cli.output import say, say_json, say_next, table

if TYPE_CHECKING:
    from stepwell.store.schedule_info import ScheduleInfo
    from stepwell.store.store import Store


@click.group()
def schedule() -> None:
    """Look at schedules, pause them, run them now."""


@schedule.command("ls")
@asks_store
def ls(asked: Invocation) -> None:
    """List the schedules, and when they are due.

    \b
    Examples:
      stepwell schedule ls
    """
    asked.do(lambda store: _list(store, asked))


@schedule.command("show")
@click.argument("name")
@asks_store
def show(asked: Invocation, name: str) -> None:
    """Show a schedule, and its next ticks.

    \b
    Examples:
      stepwell schedule show nightly
    """
    asked.do(lambda store: _show(store, asked, name))


@schedule.command("next")
@click.argument("name")
@click.option("-n", "--count", default=5, help="How many.")
@asks_store
def next_(asked: Invocation, name: str, *, count: int) -> None:
    """Say when the next ticks are, in its time zone.

    \b
    Examples:
      stepwell schedule next nightly -n 10
    """

    async def work(store: Store) -> None:
        info, ticks = await store.get_schedule(name), await store.next_ticks(name, count)
        if asked.as_json:
            say_json({"schedule": name, "next": ticks})
            return
        for one in ticks:
            say(_local(one, info))

    asked.do(work)


@schedule.command("history")
@click.argument("name")
@click.option("-n", "--limit", default=20, help="How many.")
@asks_store
def history(asked: Invocation, name: str, *, limit: int) -> None:
    """Say what became of its ticks, the newest first.

    \b
    Examples:
      stepwell schedule history nightly
    """
    asked.do(lambda store: _history(store, asked, name, limit))


@schedule.command("pause")
@click.argument("name")
@click.option("--reason", help="Why, for those who look.")
@asks_store
def pause(asked: Invocation, name: str, *, reason: str | None) -> None:
    """Fire no tick until it is resumed; runs under way go on.

    \b
    Examples:
      stepwell schedule pause nightly --reason "the disk is full"
    """
    asked.do(
        lambda store: _change(asked, name, store.pause_schedule(name, reason=reason), "is paused", "is paused already")
    )


@schedule.command("resume")
@click.argument("name")
@asks_store
def resume(asked: Invocation, name: str) -> None:
    """Fire again, from now on.

    \b
    Examples:
      stepwell schedule resume nightly
    """
    asked.do(lambda store: _change(asked, name, store.resume_schedule(name), "goes on", "is not paused"))


@schedule.command("run")
@click.argument("name")
@click.option("--force", is_flag=True, help="Also if a run of it is not finished.")
@asks_store
def run(asked: Invocation, name: str, *, force: bool) -> None:
    """Trigger a run now; its ticks stay as they are.

    \b
    Examples:
      stepwell schedule run nightly
    """

    async def work(store: Store) -> int:
        run_id = await store.run_schedule(name, force=force)
        if asked.as_json:
            say_json({"schedule": name, "run": run_id})
        elif run_id is None:
            say(f"{name} has a run that is not finished; nothing was triggered")
            say_next(f"stepwell schedule run {name} --force")
        else:
            say(f"{name} runs as {run_id}")
            say_next(f"stepwell show {run_id}")
        return REFUSED if run_id is None else OK

    asked.do(work)


@schedule.command("set")
@click.argument("name")
@click.argument("changes", metavar="OPTION=VALUE", nargs=-1, required=True)
@asks_store
def set_(asked: Invocation, name: str, changes: tuple[str, ...]) -> None:
    """Change a schedule; what code declares counts again after reset.

    \b
    Examples:
      stepwell schedule set nightly cron="0 3 * * *" tz=Europe/Riga
      stepwell schedule set sync every=10m overlap=buffer
    """
    given = dict(_change_of(one) for one in changes)

    async def work(store: Store) -> int:
        await store.update_schedule(name, **given)
        return await _change(asked, name, _done(), "is changed", "")

    asked.do(work)


@schedule.command("reset")
@click.argument("name")
@asks_store
def reset(asked: Invocation, name: str) -> None:
    """Let what code declares count again, also if it was removed.

    \b
    Examples:
      stepwell schedule reset nightly
    """
    asked.do(lambda store: _change(asked, name, store.reset_schedule(name), "is as declared", "was not changed"))


@schedule.command("rm")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks_store
def remove(asked: Invocation, name: str, *, yes: bool) -> None:
    """Remove a schedule; code does not bring it back, reset does.

    \b
    Examples:
      stepwell schedule rm nightly --yes
    """
    sure(f"Remove the schedule {name}?", yes=yes)

    async def work(store: Store) -> int:
        await store.delete_schedule(name)
        if asked.as_json:
            say_json({"schedule": name, "changed": True})
        else:
            say(f"{name} is removed")
            say_next("stepwell schedule ls")
        return OK

    asked.do(work)


@schedule.command("backfill")
@click.argument("name")
@click.option("--from", "start", required=True, help="A moment such as 2026-01-01 or 2026-01-01T02:00+01:00 [UTC].")
@click.option("--to", "end", required=True, help="A moment.")
@click.option("--priority", default=-10, show_default=True, help="Of the runs.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@asks_store
def backfill(asked: Invocation, name: str, *, start: str, end: str, priority: int, dry_run: bool) -> None:
    """Trigger a run for each tick of a span that has none.

    \b
    Examples:
      stepwell schedule backfill nightly --from 2026-01-01 --to 2026-02-01 --dry-run
    """
    span = moment_of(start), moment_of(end)

    async def work(store: Store) -> None:
        done = await store.backfill_schedule(name, *span, priority=priority, dry_run=dry_run)
        if asked.as_json:
            say_json({"schedule": name, "backfill": done, "dry_run": dry_run})
        else:
            would = "would be triggered" if dry_run else "are triggered"
            say(f"{done.triggered} of {done.ticks} ticks {would}; {done.had_runs} have a run")

    asked.do(work)


def _change_of(text: str) -> tuple[str, Any]:
    """A change as it was written on the command line."""
    name, sign, value = text.partition("=")
    if not sign:
        raise click.UsageError(f"write {text} as OPTION=VALUE, such as cron='0 3 * * *'")
    if name in ("at", "start", "end"):
        return name, moment_of(value)
    if name in ("priority", "pause_on_error"):
        return name, int(value) if name == "priority" else value in ("true", "yes", "1")
    return name, value.split(",") if name == "tags" else value


def moment_of(text: str) -> Any:
    """A moment in ISO 8601; UTC if it names no time zone."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{text} is no moment; write it as 2026-01-01 or 2026-01-01T02:00+01:00") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


async def _done() -> bool:
    return True


async def _list(store: Store, asked: Invocation) -> None:
    found: list[ScheduleInfo] = []
    after: str | None = None
    while True:
        page = await store.schedules(limit=1000, after=after)
        found += page
        if (after := page.next) is None:
            break
    if asked.as_json:
        say_json({"schedules": found})
        return
    if not found:
        say("there are no schedules")
        say_next("stepwell worker APP, with `@workflow(schedule=Cron(...))`")
        return
    rows = [
        (one.name, one.workflow, _standing(one), _local(one.next_at, one), one.last_outcome, one.when) for one in found
    ]
    table(("NAME", "WORKFLOW", "STATE", "NEXT", "LAST", ""), rows)
    say_next(f"stepwell schedule show {found[0].name}")


async def _show(store: Store, asked: Invocation, name: str) -> None:
    one, ticks = await store.get_schedule(name), await store.next_ticks(name, 5)
    if asked.as_json:
        say_json({"schedule": one, "next": ticks})
        return
    say(f"{one.name}   {_standing(one)}   {one.when}")
    by = "declared in code" if one.declared else "made by a verb"
    edited = f", changed since: {', '.join(one.edited)}" if one.edited else ""
    say(f"  triggers {one.workflow}, {by}{edited}; overlap {one.overlap}, catch-up {one.catch_up}")
    if one.last_at is not None:
        run_id = "" if one.last_run is None else f", the last run is {one.last_run}"
        say(f"  the last tick, at {_local(one.last_at, one)}, was {one.last_outcome}{run_id}")
    if one.buffered_at is not None:
        say(f"  the tick of {_local(one.buffered_at, one)} waits for the run before it")
    say(f"  {one.why}")
    if one.state == "active":
        for each in ticks:
            say(f"  next: {_local(each, one)}")
    say_next(f"stepwell schedule {'resume' if one.state == 'paused' else 'history'} {name}")


async def _history(store: Store, asked: Invocation, name: str, limit: int) -> None:
    info, ticks = await store.get_schedule(name), await store.ticks(name, limit=limit)
    if asked.as_json:
        say_json({"schedule": name, "ticks": ticks})
        return
    rows = [
        (_local(one.due_at, info), one.kind, one.outcome, one.run_id, "" if one.outcome == "fired" else one.why)
        for one in ticks
    ]
    table(("TICK", "KIND", "OUTCOME", "RUN", "WHY"), rows)


async def _change(asked: Invocation, name: str, work: Awaitable[bool], done: str, undone: str) -> int:
    changed = await work
    if asked.as_json:
        say_json({"schedule": name, "changed": changed})
    else:
        say(f"{name} {done if changed else undone}")
        say_next(f"stepwell schedule show {name}")
    return OK if changed else REFUSED


def _standing(one: ScheduleInfo) -> str:
    return one.state if one.pause_reason is None else f"{one.state}: {one.pause_reason}"


def _local(moment: Any, info: ScheduleInfo) -> str:
    """A moment by the clock of the schedule's time zone."""
    from stepwell.base.timetable import zone_of

    return "" if moment is None else f"{moment.astimezone(zone_of(info.tz)):%a %Y-%m-%d %H:%M:%S %Z}"
