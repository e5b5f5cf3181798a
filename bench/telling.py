"""How the figures are shown: tables for a terminal, a page for the documentation. No day, machine or path in either."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from bench.contestants import CONTESTANTS
from bench.figures import Row, Summary, rows, summaries
from bench.workloads import CREWS

BACKENDS = {"postgres": "Postgres", "sqlite": "SQLite"}
INTRODUCTION = """\
# Benchmarks

What `make bench` saw, not all of it in one run: compare within a workload, and *decider.observed*, *decider.inline* and
*model* with *decider.many*. Every commit is flushed to the disk: it refuses to run unless fsync, synchronous_commit and
full_page_writes are on, and on SQLite journal_mode=wal and synchronous=FULL. The machine had two cores, for client and
server together, and was shared with other programs: single rounds differ by up to 2x, so read ratios, not rates, and
take a ratio below 1.5 as "not told apart". CPU per message is disturbed far less.

Each figure is the median of {rounds}; contestants take turns, each time as a new process on a new database. A drain is
over when the database itself says that nothing is unfinished. Latency is from the call of enqueue to the first line of
the handler, and of a workflow from the trigger to its result, one every 10 to 30 ms, commits included; its p99 is close
to the largest of a few dozen samples. The CPU of a latency workload is what a message costs including the idle time
around it. Workflows are of five steps, each recorded before the next one begins; for latency they are of one. *model*
is a read model that handles events which are there already, *model.rebuild* a million of them. *decider.replay* reads
states from 2,000 events each, *decider.upcast* from the same events by code that is two versions newer. *asleep* is
what a worker that has nothing to do asks of the database in a minute, its connections and its memory. *crew* and *busy*
are drains by one, two, four and eight worker processes, from the moment when all of them are ready.
"""
COMPARED = (
    "*Compared* is with the best peer; for *growth*, *scheduled* and *asleep*, with the same in an empty database."
)
FAMILIES = {"crew": "that do nothing", "busy": "that compute for about a millisecond"}
CORES = """\
The machine's two cores are shared by the workers and, on Postgres, the server: four and eight show what happens when
there are more of them than cores. On SQLite only one process writes at a time.
"""
ELSEWHERE = """\
absurd keeps its schema outside of its package, so it is not installed here. On another machine of this kind, with
Postgres 15 and durable commits, absurd 0.5.1 did 117 workflows of five steps a second, 95 one at a time, and took
14.2 ms from trigger to result; raw SQL there did 16,644 (grouped) and 732 (one at a time).
"""


def overview(told: Iterable[Row]) -> Table:
    """How stepwell stands against raw SQL, the best peer and the targets."""
    table = Table(title="stepwell", title_justify="left", box=SIMPLE, pad_edge=False)
    for name in _OVERVIEW:
        table.add_column(name, justify="left" if name in {"workload", "on", "target", ""} else "right")
    for row in told:
        verdict = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[row.met]
        table.add_row(*_cells(row), verdict)
    return table


def details(found: Iterable[Summary]) -> Table:
    """Every contestant: the median, the rounds' range, and the CPU."""
    table = Table(title="all contestants", title_justify="left", box=SIMPLE, pad_edge=False)
    for name in _HEADS:
        table.add_column(name, justify="left" if name in {"workload", "on", "contestant"} else "right")
    before = None
    for one in found:
        if before not in (None, (one.workload, one.backend)):
            table.add_section()
        before = (one.workload, one.backend)
        table.add_row(_name(one), BACKENDS[one.backend], one.contestant, *_numbers(one))
    return table


def page(results: Mapping[str, Any]) -> str:
    """The page of the documentation."""
    found = summaries(results["lines"])
    rounds = f"{results['rounds']} rounds" if results["rounds"] > 1 else "one round"
    lines = [INTRODUCTION.format(rounds=rounds), "## Against the targets", "", *_overview(rows(found)), ""]
    lines += [COMPARED, "", *_scaling(found)]
    for backend, title in BACKENDS.items():
        if shown := [one for one in found if one.backend == backend]:
            lines += [f"## {title}, everybody", "", *_settings(results, backend), "", *_details(shown), ""]
    lines += ["## Not like for like", "", *_notes(found), "", "## Measured elsewhere", "", ELSEWHERE]
    lines += ["## What was called", "", *_calls(found)]
    return "\n".join(lines) + "\n"


_OVERVIEW = ("workload", "on", "stepwell", "raw SQL", "of raw", "best peer", "compared", "target", "")
_HEADS = ("workload", "on", "contestant", "median", "rounds", "p99", "client us", "server us")


def _overview(told: Iterable[Row]) -> list[str]:
    lines = [_line(_OVERVIEW), "|---|---|--:|--:|--:|--:|--:|---|---|"]
    return lines + [_line((*_cells(row), {True: "met", False: "missed", None: ""}[row.met])) for row in told]


def _scaling(found: Sequence[Summary]) -> list[str]:
    """How a drain grows with its worker processes: the rate of each, and how many times that of one."""
    lines = []
    for name, words in FAMILIES.items():
        for backend, title in BACKENDS.items():
            rates = {one.workload.name: one.middle for one in found if one.backend == backend}
            crew = [rates.get(f"{name}.{word}") for word in CREWS]
            if crew[0]:
                told = [f"{rate:,.0f}/s ({rate / crew[0]:.1f}x)" if rate else "" for rate in crew]
                lines.append(_line((words, title, *told)))
    if not lines:
        return []
    heads = _line(("handlers", "on", *(f"{word} process{'' if word == 'one' else 'es'}" for word in CREWS)))
    return ["## With more worker processes", "", heads, f"|---|---|{'--:|' * len(CREWS)}", *lines, "", CORES, ""]


def _details(found: Iterable[Summary]) -> list[str]:
    lines = [_line(("workload", "contestant", *_HEADS[3:])), "|---|---|--:|--:|--:|--:|--:|"]
    return lines + [_line((_name(one), one.contestant, *_numbers(one))) for one in found]


def _settings(results: Mapping[str, Any], backend: str) -> list[str]:
    settings = ", ".join(f"{name} {value}" for name, value in results["settings"][backend].items())
    used = {line["contestant"]: line["version"] for line in results["lines"] if line["backend"] == backend}
    versions = ", ".join(f"{name} {version}" for name, version in used.items() if version)
    return [f"Settings: {settings}; the rest at defaults.", f"Python {results['python']}; {versions}.", *own(results)]


def own(results: Mapping[str, Any]) -> list[str]:
    """What stepwell was set to where that costs something."""
    audits = sorted({line["audit"] for line in results["lines"] if "audit" in line})
    return [f"stepwell with audit={', '.join(audits)}."] if audits else []


def _notes(found: Sequence[Summary]) -> list[str]:
    names = {one.contestant for one in found}
    return [f"- **{one.name}**: {one.note}" for one in CONTESTANTS.values() if one.note and one.name in names]


def _calls(found: Iterable[Summary]) -> list[str]:
    """One line for each call, not for each workload that uses it."""
    calls = {(one.contestant, one.backend, one.workload.verb): one.api for one in found}
    lines = [_line(("contestant", "on", "call")), "|---|---|---|"]
    return lines + [_line((who, BACKENDS[backend], api)) for (who, backend, _), api in sorted(calls.items())]


def _cells(row: Row) -> tuple[str, ...]:
    peer = "" if row.peer is None else f"{_value(row.peer)} {row.peer.contestant}"
    raw = "" if row.raw is None else _value(row.raw)
    share = "" if row.share is None else f"{row.share:.0%}"
    return (row.workload.name, BACKENDS[row.backend], _value(row.own), raw, share, peer, _times(row), row.target)


def _times(row: Row) -> str:
    if row.compared is None:
        return ""
    return f"{row.compared:.0%}" if row.own.state != "empty" else f"{row.compared:.1f}x"


def _numbers(one: Summary) -> tuple[str, ...]:
    shown = [_number(one, value) for value in (min(one.values), max(one.values))] if len(one.values) > 1 else []
    p99 = "" if one.p99 is None else f"{one.p99:.1f} ms"
    return (_value(one), " - ".join(shown), p99, _microseconds(one.client), _microseconds(one.server))


def _name(one: Summary) -> str:
    return one.workload.name if one.state == one.workload.state else f"{one.workload.name}, without"


def _value(one: Summary) -> str:
    number = _number(one, one.middle)
    match one.workload.unit:
        case "rate":
            return f"{number}/s"
        case "latency":
            return f"{number} ms"
        case "rest":
            return f"{number}/min, {one.connections:g} connections, {one.memory:.0f} MB"


def _number(one: Summary, value: float) -> str:
    return f"{value:.2f}" if one.workload.unit == "latency" else f"{value:,.0f}"


def _microseconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
