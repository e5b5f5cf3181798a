"""`stepwell bench`: how fast this store is from here, measured with what makes it safe switched on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import click

from stepwell.cli.asking import Asked, asks_store

if TYPE_CHECKING:
    from stepwell.store.store import Store

PARTS = 3
ALONE = 200  # messages that are written one after the other, each waiting for its own commit


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; times in milliseconds, the rest per second."""

    backend: str
    settings: dict[str, str]
    enqueue_p50_ms: float
    enqueue_p99_ms: float
    enqueued_per_s: float
    handled_per_s: float
    runs_per_s: float
    steps_per_s: float


@click.command()
@click.option("--messages", type=click.IntRange(100, 1_000_000), default=2000, show_default=True, help="How many.")
@asks_store
def bench(asked: Asked, *, messages: int) -> None:
    """Measure how fast this store is from here.

    Messages, runs of three steps, and the wait for one commit.

    Without --url or STEPWELL_URL it uses a temporary SQLite file in the current folder, which is removed. In a store of
    yours it uses a queue and a workflow of its own and removes them; your workers are not disturbed, but for the load.
    """
    import tempfile

    if asked.url is not None:
        asked.do(lambda store: _bench(store, asked, messages))
    with tempfile.TemporaryDirectory(prefix="stepwell-bench-", dir=".") as folder:
        here = Asked(f"sqlite:///{folder}/bench.db", asked.as_json)
        here.do(lambda store: _bench(store, here, messages), install=True)


async def _bench(store: Store, asked: Asked, messages: int) -> None:
    from stepwell.cli.output import say, say_json
    from stepwell.cli.patience import patiently

    if not asked.as_json:
        say(f"measuring: {messages} messages, {messages // 4} runs of three steps ...", to_stderr=True)
    figures = await patiently(asked, measured(store, messages), "measuring", PARTS)
    if asked.as_json:
        say_json(figures)
        return
    settings = ", ".join(f"{name}={value}" for name, value in figures.settings.items())
    say(f"{figures.backend}, {settings}: every commit is on the disk before it is answered")
    p50, p99 = figures.enqueue_p50_ms, figures.enqueue_p99_ms
    say(f"  one enqueue    p50 {p50:.2f} ms   p99 {p99:.2f} ms   one after the other")
    say(f"  enqueue_many   {figures.enqueued_per_s:,.0f} messages/s")
    say(f"  handled        {figures.handled_per_s:,.0f} messages/s   by one worker in this process")
    say(f"  runs           {figures.runs_per_s:,.0f} runs/s, {figures.steps_per_s:,.0f} recorded steps/s")
    say(
        "figures of this moment on this machine; docs/benchmarks.md compares with others under fixed conditions",
        dim=True,
    )


async def measured(store: Store, messages: int) -> Figures:
    """Measure in a queue and a workflow of our own, and leave nothing behind."""
    from stepwell.store.pieces import tell_done, watched

    mark = os.urandom(4).hex()
    queue, workflow = f"bench.{mark}", f"bench.runs.{mark}"
    health = await store.health()
    try:
        await store.create_queue(queue)
        alone = await _one_by_one(store, queue)
        tell_done(1)
        enqueued, handled = await _handle(store, queue, messages)
        tell_done(1)
        runs = await _run(store, workflow, messages // 4)
        tell_done(1)
    finally:
        with watched(lambda _: None):  # cleaning up is no part of it
            await _clean(store, queue, workflow)
    return Figures(
        backend=f"{health.backend} {health.version}",
        settings={**health.settings, "audit": store.options.audit},
        enqueue_p50_ms=alone[len(alone) // 2] * 1000,
        enqueue_p99_ms=alone[len(alone) * 99 // 100] * 1000,
        enqueued_per_s=enqueued,
        handled_per_s=handled,
        runs_per_s=runs,
        steps_per_s=3 * runs,
    )


async def _one_by_one(store: Store, queue: str) -> list[float]:
    times = []
    for number in range(ALONE):
        began = perf_counter()
        await store.enqueue(queue, number)
        times.append(perf_counter() - began)
    return sorted(times)


async def _handle(store: Store, queue: str, messages: int) -> tuple[float, float]:
    """How many messages are written and handled in a second."""
    from stepwell.queue import handler
    from stepwell.worker import Worker

    @handler(queue)
    async def nothing(number: int) -> None:
        pass

    began = perf_counter()
    await store.enqueue_many(queue, range(messages))
    written = perf_counter()
    await Worker(store, [nothing], concurrency=100).drain()
    return messages / (written - began), (messages + ALONE) / (perf_counter() - written)


async def _run(store: Store, name: str, count: int) -> float:
    """How many runs of three steps are executed in a second."""
    from stepwell.step import step
    from stepwell.worker import Worker
    from stepwell.workflow import workflow

    @step
    async def add(number: int) -> int:
        return number + 1

    @workflow(name=name)
    async def three(number: int) -> int:
        return await add(await add(await add(number)))

    await store.trigger_many([three.trigger(number).options(require_worker="ignore") for number in range(count)])
    began = perf_counter()
    await Worker(store, [three], concurrency=100).drain()
    return count / (perf_counter() - began)


async def _clean(store: Store, queue: str, workflow: str) -> None:
    from stepwell.errors import QueueNotFound, WorkflowNotFound

    for name, delete in ((queue, store.delete_queue), (workflow, store.delete_workflow)):
        try:
            await store.purge(name)
            await delete(name)
        except (QueueNotFound, WorkflowNotFound):
            continue  # it had not come so far
