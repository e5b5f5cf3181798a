"""The steps of a run as a graph, for Mermaid and Graphviz. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from stepwell.operate.status import glyph_of
from stepwell.records import StepInfo


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
    nodes = [f'  {names[step.key]}["{_label(step)}"]' for rank in ranks for step in rank]
    edges = [f"  {names[a.key]} --> {names[b.key]}" for a, b in _edges(ranks)]
    return ["flowchart TD", f"  %% {workflow}: what one run did", *nodes, *edges]


def dot(workflow: str, ranks: Sequence[Sequence[StepInfo]]) -> list[str]:
    """The graph for Graphviz."""
    names = _numbered(ranks)
    nodes = [f'  {names[step.key]} [label="{_label(step)}"];' for rank in ranks for step in rank]
    edges = [f"  {names[a.key]} -> {names[b.key]};" for a, b in _edges(ranks)]
    return [f'digraph "{_quoted(workflow)}" {{', "  node [shape=box];", *nodes, *edges, "}"]


def _numbered(ranks: Sequence[Sequence[StepInfo]]) -> dict[str, str]:
    return {step.key: f"s{at}" for at, step in enumerate(step for rank in ranks for step in rank)}


def _edges(ranks: Sequence[Sequence[StepInfo]]) -> list[tuple[Any, Any]]:
    return [(one, other) for rank, following in pairwise(ranks) for one in rank for other in following]


def _label(step: StepInfo) -> str:
    return f"{_quoted(step.key)} {glyph_of(step.status)}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', "'")
