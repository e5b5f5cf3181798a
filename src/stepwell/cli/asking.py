"""What every command that asks a store has in common: its options, opening the store, and how it ends."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from stepwell.store.store import Store

OWN: Final = object()  # of click's context: the command is what this process was started for
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Asked:
    """Which store is asked, whether the answer is JSON, and whether errors go to the log with all else."""

    url: str | None
    as_json: bool
    to_log: bool = False

    def do(
        self,
        work: Callable[[Store], Coroutine[Any, Any, int | None]],
        *,
        install: bool = False,
        patient: bool = False,
        loop: str = "asyncio",
    ) -> None:
        """Open the store, do the work and end the process with its exit code; an error is told in one sentence.

        With `patient` a database that is away is waited for.
        """
        import asyncio

        from stepwell.cli.loops import factory_of
        from stepwell.cli.opening import opened

        async def whole() -> int | None:
            async with opened(self.url, install=install, patient=patient) as store:
                return await work(store)

        def run() -> int | None:
            with asyncio.Runner(loop_factory=factory_of(loop)) as runner:
                return runner.run(whole())

        self.end(run)

    def end(self, work: Callable[[], int | None]) -> None:
        """Do the work and end the process with its exit code; an error is told in one sentence."""
        from stepwell.cli import exits
        from stepwell.errors import StepwellError

        try:
            code = work() or exits.OK
        except KeyboardInterrupt:
            code = exits.INTERRUPTED
        except (StepwellError, exits.Stop) as error:
            told = exits.told(error)
            self.tell(told.code, told.said, told.next)
            code = told.code
        raise SystemExit(code)

    def tell(self, code: int, said: str, next_: str | None) -> None:
        """Tell an error: a sentence and what to try, or one JSON object, on standard error; or a record of the log."""
        if self.to_log:
            import logging

            logging.getLogger("stepwell").error(said if next_ is None else f"{said}; try: {next_}")
            return
        if self.as_json:
            click.echo(json.dumps({"error": said, "try": next_, "exit_code": code}), err=True)
            return
        from stepwell.cli.output import say

        say(f"error: {said}", to_stderr=True, hang=7, fg="red")
        if next_:
            say(f"try:   {next_}", to_stderr=True, hang=None if next_.startswith("stepwell") else 7)


def asks_store(fn: F) -> F:
    """Give a command `--url` and `--json`; it gets them as `asked`."""

    @click.option("--url", envvar="STEPWELL_URL", help="The store [default: STEPWELL_URL, or sqlite:///stepwell.db].")
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON on standard output, nothing else.")
    @functools.wraps(fn)
    def command(*args: Any, url: str | None, as_json: bool, **kwargs: Any) -> Any:
        return fn(*args, asked=Asked(url, as_json), **kwargs)

    return command  # type: ignore[return-value]


def sure(question: str, *, yes: bool) -> None:
    """Ask a person before something is lost; without one, refuse unless `--yes` was said."""
    from stepwell.cli.exits import REFUSED, Stop

    if yes:
        return
    if not sys.stdin.isatty():
        raise Stop(REFUSED, f"{question} Nothing was done: nobody is here to ask", "the same with --yes")
    if not _confirmed(question):
        raise Stop(REFUSED, "nothing was done")


def _confirmed(question: str) -> bool:
    """The person's answer; Ctrl-C and Ctrl-D end the command."""
    import signal

    from stepwell.cli.exits import INTERRUPTED, Stop

    # The loop's own handler of Ctrl-C waits for the loop, and the loop waits here.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(question)
    except click.Abort:
        click.echo(err=True)
        raise Stop(INTERRUPTED, "nothing was done") from None
    finally:
        signal.signal(signal.SIGINT, before)
