"""Commands that write a run for others: as JSON, or its steps as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.asking import Asked, asks_store

if TYPE_CHECKING:
    from stepwell.records import StepInfo
    from stepwell.store.store import Store


@click.group()
def export() -> None:
    """Write a run as JSON, or the steps it took as a graph."""


@export.command("run")
@click.argument("run")
@asks_store
def export_run(asked: Asked, run: str) -> None:
    """Write a run and all that it recorded as JSON.

    Inputs and outputs are included.

    \b
    Examples:
      stepwell export run order-7 > order-7.json
    """
    asked.do(lambda store: _run(store, run))


@export.command("graph")
@click.argument("run")
@click.option("--format", "kind", type=click.Choice(["mermaid", "dot"]), default="mermaid", show_default=True)
@asks_store
def export_graph(asked: Asked, run: str, *, kind: str) -> None:
    """Write the steps of a run as a graph.

    In the order in which it asked for them. It shows what this run did, not what the workflow could do: steps that
    overlapped in time stand side by side.

    \b
    Examples:
      stepwell export graph @last
      stepwell export graph order-7 --format dot | dot -Tsvg > order-7.svg
    """
    asked.do(lambda store: _graph(store, asked, run, kind))


async def _run(store: Store, name: str) -> None:
    from stepwell.cli.naming import run_named
    from stepwell.cli.output import say_json
    from stepwell.cli.status import as_json

    run = await run_named(store, name)
    say_json({"format": 1, "run": as_json(run), "steps": await store.steps(run.id)})


async def _graph(store: Store, asked: Asked, name: str, kind: str) -> None:
    from stepwell.cli.naming import run_named
    from stepwell.cli.output import say, say_json

    run = await run_named(store, name)
    ranks = ranks_of(await store.steps(run.id))
    if asked.as_json:
        say_json({"workflow": run.workflow, "ranks": [[step.key for step in rank] for rank in ranks]})
        return
    for line in (mermaid if kind == "mermaid" else dot)(run.workflow, ranks):
        say(line)


def ranks_of(steps: Sequence[StepInfo]) -> list[list[StepInfo]]:
    """The steps in order, those that overlapped in time together."""
    ranks: list[list[StepInfo]] = []
    for step in steps:
        last = ranks[-1] if ranks else []
        ended = [each.finished_at for each in last]
        begun = step.started_at
        if last and (begun is None or any(end is None or begun < end for end in ended)):
            last.append(step)
        else:
            ranks.append([step])
    return ranks


def mermaid(workflow: str, ranks: Sequence[Sequence[StepInfo]]) -> list[str]:
    """The graph for Mermaid."""
    names = _numbered(ranks)
    nodes = [f'  {names[step.key]}["{_quoted(step.key)} {_glyph(step)}"]' for rank in ranks for step in rank]
    edges = [f"  {names[a.key]} --> {names[b.key]}" for a, b in _edges(ranks)]
    return ["flowchart TD", f"  %% {workflow}: what one run did", *nodes, *edges]


def dot(workflow: str, ranks: Sequence[Sequence[StepInfo]]) -> list[str]:
    """The graph for Graphviz."""
    names = _numbered(ranks)
    nodes = [f'  {names[step.key]} [label="{_quoted(step.key)} {_glyph(step)}"];' for rank in ranks for step in rank]
    edges = [f"  {names[a.key]} -> {names[b.key]};" for a, b in _edges(ranks)]
    return [f'digraph "{_quoted(workflow)}" {{', "  node [shape=box];", *nodes, *edges, "}"]


def _numbered(ranks: Sequence[Sequence[StepInfo]]) -> dict[str, str]:
    return {step.key: f"s{at}" for at, step in enumerate(step for rank in ranks for step in rank)}


def _edges(ranks: Sequence[Sequence[StepInfo]]) -> list[tuple[Any, Any]]:
    return [(one, other) for rank, following in pairwise(ranks) for one in rank for other in following]


def _glyph(step: StepInfo) -> str:
    from stepwell.cli.status import glyph_of

    return glyph_of(step.status)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', "'")
