"""`python -m bench.compare`: this code beside another version of itself, in one run with alternating rounds.

The other version is an earlier revision (`--revision`), or this code without one of its shortcuts (`--without`). Each
round measures both, each time as a new process on a new database, so what disturbs the machine disturbs them alike.
Ratios are medians over the rounds of this code by the other: of the figure itself, and of the CPU of client and server.
"""

import contextlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from bench.figures import VALUES
from bench.ground import ground_of
from bench.peers import ROOT
from bench.running import Line, Measure, Runner, plan
from bench.telling import BACKENDS
from bench.workloads import WORKLOADS

COPIED: Final = ("src", "bench", "tests")


@dataclass(frozen=True, slots=True)
class Shortcut:
    """One line of the code that lets a shortcut be taken, and what stands there if it never is."""

    file: str
    taken: str
    never: str


SHORTCUTS: Final = {
    "hand-over": Shortcut("store/handover.py", "if not self._offers or task.key", "if True or task.key"),
    "gc": Shortcut("work/garbage.py", "if gc.isenabled() and", "if False and"),
    "optimistic": Shortcut(
        "deciders/optimistic_decisions.py", "if known is not None and not known.is_completed", "if False"
    ),
}


@click.command()
@click.option("--revision", help="The other version: a revision of git.")
@click.option("--without", type=click.Choice(list(SHORTCUTS)), help="The other version: this one without a shortcut.")
@click.option("--only", required=True, help=f"Workloads, by comma: {', '.join(WORKLOADS)}.")
@click.option("--backend", default=",".join(BACKENDS), help="postgres, sqlite, or both by comma.")
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True, help="How often each is measured.")
@click.option("--scale", type=click.FloatRange(0, 10), default=1.0, show_default=True, help="Times the sizes.")
def main(*, revision: str | None, without: str | None, only: str, backend: str, rounds: int, scale: float) -> None:
    """Measure this code and another version of it in turns."""
    if (revision is None) == (without is None):
        raise click.UsageError("name the other version, by --revision or by --without")
    backends = backend.split(",")
    measures = plan(only.split(","), backends, ["stepwell"], rounds)
    with contextlib.ExitStack() as stack:
        grounds = {name: stack.enter_context(ground_of(name)) for name in backends}
        other = stack.enter_context(at_revision(revision) if revision else without_shortcut(SHORTCUTS[without or ""]))
        runners = [Runner(grounds, scale, None, click.echo, tree) for tree in (other, ROOT)]
        pairs = [pair for one in measures if (pair := _both(one, *runners)) is not None]
    click.echo(table(pairs, f"without {without}" if without else str(revision)))
    sys.exit(0 if len(pairs) == len(measures) else 1)


@contextlib.contextmanager
def at_revision(revision: str) -> Iterator[Path]:
    """The project as it was."""
    git = shutil.which("git") or "git"
    packed = subprocess.run([git, "archive", revision, *COPIED], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="stepwell-compare-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


@contextlib.contextmanager
def without_shortcut(shortcut: Shortcut) -> Iterator[Path]:
    """A copy of the project in which the shortcut is never taken."""
    with tempfile.TemporaryDirectory(prefix="stepwell-compare-") as folder:
        for name in COPIED:
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
        file = Path(folder) / "src" / "stepwell" / shortcut.file
        text = file.read_text(encoding="utf-8")
        if text.count(shortcut.taken) != 1:
            raise click.ClickException(f"{shortcut.file} no longer says {shortcut.taken!r} once")
        file.write_text(text.replace(shortcut.taken, shortcut.never), encoding="utf-8")
        yield Path(folder)


def _both(one: Measure, other: Runner, this: Runner) -> tuple[Line, Line] | None:
    """The lines of the other version and of this one; odd rounds begin with the other."""
    turns = (other, this) if one.round % 2 else (this, other)
    lines = {runner.tree: runner.measure(one) for runner in turns}
    before, after = lines[other.tree], lines[this.tree]
    return None if before is None or after is None else (before, after)


def table(pairs: Sequence[tuple[Line, Line]], other: str) -> str:
    """The medians of both versions and of their ratios, as Markdown."""
    groups: dict[tuple[str, str, str], list[tuple[Line, Line]]] = {}
    for pair in pairs:
        groups.setdefault((pair[0]["workload"], pair[0]["state"], pair[0]["backend"]), []).append(pair)
    rows = [f"| {name} | {BACKENDS[backend]} | {_row(name, group)} |" for (name, _, backend), group in groups.items()]
    head = f"| workload | on | {other} | this code | ratio | client CPU | server CPU | rounds |"
    return "\n".join([head, "|---|---|--:|--:|--:|--:|--:|--:|", *rows])


def _row(workload: str, group: Sequence[tuple[Line, Line]]) -> str:
    figure = VALUES[WORKLOADS[workload].unit]
    middles = [f"{median(line[figure] for line in side):,.2f}" for side in zip(*group, strict=True)]
    ratios = [_ratio(group, name) for name in (figure, "client_us", "server_us")]
    return " | ".join([*middles, *ratios, str(len(group))])


def _ratio(group: Sequence[tuple[Line, Line]], name: str) -> str:
    found: list[Any] = [after[name] / before[name] for before, after in group if before.get(name) and after.get(name)]
    return f"{median(found):.2f}" if found else ""


if __name__ == "__main__":
    main()
