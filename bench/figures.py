"""What the measurements come to: medians over the rounds, ratios, and whether the targets were met. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from bench.contestants import CONTESTANTS
from bench.workloads import WORKLOADS, Unit, Workload

Line = dict[str, Any]
NOISE: Final = 0.1  # a difference below a tenth says nothing, however often it is measured
VALUES: Final[dict[Unit, str]] = {"rate": "rate", "latency": "p50_ms", "rest": "statements"}  # what a line calls it


@dataclass(frozen=True, slots=True)
class Summary:
    """One contestant under one workload, over all rounds."""

    contestant: str
    backend: str
    workload: Workload
    state: str
    values: tuple[float, ...]  # of each round: so many a second, the p50 in ms, or statements a minute
    p99: float | None
    client: float | None
    server: float | None
    connections: float | None
    memory: float | None
    count: int
    api: str

    @property
    def middle(self) -> float:
        """The median of the rounds."""
        return median(self.values)

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.workload.unit == "rate"


@dataclass(frozen=True, slots=True)
class Row:
    """stepwell under one workload, beside raw SQL, the best peer and the target."""

    workload: Workload
    backend: str
    own: Summary
    raw: Summary | None
    share: float | None  # how good it is beside raw SQL
    peer: Summary | None
    compared: float | None  # how many times as good as the best peer; with rows present, against the empty database
    target: str
    met: bool | None


def summaries(lines: Iterable[Line]) -> list[Summary]:
    """The lines by workload, backend, state and contestant, in the order of the registries."""
    grouped: dict[tuple[str, str, str, str], list[Line]] = {}
    for line in lines:
        key = (line["workload"], line["backend"], line["state"], line["contestant"])
        grouped.setdefault(key, []).append(line)
    order = list(WORKLOADS), list(CONTESTANTS)
    ordered = sorted(
        grouped, key=lambda key: (order[0].index(key[0]), key[1], key[2] != "empty", order[1].index(key[3]))
    )
    return [_summary(grouped[key]) for key in ordered]


def rows(found: Sequence[Summary]) -> list[Row]:
    """What is to be told about stepwell."""
    shown = [one for one in found if one.contestant == "stepwell" and one.state == one.workload.state]
    return [_row(own, found) for own in shown]


def _row(own: Summary, found: Sequence[Summary]) -> Row:
    rivals = [one for one in found if (one.workload, one.backend, one.state) == (own.workload, own.backend, own.state)]
    raw = next((one for one in rivals if one.contestant == "raw"), None)
    peers = [one for one in rivals if CONTESTANTS[one.contestant].peer]
    peer = max(peers, key=_goodness, default=None)
    empty = next((one for one in found if _is_empty_twin(one, own)), None)
    beside = own.state != "empty"
    other = empty if beside else peer
    compared = None if other is None else _goodness(own) / _goodness(other)
    share = None if raw is None else _goodness(own) / _goodness(raw)
    target, met = _judged(own, compared, share, empty)
    return Row(own.workload, own.backend, own, raw, share, peer, compared, target, met)


def _judged(
    own: Summary, compared: float | None, share: float | None, empty: Summary | None
) -> tuple[str, bool | None]:
    """The target in words, and whether it was met; None if there is none, or nothing to compare with."""
    match own.workload.name, own.backend:
        case "drain" | "drain.batch", "postgres":
            return ">= 2x best peer", _reached(compared, 2)
        case "enqueue.bulk", "postgres":
            return ">= 3x best peer", _reached(compared, 3)
        case "latency" | "workflow.latency", _:
            return "p50 <= 2 ms", own.middle <= 2
        case "latency.two" | "workflow.latency.two", "postgres":
            return "p50 <= 3 ms", own.middle <= 3
        case "growth", _:
            return ">= 80 % of empty", _reached(compared, 0.8)
        case "scheduled" | "asleep", _:
            return "as without them", None if empty is None else _alike(own, empty)
        case _:
            return _beside_peers(own, compared, share)


def _beside_peers(own: Summary, compared: float | None, share: float | None) -> tuple[str, bool | None]:
    """The targets of workflows and deciders, which are beside others."""
    match own.workload.name, own.backend:
        case "workflow.many", "postgres":
            return ">= 40x best peer, 50 % of raw", _both(_reached(compared, 40), _reached(share, 0.5))
        case "workflow.many", "sqlite":
            return ">= 100x best peer", _reached(compared, 100)
        case "workflow.few", "postgres":
            return ">= 10x best peer", _reached(compared, 10)
        case "workflow.one", "postgres":
            return ">= 5x best peer, 70 % of raw", _both(_reached(compared, 5), _reached(share, 0.7))
        case "decider.many", "postgres":
            return ">= 20x best peer", _reached(compared, 20)
        case "decider.one", "postgres":
            return ">= 5x best peer", _reached(compared, 5)
        case _:
            return "", None


def _reached(value: float | None, least: float) -> bool | None:
    return None if value is None else value >= least


def _both(one: bool | None, other: bool | None) -> bool | None:
    """Missed as soon as one is, met only when both are known to be."""
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _alike(one: Summary, other: Summary) -> bool:
    """No difference beyond noise: below a tenth, or no larger than the rounds differ among themselves."""
    held = (one.connections, other.connections, one.memory or 0, other.memory or 0)
    if held[0] != held[1] or held[2] > (1 + NOISE) * held[3]:
        return False
    apart = abs(one.middle - other.middle)
    return apart <= NOISE * other.middle or min(one.values) <= max(other.values)


def _goodness(one: Summary) -> float:
    return one.middle if one.is_rate else 1 / one.middle


def _is_empty_twin(one: Summary, own: Summary) -> bool:
    same = (one.workload, one.backend, one.contestant) == (own.workload, own.backend, own.contestant)
    return same and one.state == "empty"


def _summary(lines: Sequence[Line]) -> Summary:
    first = lines[0]
    workload = WORKLOADS[first["workload"]]
    value = VALUES[workload.unit]
    return Summary(
        first["contestant"],
        first["backend"],
        workload,
        first["state"],
        tuple(line[value] for line in lines),
        _middle(lines, "p99_ms"),
        _middle(lines, "client_us"),
        _middle(lines, "server_us"),
        _middle(lines, "connections"),
        _middle(lines, "memory_mb"),
        first["count"],
        first["api"],
    )


def _middle(lines: Sequence[Line], name: str) -> float | None:
    values = [line[name] for line in lines if line.get(name) is not None]
    return median(values) if values else None
