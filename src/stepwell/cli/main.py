"""The command line. A command imports what it needs when it is called, so that `--help` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

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
from stepwell.cli.asking import OWN, Asked

NO_WORDS: Final[Any] = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click 8.1 ends without it
INTERRUPTED: Final = 130  # as in `exits`, which is not imported for `--help`
SECTIONS: Final[dict[str, list[click.Command]]] = {
    "Start": [showing.demo, working.worker, working.dev],
    "Runs": [triggering.trigger, runs.runs, runs.show, steering.why, changing.retry, changing.cancel],
    "Steer": [
        steering.signal,
        steering.pause,
        steering.resume,
        changing.accept,
        steering.fork,
        changing.delete,
        changing.restore,
    ],
    "Deciders": [deciding.decider],
    "Queues": [triggering.send, queues.queue, queues.message, queues.dead],
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
    """A group that lists its commands under headings, and tells what was said wrong as every other error is told."""

    def main(  # type: ignore[override] # of click's two forms this is the one that ends the process
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Do what the words say and end the process with the exit code."""
        try:
            own = {"obj": OWN} if args is None else {}
            code = super().main(args, prog_name, **{**extra, **own, "standalone_mode": False})
        except click.Abort:
            code = INTERRUPTED
        except NO_WORDS as error:
            error.show()
            code = error.exit_code
        except click.ClickException as error:
            _tell(error)
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else 0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every section with its commands."""
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(one.name or "", one.get_short_help_str(90)) for one in commands])


@click.group(
    "stepwell", cls=Sections, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="stepwell")
def main() -> None:
    """Durable queues, workflows and deciders on SQLite, Postgres and Turso: work that must not be lost.

    Exit codes: 0 done, 1 a run failed or a check found a problem, 2 wrong use, 3 not found, 4 refused, 5 no store
    (it does not answer, or its tables are missing, older or newer), 130 interrupted.
    """


def _tell(error: click.ClickException) -> None:
    said = error.format_message()
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "stepwell"
    Asked(None, as_json="--json" in sys.argv).tell(error.exit_code, said[:1].lower() + said[1:], f"{path} --help")


for _commands in SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)
