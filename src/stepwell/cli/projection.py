"""Commands on projections: list them, show one, pause, resume, reset, inline, rebuild, swap, retry, skip."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import click

from stepwell.cli.command import OK, REFUSED, Invocation, asks_store
from stepwell.cli.output import say, say_json, say_next, table

if TYPE_CHECKING:
    from stepwell.store.store import Store

INSTANCE = "[TYPE ID]"


@click.group()
def projection() -> None:
    """Look at projections, and let them go on."""


@projection.command("ls")
@asks_store
def ls(asked: Invocation) -> None:
    """List the projections: how far behind, how fast, what is set aside.

    \b
    Examples:
      stepwell projection ls
    """
    asked.do(lambda store: _list(store, asked))


@projection.command("show")
@click.argument("name")
@asks_store
def show(asked: Invocation, name: str) -> None:
    """Show a projection, why it stands still, and what it has set aside.

    \b
    Examples:
      stepwell projection show orders
    """
    asked.do(lambda store: _show(store, asked, name))


@projection.command("pause")
@click.argument("name")
@asks_store
def pause(asked: Invocation, name: str) -> None:
    """Keep a projection where it is; the batch under way is undone.

    \b
    Examples:
      stepwell projection pause orders
    """
    asked.do(lambda store: _change(asked, name, store.pause_projection(name), "is paused", "does not run"))


@projection.command("resume")
@click.argument("name")
@asks_store
def resume(asked: Invocation, name: str) -> None:
    """Let a projection go on that was paused or has stopped.

    \b
    Examples:
      stepwell projection resume orders
    """
    asked.do(lambda store: _change(asked, name, store.resume_projection(name), "goes on", "runs already"))


@projection.command("reset")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks_store
def reset(asked: Invocation, name: str, *, yes: bool) -> None:
    """Let a projection begin again with the first event.

    \b
    Examples:
      stepwell projection reset orders --yes
    """
    if not yes:
        click.confirm(f"handle all events of {name} again?", abort=True)

    async def work(store: Store) -> int:
        await store.reset_projection(name)
        return _said(asked, name, "begins again with the first event", done=True)

    asked.do(work)


@projection.command("inline")
@click.argument("name")
@click.option("--off", is_flag=True, help="Let a worker follow the events again.")
@asks_store
def inline(asked: Invocation, name: str, *, off: bool) -> None:
    """Let decisions write the rows of a projection.

    Say it when every process that decides registers it with `inline=True`, and
    take it back before one does not any more.

    \b
    Examples:
      stepwell projection inline orders
      stepwell projection inline orders --off
    """
    said = "is followed by a worker" if off else "is written by decisions, once it has caught up"
    asked.do(lambda store: _change(asked, name, store.inline_projection(name, inline=not off), said, "is so already"))


@projection.command("rebuild")
@click.argument("name")
@click.option("--swap", "swaps", is_flag=True, help="Swap the two as soon as the new build has caught up.")
@asks_store
def rebuild(asked: Invocation, name: str, *, swaps: bool) -> None:
    """Make a projection anew beside the one that is read.

    \b
    Examples:
      stepwell projection rebuild orders
      stepwell projection rebuild orders --swap
    """

    async def work(store: Store) -> int:
        build = await store.rebuild_projection(name)
        if swaps:
            await store.swap_projection(name)
        said = f"is made anew as build {build}{' and swapped when it has caught up' if swaps else ''}"
        return _said(asked, name, said, done=True)

    asked.do(work)


@projection.command("swap")
@click.argument("name")
@click.option("--keep-old", default="1d", help="How long to keep the build that was read: a span such as 1d.")
@asks_store
def swap(asked: Invocation, name: str, *, keep_old: str) -> None:
    """Let readers have the other build, once it has caught up.

    Call it again to go back, as long as the build before is kept.

    \b
    Examples:
      stepwell projection swap orders
      stepwell projection swap orders --keep-old 7d
    """
    asked.do(
        lambda store: _change(
            asked,
            name,
            store.swap_projection(name, keep_old=keep_old),
            "is swapped by its worker, once the build beside it has caught up",
            "has no build beside it",
        )
    )


@projection.command("retry")
@click.argument("name")
@click.argument("instance", metavar=INSTANCE, nargs=-1)
@asks_store
def retry(asked: Invocation, name: str, instance: tuple[str, ...]) -> None:
    """Try again what failed: an instance, or the event where it stopped.

    \b
    Examples:
      stepwell projection retry orders order 42
      stepwell projection retry orders
    """
    place = _instance(instance)
    asked.do(
        lambda store: _change(
            asked, name, store.retry_projection(name, place), "tries it again", "has nothing to retry"
        )
    )


@projection.command("skip")
@click.argument("name")
@click.argument("instance", metavar=INSTANCE, nargs=-1)
@asks_store
def skip(asked: Invocation, name: str, instance: tuple[str, ...]) -> None:
    """Go on after the event that failed, which the projection never sees.

    \b
    Examples:
      stepwell projection skip orders order 42
      stepwell projection skip orders
    """
    place = _instance(instance)
    asked.do(
        lambda store: _change(
            asked, name, store.skip_in_projection(name, place), "goes on after it", "has nothing to skip"
        )
    )


def _instance(given: tuple[str, ...]) -> tuple[str, str] | None:
    match given:
        case ():
            return None
        case (type_, id_):
            return type_, id_
        case _:
            raise click.UsageError("name an instance by its type and its id, or none")


async def _list(store: Store, asked: Invocation) -> None:
    from stepwell.operate.projection import build_of, progress, standing

    found = await store.projections()
    if asked.as_json:
        say_json({"projections": [{**_plain(one), "lag": one.lag} for one in found]})
        return
    if not found:
        say("there are no projections")
        say_next("stepwell worker APP, with an engine that registers one")
        return
    rows = [
        (one.name, build_of(one), standing(one), one.position, one.handled, one.parked, progress(one)) for one in found
    ]
    table(("NAME", "BUILD", "STATE", "POSITION", "HANDLED", "PARKED", ""), rows)
    say_next(f"stepwell projection show {found[0].name}")


async def _show(store: Store, asked: Invocation, name: str) -> None:
    from stepwell.operate.projection import build_of, progress, projection_view, standing

    look = await projection_view(store, name)
    one = look.info
    if asked.as_json:
        parked = [_plain(each) for each in look.parked]
        beside = None if look.beside is None else {**_plain(look.beside), "lag": look.beside.lag}
        say_json({**_plain(one), "lag": one.lag, "parked_instances": parked, "beside": beside})
        return
    say(f"{one.name}   {standing(one)}   at {one.position} of {one.head}   {progress(one)}")
    say(f"  {one.handled} events handled, {one.failures} attempts failed, {one.parked} instances set aside")
    say(f"  driven by {one.worker}" if one.worker else "  no worker drives it")
    if one.error:
        say(f"  event {one.failed_at} failed, attempt {one.tried}: {one.error}")
    if (other := look.beside) is not None:
        say(f"  beside it: build {build_of(other)}   {standing(other)}   at {other.position} of {other.head}")
        if other.error:
            say(f"    {other.error}")
    for each in look.parked:
        again = ", to be retried" if each.retried else ""
        say(f"  set aside: {each.type} {each.id} from event {each.version} on{again}: {each.error}")
    if look.parked:
        say_next(f"stepwell projection retry {name} {look.parked[0].type} {look.parked[0].id}")
    elif one.state != "running":
        say_next(f"stepwell projection {'retry' if one.state == 'stopped' else 'resume'} {name}")


async def _change(asked: Invocation, name: str, work: Awaitable[bool], done: str, undone: str) -> int:
    changed = await work
    return _said(asked, name, done if changed else undone, done=changed)


def _said(asked: Invocation, name: str, said: str, *, done: bool) -> int:
    if asked.as_json:
        say_json({"projection": name, "changed": done})
    else:
        say(f"{name} {said}")
        say_next(f"stepwell projection show {name}")
    return OK if done else REFUSED


def _plain(one: object) -> dict[str, object]:
    from stepwell.operate.format import plain

    found: dict[str, object] = plain(one)
    return found
