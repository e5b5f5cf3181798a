"""Commands on deciders: list their instances, show one at any version, send it an input, draw its states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.command import OK, REFUSED, Invocation, asks_store
from stepwell.cli.output import say, say_json, say_next, table
from stepwell.operate.format import ago, plain, short

if TYPE_CHECKING:
    from stepwell.decider import Receipt
    from stepwell.deciders.history import DryRun
    from stepwell.deciders.observation import Observation
    from stepwell.operate.instance import InstanceView
    from stepwell.store.store import Store

MOST_EVENTS = 30  # that are shown
APP_HELP = "The module with the decider, whose code computes the state."


@click.group()
def decider() -> None:
    """List, show and draw instances of deciders, and send them inputs."""


@decider.command("ls")
@click.argument("type", required=False)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of rows.")
@click.option("--after", metavar="PLACE", help="Continue after the page that printed this PLACE.")
@asks_store
def ls(asked: Invocation, type: str | None, *, limit: int, after: str | None) -> None:
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
@click.option("--at", "version", metavar="V", type=click.IntRange(0), help="The instance after its first V events.")
@click.option("--app", metavar="APP", help=APP_HELP)
@asks_store
def show(asked: Invocation, type: str, id: str, *, version: int | None, app: str | None) -> None:
    """Show an instance: events, what it waits for, dead letters.

    All of it is as it was at one moment. With --app it shows the state, too: now, or at a version.

    \b
    Examples:
      stepwell decider show order 7
      stepwell decider show order 7 --app shop --at 5
    """
    asked.do(lambda store: _show(store, asked, type, id, version=version, app=app))


@decider.command("send")
@click.argument("type")
@click.argument("input", metavar="INPUT [FIELD]...", nargs=-1, required=True)
@click.option("--app", metavar="APP", required=True, help="The module with the decider, which decides in this process.")
@click.option("--key", help="A second input with this key for the same instance is ignored.")
@click.option("--expected-version", metavar="V", type=click.IntRange(0), help="Refuse if it is not at this version.")
@click.option("--dry-run", is_flag=True, help="Print the decision, and write nothing.")
@asks_store
def send(
    asked: Invocation,
    type: str,
    input: Sequence[str],
    *,
    app: str,
    key: str | None,
    expected_version: int | None,
    dry_run: bool,
) -> None:
    """Send an input to an instance, which decides it now.

    INPUT is the name of its class, with a FIELD as name=text or name:=json for each field; or the whole input as JSON.
    One of the fields names the instance. A worker carries out the effects and timers of the decision.

    \b
    Examples:
      stepwell decider send order Pay order=7 cents:=1900 --app shop --dry-run
      stepwell decider send order '{"Pay": {"order": "7", "cents": 1900}}' --app shop --key click-7
    """
    given = Given(type, input, app, key, expected_version)
    asked.do(lambda store: _send(store, asked, given, dry_run=dry_run))


@decider.command("graph")
@click.argument("type")
@click.argument("id", required=False)
@click.option("--app", metavar="APP", required=True, help="The module with the decider.")
@click.option("--dot", is_flag=True, help="Write for Graphviz instead of Mermaid.")
@click.option("--observed", is_flag=True, help="Add what inputs have done, with counts.")
@asks_store
def graph(asked: Invocation, type: str, id: str | None, *, app: str, dot: bool, observed: bool) -> None:
    """Draw the states that a decider declares.

    With ID, the current state of this instance is marked. With --observed, each transition says how often inputs have
    made it, and those that are not declared are drawn too.

    \b
    Examples:
      stepwell decider graph order --app shop
      stepwell decider graph order 7 --app shop --dot | dot -Tsvg > order.svg
    """
    asked.do(lambda store: _graph(store, asked, type, id, app=app, dot=dot, observed=observed))


@decider.command("inputs")
@click.argument("type")
@click.argument("id")
@click.option("--app", metavar="APP", required=True, help="The module with the decider.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of rows.")
@click.option("--after", metavar="PLACE", help="Continue after the page that printed this PLACE.")
@asks_store
def inputs(asked: Invocation, type: str, id: str, *, app: str, limit: int, after: str | None) -> None:
    """List the inputs of an instance, and how each was answered.

    They are recorded if the decider is registered with `observe=True`.

    \b
    Example:
      stepwell decider inputs order 7 --app shop
    """
    asked.do(lambda store: _inputs(store, asked, type, id, app=app, limit=limit, after=after))


@decider.command("drift")
@click.argument("type")
@click.option("--app", metavar="APP", required=True, help="The module with the decider.")
@asks_store
def drift(asked: Invocation, type: str, *, app: str) -> None:
    """List where the declared transitions and the observed ones differ.

    \b
    Example:
      stepwell decider drift order --app shop
    """
    asked.do(lambda store: _drift(store, asked, type, app=app))


async def _list(store: Store, asked: Invocation, type: str | None, limit: int, after: str | None) -> None:
    from stepwell.engine import Engine

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


async def _show(store: Store, asked: Invocation, type: str, id: str, *, version: int | None, app: str | None) -> None:
    from stepwell.cli.parse import deciders_of
    from stepwell.operate.instance import as_json, view_of

    engine = None if app is None else await deciders_of(app, store)
    look = await view_of(store, engine, type, id, version)
    if asked.as_json:
        say_json(as_json(look))
        return
    for line in _lines(look):
        say(line)
    say_next(
        f"stepwell decider graph {type} {id} --app {app}" if app else f"stepwell decider show {type} {id} --app APP"
    )


def _lines(look: InstanceView) -> list[str]:
    """An instance for people."""
    from stepwell.operate.instance import recorded_at, value_as_json
    from stepwell.values.named_codecs import shown_value

    place = f"version {look.version}" if look.at == look.version else f"version {look.at} of {look.version}"
    about = [f"{look.type} {look.id}", *([look.status] if look.status else []), place]
    ended = ["ended" if look.at == look.version else "ended later"] if look.ended else []
    lines = ["   ".join([*about, *ended])]
    if look.states is not None:
        lines += [f"state  {short(value_as_json(look.states[1]), 200)}", *_changes(*look.states)]
    left_out = len(look.events) - MOST_EVENTS
    lines += ["", *([f"  … {left_out} earlier events: --json has them"] if left_out > 0 else [])]
    width = max([len(one.type) for one in look.events], default=0)
    for one in look.events[-MOST_EVENTS:]:
        lines.append(
            f"  {one.version:>4}  {one.type:<{width}}  {ago(recorded_at(one)):>10}  {short(shown_value(one.data), 100)}"
        )
    return [*lines, *_waiting(look), *_dead(look), ""]


def _changes(before: Any, after: Any) -> Iterator[str]:
    """What the last event has changed, field by field."""
    from stepwell.operate.instance import changed_fields

    for name, old, new in changed_fields(before, after):
        yield f"  - {name}: {short(old)}"
        yield f"  + {name}: {short(new)}"


def _waiting(look: InstanceView) -> list[str]:
    from datetime import UTC, datetime

    if not look.outstanding or look.at != look.version:
        return []
    lines = ["", "still to come"]
    for one in look.outstanding:
        key = f" {one.key}" if one.key else ""
        tried = f", attempt {one.attempt}: {short(one.last_error or '', 60)}" if one.last_error else ""
        due = "now" if one.due is None or one.due <= datetime.now(UTC) else ago(one.due)
        lines.append(f"  {one.kind.lower()}{key}  {one.name}  due {due}{tried}")
    return lines


def _dead(look: InstanceView) -> list[str]:
    if not look.dead_letters or look.at != look.version:
        return []
    lines = ["", f"dead letters: stepwell dead ls --instance {look.type} {look.id}"]
    for one in look.dead_letters:
        name = one.payload.get("type") if isinstance(one.payload, dict) else None
        lines.append(f"  {one.kind.lower()} {one.id}  {name or ''}  {short(one.last_error or '', 80)}")
    return lines


@dataclass(frozen=True)
class Given:
    """An input as the words of the command say it."""

    type: str
    words: Sequence[str]
    app: str
    key: str | None
    expected_version: int | None


async def _send(store: Store, asked: Invocation, given: Given, *, dry_run: bool) -> int | None:
    from stepwell.cli.parse import deciders_of, input_of

    engine = await deciders_of(given.app, store)
    family = engine.registry.of_type(given.type)
    read = input_of(family, given.words)
    name = family.identify(read)
    if dry_run:
        _say_dry_run(asked, given.type, name, await engine.dry_run(read))
        return OK
    receipt = await engine.execute(read, key=given.key, expected_version=given.expected_version)
    served = not any(one.queue.rpartition(":")[0] == given.type for one in await store.unserved())
    if asked.as_json:
        say_json({"type": given.type, "id": name, **plain(receipt), "served": served})
    else:
        say(f"{given.type} {name} {_told(receipt)}")
        if not served:
            say(f"no living worker registers {given.type}: effects and timers wait for one")
        say_next(
            f"stepwell decider show {given.type} {name} --app {given.app}" if served else f"stepwell worker {given.app}"
        )
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


def _say_dry_run(asked: Invocation, type: str, id: str, dry: DryRun[Any]) -> None:
    from stepwell.operate.instance import parts_of, value_as_json

    parts, state = parts_of(dry), value_as_json(dry.state)
    if asked.as_json:
        say_json({"type": type, "id": id, "dry_run": True, "version": dry.version, **parts, "state": state})
        return
    if dry.decision is None:
        say(f"{type} {id} has ended: nothing would be decided")
        return
    say(f"{type} {id} would decide; nothing is written")
    for part, ones in parts.items():
        for one in ones:
            say(f"  {part.removesuffix('s'):<9} {one}")
    say(f"  {'state':<9} {short(state, 150)}")
    say_next("the same without --dry-run")


async def _inputs(
    store: Store, asked: Invocation, type: str, id: str, *, app: str, limit: int, after: str | None
) -> None:
    from stepwell.cli.parse import deciders_of

    page = await (await deciders_of(app, store)).observations(type, id, limit=limit, after=after)
    if asked.as_json:
        say_json({"inputs": list(page), "next": page.next})
        return
    if not page:
        say(f"no input of {type} {id} was recorded")
        say_next("register the decider with `observe=True`")
        return
    rows = [(ago(one.recorded_at), one.outcome, _moved(one), one.input, _about(one)) for one in page]
    table(("WHEN", "ANSWER", "STATUS", "INPUT", ""), rows)
    say_next(f"more: --after {page.next}" if page.next else f"stepwell decider show {type} {id} --app {app}")


def _moved(one: Observation) -> str:
    return " -> ".join(status for status in (one.from_status, one.to_status) if status is not None)


def _about(one: Observation) -> str:
    return f"{short(one.payload, 60)}{'  ' + short(one.error, 80) if one.error else ''}"


async def _drift(store: Store, asked: Invocation, type: str, *, app: str) -> None:
    from stepwell.cli.parse import deciders_of

    machine = await (await deciders_of(app, store)).observed(type)
    unseen = [{"source": status, "input": one.input, "target": one.target} for status, one in machine.unseen]
    if asked.as_json:
        say_json({"type": type, "undeclared": list(machine.undeclared), "unseen": unseen})
        return
    if not (unseen or machine.undeclared):
        say(f"{type}: what was observed is what is declared")
    for found in machine.undeclared:
        say(f"not declared: {found.source} -> {found.target} by {found.input}, {found.count} times")
    for one in unseen:
        say(f"not observed: {one['source']} -> {one['target']} by {one['input']}")
    say_next(f"stepwell decider graph {type} --app {app} --observed")


async def _graph(
    store: Store, asked: Invocation, type: str, id: str | None, *, app: str, dot: bool, observed: bool
) -> None:
    from stepwell.cli.parse import deciders_of
    from stepwell.deciders.diagram import StateMachine

    engine = await deciders_of(app, store)
    found = engine.registry.of_type(type).decider
    machine = StateMachine.of(found)
    state = None if id is None else await engine.state(found.__class__, id)
    if asked.as_json:
        current = None if state is None else machine.view.state_info(state).status
        say_json({"type": type, "current": current, "states": machine.states, "transitions": machine.transitions})
        return
    drawn = await engine.observed(type) if observed else machine
    say((drawn.dot(state) if dot else drawn.mermaid(state)).rstrip())
