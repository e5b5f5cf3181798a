"""`stepwell top`: queues, workers and the newest runs, live in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.asking import Asked, asks_store

if TYPE_CHECKING:
    from stepwell.records import QueueStats, Run, WorkerInfo
    from stepwell.store.store import Store

WIDTH = 8
MOST = 15


@dataclass(frozen=True, slots=True)
class Frame:
    """What there is to see at one moment."""

    queues: Sequence[QueueStats]
    workers: Sequence[WorkerInfo]
    runs: Sequence[Run[Any]]


@click.command()
@click.option("--once", is_flag=True, help="Print it once and end.")
@click.option(
    "--every", type=click.FloatRange(0.1, 60), default=1.0, show_default=True, help="Seconds between two looks."
)
@asks_store
def top(asked: Asked, *, once: bool, every: float) -> None:
    """Watch queues, workers and runs; Ctrl-C ends it. Where nothing can be redrawn it prints once and ends."""
    asked.do(lambda store: _watch(store, asked, every, once=once))


async def _watch(store: Store, asked: Asked, every: float, *, once: bool) -> None:
    from stepwell.cli.output import is_lively, say, say_json
    from stepwell.cli.status import as_json

    if asked.as_json:
        frame = await _look(store)
        runs = [as_json(run) for run in frame.runs]
        say_json({"queues": frame.queues, "workers": frame.workers, "runs": runs})
    elif once or not is_lively(sys.stdout):
        for line in lines_of(await _look(store)):
            say(line)
    else:
        await _redraw(store, every)


async def _redraw(store: Store, every: float) -> None:
    import asyncio

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from stepwell.cli.output import drawable

    encoding = sys.stdout.encoding  # asked before rich puts something of its own in its place
    with Live(console=Console(file=sys.stdout, highlight=False), auto_refresh=False, screen=True) as live:
        while True:
            text = "\n".join(drawable(line, encoding) for line in lines_of(await _look(store)))
            live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
            await asyncio.sleep(every)


async def _look(store: Store) -> Frame:
    unended = [one for one in await store.workers() if one.stopped_at is None]
    return Frame(await store.queue_stats(), unended, await store.runs(limit=MOST))


def lines_of(frame: Frame) -> list[str]:
    """The picture of one moment."""
    from stepwell.cli.operating import state_of
    from stepwell.cli.output import ago, short, span
    from stepwell.cli.status import took, word_of

    totals = {name: sum(getattr(one, name) for one in frame.queues) for name in ("ready", "running", "waiting", "dead")}
    head = "   ".join(f"{name} {count}" for name, count in totals.items())
    most = max([one.ready for one in frame.queues], default=0)
    lines = [f"stepwell top   {head}   workers {len(frame.workers)}", ""]
    for one in frame.queues:
        bar = "█" * (-(-WIDTH * one.ready // most) if most else 0)
        state = "".join(f"  {word}" for word, so in (("paused", one.paused), ("draining", one.draining)) if so)
        counts = f"{one.ready:>7} ready {one.running:>4} running {one.waiting:>6} waiting {one.dead:>4} dead"
        lines.append(f"  {short(one.queue, 24):<24} {bar:<{WIDTH}} {counts}  {span(one.oldest):>7}{state}")
    lines += [""] + [
        f"  worker {one.id:<6} {state_of(one):<7} {one.name}  heard of {span(one.silent)} ago" for one in frame.workers
    ]
    lines += [""] + [
        f"  {word_of(run):<12} {short(run.workflow, 24):<24} {short(run.key or str(int(run.id)), 24):<24} "
        f"{ago(run.created_at):>10} {span(took(run)):>8}  {short(run.last_error or '', 40)}".rstrip()
        for run in frame.runs
    ]
    return lines
