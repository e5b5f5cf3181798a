"""Commands on deciders: list their instances, show one at any version, send it an input, draw its states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.asking import Asked, asks_store

if TYPE_CHECKING:
    from stepwell.decider import Receipt
    from stepwell.store.store import Store

APP_HELP = "The module that has the decider; its state can only be told by its code."


@click.group()
def decider() -> None:
    """List, show and draw instances of deciders, and send them inputs."""


@decider.command("ls")
@click.argument("type", required=False)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most so many.")
@click.option("--after", metavar="PLACE", help="Go on where a page ended.")
@asks_store
def ls(asked: Asked, type: str | None, *, limit: int, after: str | None) -> None:
    """List instances, of one type or of all.

    \b
    Examples:
      stepwell decider ls
      stepwell decider ls order --limit 100
    """
    asked.do(lambda store: _list(store, asked, type, limit, after))


@decider.command("show")
@click.argument("type")
@click.argument("id")
@click.option("--at", "version", metavar="V", type=click.IntRange(0), help="As it was after its first V events.")
@click.option("--app", metavar="APP", help=APP_HELP)
@asks_store
def show(asked: Asked, type: str, id: str, *, version: int | None, app: str | None) -> None:
    """Show an instance: its events and what it still waits for.

    With --app also its state, now or at a version.

    \b
    Examples:
      stepwell decider show order 7
      stepwell decider show order 7 --app shop --at 5
    """
    asked.do(lambda store: _show(store, asked, type, id, version=version, app=app))


@decider.command("send")
@click.argument("type")
@click.argument("input", metavar="INPUT [FIELD]...", nargs=-1, required=True)
@click.option("--app", metavar="APP", required=True, help="The module that has the decider; it decides here.")
@click.option("--key", help="A second input with the key, for the same instance, is not decided.")
@click.option("--dry-run", is_flag=True, help="Say what it would decide, and write nothing.")
@asks_store
def send(asked: Asked, type: str, input: Sequence[str], *, app: str, key: str | None, dry_run: bool) -> None:
    """Have an instance decide an input, here and now.

    INPUT is the name of its class, with a FIELD as name=text or name:=json for each of its fields; or all of it as
    JSON. Which instance is meant, one of the fields says. Effects and timers that come of it are a worker's.

    \b
    Examples:
      stepwell decider send order Pay order=7 cents:=1900 --app shop --dry-run
      stepwell decider send order '{"Pay": {"order": "7", "cents": 1900}}' --app shop --key click-7
    """
    asked.do(lambda store: _send(store, asked, type, input, app=app, key=key, dry_run=dry_run))


@decider.command("graph")
@click.argument("type")
@click.argument("id", required=False)
@click.option("--app", metavar="APP", required=True, help="The module that has the decider.")
@click.option("--dot", is_flag=True, help="For Graphviz; else for Mermaid.")
@asks_store
def graph(asked: Asked, type: str, id: str | None, *, app: str, dot: bool) -> None:
    """Draw the states that a decider declares.

    With ID, the one that this instance is in is marked.

    \b
    Examples:
      stepwell decider graph order --app shop
      stepwell decider graph order 7 --app shop --dot | dot -Tsvg > order.svg
    """
    asked.do(lambda store: _graph(store, asked, type, id, app=app, dot=dot))


async def _list(store: Store, asked: Asked, type: str | None, limit: int, after: str | None) -> None:
    from stepwell.cli.output import ago, say, say_json, say_next, table
    from stepwell.decider_engine import Engine

    page = await Engine(store).instances(type, limit=limit, after=after)
    if asked.as_json:
        say_json({"instances": list(page), "next": page.next})
        return
    if not page:
        say(f"there are no instances of {type}" if type else "there are no instances")
        say_next("stepwell decider send TYPE INPUT --app APP" if type is None else "stepwell decider ls")
        return
    rows = [
        (one.type, one.id, one.version, ago(one.last_event_at), "ended" if one.completed_at else "") for one in page
    ]
    table(("TYPE", "ID", "EVENTS", "LAST EVENT", ""), rows)
    say_next(
        f"stepwell decider show {page[0].type} {page[0].id}" + (f"   more: --after {page.next}" if page.next else "")
    )


async def _show(store: Store, asked: Asked, type: str, id: str, *, version: int | None, app: str | None) -> None:
    from stepwell.cli.apps import deciders_of
    from stepwell.cli.instances import known, lines_of, look_at
    from stepwell.cli.output import say, say_json, say_next

    engine = None if app is None else await deciders_of(app, store)
    look = await look_at(store, engine, type, id, version)
    if asked.as_json:
        say_json(known(look))
        return
    for line in lines_of(look):
        say(line)
    say_next(
        f"stepwell decider graph {type} {id} --app {app}" if app else f"stepwell decider show {type} {id} --app APP"
    )


async def _send(
    store: Store, asked: Asked, type: str, given: Sequence[str], *, app: str, key: str | None, dry_run: bool
) -> int | None:
    from stepwell.cli.apps import deciders_of
    from stepwell.cli.exits import OK, REFUSED
    from stepwell.cli.instances import input_of
    from stepwell.cli.output import plain, say, say_json, say_next

    engine = await deciders_of(app, store)
    family = engine.registry.of_type(type)
    read = input_of(family, given)
    name = family.identify(read)
    if dry_run:
        _say_decision(asked, type, name, await engine.dry_run(read))
        return OK
    receipt = await engine.execute(read, key=key)
    served = not any(one.queue.rpartition(":")[0] == type for one in await store.unserved())
    if asked.as_json:
        say_json({"type": type, "id": name, **plain(receipt), "served": served})
    else:
        say(f"{type} {name} {_told(receipt)}")
        if not served:
            say(f"no living worker registers {type}: effects and timers wait for one")
        say_next(f"stepwell decider show {type} {name} --app {app}" if served else f"stepwell worker {app}")
    return REFUSED if receipt.outcome == "completed" else OK


def _told(receipt: Receipt) -> str:
    one = receipt.first == receipt.last
    events = f"event {receipt.first}" if one else f"events {receipt.first} to {receipt.last}"
    match receipt.outcome:
        case "applied":
            return f"has decided: {events} {'is' if one else 'are'} written, with all that comes of it"
        case "duplicate":
            return f"has decided this key before, with {events}: nothing is done twice"
        case "completed":
            return "has ended: nothing was decided"


def _say_decision(asked: Asked, type: str, id: str, decision: Any) -> None:
    from stepwell.cli.instances import told
    from stepwell.cli.output import say, say_json, say_next

    parts = told(decision)
    if asked.as_json:
        say_json({"type": type, "id": id, "dry_run": True, **parts})
        return
    say(f"{type} {id} would decide; nothing is written")
    for part, ones in parts.items():
        for one in ones:
            say(f"  {part.removesuffix('s'):<9} {one}")
    say_next("the same without --dry-run")


async def _graph(store: Store, asked: Asked, type: str, id: str | None, *, app: str, dot: bool) -> None:
    from stepwell.cli.apps import deciders_of
    from stepwell.cli.output import say, say_json
    from stepwell.machine import StateMachine

    engine = await deciders_of(app, store)
    found = engine.registry.of_type(type).decider
    machine = StateMachine.of(found)
    state = None if id is None else await engine.state(found.__class__, id)
    if asked.as_json:
        current = None if state is None else machine.view.state_info(state).status
        say_json({"type": type, "current": current, "states": machine.states, "transitions": machine.transitions})
        return
    say((machine.dot(state) if dot else machine.mermaid(state)).rstrip())
