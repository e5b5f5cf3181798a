"""A run as a graph of its steps: what followed what, what stood side by side, alike ones folded into one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Final

from stepwell.base.count import Count
from stepwell.operate.run_view import ranks_of
from stepwell.records import StepInfo
from stepwell.ui.timeline import TimelineLane

MOST_ALIKE: Final = 4  # steps of one name that are drawn each for itself, side by side or one after the other
MOST_BESIDE: Final = 4  # in a row
LETTER: Final = 7.2
LEAST_WIDTH: Final = 132.0
MOST_WIDTH: Final = 250.0
MOST_LETTERS: Final = 27
HEIGHT: Final = 42
GAP: Final = 16
ROW: Final = 74
TOP: Final = 34
WORST_FIRST: Final = ("failed", "running", "retrying", "waiting", "queued", "cancelled", "succeeded")


@dataclass(frozen=True, slots=True)
class StepNode:
    """A step, or several of one name; `key` is that of the one that is worth a look."""

    name: str
    key: str
    glyph: str
    word: str
    note: str
    length: str
    keys: frozenset[str]
    x: float = 0.0
    y: float = 0.0
    width: float = LEAST_WIDTH

    @property
    def middle(self) -> float:
        """Where edges come in and go out."""
        return self.x + self.width / 2

    @property
    def shown(self) -> str:
        """Its name, cut where it is too long for the box."""
        return self.name if len(self.name) <= MOST_LETTERS else self.name[: MOST_LETTERS - 1] + "…"


@dataclass(frozen=True, slots=True)
class StepGraph:
    """What is drawn, and how large it is."""

    nodes: Sequence[StepNode]
    edges: Sequence[str]
    begin: tuple[float, float]
    end: tuple[float, float]
    width: float
    height: float


def graph_of(steps: Sequence[StepInfo], lanes: Sequence[TimelineLane]) -> StepGraph:
    """The graph of these steps, each of which has its lane in the timeline."""
    by_key = {lane.key: lane for lane in lanes}
    names = {step.key: step.name for step in steps}
    ranks = [[_node(step, by_key[step.key]) for step in rank] for rank in ranks_of(steps)]
    ranks = [list(_side_by_side(rank, names)) for rank in ranks]
    rows = list(_rows(_one_after_the_other(ranks, names)))
    width = max((_width(row) for row in rows), default=LEAST_WIDTH) + 2 * GAP
    placed = [_placed(row, width, TOP + ROW * at) for at, row in enumerate(rows)]
    middle, bottom = width / 2, TOP + ROW * len(rows)
    begin, end = (middle, 12.0), (middle, bottom + 4.0)
    edges = [edge for one, other in pairwise(placed) for edge in _edges(one, other)]
    if placed:
        edges[:0] = _fan(begin, [(node.middle, node.y - 3) for node in placed[0]])
        edges += _gather([(node.middle, node.y + HEIGHT) for node in placed[-1]], (middle, bottom - 5))
    nodes = [node for row in placed for node in row]
    return StepGraph(nodes, edges, begin, end, width, bottom + 34)


def _node(step: StepInfo, lane: TimelineLane) -> StepNode:
    return StepNode(lane.name, step.key, lane.glyph, lane.word, lane.note, lane.length, frozenset((step.key,)))


def _side_by_side(rank: Sequence[StepNode], names: dict[str, str]) -> Iterator[StepNode]:
    """The steps that overlapped; of more than a few of one name, one that stands for all."""
    alike: dict[str, list[StepNode]] = {}
    for node in rank:
        alike.setdefault(names[node.key], []).append(node)
    for name, nodes in alike.items():
        yield from nodes if len(nodes) <= MOST_ALIKE else [_folded(name, nodes)]


def _one_after_the_other(ranks: Iterable[list[StepNode]], names: dict[str, str]) -> Iterator[list[StepNode]]:
    """The ranks; of more than a few that are one step of the same name each, one that stands for all."""
    for name, group in groupby(ranks, lambda rank: names[rank[0].key] if len(rank) == 1 else None):
        found = list(group)
        if name is None or len(found) <= MOST_ALIKE:
            yield from found
        else:
            yield [_folded(name, [rank[0] for rank in found])]


def _folded(name: str, nodes: Sequence[StepNode]) -> StepNode:
    worst = min(nodes, key=lambda node: WORST_FIRST.index(node.word) if node.word in WORST_FIRST else 0)
    count = sum(len(node.keys) for node in nodes)
    bad = sum(1 for node in nodes if node.word == "failed")
    note = f"{Count(bad)} failed" if bad else ""
    keys = frozenset[str]().union(*(node.keys for node in nodes))
    return replace(worst, name=f"{name} \N{MULTIPLICATION SIGN}{count}", note=note, length="", keys=keys)


def _rows(ranks: Iterable[Sequence[StepNode]]) -> Iterator[list[StepNode]]:
    """The ranks as rows, each as wide as its names need; one with many different steps takes several rows."""
    for rank in ranks:
        sized = [replace(node, width=_fitting(node)) for node in rank]
        for first in range(0, len(sized), MOST_BESIDE):
            yield sized[first : first + MOST_BESIDE]


def _fitting(node: StepNode) -> float:
    letters = max(len(node.shown) + 3, (len(node.word) + len(node.note) + len(node.length)) * 0.9 + 8)
    return round(min(MOST_WIDTH, max(LEAST_WIDTH, letters * LETTER + 22)), 1)


def _width(row: Sequence[StepNode]) -> float:
    return sum(node.width for node in row) + GAP * (len(row) - 1)


def _placed(row: Sequence[StepNode], width: float, y: float) -> list[StepNode]:
    x, placed = (width - _width(row)) / 2, []
    for node in row:
        placed.append(replace(node, x=round(x, 1), y=y))
        x += node.width + GAP
    return placed


def _edges(one: Sequence[StepNode], other: Sequence[StepNode]) -> list[str]:
    """From each of a row to each of the next; through one point where both are several."""
    sources = [(node.middle, node.y + HEIGHT) for node in one]
    targets = [(node.middle, node.y - 3) for node in other]
    if len(sources) == 1:
        return _fan(sources[0], targets)
    if len(targets) == 1:
        return _gather(sources, targets[0])
    joint = (sum(x for x, _ in sources) / len(sources), (sources[0][1] + targets[0][1]) / 2)
    return [*_gather(sources, joint), *_fan(joint, targets)]


def _fan(source: tuple[float, float], targets: Iterable[tuple[float, float]]) -> list[str]:
    return [_curve(source, target) for target in targets]


def _gather(sources: Iterable[tuple[float, float]], target: tuple[float, float]) -> list[str]:
    return [_curve(source, target) for source in sources]


def _curve(source: tuple[float, float], target: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = source, target
    if abs(x1 - x2) < 1:
        return f"M{x1:.1f} {y1:.1f}V{y2:.1f}"
    bend = (y1 + y2) / 2
    return f"M{x1:.1f} {y1:.1f}C{x1:.1f} {bend:.1f} {x2:.1f} {bend:.1f} {x2:.1f} {y2:.1f}"
