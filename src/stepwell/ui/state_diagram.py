"""A state machine as a drawing: states in columns by how far they are from the first, edges as curves. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stepwell.deciders.diagram import StateMachine

HEIGHT: Final = 38
ROW: Final = 96
LETTER: Final = 7.6
MOST_LABELS: Final = 3
TIMES: Final = "\N{MULTIPLICATION SIGN}"
Way = Mapping[tuple[str, str, str], int]


@dataclass(frozen=True, slots=True)
class Node:
    """A state: its box, and whether the instance has been there, is there, or ends there."""

    name: str
    x: float
    y: float
    width: float
    passed: bool
    current: bool
    terminal: bool


@dataclass(frozen=True, slots=True)
class Edge:
    """Transitions between two states: a path, its labels and where they stand, and whether one was taken."""

    path: str
    labels: Sequence[str]
    x: float
    y: float
    taken: bool
    title: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn, and how large it is."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]
    begin: tuple[float, float]
    width: float
    height: float


def drawing_of(machine: StateMachine, current: str | None, way: Way) -> Drawing:
    """The machine with the current state lit and the way through it; what was taken and not declared is drawn too."""
    names = [info.status for info in machine.states]
    labels: dict[tuple[str, str], list[str]] = defaultdict(list)
    for source, ones in machine.transitions.items():
        for one in ones:
            labels[source, one.target].append(one.input)
    taken: dict[tuple[str, str], int] = defaultdict(int)
    by_event: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (source, event, target), count in way.items():
        if source != target or (source, target) in labels:
            taken[source, target] += count
            by_event[source, target].append(f"{event} {TIMES}{count}" if count > 1 else event)
            names += [name for name in (source, target) if name not in names]
    for pair, events in by_event.items():
        if pair not in labels:
            labels[pair] = events
    places = _places(names, machine.initial, labels)
    boxes = _boxes(names, places, labels)
    been = {one for pair in taken for one in pair} | ({current} if current else set())
    ends = {info.status for info in machine.states if info.terminal}
    nodes = [Node(name, *boxes[name], name in been, name == current, name in ends) for name in names]
    edges = [_edge(boxes, pair, texts, taken.get(pair, 0), by_event.get(pair, ())) for pair, texts in labels.items()]
    edges.sort(key=lambda one: one.taken)
    x, y, _ = boxes[machine.initial]
    width = max(left + wide for left, _, wide in boxes.values()) + 30
    height = max(top for _, top, _ in boxes.values()) + HEIGHT + 62
    return Drawing(nodes, edges, (x - 26, y + HEIGHT / 2), width, height)


def _places(
    names: Sequence[str], initial: str, labels: Mapping[tuple[str, str], Sequence[str]]
) -> dict[str, tuple[int, int]]:
    """Column and row of each state: columns by distance from the initial one."""
    column = {initial: 0}
    frontier = [initial]
    while frontier:
        following = []
        for source in frontier:
            for one, target in labels:
                if one == source and target not in column:
                    column[target] = column[source] + 1
                    following.append(target)
        frontier = following
    last = max(column.values())
    for name in names:
        column.setdefault(name, last + 1)
    rows: dict[int, int] = defaultdict(int)
    places = {}
    for name in sorted(names, key=lambda name: (column[name], names.index(name))):
        places[name] = column[name], rows[column[name]]
        rows[column[name]] += 1
    return places


def _boxes(
    names: Sequence[str], places: Mapping[str, tuple[int, int]], labels: Mapping[tuple[str, str], Sequence[str]]
) -> dict[str, tuple[float, float, float]]:
    columns = max(place for place, _ in places.values()) + 1
    widths = [
        max((len(name) for name in names if places[name][0] == at), default=4) * LETTER + 34 for at in range(columns)
    ]
    gaps = [90.0] * columns
    for (source, target), texts in labels.items():
        one, other = places[source][0], places[target][0]
        if abs(one - other) == 1:
            longest = max(len(text) for text in texts[:MOST_LABELS]) * 6.6 + 44
            gaps[min(one, other)] = min(240.0, max(gaps[min(one, other)], longest))
    lefts, x = [], 56.0
    for at in range(columns):
        lefts.append(x)
        x += widths[at] + gaps[at]
    tallest = max(row for _, row in places.values()) + 1
    boxes = {}
    for name in names:
        at, row = places[name]
        there = sum(1 for place, _ in places.values() if place == at)
        top = 44 + (tallest - there) * ROW / 2 + row * ROW
        boxes[name] = (round(lefts[at], 1), round(top, 1), round(widths[at], 1))
    return boxes


def _edge(
    boxes: Mapping[str, tuple[float, float, float]],
    pair: tuple[str, str],
    texts: Sequence[str],
    taken: int,
    events: Sequence[str],
) -> Edge:
    (x1, y1, w1), (x2, y2, w2) = boxes[pair[0]], boxes[pair[1]]
    shown = [*texts[:MOST_LABELS], *([f"+{len(texts) - MOST_LABELS} more"] if len(texts) > MOST_LABELS else [])]
    if taken > 1:
        shown = [*shown[:-1], f"{shown[-1]} {TIMES}{taken}"]
    title = f"{pair[0]} to {pair[1]}: {', '.join(texts)}" + (f"; taken by {', '.join(events)}" if events else "")
    middle1, middle2 = y1 + HEIGHT / 2, y2 + HEIGHT / 2
    if pair[0] == pair[1]:
        x = x1 + w1 / 2
        path = f"M{x - 16:.0f} {y1} C{x - 26:.0f} {y1 - 34} {x + 26:.0f} {y1 - 34} {x + 16:.0f} {y1 - 1}"
        return Edge(path, shown, x, y1 - 30, taken > 0, title)
    if x2 > x1 + w1:  # forwards
        begin, end = x1 + w1, x2 - 3
        bend = max(30.0, (end - begin) / 2)
        far = x2 - (x1 + w1) > 300
        lift = -70 if far and abs(middle1 - middle2) < 4 else 0
        curve = f"C{begin + bend:.0f} {middle1 + lift:.0f} {end - bend:.0f} {middle2 + lift:.0f}"
        path = f"M{begin:.0f} {middle1:.0f} {curve} {end:.0f} {middle2:.0f}"
        return Edge(path, shown, (begin + end) / 2, (middle1 + middle2) / 2 + lift * 0.75 - 6, taken > 0, title)
    if x1 == x2:  # within a column
        down = y2 > y1
        x, begin, end = x1 + w1 / 2, y1 + (HEIGHT if down else 0), y2 + (-3 if down else HEIGHT + 3)
        return Edge(f"M{x:.0f} {begin:.0f} L{x:.0f} {end:.0f}", shown, x, (begin + end) / 2 + 4, taken > 0, title)
    low = max(y1, y2) + HEIGHT + 34  # back
    begin, end = x1 + w1 / 2 - 10, x2 + w2 / 2 + 10
    path = f"M{begin:.0f} {y1 + HEIGHT:.0f} C{begin:.0f} {low:.0f} {end:.0f} {low:.0f} {end:.0f} {y2 + HEIGHT + 3:.0f}"
    return Edge(path, shown, (begin + end) / 2, low - 4, taken > 0, title)
