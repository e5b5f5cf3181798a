"""The command line. A command imports heavy modules when it is called, so that `--help` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from stepwell._version import __version__
from stepwell.cli import (
    audit,
    change,
    control,
    decider,
    limit,
    metrics,
    move,
    projection,
    queues,
    reschedule,
    runs,
    schedule,
    store,
    talk,
    trigger,
    ui,
    worker,
)
from stepwell.cli.command import INTERRUPTED, OWN, Invocation


@click.command()
@click.option("--postgres", is_flag=True, help="Use a Postgres server that is started for the demo and removed.")
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


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script for a shell to complete commands and options.

    \b
    Examples:
      eval "$(stepwell completion bash)"                          # in ~/.bashrc
      eval "$(stepwell completion zsh)"                           # in ~/.zshrc
      stepwell completion fish > ~/.config/fish/completions/stepwell.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "stepwell", "_STEPWELL_COMPLETE").source())


NO_WORDS: Final[Any] = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click 8.1 ends without it
SECTIONS: Final[dict[str, list[click.Command]]] = {
    "Start": [demo, worker.worker, worker.dev, ui.ui],
    "Runs": [trigger.trigger, runs.runs, runs.show, control.why, change.retry, change.cancel],
    "Steer": [
        control.signal,
        talk.signals,
        talk.broadcast,
        talk.ask,
        talk.value,
        talk.stream,
        talk.logs,
        control.pause,
        control.resume,
        control.resolve,
        control.accept,
        control.fork,
        reschedule.reschedule,
        change.delete,
        change.restore,
    ],
    "Schedules": [schedule.schedule],
    "Deciders": [decider.decider, projection.projection],
    "Queues": [trigger.send, queues.queue, limit.limit, queues.message, queues.dead],
    "Operate": [
        store.top,
        store.workers,
        metrics.metrics,
        store.doctor,
        store.maintenance,
        store.migrate,
        store.prune,
        store.forget,
        audit.audit,
    ],
    "More": [runs.export, move.move, metrics.bench, completion],
}


class Sections(click.Group):
    """A group that lists its commands under headings, and reports wrong use like every other error."""

    def main(  # type: ignore[override] # of click's two forms this is the one that ends the process
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Execute the command and end the process with its exit code."""
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
    (the database does not answer, or its tables are missing, older or newer), 130 interrupted.
    """


def _tell(error: click.ClickException) -> None:
    said = error.format_message()
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "stepwell"
    Invocation(None, as_json="--json" in sys.argv).tell(error.exit_code, said[:1].lower() + said[1:], f"{path} --help")


for _commands in SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)
