"""The command line. A command imports what it needs when it is called, so that `--help` answers at once."""

from __future__ import annotations

import click

from stepwell._version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stepwell")
def main() -> None:
    """Durable queues on SQLite, Postgres and Turso: work that must not be lost."""


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object, nothing else.")
def demo(*, as_json: bool) -> None:
    """Watch a crash and a recovery (about 10 s).

    Three worker processes charge cards and send parcels. One of them is killed with SIGKILL in the middle, and the
    others finish its work. Runs on SQLite in a temporary folder; needs no network and leaves nothing behind. The exit
    code is 0 only if the outside service's own file says that every card was charged exactly once.
    """
    from stepwell.cli.demo.command import run  # noqa: PLC0415 - brings the store and the terminal's library with it

    raise SystemExit(run(as_json=as_json))
