"""Commands that measure: what the workflows did lately, and how fast this store is from here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.command import USAGE, Invocation, Stop, asks_store
from stepwell.cli.output import patiently, say, say_json, say_next, table
from stepwell.operate.format import ago, span

if TYPE_CHECKING:
    from stepwell.store.metrics import DeadCount, Durations, Metrics, QueueMetrics
    from stepwell.store.store import Store

PARTS = 3
ALONE = 200  # messages that are written one by one, each with its own commit


@click.command()
@click.argument("workflow", required=False)
@click.option(
    "--window", metavar="SPAN", default="1h", show_default=True, help="How far back finished runs are counted."
)
@click.option("--join-versions", is_flag=True, help="Count process.v1 and process_v2 as one workflow.")
@click.option("--prometheus", is_flag=True, help="Print everything in the text format of Prometheus.")
@click.option("--exact", is_flag=True, help="Count all, instead of 10,000 of each sort; in a full store it takes long.")
@asks_store
def metrics(
    asked: Invocation, workflow: str | None, *, window: str, join_versions: bool, prometheus: bool, exact: bool
) -> None:
    """Show what workflows did lately: how many runs, how long they took.

    With WORKFLOW, or the beginning of names as in 'process*', it shows the steps, too. Unfinished runs are counted as
    they are now; times are of runs that succeeded, from start to end. For each queue it shows how many attempts ended,
    how long tasks waited for a worker, and how long a turn took. A worker with --health answers /metrics with what
    --prometheus prints, for the last five minutes.

    \b
    Examples:
      stepwell metrics
      stepwell metrics fulfil --window 24h
      stepwell metrics --prometheus --window 5m > stepwell.prom
    """
    if prometheus:
        asked.do(lambda store: _expose(store, workflow, window, exact=exact))
    else:
        asked.do(lambda store: _tell(store, asked, workflow, window, join_versions=join_versions, exact=exact))


@click.command()
@click.option(
    "--messages", type=click.IntRange(100, 1_000_000), default=2000, show_default=True, help="Number of messages."
)
@asks_store
def bench(asked: Invocation, *, messages: int) -> None:
    """Measure how fast this store is from here.

    It measures messages, runs of three steps, and the time of one commit.

    Without --url or STEPWELL_URL it uses a temporary SQLite file in the current folder, which is removed. In your
    store it creates a queue and a workflow for the measurement and removes them; your workers only notice the load.
    """
    import tempfile

    if asked.url is not None:
        asked.do(lambda store: _bench(store, asked, messages))
    with tempfile.TemporaryDirectory(prefix="stepwell-bench-", dir=".") as folder:
        here = Invocation(f"sqlite:///{folder}/bench.db", asked.as_json)
        here.do(lambda store: _bench(store, here, messages), install=True)


async def _expose(store: Store, workflow: str | None, window: str, *, exact: bool) -> None:

    if workflow is not None:
        raise Stop(USAGE, "--prometheus is about the whole store", "stepwell metrics --prometheus")
    click.echo(await store.prometheus(window=window, events=False, exact=exact), nl=False)


async def _tell(
    store: Store, asked: Invocation, workflow: str | None, window: str, *, join_versions: bool, exact: bool
) -> None:

    steps = workflow is not None or asked.as_json
    found = await store.metrics_by_workflow(
        workflow, window=window, join_versions=join_versions, steps=steps, exact=exact
    )
    dead = [] if workflow is not None else await store.dead_letter_counts(exact=exact)
    queues = {} if workflow is not None else await store.queue_metrics(window=window)
    if asked.as_json:
        settled = {name: _settled(one) for name, one in queues.items()}
        workflows = {name: as_json(one) for name, one in found.items()}
        say_json({"workflows": workflows, "queues": settled, "dead_letters": dead})
        return
    if not found and not queues:
        say("there is no workflow")
        say_next("stepwell worker APP")
        return
    if found:
        _draw_workflows(found)
    _draw_queues(queues, beside=bool(found))
    if workflow is not None:
        _draw_steps(found)
    _draw_dead(dead)
    say_next("stepwell dead ls" if dead else "stepwell metrics WORKFLOW" if workflow is None else "stepwell top")


def as_json(one: Metrics) -> dict[str, Any]:
    """Metrics for `--json`: spans are seconds."""
    return {
        "workflows": one.workflows,
        "since": one.since,
        "until": one.until,
        "runs": {str(status): count for status, count in one.runs.items()},
        "success_rate": one.success_rate,
        "durations": _seconds(one.durations),
        "dead_letters": one.dead_letters,
        "workers": one.workers,
        "steps": {
            name: {"succeeded": each.succeeded, "failed": each.failed, "durations": _seconds(each.durations)}
            for name, each in one.steps.items()
        },
    }


def _settled(one: QueueMetrics) -> dict[str, Any]:
    counts = {name: getattr(one, name) for name in ("succeeded", "failed", "retried")}
    return {**counts, "waits": _seconds(one.waits), "turns": _seconds(one.turns)}


def _seconds(took: Durations | None) -> dict[str, float] | None:
    if took is None:
        return None
    spans = {name: getattr(took, name).total_seconds() for name in ("average", "p50", "p95", "longest")}
    return {"count": took.count, **spans}


def _draw_workflows(found: Mapping[str, Metrics]) -> None:
    from stepwell.records import RunStatus

    heads = ("WORKFLOW", "LIVE", "OK", "FAILED", "CANCELLED", "RATE", "WORKERS", "LAST SEEN")
    rows = [
        (
            name,
            sum(count for status, count in one.runs.items() if not status.finished),
            *(one.runs[status] for status in (RunStatus.SUCCESS, RunStatus.ERROR, RunStatus.CANCELLED)),
            "" if one.success_rate is None else f"{one.success_rate:.1%}",
            _served(one),
            ago(one.workers.last_seen),
        )
        for name, one in found.items()
    ]
    table(heads, rows)
    if timed := [(name, *_spans(one.durations)) for name, one in found.items() if one.durations is not None]:
        say()
        table(("TIME OF", "AVG", "P50", "P95", "MAX"), timed)


def _draw_queues(queues: Mapping[str, QueueMetrics], *, beside: bool) -> None:

    if not queues:
        return
    if beside:
        say()
    rows = [
        (name, one.succeeded, one.failed, one.retried, *_spans(one.waits)[1:3], *_spans(one.turns)[1:3])
        for name, one in queues.items()
    ]
    table(("QUEUE", "OK", "FAILED", "RETRIED", "WAIT P50", "P95", "TURN P50", "P95"), rows)


def _draw_steps(found: Mapping[str, Metrics]) -> None:

    rows = [
        (step, name, each.succeeded, each.failed, *_spans(each.durations))
        for name, one in found.items()
        for step, each in one.steps.items()
    ]
    if rows:
        say()
        table(("STEP", "OF", "OK", "FAILED", "AVG", "P50", "P95", "MAX"), rows)


def _draw_dead(dead: Sequence[DeadCount]) -> None:

    if dead:
        say()
        table(("DEAD LETTERS", "KIND", "COUNT"), [(one.queue, one.kind, one.count) for one in dead])


def _spans(took: Durations | None) -> tuple[str, ...]:

    if took is None:
        return ("", "", "", "")
    return tuple(span(each.total_seconds()) for each in (took.average, took.p50, took.p95, took.longest))


def _served(one: Metrics) -> str:
    return f"{one.workers.live} live, {one.workers.stale} stale" if one.workers.stale else f"{one.workers.live} live"


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


async def _bench(store: Store, asked: Invocation, messages: int) -> None:

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
    """Measure in a temporary queue and a temporary workflow, and remove them."""
    from stepwell.store.progress import tell_done, watched

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
        with watched(lambda _: None):  # cleanup is not measured
            await _clean(store, queue, workflow)
    return Figures(
        backend=f"{health.backend} {health.version}",
        settings={**health.settings, "audit": store.database.options.audit},
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
    """Measure the messages written and handled per second."""
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
    """Measure the runs of three steps executed per second."""
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
            continue  # it was not created yet
