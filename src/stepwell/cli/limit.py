"""Commands on limits: list them, show the keys of a queue, change and take back, pause and resume a key."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from stepwell.cli.command import NOT_FOUND, USAGE, Invocation, Stop, asks_store
from stepwell.cli.output import say, say_json, say_next, table
from stepwell.operate.format import ago

if TYPE_CHECKING:
    from stepwell.store.limits_info import LimitsInfo
    from stepwell.store.store import Store


NUMBERS: Final = ("running", "per_key")
TEXTS: Final = {
    "rate": "50/s",
    "key_rate": "10/m",
    "key": "PATH",
    "cost": "PATH",
}  # what is set, and what it looks like
CHOICES: Final = {"ordered": ("yes", "no"), "after_dead": ("skip", "stop")}


@click.group()
def limit() -> None:
    """Limit how much of a queue runs and how often; pause keys of it."""


@limit.command("ls")
@asks_store
def ls(asked: Invocation) -> None:
    """List the queues that have limits.

    \b
    Examples:
      stepwell limit ls
    """
    asked.do(lambda store: _list(store, asked))


@limit.command("show")
@click.argument("queue")
@click.option("--limit", "most", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum of keys.")
@click.option("--after", metavar="KEY", help="Continue after this key.")
@asks_store
def show(asked: Invocation, queue: str, *, most: int, after: str | None) -> None:
    """Show the limits of a queue and its keys.

    Of each key: what waits, what runs, and whether it is paused.

    \b
    Examples:
      stepwell limit show render
    """
    asked.do(lambda store: _show(store, asked, queue, most, after))


@limit.command("set")
@click.argument("queue")
@click.argument("changes", metavar="NAME=VALUE...", nargs=-1, required=True)
@asks_store
def set_(asked: Invocation, queue: str, changes: Sequence[str]) -> None:
    """Change limits of a queue, over what its code declares.

    The value `none` takes a limit away.

    \b
    Examples:
      stepwell limit set render running=20 per_key=3
      stepwell limit set mail rate=50/s key_rate="100/1m burst 20"
      stepwell limit set render running=none
      stepwell limit set ledger key=account ordered=yes after_dead=stop
    """
    asked.do(lambda store: _set(store, asked, queue, changes))


@limit.command("reset")
@click.argument("queue")
@asks_store
def reset(asked: Invocation, queue: str) -> None:
    """Take back all changes of a queue's limits.

    What its code declares holds again.
    """
    asked.do(lambda store: _done(asked, store.limits.reset(queue), f"{queue} has the limits of its code", queue))


@limit.command("pause")
@click.argument("queue")
@click.argument("key")
@click.option("--reason", help="The reason; `stepwell why` shows it.")
@asks_store
def pause(asked: Invocation, queue: str, key: str, *, reason: str | None) -> None:
    """Start nothing of a key; what runs goes on.

    \b
    Examples:
      stepwell limit pause render acme --reason "abuse"
    """
    done = f"nothing of {key} begins in {queue}; what runs goes on"
    asked.do(lambda store: _done(asked, store.limits.pause(queue, key, reason=reason), done, queue))


@limit.command("resume")
@click.argument("queue")
@click.argument("key")
@asks_store
def resume(asked: Invocation, queue: str, key: str) -> None:
    """Let a paused key go on."""
    asked.do(lambda store: _done(asked, store.limits.resume(queue, key), f"{key} goes on in {queue}", queue))


@limit.command("weight")
@click.argument("queue")
@click.argument("key")
@click.argument("weight", type=click.IntRange(1, 1000))
@asks_store
def weight(asked: Invocation, queue: str, key: str, weight: int) -> None:
    """Say how many tasks of a key begin in each round of the keys.

    \b
    Examples:
      stepwell limit weight render acme 3
    """
    done = f"{weight} of {key} begin in each round of {queue}"
    asked.do(lambda store: _done(asked, store.limits.set_key(queue, key, weight=weight), done, queue))


async def _list(store: Store, asked: Invocation) -> None:
    infos = await store.limits.all()
    if asked.as_json:
        say_json(infos)
        return
    if not infos:
        say("no queue has limits")
        say_next("stepwell limit set QUEUE running=10")
        return
    rows = [
        (
            one.queue,
            one.running,
            *(_shown(one, name) for name in ("running", "per_key", "rate", "key_rate", "key")),
            _edited(one),
        )
        for one in infos
    ]
    table(("QUEUE", "RUNNING", "OF", "PER KEY", "RATE", "KEY RATE", "KEY", "CHANGED"), rows)
    say_next(f"stepwell limit show {infos[0].queue}")


async def _show(store: Store, asked: Invocation, queue: str, most: int, after: str | None) -> None:
    info = await store.limits.of(queue)
    if info is None:
        raise Stop(NOT_FOUND, f"{queue} has no limits", f"stepwell limit set {queue} running=10")
    page = await store.limits.keys(queue, limit=most, after=after)
    if asked.as_json:
        say_json({"limits": info, "keys": list(page), "next": page.next})
        return
    of = "any number" if info.limits.running is None else info.limits.running
    limits = info.limits
    each = "" if limits.per_key is None else f", {limits.per_key} of each key"
    rates = [f"{limits.rate} begin"] if limits.rate is not None else []
    rates += [f"{limits.key_rate} of each key"] if limits.key_rate is not None else []
    each += f"; {', '.join(rates)}" if rates else ""
    stops = ", and stop behind a dead letter" if limits.after_dead == "stop" else ""
    each += f"; those of a key go in order{stops}" if limits.ordered else ""
    each += f"; each costs what its {limits.cost} says" if limits.cost is not None else ""
    changed = f"; changed: {_edited(info)}" if info.edited else ""
    say(f"{queue} runs {info.running} of {of} at once{each}{changed}", hang=2)
    rows = [(one.key or "(none)", one.ready, one.running, one.weight, ago(one.oldest), _state(one)) for one in page]
    if rows:
        table(("KEY", "READY", "RUNNING", "WEIGHT", "DUE", "STATE"), rows)
    say_next(f"stepwell limit show {queue} --after {page.next}" if page.next else f"stepwell limit pause {queue} KEY")


async def _set(store: Store, asked: Invocation, queue: str, changes: Sequence[str]) -> None:
    given: dict[str, Any] = {}
    for change in changes:
        name, is_said, value = change.partition("=")
        if name in CHOICES and value in CHOICES[name]:
            given[name] = value == "yes" if name == "ordered" else value
            continue
        if not is_said or name not in (*NUMBERS, *TEXTS):
            choices = (f"{one}={'|'.join(like)}" for one, like in CHOICES.items())
            texts = (f"{one}={like}" for one, like in TEXTS.items())
            known = ", ".join([*(f"{one}=N" for one in NUMBERS), *texts, *choices])
            raise Stop(USAGE, f"{change} is none of {known}", f"stepwell limit show {queue}")
        if value != "none" and name in NUMBERS and not value.isdecimal():
            raise Stop(USAGE, f"{change}: it is a whole number, or none", f"stepwell limit show {queue}")
        given[name] = None if value == "none" else int(value) if name in NUMBERS else value
    info = await store.limits.set(queue, **given)
    if asked.as_json:
        say_json(info)
        return
    say(f"{queue}: {', '.join(changes)}, until it is reset")
    say_next(f"stepwell limit show {queue}")


async def _done(asked: Invocation, work: Awaitable[None], done: str, queue: str) -> None:
    await work
    if asked.as_json:
        say_json({"done": done})
        return
    say(done)
    say_next(f"stepwell limit show {queue}")


def _shown(info: LimitsInfo, name: str) -> str:
    value = getattr(info.limits, name)
    return "" if value is None else str(value)


def _edited(info: LimitsInfo) -> str:
    return ", ".join(name for name in info.edited if name not in ("path", "cost_path"))


def _state(key: Any) -> str:
    return f"paused{f': {key.pause_reason}' if key.pause_reason else ''}" if key.paused else ""
