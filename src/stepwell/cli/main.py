"""The command line. A command imports what it needs when it is called, so that `--help` answers at once."""

from __future__ import annotations

from typing import Final

import click

from stepwell._version import __version__
from stepwell.cli import (
    benching,
    changing,
    completing,
    deciding,
    doctor,
    exporting,
    measuring,
    operating,
    queues,
    runs,
    showing,
    steering,
    top,
    triggering,
    working,
)

SECTIONS: Final[dict[str, list[click.Command]]] = {
    "Start": [showing.demo, working.worker, working.dev],
    "Runs": [triggering.trigger, runs.runs, runs.show, steering.why, changing.retry, changing.cancel],
    "Steer": [steering.signal, steering.pause, steering.resume, steering.fork, changing.delete, changing.restore],
    "Deciders": [deciding.decider],
    "Queues": [triggering.send, queues.queue, queues.dead],
    "Operate": [
        top.top,
        operating.workers,
        measuring.metrics,
        doctor.doctor,
        operating.maintenance,
        operating.migrate,
        operating.prune,
    ],
    "More": [exporting.export, benching.bench, completing.completion],
}


class Sections(click.Group):
    """A group that lists its commands under headings."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every section with its commands."""
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(one.name or "", one.get_short_help_str(90)) for one in commands])


@click.group(cls=Sections, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="stepwell")
def main() -> None:
    """Durable queues, workflows and deciders on SQLite, Postgres and Turso: work that must not be lost.

    Exit codes: 0 done, 1 a run failed or a check found a problem, 2 wrong use, 3 not found, 4 refused, 5 no store
    (it does not answer, or its tables are missing, older or newer), 130 interrupted.
    """


for _commands in SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)
