"""`stepwell demo`."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object, nothing else.")
def demo(*, as_json: bool) -> None:
    """Watch a crash and a recovery (about 10 s).

    Three worker processes charge cards and send parcels. One of them is killed with SIGKILL in the middle, and the
    others finish its work. Runs on SQLite in a temporary folder; needs no network and leaves nothing behind. The exit
    code is 0 only if the outside service's own file says that every card was charged exactly once.
    """
    from stepwell.cli.demo.command import run

    raise SystemExit(run(as_json=as_json))
