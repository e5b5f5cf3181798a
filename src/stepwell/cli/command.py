"""What every command has in common: its options, its exit codes, opening the store, and how it ends."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from stepwell.cli.output import say, say_json, say_next

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from stepwell.store.store import Store


OK: Final = 0
FAILED: Final = 1  # the awaited run failed, or a check found a problem
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4  # not possible in the current state
NO_STORE: Final = 5  # the database does not answer, or its tables are missing, older or newer
INTERRUPTED: Final = 130

LOOPS: Final = ("auto", "asyncio", "uvloop")  # event loops that a command may run on
OWN: Final = object()  # key in click's context: this process was started for the command
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Stop(Exception):  # noqa: N818 - it ends the command, and that is not always an error
    """Ends the command with a sentence, and the command to try next."""

    def __init__(self, code: int, said: str, next_: str | None = None) -> None:
        super().__init__(said)
        self.code = code
        self.said = said
        self.next = next_


@dataclass(frozen=True, slots=True)
class Invocation:
    """The store of the command, whether the output is JSON, and whether errors go to the log."""

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
        """Open the store, do the work and end the process with its exit code; an error is printed in one sentence.

        With `patient` it waits for a database that does not answer.
        """
        import asyncio

        from stepwell.cli.open import opened

        async def whole() -> int | None:
            async with opened(self.url, install=install, patient=patient) as store:
                store.database.actor = person
                return await work(store)

        def run() -> int | None:
            with asyncio.Runner(loop_factory=factory_of(loop)) as runner:
                return runner.run(whole())

        self.end(run)

    def end(self, work: Callable[[], int | None]) -> None:
        """Do the work and end the process with its exit code; an error is printed in one sentence."""
        from stepwell.cli.open import stop_for
        from stepwell.errors import StepwellError

        try:
            code = work() or OK
        except KeyboardInterrupt:
            code = INTERRUPTED
        except (StepwellError, Stop) as error:
            stop = error if isinstance(error, Stop) else stop_for(error)
            self.tell(stop.code, stop.said, stop.next)
            code = stop.code
        raise SystemExit(code)

    def tell(self, code: int, said: str, next_: str | None) -> None:
        """Print an error to standard error: a sentence and what to try, or one JSON object; or write it to the log."""
        if self.to_log:
            import logging

            logging.getLogger("stepwell").error(said if next_ is None else f"{said}; try: {next_}")
            return
        if self.as_json:
            click.echo(json.dumps({"error": said, "try": next_, "exit_code": code}), err=True)
            return

        say(f"error: {said}", to_stderr=True, hang=7, fg="red")
        if next_:
            say(f"try:   {next_}", to_stderr=True, hang=None if next_.startswith("stepwell") else 7)


def person() -> str:
    """Who calls, for the audit: the user of this host."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # the user has no name, as in some containers
        user = str(os.getuid()) if hasattr(os, "getuid") else "?"
    return f"{user}@{socket.gethostname()}"


def asks_store(fn: F) -> F:
    """Add `--url` and `--json` to a command, which gets them as `asked`."""

    @click.option("--url", envvar="STEPWELL_URL", help="The store [default: STEPWELL_URL, or sqlite:///stepwell.db].")
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON on standard output, nothing else.")
    @functools.wraps(fn)
    def command(*args: Any, url: str | None, as_json: bool, **kwargs: Any) -> Any:
        return fn(*args, asked=Invocation(url, as_json), **kwargs)

    return command  # type: ignore[return-value]


def with_headers(fn: F) -> F:
    """Add `--header name=value` to a command, which gets all of them as `headers`: None if there are none."""

    @click.option("--header", "given", metavar="NAME=VALUE", multiple=True, help="A text that travels with it.")
    @functools.wraps(fn)
    def command(*args: Any, given: Sequence[str], **kwargs: Any) -> Any:
        headers = dict(one.split("=", 1) for one in given if "=" in one)
        if wrong := [one for one in given if "=" not in one]:
            raise click.BadParameter(f"{wrong[0]!r} is no NAME=VALUE", param_hint="'--header'")
        return fn(*args, headers=headers or None, **kwargs)

    return command  # type: ignore[return-value]


def names_given(names: Sequence[str]) -> list[str]:
    """The names of runs that were given; `-` stands for those on standard input."""
    given = [each for name in names for each in (sys.stdin.read().split() if name == "-" else [name])]
    if not given:
        raise Stop(USAGE, "no run was named")
    return given


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """What became of one of the things that a command changes: its line of JSON, the sentence, and if it was done."""

    record: dict[str, Any]
    said: str
    done: bool = True


async def change_each(
    asked: Invocation,
    names: Sequence[T],
    change: Callable[[T], Awaitable[ChangeAnswer]],
    then: Callable[[ChangeAnswer], str],
) -> int:
    """Change one thing after the other and print what became of each, then a command for the last.

    Returns REFUSED if one was not changed.
    """
    all_ = []
    for name in names:
        one = await change(name)
        all_.append(one)
        if not asked.as_json:
            say(one.said)
    if asked.as_json:
        say_json([one.record for one in all_])
    else:
        say_next(then(all_[-1]))
    return OK if all(one.done for one in all_) else REFUSED


def sure(question: str, *, yes: bool) -> None:
    """Ask for confirmation before data is lost; without a terminal, refuse unless `--yes` was given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Stop(REFUSED, f"{question} Nothing was done: there is no terminal to ask at", "the same with --yes")
    if not _confirmed(question):
        raise Stop(REFUSED, "nothing was done")


def _confirmed(question: str) -> bool:
    """The answer; Ctrl-C and Ctrl-D end the command."""
    import signal

    # The loop's own handler of Ctrl-C waits for the loop, and the loop waits here.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(question)
    except click.Abort:
        click.echo(err=True)
        raise Stop(INTERRUPTED, "nothing was done") from None
    finally:
        signal.signal(signal.SIGINT, before)


def factory_of(name: str) -> Callable[[], AbstractEventLoop] | None:
    """The factory of the event loop with this name, None for asyncio's; `auto` is uvloop if it is installed."""
    if name == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if name == "auto":
            return None
        raise Stop(USAGE, "uvloop is not installed", "pip install uvloop") from None
    return uvloop.new_event_loop
