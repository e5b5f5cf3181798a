"""`stepwell metrics`: what the workflows did lately and how they stand, for people, programs and Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.asking import Asked, asks_store

if TYPE_CHECKING:
    from stepwell.store.metrics import DeadCount, Durations, Metrics
    from stepwell.store.store import Store


@click.command()
@click.argument("workflow", required=False)
@click.option("--window", metavar="SPAN", default="1h", show_default=True, help="How far back ended runs count.")
@click.option("--join-versions", is_flag=True, help="Take process.v1 and process_v2 for one workflow.")
@click.option("--prometheus", is_flag=True, help="Print everything in the text format of Prometheus.")
@asks_store
def metrics(asked: Asked, workflow: str | None, *, window: str, join_versions: bool, prometheus: bool) -> None:
    """Say how workflows went lately: how many, how long, served by whom.

    With WORKFLOW, or the beginning of names as in 'process*', its steps too. Runs of every status but the finished ones
    are counted as they stand; times are of runs that succeeded, from their start to their end. A worker with --health
    answers /metrics with what --prometheus prints, for the last five minutes.

    \b
    Examples:
      stepwell metrics
      stepwell metrics fulfil --window 24h
      stepwell metrics --prometheus --window 5m > stepwell.prom
    """
    if prometheus:
        asked.do(lambda store: _expose(store, workflow, window))
    else:
        asked.do(lambda store: _tell(store, asked, workflow, window, join_versions=join_versions))


async def _expose(store: Store, workflow: str | None, window: str) -> None:
    from stepwell.cli.exits import USAGE, Stop

    if workflow is not None:
        raise Stop(USAGE, "--prometheus is about the whole store", "stepwell metrics --prometheus")
    click.echo(await store.prometheus(window=window, events=False), nl=False)


async def _tell(store: Store, asked: Asked, workflow: str | None, window: str, *, join_versions: bool) -> None:
    from stepwell.cli.output import say, say_json, say_next

    found = await store.metrics_by_workflow(
        workflow, window=window, join_versions=join_versions, steps=workflow is not None or asked.as_json
    )
    dead = [] if workflow is not None else await store.dead_letter_counts()
    if asked.as_json:
        say_json({"workflows": {name: as_json(one) for name, one in found.items()}, "dead_letters": dead})
        return
    if not found:
        say("there is no workflow")
        say_next("stepwell worker APP")
        return
    _draw_workflows(found)
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


def _seconds(took: Durations | None) -> dict[str, float] | None:
    if took is None:
        return None
    spans = {name: getattr(took, name).total_seconds() for name in ("average", "p50", "p95", "longest")}
    return {"count": took.count, **spans}


def _draw_workflows(found: Mapping[str, Metrics]) -> None:
    from stepwell.cli.output import ago, table
    from stepwell.records import RunStatus

    heads = ("WORKFLOW", "LIVE", "OK", "FAILED", "CANCELLED", "RATE", "AVG", "P50", "P95", "MAX")
    rows = [
        (
            name,
            sum(count for status, count in one.runs.items() if not status.finished),
            *(one.runs[status] for status in (RunStatus.SUCCESS, RunStatus.ERROR, RunStatus.CANCELLED)),
            "" if one.success_rate is None else f"{one.success_rate:.1%}",
            *_spans(one.durations),
            _served(one),
            ago(one.workers.last_seen),
        )
        for name, one in found.items()
    ]
    table((*heads, "WORKERS", "LAST SEEN"), rows)


def _draw_steps(found: Mapping[str, Metrics]) -> None:
    from stepwell.cli.output import say, table

    rows = [
        (step, name, each.succeeded, each.failed, *_spans(each.durations))
        for name, one in found.items()
        for step, each in one.steps.items()
    ]
    if rows:
        say()
        table(("STEP", "OF", "OK", "FAILED", "AVG", "P50", "P95", "MAX"), rows)


def _draw_dead(dead: Sequence[DeadCount]) -> None:
    from stepwell.cli.output import say, table

    if dead:
        say()
        table(("DEAD LETTERS", "KIND", "COUNT"), [(one.queue, one.kind, one.count) for one in dead])


def _spans(took: Durations | None) -> tuple[str, ...]:
    from stepwell.cli.output import span

    if took is None:
        return ("", "", "", "")
    return tuple(span(each.total_seconds()) for each in (took.average, took.p50, took.p95, took.longest))


def _served(one: Metrics) -> str:
    return f"{one.workers.live} live, {one.workers.stale} stale" if one.workers.stale else f"{one.workers.live} live"
