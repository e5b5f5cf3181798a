"""`python -m bench`: measure, show, and after a whole run write docs/benchmarks.md."""

import contextlib
import json
import platform
import sys
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import figures, telling
from bench.contestants import CONTESTANTS
from bench.durability import NotDurable
from bench.ground import ground_of
from bench.peers import ROOT, write_locks
from bench.running import Line, Runner, plan
from bench.workloads import WORKLOADS

RESULTS: Final = ROOT / "bench" / "results.json"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
QUICK: Final = 0.05
REFUSED: Final = 2
WIDTH: Final = 120  # where nobody says how wide it is


def _several(known: Any) -> Any:
    def chosen(_: click.Context, option: click.Parameter, value: str) -> list[str]:
        names = [name.strip() for name in value.split(",") if name.strip()]
        if unknown := [name for name in names if name not in known]:
            raise click.BadParameter(f"unknown {', '.join(unknown)}; there are {', '.join(known)}", param=option)
        return [name for name in known if name in names] if names else list(known)

    return chosen


@click.command()
@click.option("--rounds", type=click.IntRange(1), help="How often each is measured (3; with --quick 1).")
@click.option("--only", default="", callback=_several(WORKLOADS), help=f"Workloads: {', '.join(WORKLOADS)}.")
@click.option("--contestants", default="", callback=_several(CONTESTANTS), help=f"Of {', '.join(CONTESTANTS)}.")
@click.option("--backend", default="", callback=_several(telling.BACKENDS), help="postgres, sqlite, or both.")
@click.option("--quick", is_flag=True, help="Small sizes and one round: whether it works, not how fast.")
@click.option("--scale", type=click.FloatRange(0, 10), help=f"Times the sizes (1; with --quick {QUICK}).")
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as JSON instead of tables.")
@click.option("--write", is_flag=True, help="After a partial run too: its figures take the place of those of before.")
@click.option(
    "--page", "only_page", is_flag=True, help="Make docs/benchmarks.md again from results.json; measures nothing."
)
@click.option("--lock", "only_lock", is_flag=True, help="Pin the newest versions of the peers; measures nothing.")
@click.option("--uv", help="The uv that makes the peers' environments.")
def main(only_page: bool, only_lock: bool, uv: str | None, **asked: Any) -> None:
    """Measure raw SQL, stepwell and its peers under the same workloads."""
    if only_lock:
        for lock in write_locks(uv):
            click.echo(f"written: {lock.relative_to(ROOT)}")
    elif only_page:
        _write(json.loads(RESULTS.read_text(encoding="utf-8")))
    else:
        _measure(uv, **asked)


def _measure(
    uv: str | None,
    *,
    rounds: int | None,
    only: list[str],
    contestants: list[str],
    backend: list[str],
    quick: bool,
    scale: float | None,
    as_json: bool,
    write: bool,
) -> None:
    rounds = rounds or (1 if quick else 3)
    scale = scale or (QUICK if quick else 1.0)
    measures = plan(only, backend, contestants, rounds)
    whole = scale >= 1 and plan([*WORKLOADS], [*telling.BACKENDS], [*CONTESTANTS], rounds) == measures
    progress = _progress()
    lines: list[Line] = []
    try:
        with contextlib.ExitStack() as stack:
            grounds = {name: stack.enter_context(ground_of(name)) for name in backend}
            runner = Runner(grounds, scale, uv, progress.console.print)
            shown = stack.enter_context(progress).add_task("", total=len(measures))
            for one in measures:
                progress.update(shown, description=str(one))
                if not progress.console.is_terminal:
                    progress.console.print(str(one))
                if (line := runner.measure(one)) is not None:
                    lines.append(line)
                progress.advance(shown)
            settings = {name: dict(ground.settings) for name, ground in grounds.items()}
    except NotDurable as error:
        click.echo(f"refused: {error}", err=True)
        sys.exit(REFUSED)
    results = {"rounds": rounds, "settings": settings, "python": platform.python_version(), "lines": lines}
    _show(results, as_json=as_json)
    if write and not whole:
        results = merged(json.loads(RESULTS.read_text(encoding="utf-8")), results)
    if write or whole:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        _write(results)
    sys.exit(0 if len(lines) == len(measures) else 1)


def merged(before: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """What was measured before, with what was measured anew in the place of the same."""

    def of(line: Line) -> tuple[str, ...]:
        return line["workload"], line["backend"], line["contestant"]

    anew = {of(line) for line in results["lines"]}
    return {**before, "lines": [*(line for line in before["lines"] if of(line) not in anew), *results["lines"]]}


def _show(results: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(results, indent=1))
        return
    found = figures.summaries(results["lines"])
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    console.print(telling.details(found), telling.overview(figures.rows(found)), *telling.own(results), sep="\n")


def _write(results: dict[str, Any]) -> None:
    PAGE.write_text(telling.page(results), encoding="utf-8")
    click.echo(f"written: {PAGE.relative_to(ROOT)}", err=True)


def _progress() -> Progress:
    columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=Console(stderr=True), transient=True)


if __name__ == "__main__":
    main()
