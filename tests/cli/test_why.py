"""What `stepwell why` says in each situation, made for real, and the next command it names."""

import shlex
from collections.abc import Callable

import click
import pytest

from stepwell import Reason, sync
from stepwell.cli.main import main
from stepwell.operate.run_view import COMMANDS
from tests.cli.desk import busy
from tests.cli.kit import Cli
from tests.ground.waiting import wait_for


def triggered(cli: Cli, *words: str, serve: bool = True) -> int:
    run: int = cli("trigger", *words, "--json").json["run"]
    if serve:
        cli.serve()
    return run


def served_until(cli: Cli, run: int, reason: str) -> bool:
    cli.serve()
    return bool(cli("why", run, "--json").json["reason"] == reason)


def held(cli: Cli) -> int:
    run = triggered(cli, "nap", "1h")
    cli("pause", run, "--reason", "the disk is full")
    return run


def cancelled(cli: Cli) -> int:
    run = triggered(cli, "nap", "1h")
    cli("cancel", run, "--reason", "no longer wanted")
    return run


def deleted(cli: Cli) -> int:
    run = triggered(cli, "nap", "1h")
    cli("delete", run, "--reason", "a mistake")
    return run


def of_a_paused_queue(cli: Cli) -> int:
    cli("queue", "pause", "nap")
    return triggered(cli, "nap", "1h", serve=False)


def in_maintenance(cli: Cli) -> int:
    cli("maintenance", "begin", "--reason", "a new disk")
    return triggered(cli, "nap", "1h", serve=False)


def timed_out(cli: Cli) -> int:
    run = triggered(cli, "hurry")
    wait_for(lambda: served_until(cli, run, "TIMED_OUT"), 20, message="its end")
    return run


Made = Callable[[Cli], int]
SITUATIONS: dict[Reason, tuple[Made, str, str]] = {
    Reason.UNSERVED: (
        lambda cli: triggered(cli, "nap", "1h", serve=False),
        "no living worker serves nap",
        "stepwell worker APP --queue nap",
    ),
    Reason.SCHEDULED: (
        lambda cli: triggered(cli, "nap", "1h", "--delay", "1h"),
        "it is scheduled for later",
        "stepwell show {run} -f",
    ),
    Reason.SLEEPING: (lambda cli: triggered(cli, "nap", "1h"), "it sleeps", "stepwell show {run} -f"),
    Reason.WAITING_FOR_SIGNAL: (
        lambda cli: triggered(cli, "purchase", "lamp"),
        "it waits for the signal approved",
        "stepwell signal {run} approved DATA",
    ),
    Reason.STEP_PAUSED: (
        lambda cli: triggered(cli, "approve", "4900"),
        "step approval#1 has paused it: more than ten euros",
        "stepwell resume {run} approval DATA",
    ),
    Reason.WAITING_FOR_CHILDREN: (
        lambda cli: triggered(cli, "family", '["lamp", "desk"]'),
        "it waits for 2 of the 2 unfinished runs it asked for",
        "stepwell runs --parent {run}",
    ),
    Reason.BACKING_OFF: (
        lambda cli: triggered(cli, "phone", "7"),
        "step call#1 failed in attempt 1 with ConnectionError: nobody answers",
        "stepwell show {run} -f",
    ),
    Reason.FAILED: (
        lambda cli: triggered(cli, "buy", "pin"),
        "PermanentError: five cents are too few",
        "stepwell retry {run} --dry-run",
    ),
    Reason.TIMED_OUT: (timed_out, "Timeout", "stepwell retry {run} --dry-run"),
    Reason.SUCCEEDED: (
        lambda cli: triggered(cli, "buy", "lamp"),
        "it has ended well",
        "stepwell export run {run}",
    ),
    Reason.HELD: (held, "an operator holds it back: the disk is full", "stepwell resume {run}"),
    Reason.CANCELLED: (cancelled, "no longer wanted", "stepwell export run {run}"),
    Reason.DELETED: (deleted, "it was deleted: a mistake", "stepwell restore {run}"),
    Reason.QUEUE_PAUSED: (of_a_paused_queue, "the queue of nap is paused", "stepwell queue resume nap"),
    Reason.MAINTENANCE: (
        in_maintenance,
        "the store is in maintenance: a new disk",
        "stepwell maintenance end",
    ),
}


@pytest.mark.proves("I-10")
@pytest.mark.parametrize("reason", SITUATIONS)
def test_a_situation_and_its_answer(desk: Cli, reason: Reason) -> None:
    make, words, next_ = SITUATIONS[reason]
    run = make(desk)
    told = desk("why", run, "--json").json
    assert (told["run"], told["reason"]) == (run, reason)
    assert words in told["message"]
    assert told["next"] == next_.format(run=run)
    said = desk("why", run).out.splitlines()
    assert said[0].startswith(f"run {run} (")
    assert words in said[0]
    assert said[-1] == f"next: {told['next']}"
    assert words in desk("show", run).out or reason in (Reason.SUCCEEDED, Reason.TIMED_OUT, Reason.CANCELLED)


def test_a_run_under_way_and_one_that_is_told_to_stop(desk: Cli) -> None:
    with sync.connect(desk.url, lease="1s") as store, sync.Worker(store, [busy]):  # it hears of it within a third
        run = triggered(desk, "busy", serve=False)
        wait_for(lambda: desk("why", run, "--json").json["reason"] == "RUNNING", 20, message="a worker")
        told = desk("why", run, "--json").json
        assert "executes it" in told["message"]
        assert "is being executed" in desk("pause", run).out
        wait_for(lambda: desk("why", run, "--json").json["reason"] == "HELD", 20, message="the pause")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_command_that_can_be_said(reason: Reason) -> None:
    line = COMMANDS[reason].format(run=7, workflow="nap", awaited="approved", step="approval")
    found: click.Command = main
    words = shlex.split(line)[1:]
    while isinstance(found, click.Group):
        found = found.commands[words.pop(0)]
    found.make_context(found.name, words)
