"""Waiting work moved by the command line, cancelled runs retried, and runs found by several words."""

from __future__ import annotations

import pytest

from tests.cli.kit import Cli
from tests.cli.test_steering import status
from tests.cli.test_why import triggered


@pytest.mark.proves("ST-03")
def test_waiting_work_is_moved(desk: Cli) -> None:
    run = triggered(desk, "purchase", "lamp", "--key", "p1", "--delay", "1h")
    moved = desk("reschedule", "p1", "--in", "0", "--priority", "5", "--reason", "today")
    assert f"run {run} (purchase p1) is rescheduled" in moved.out
    desk.serve()
    assert status(desk, run) == "PAUSED"
    refused = desk("reschedule", run, "--at", "2030-01-01", code=4)
    assert "waits for what its own code says" in refused.out
    assert desk("reschedule", run, "--priority", "7", "--json").json == [{"task": run, "answer": "RESCHEDULED"}]
    desk("reschedule", run, code=None)
    notes = [note["said"] for note in desk("show", run, "--json").json["history"] if note["what"] == "rescheduled"]
    assert notes[0].endswith("in 0 s, priority 5: today")


@pytest.mark.proves("ST-01", "ST-02")
def test_a_cancelled_run_is_retried_and_one_that_has_not_begun_is_forked(desk: Cli) -> None:
    run = triggered(desk, "purchase", "lamp")
    desk("cancel", run)
    assert f"run {run} (purchase) goes on" in desk("retry", run).out
    assert status(desk, run) == "PENDING"
    assert "is PENDING, and only failed and cancelled runs are retried" in desk("retry", run, code=4).out
    later = triggered(desk, "purchase", "desk", "--delay", "1h")
    forked = desk("fork", later)
    assert "goes on from its beginning, with the input of" in forked.out
    assert status(desk, later) == "PENDING"


@pytest.mark.proves("ST-06")
def test_runs_are_found_by_several_words(desk: Cli) -> None:
    both = triggered(desk, "purchase", "a", "--key", "order-1", "--tag", "vip", "--tag", "eu")
    one = triggered(desk, "purchase", "b", "--key", "order-2", "--tag", "vip")
    desk("cancel", one)

    def found(*words: str) -> list[int]:
        return [run["id"] for run in desk("runs", *words, "--json").json["runs"]]

    assert found("--tag", "vip", "--tag", "eu") == [both]
    assert found("--key-prefix", "order-") == [both, one]
    assert set(found("--status", "cancelled", "--status", "paused", "--tag", "vip")) == {both, one}
    assert found("--key-prefix", "order-", "--status", "cancelled") == [one]
    refused = desk("runs", "--status", "queued", "--status", "failed", code=None)
    assert "it means only some runs of a status" in refused.error
