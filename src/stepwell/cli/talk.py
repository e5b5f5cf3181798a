"""Commands that talk with a run: ask it, show the values that it sets, follow what it streams."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.command import Invocation, asks_store
from stepwell.cli.output import say, say_json, say_next, table
from stepwell.operate.format import ago, plain, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.store.store import Store


@click.command()
@click.argument("run")
@click.argument("name")
@click.argument("data", nargs=-1)
@click.option("--timeout", metavar="SPAN", default="30s", show_default=True, help="Wait so long for the answer.")
@click.option("--key", help="Of requests with one name and key the run gets the first; all have the same answer.")
@click.option("--no-check", is_flag=True, help="Send it even if the run waits for another type: for code to come.")
@asks_store
def ask(
    asked: Invocation, run: str, name: str, data: Sequence[str], *, timeout: str, key: str | None, no_check: bool
) -> None:
    """Make a request of a run, and show its reply.

    The run takes it with `ctx.request(NAME)`, now or later; the request is kept until then. DATA is one value, as JSON
    if it parses, else as text; or an object, as name=text and name:=json; null if there is none.

    \b
    Examples:
      stepwell ask order-7 assign to=grace hours:=3
      stepwell ask order-7 assign to=grace --key monday --timeout 5m
    """
    asked.do(lambda store: _ask(store, asked, run, name, data, timeout=timeout, key=key, check=not no_check))


@click.command()
@click.argument("name")
@click.argument("data", nargs=-1)
@click.option("--key", help="Of events with one name and key only the first is published.")
@asks_store
def broadcast(asked: Invocation, name: str, data: Sequence[str], *, key: str | None) -> None:
    """Tell an event to every run and workflow that subscribed.

    Runs wait for it with `ctx.wait_event(NAME)`; workflows under `@on_event(NAME)` are triggered. DATA is one value, as
    JSON if it parses, else as text; or an object, as name=text and name:=json; null if there is none.

    \b
    Examples:
      stepwell broadcast payment.received order:=7 amount:=4900
      stepwell broadcast rates.changed --key 2026-05-04
    """
    asked.do(lambda store: _broadcast(store, asked, name, data, key=key))


@click.command()
@click.argument("run")
@click.argument("name", required=False)
@click.option("--timeout", metavar="SPAN", default="0s", show_default=True, help="Wait so long for it to be set.")
@asks_store
def value(asked: Invocation, run: str, name: str | None, *, timeout: str) -> None:
    """Show the values that a run has set with `ctx.set_value`.

    Without NAME, the last value of each name.

    RUN is a run's number, its key, workflow:key, @last or @failed.

    \b
    Examples:
      stepwell value order-7
      stepwell value order-7 status --timeout 30s
    """
    asked.do(lambda store: _values(store, asked, run) if name is None else _value(store, asked, run, name, timeout))


@click.command()
@click.argument("run")
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run is finished.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Begin behind the chunk with this offset.")
@asks_store
def stream(asked: Invocation, run: str, name: str, *, follow: bool, after: int) -> None:
    """Show what a run has written to a stream.

    That is what it writes with `ctx.stream(NAME).write(...)`. A line for each chunk: text as it is, any other value as
    JSON. With --json, an object with its offset on each line.

    \b
    Examples:
      stepwell stream order-7 log
      stepwell stream order-7 tokens -f --after 120
    """
    asked.do(lambda store: _stream(store, asked, run, name, follow=follow, after=after))


@click.command()
@click.argument("run")
@click.argument("name", required=False)
@click.option("--waiting", "state", flag_value="waiting", help="Only those that no wait has taken.")
@click.option("--taken", "state", flag_value="taken", help="Only those that a wait has taken.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of rows.")
@click.option("--after", metavar="PLACE", help="Continue after the page that printed this PLACE.")
@asks_store
def signals(asked: Invocation, run: str, name: str | None, **which: Any) -> None:
    """List the signals that a run has.

    Those of one name stand in the order in which they came. A run forgets what it took longer ago than the store keeps
    what is finished.

    \b
    Examples:
      stepwell signals order-7
      stepwell signals order-7 approved --waiting
    """
    asked.do(lambda store: _signals(store, asked, run, name, which))


async def _signals(store: Store, asked: Invocation, called: str, name: str | None, which: dict[str, Any]) -> None:
    from stepwell.operate.lookup import run_named

    run = await run_named(store, called)
    page = await store.signals(run.id, name, **which)
    if asked.as_json:
        say_json({"run": run.id, "signals": list(page), "next": page.next})
        return
    rows = [(one.name, one.key, ago(one.sent_at), one.taken_by or "waiting", short(one.data)) for one in page]
    table(("NAME", "KEY", "SENT", "TAKEN BY", "DATA"), rows)
    say_next(f"stepwell why {run.id}" + (f"   more: --after {page.next}" if page.next else ""))


async def _broadcast(store: Store, asked: Invocation, name: str, data: Sequence[str], *, key: str | None) -> None:
    from stepwell.cli.parse import value_of

    task_id = await store.broadcast(name, value_of(data), key=key)
    if asked.as_json:
        say_json({"task": task_id, "event": name, "created": task_id.created})
    else:
        say(f"event {name} is task {task_id}" if task_id.created else f"event {name} was task {task_id} before")
        say_next("stepwell message ls stepwell.broadcasts")


async def _ask(
    store: Store,
    asked: Invocation,
    called: str,
    name: str,
    data: Sequence[str],
    *,
    timeout: str,
    key: str | None,
    check: bool,
) -> None:
    from stepwell.cli.parse import value_of
    from stepwell.operate.lookup import run_named

    run = await run_named(store, called)
    reply = await store.ask(run.id, name, value_of(data), timeout=timeout, key=key, check=check)
    if asked.as_json:
        say_json({"run": run.id, "request": name, "reply": reply})
    else:
        say(_text(reply))


@click.command()
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run is finished.")
@click.option("--step", metavar="KEY", help="Only the lines of this step, by its key: charge#1.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only the lines of this attempt.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Begin behind the line with this offset.")
@asks_store
def logs(asked: Invocation, run: str, **options: Any) -> None:
    """Show what code has logged inside a run, by step and attempt.

    What Python's logging lets through in the worker is kept, from INFO on; more with logs=debug in the store's URL.

    \b
    Examples:
      stepwell logs order-7
      stepwell logs order-7 -f
      stepwell logs order-7 --step charge#1 --attempt 2
    """
    asked.do(lambda store: _logs(store, asked, run, **options))


async def _logs(store: Store, asked: Invocation, called: str, **options: Any) -> None:
    from stepwell.operate.lookup import run_named

    run = await run_named(store, called)
    seen = False
    async for line in store.logs(run.id, **options):
        seen = True
        if asked.as_json:
            say(json.dumps(plain(line), ensure_ascii=False))
        else:
            where = "" if line.step is None else f" {line.step} ({line.attempt})"
            say(f"{line.at.astimezone():%H:%M:%S.%f}{where} {line.level} {line.logger}: {line.text}")
    if not (seen or asked.as_json):
        say(f"run {run.id} has logged nothing that is kept")
        say_next(f"stepwell show {run.id}")


async def _values(store: Store, asked: Invocation, called: str) -> None:
    from stepwell.operate.lookup import run_named

    run = await run_named(store, called)
    values = await store.values(run.id)
    if asked.as_json:
        say_json({"run": run.id, "values": values})
        return
    if not values:
        say(f"run {run.id} has set no value")
    else:
        table(("NAME", "VALUE", "SET"), [(one.name, short(one.value, 100), ago(one.set_at)) for one in values])
    say_next(f"stepwell show {run.id}")


async def _value(store: Store, asked: Invocation, called: str, name: str, timeout: str) -> None:
    from stepwell.operate.lookup import run_named

    run = await run_named(store, called)
    found = await store.value(run.id, name, timeout=timeout)
    if asked.as_json:
        say_json({"run": run.id, "name": name, "value": found})
    else:
        say(_text(found))


async def _stream(store: Store, asked: Invocation, called: str, name: str, *, follow: bool, after: int) -> None:
    from stepwell.operate.lookup import run_named

    run = await run_named(store, called)
    async for chunk in store.database.reports.stream(run.id, name, object, after, follow=follow):
        say(_text({"offset": chunk.offset, "data": chunk.data} if asked.as_json else chunk.data))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
