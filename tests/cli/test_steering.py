"""Runs steered by the command line: held back, resumed, signalled, forked, cancelled, deleted, one or many."""

from typing import Any

import pytest

from stepwell import Context, Worker, connect, workflow
from stepwell.operate.run_view import view_of
from tests.cli.kit import Cli
from tests.cli.test_why import triggered


def status(cli: Cli, run: object) -> str:
    return str(cli("show", run, "--json").json["status"])


@pytest.mark.proves("P-12")
def test_a_signal_is_taken_by_the_wait_of_its_name(desk: Cli) -> None:
    run = triggered(desk, "purchase", "lamp", "--key", "p1")
    assert "does not wait for refused yet: it is kept" in desk("signal", "p1", "refused").out
    assert (
        "waits for approved just now, and goes on" in desk("signal", "p1", "approved", "4900 cents", "--key", "k").out
    )
    assert desk("signal", run, "approved", "1", "--key", "k", "--json", code=4).json == {
        "run": run,
        "answer": "TOO_LATE",
    }
    desk.serve()
    assert desk("show", run, "--json").json["output"] == "lamp for 4900 cents"
    late = desk("signal", run, "approved", "again", code=4)
    assert "nothing was kept" in late.out
    assert f"next: stepwell why {run}" in late.out


def test_data_is_one_value_or_an_object(desk: Cli) -> None:
    run = triggered(desk, "approve", "4900")
    assert (
        "approval returns this, and will not run again" in desk("resume", run, "approval", "by=grace", "cents:=5").out
    )
    desk.serve()
    [step] = desk("show", run, "--json").json["steps"]
    assert step["output"] == {"by": "grace", "cents": 5}
    assert "was resumed before; nothing was changed" in desk("resume", run, "approval", code=4).out


def test_a_person_says_whether_a_step_in_doubt_is_done(desk: Cli) -> None:
    run = triggered(desk, "transfer", "4900")
    desk.serve()
    desk("retry", run)
    desk.serve()
    told = desk("why", run)
    assert "step wire#1 has begun and is not known to have ended" in told.out
    assert f"stepwell resolve {run} wire#1 done" in told.out
    assert "has no one step 'other' that is in doubt" in desk("resolve", run, "other", "done", code=None).error
    assert "goes on: wire#1 is done and returns this" in desk("resolve", run, "wire#1", "done", "by hand").out
    desk.serve()
    assert desk("show", run, "--json").json["output"] == "by hand"


def test_a_number_that_is_also_a_key_is_refused_with_both_readings(desk: Cli) -> None:
    first = triggered(desk, "purchase", "lamp")
    second = triggered(desk, "purchase", "desk", "--key", str(first))
    for words in (["cancel", first], ["pause", first], ["show", first], ["signal", first, "approved", "ada"]):
        refused = desk(*words, code=4)
        assert f"{first} is run {first} (purchase), and the key of run {second} (purchase {first})" in refused.error
        assert f"@{first}, or purchase:{first}" in refused.error
    assert status(desk, f"@{first}") == status(desk, f"purchase:{first}") == "PAUSED", "nothing was done"
    desk("cancel", f"purchase:{first}")
    assert (status(desk, f"@{first}"), status(desk, f"@{second}")) == ("PAUSED", "CANCELLED")


def test_a_key_of_digits_is_found_where_no_run_has_that_number(desk: Cli) -> None:
    run = triggered(desk, "purchase", "lamp", "--key", "90210")
    assert desk("show", "90210", "--json").json["id"] == run
    own = triggered(desk, "purchase", "desk")
    assert desk("show", own, "--json").json["id"] == own
    desk("show", "90211", code=3)


@pytest.mark.proves("P-02")
def test_a_run_is_held_back_and_let_go(desk: Cli) -> None:
    run = triggered(desk, "purchase", "lamp")
    assert "is held back" in desk("pause", run, "--reason", "the disk is full").out
    assert "‖ paused" in desk("runs").out
    desk("signal", run, "approved", "ada")
    desk.serve()
    assert status(desk, run) == "PAUSED", "nothing makes it go on"
    assert desk("resume", run, "--json").json == {"run": run, "resumed": True}
    desk.serve()
    assert status(desk, run) == "SUCCESS"
    assert "nothing was changed" in desk("pause", run, code=4).out
    assert desk("pause", run, "--json", code=4).json == [{"run": run, "paused": False}]


def test_resume_without_a_step_says_what_it_needs_instead(desk: Cli) -> None:
    run = triggered(desk, "approve", "4900")
    refused = desk("resume", run, code=4)
    assert "is not held back, so nothing was changed: step approval#1 has paused it" in refused.out
    assert f"next: stepwell resume {run} approval DATA" in refused.out
    assert desk("resume", run, "--json", code=4).json == {"run": run, "resumed": False}


@pytest.mark.proves("R-20")
def test_a_fork_keeps_what_was_before_the_step(desk: Cli) -> None:
    run = triggered(desk, "buy", "pin", "--key", "b1")
    planned = desk("fork", "b1", "--at", "pay", "--set", "price=1900", "--dry-run")
    assert "a new run would go on at pay#1" in planned.out
    assert "recorded, will not run again: price#1" in planned.out
    assert len(desk("runs", "buy", "--json").json["runs"]) == 1, "nothing was done"
    made = desk("fork", "b1", "--at", "pay", "--set", "price=1900", "--reason", "a complaint", "--json").json
    assert made == {"run": made["run"], "fork_of": run, "at": "pay#1", "kept": ["price#1"], "dry_run": False}
    desk.serve()
    forked = desk("show", made["run"], "--json").json
    assert (forked["output"], forked["cause"]) == ("paid 1900", f"fork of {run} at pay#1: a complaint")
    assert f"fork of {run} at pay#1: a complaint" in desk("show", made["run"]).out
    assert status(desk, run) == "ERROR"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--at", "nope"], 3, "has recorded no step 'nope'; name one of those it has: price#1, pay#1"),
        (["--at", "pay", "--set", "900"], 2, "--set takes STEP=JSON"),
        (["--at", "price", "--set", "pay=1"], 2, "only what had ended before can be edited"),
    ],
)
def test_a_fork_that_cannot_be_made(desk: Cli, words: list[str], code: int, said: str) -> None:
    run = triggered(desk, "buy", "pin")
    assert said in desk("fork", run, *words, code=code).error
    assert len(desk("runs", "--json").json["runs"]) == 1


@pytest.mark.proves("R-20")
def test_retry_from_a_step_is_a_fork(desk: Cli) -> None:
    run = triggered(desk, "buy", "lamp")
    assert "would go on at price#1" in desk("retry", run, "--from", "price", "--dry-run").out
    again = desk("retry", run, "--from", "price", "--json").json
    assert (again["fork_of"], again["kept"]) == (run, [])
    assert again["run"] != run


def test_the_runs_it_asked_for_are_listed_and_drawn(desk: Cli) -> None:
    run = triggered(desk, "family", '["lamp", "desk"]', "--key", "f")
    listed = desk("runs", "--parent", "f", "--json").json["runs"]
    assert [(one["workflow"], one["parent_id"]) for one in listed] == [("purchase", run)] * 2
    assert [one["input"] for one in listed] == ["desk", "lamp"]
    shown = desk("show", "f")
    assert "runs it asked for" in shown.out
    assert shown.out.count("◷ waiting  purchase") == 2
    assert "◷ results()#1" in shown.out
    assert [one["progress"] for one in desk("show", "f", "--json").json["children"]] == [{"step": 1, "of": 2}] * 2
    assert f"child of run {run}" in desk("show", listed[0]["id"]).out


async def test_the_tree_is_three_deep_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connect("memory:") as store:
        top = await deep.trigger(5).options(require_worker="ignore").execute(store)
        await Worker(store, [deep]).drain()

        async def depth() -> int:
            look, found = await view_of(store, await store.get_run(top)), 0
            children = look.children
            while children:
                found, children = found + 1, children[0].children
            return found

        assert await depth() == 3
        monkeypatch.setattr("stepwell.operate.run_view.MOST_FAMILIES", 1)
        assert await depth() == 1


@workflow
async def deep(ctx: Context, left: int) -> None:
    if left:
        await deep.trigger(left - 1).execute(ctx)


def test_a_run_that_restarted_is_one_run_and_says_its_generation(desk: Cli) -> None:
    run = triggered(desk, "loop", "2")
    assert [(one["id"], one["generation"]) for one in desk("runs", "loop", "--json").json["runs"]] == [(run, 2)]
    shown = desk("show", run).out
    assert "generation 2" in shown
    assert "what earlier generations recorded went as the run restarted" in shown


@pytest.mark.proves("SD-01", "SD-02")
def test_a_deleted_run_is_shown_by_its_number_and_restored(desk: Cli) -> None:
    run = triggered(desk, "nap", "1h", "--key", "n")
    assert "would be deleted" in desk("delete", "n", "--dry-run").out
    assert "can be restored until it is pruned" in desk("delete", "n", "--reason", "a mistake").out
    assert desk("runs", "--json").json["runs"] == []
    assert [one["id"] for one in desk("runs", "--deleted", "--json").json["runs"]] == [run]
    assert "why    it was deleted: a mistake" in desk("show", run).out
    assert "there is no run" in desk("cancel", run, code=3).error
    assert "is back as it was" in desk("restore", "n").out
    assert status(desk, run) == "PENDING"
    assert desk("restore", run, "--json", code=4).json == [{"run": run, "restored": False}]


def test_a_key_that_was_taken_keeps_a_run_deleted(desk: Cli) -> None:
    first = triggered(desk, "nap", "1h", "--key", "n")
    desk("delete", first)
    second = triggered(desk, "nap", "1h", "--key", "n", serve=False)
    refused = desk("restore", "n", code=4)
    assert "belongs to task" in refused.error
    assert f"try:   stepwell show {second}" in refused.error


@pytest.fixture
def three(desk: Cli) -> list[int]:
    return [triggered(desk, "nap", "1h", "--tag", "nightly", serve=False) for _ in range(3)]


@pytest.mark.proves("L-11")
def test_cancel_counts_asks_and_cancels(desk: Cli, three: list[int]) -> None:
    kept = triggered(desk, "nap", "2h", serve=False)
    planned = desk("cancel", "--workflow", "nap", "--tag", "nightly", "--dry-run")
    assert "3 runs would be cancelled" in planned.out
    refused = desk("cancel", "--tag", "nightly", code=4)
    assert "Cancel 3 runs? Nothing was done" in refused.error
    assert statuses(desk) == {"PENDING": 4}
    assert desk("cancel", "--tag", "nightly", "--limit", "1", "--yes", "--json").json == {
        "count": 1,
        "dry_run": False,
    }
    done = desk("cancel", "--workflow", "nap", "--tag", "nightly", "--status", "pending", "--since", "1h", "--yes")
    assert "2 runs are cancelled" in done.out
    assert "next: stepwell runs --status cancelled" in done.out
    assert statuses(desk) == {"PENDING": 1, "CANCELLED": 3}
    assert status(desk, kept) == "PENDING"
    assert desk("cancel", "--all", "--yes", "--json").json["count"] == 1
    assert desk("cancel", "--status", "pending", "--dry-run", "--json").json == {"count": 0, "dry_run": True}


def test_delete_and_retry(desk: Cli, three: list[int]) -> None:
    triggered(desk, "buy", "pin")
    assert "1 run is queued again; what other steps recorded is kept" in desk("retry", "--all", "--yes").out
    desk.serve()
    assert desk("delete", "--status", "failed", "--yes", "--json").json["count"] == 1
    assert desk("retry", "--workflow", "buy", "--yes", "--json").json["count"] == 0
    assert statuses(desk) == {"PENDING": 3}


def test_cancelled_runs_go_on_if_they_are_asked_for(desk: Cli, three: list[int]) -> None:
    assert desk("cancel", "--all", "--yes", "--json").json["count"] == 3
    assert desk("retry", "--all", "--yes", "--json").json["count"] == 0
    assert desk("retry", "--status", "cancelled", "--dry-run", "--json").json["count"] == 3
    assert desk("retry", "--status", "cancelled", "--yes", "--json").json["count"] == 3
    assert statuses(desk) == {"PENDING": 3}


def test_headers_are_given_and_shown(desk: Cli) -> None:
    given = ("--header", "tenant=acme", "--header", "trace=a=b")
    run = desk("trigger", "nap", "1h", *given, "--run-timeout", "2h", "--json").json["run"]
    assert "headers tenant=acme, trace=a=b" in desk("show", str(run)).out
    desk("signal", str(run), "go", *given)
    assert desk("signals", str(run), "--json").json["signals"][0]["headers"] == {"tenant": "acme", "trace": "a=b"}
    assert "'tenant' is no NAME=VALUE" in desk("trigger", "nap", "1h", "--header", "tenant", code=2).error


def test_runs_are_changed_by_the_words_that_the_list_prints(desk: Cli, three: list[int]) -> None:
    """The list calls a run that has not begun queued and one that sleeps waiting; both are PENDING."""
    asleep = triggered(desk, "nap", "1h", "--tag", "other", serve=False)
    desk.serve()
    queued = triggered(desk, "buy", "pin", serve=False)
    assert desk("cancel", "--status", "queued", "--dry-run", "--json").json == {"count": 1, "dry_run": True}
    refused = desk("cancel", "--status", "waiting", "--tag", "other", code=4)
    assert "Cancel 1 run? Nothing was done" in refused.error
    assert "1 run is cancelled" in desk("cancel", "--status", "waiting", "--tag", "other", "--yes").out
    assert (status(desk, asleep), status(desk, queued)) == ("CANCELLED", "PENDING")
    assert statuses(desk) == {"PENDING": 4, "CANCELLED": 1}
    desk.serve()
    assert desk("retry", "--status", "ERROR", "--dry-run", "--json").json["count"] == 1
    assert desk("delete", "--status", "Waiting", "--limit", "2", "--yes", "--json").json == {
        "count": 2,
        "dry_run": False,
    }
    assert desk("delete", "--status", "error", "--yes", "--json").json["count"] == 1
    assert statuses(desk) == {"PENDING": 1, "CANCELLED": 1}


def test_names_from_standard_input(desk: Cli, three: list[int]) -> None:
    ids = desk("runs", "--tag", "nightly", "--ids").out
    assert desk("cancel", "-", "--dry-run", given=ids).out.count("would be cancelled") == 3
    assert len(desk("cancel", "-", "--json", given=ids).json) == 3
    assert statuses(desk) == {"CANCELLED": 3}


def statuses(cli: Cli) -> dict[str, int]:
    found: list[dict[str, Any]] = cli("runs", "--json").json["runs"]
    words = [str(one["status"]) for one in found]
    return {word: words.count(word) for word in words}
