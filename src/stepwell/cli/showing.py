"""`stepwell demo`."""

from __future__ import annotations

import click


@click.command()
@click.option("--postgres", is_flag=True, help="On a Postgres server that is started for it and removed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object, nothing else.")
def demo(*, as_json: bool, postgres: bool) -> None:
    """Watch a crash and a recovery (about 12 s).

    A worker process is killed with SIGKILL in the middle of an order, after the card was charged and before that was
    recorded; another one finishes the order. Then the same at every point of such a run. On SQLite in a temporary
    folder; needs no network and leaves nothing behind. The exit code is 0 only if the outside service's own file says
    that everything was done exactly once.
    """
    from stepwell.cli.demo.command import run

    raise SystemExit(run(as_json=as_json, postgres=postgres))
