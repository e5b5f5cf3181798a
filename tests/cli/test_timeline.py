"""The picture of a run: bars where something executed or waited, and what is not recorded is said."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from stepwell.base.durations import microseconds_of
from stepwell.cli import output as patience
from stepwell.cli.command import Invocation
from stepwell.cli.output import drawable
from stepwell.cli.parse import fitted, parsed
from stepwell.cli.timeline import lines_of
from stepwell.operate.format import STATUS_WORDS, ago, plain, short, span
from stepwell.operate.run_view import WIDTH, ChildRun, Mark, RunView, mark_of
from stepwell.operate.status import word_of
from stepwell.records import Run, RunId, RunStatus, StepInfo
from stepwell.store.progress import tell_done
from stepwell.store.why import Reason, Why

BEGAN = datetime.now(UTC) - timedelta(days=3)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def a_run(status: RunStatus = RunStatus.SUCCESS, took: float | None = 10, **changes: Any) -> Run[Any]:
    texts = {"input_text": "null", "output_text": "null", "error_text": None}
    whole: dict[str, Any] = {
        **dict.fromkeys(Run.__slots__),
        **texts,
        "id": RunId(7),
        "workflow": "fulfil",
        "key": "order-7",
        "status": status,
        "attempt": 1,
        "max_attempts": 3,
        "tags": (),
        "run_at": BEGAN,
        "created_at": BEGAN,
        "started_at": BEGAN,
        "finished_at": None if took is None else at(took),
    }
    return Run(**{**whole, **changes})


def a_step(key: str, begin: float, end: float | None, **changes: Any) -> StepInfo:
    fields: dict[str, Any] = {
        "key": key,
        "name": key.partition("#")[0],
        "status": RunStatus.SUCCESS if end is not None else RunStatus.RUNNING,
        "attempt": 1,
        "input": None,
        "output": None,
        "error": None,
        "started_at": at(begin),
        "finished_at": None if end is None else at(end),
    }
    return StepInfo(**{**fields, **changes})


def bar(line: str) -> str:
    return line[line.index("│") + 1 : line.rindex("│")]


def test_bars_stand_where_things_happened() -> None:
    lines = lines_of(RunView(a_run(), [a_step("first#1", 0, 5), a_step("second#1", 5, 10)]))
    first, second = (bar(line) for line in lines if "│" in line)
    assert len(first) == len(second) == WIDTH
    assert first.rstrip() == "█" * (WIDTH // 2 + 1)
    assert second.strip() == "█" * (WIDTH // 2)


def test_the_scale_is_narrower_beside_long_names_so_that_a_line_has_80_columns() -> None:
    steps = [a_step("a_step_with_a_name_of_28_let#1", 0, 5, attempt=12), a_step("b#1", 5, 10)]
    first, second = (line for line in lines_of(RunView(a_run(), steps)) if "│" in line)
    assert len(first) == len(second) == 80
    assert bar(first).rstrip() == "█" * (len(bar(first)) // 2 + 1)
    assert bar(second).rstrip().endswith("█")


def test_a_long_time_without_work_is_folded_and_said() -> None:
    week = 7 * 86_400.0
    output = microseconds_of(timedelta(seconds=(at(5 + week) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()), "x")
    steps = [a_step("a#1", 0, 5), a_step("sleep#1", 5, 5, output=output), a_step("b#1", 5 + week, 10 + week)]
    lines = lines_of(RunView(a_run(took=10 + week), steps))
    bars = [bar(line) for line in lines if "│" in line]
    assert bars[0].count("█") > WIDTH / 3
    assert bars[2].count("█") > WIDTH / 3
    assert 0 < bars[1].count("░") < WIDTH / 3
    assert any("7 d in which nothing executed are folded" in line for line in lines)
    assert "7 d asleep" in "\n".join(lines)


def test_what_took_no_time_stands_at_the_edge_of_a_long_sleep() -> None:
    output = microseconds_of(timedelta(seconds=(at(3) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()), "x")
    steps = [a_step("a#1", 0.005, 0.006), a_step("sleep#1", 0.006, 0.006, output=output)]
    first, asleep = (bar(line) for line in lines_of(RunView(a_run(took=3), steps)) if "│" in line)
    assert first.index("█") < WIDTH / 10
    assert asleep.count("░") > WIDTH * 0.9


def test_a_running_step_reaches_the_edge() -> None:
    [line] = [
        line for line in lines_of(RunView(a_run(RunStatus.RUNNING, None), [a_step("a#1", 0, None)])) if "│" in line
    ]
    assert bar(line) == "█" * WIDTH
    assert "◐ a#1" in line


def test_lost_attempts_are_said_and_not_drawn() -> None:
    told = "\n".join(lines_of(RunView(a_run(attempt=2, last_error="worker_lost"), [a_step("a#1", 0, 1, attempt=2)])))
    assert "1 earlier attempt(s) of the run ended because its worker was lost; when is not recorded" in told
    assert "of a step's attempts only the last is recorded" in told


def test_a_run_without_steps_says_so() -> None:
    assert "  no step is recorded yet" in lines_of(RunView(a_run(RunStatus.PENDING, None, started_at=None)))


def test_the_error_is_that_of_the_step_with_the_users_own_line() -> None:
    ours, theirs = '  File "/x/stepwell/engine/steps.py", line 1, in f', '  File "/app/shop.py", line 41, in ship'
    traceback = f"Oops: no\n{ours}\n    x\n{theirs}\n    go()\n"
    error = {"type": "Oops", "message": "no", "traceback": traceback}
    failed = a_step("ship#1", 0, 1, status=RunStatus.ERROR, error=error, attempt=3)
    ended = a_run(RunStatus.ERROR, error_text=json.dumps({"type": "StepFailed", "message": "m"}))
    told = lines_of(RunView(ended, [failed]))
    assert "✕ ship#1, attempt 3: Oops: no" in told
    assert '  File "/app/shop.py", line 41, in ship' in told
    assert "    go()" in told
    assert not any("steps.py" in line for line in told)


def test_a_wait_is_shaded_to_the_edge_and_says_what_it_waits_for() -> None:
    paused: dict[str, Any] = {"status": RunStatus.PAUSED}
    aside = {"type": "Paused", "message": "m", "resume_condition": None}
    steps = [
        a_step("approved#1", 0, None, **paused),
        a_step("results()#1", 0, None, **paused, output={"ids": [1]}),
        a_step("approval#1", 0, None, **paused, error=aside),
        a_step("payment#1", 0, None, **paused, error={**aside, "resume_condition": "account-covers"}),
    ]
    lines = [line for line in lines_of(RunView(a_run(RunStatus.PAUSED, None), steps)) if "│" in line]
    assert {bar(line) for line in lines} == {"░" * len(bar(lines[0]))}
    said = ("waits for a signal", "waits for runs", "waits for a resume", "waits for account-covers, or a resume")
    assert all(f"{what}, for 3 d" in line for line, what in zip(lines, said, strict=True))


def test_of_a_wait_that_is_over_its_end_is_drawn_and_no_length_is_made_up() -> None:
    late = {"type": "Timeout", "message": "no signal"}
    lines = lines_of(
        RunView(a_run(), [a_step("a#1", 0, 5), a_step("approved#1", 10, 10), a_step("b#1", 10, 10, error=late)])
    )
    assert any(line.startswith("  ✓ approved#1") and line.endswith("░│") for line in lines)
    assert "nothing came in time" in "\n".join(lines)
    assert "note: of a wait only its end is recorded" in lines


def test_after_a_retry_all_of_it_is_summed_up_from_its_first_beginning() -> None:
    steps = [a_step("a#1", 0, 5), a_step("b#1", 8, 9)]
    marks = [Mark(at(6), "failed"), Mark(at(7), "retried")]
    again = a_run(started_at=at(8))
    lines = lines_of(RunView(again, steps, marks=marks))
    assert "took 10 s" in lines[0]
    assert "  ✕ after 6.0 s: failed" in lines
    assert "  · after 7.0 s: retried" in lines
    assert bar(next(line for line in lines if "a#1" in line)).startswith("█")
    assert not bar(next(line for line in lines if "b#1" in line)).startswith("█")


def test_a_step_that_a_retry_has_done_again_is_not_drawn_as_if_it_were_at_work() -> None:
    queued = a_run(RunStatus.PENDING, None, started_at=None)
    lines = lines_of(
        RunView(queued, [a_step("a#1", 0, 5), a_step("b#1", 5, None, status=RunStatus.PENDING, attempt=0)])
    )
    assert "  ◌ b#1  to be done again" in lines


def test_the_runs_it_asked_for_stand_below_it_as_a_tree() -> None:
    child = ChildRun(
        a_run(id=RunId(8), key="a"), [ChildRun(a_run(RunStatus.ERROR, id=RunId(9), last_error="Oops: no"))], True
    )
    lines = lines_of(RunView(a_run(), [], None, [child]))
    at = lines.index("runs it asked for")
    assert lines[at + 1] == "  ✓ succeeded  fulfil a  run 8  10 s"
    assert lines[at + 2] == "      … and more: stepwell runs --parent 8"
    assert lines[at + 3] == "      ✕ failed  fulfil order-7  run 9  10 s  Oops: no"


def test_where_it_came_from_how_far_it_is_and_why_it_waits() -> None:
    why = Why(Reason.WAITING_FOR_SIGNAL, "it waits for the signal approved", None, ("approved",))
    run = a_run(RunStatus.PAUSED, None, cause="fork of 3 at charge#1", progress_text='{"rows": 5}')
    told = "\n".join(lines_of(RunView(run, [], why)))
    assert "fork of 3 at charge#1" in told
    assert 'says   {"rows": 5}' in told
    assert "why    it waits for the signal approved" in told


def test_what_was_noted_is_drawn_and_said() -> None:
    notes = [
        noted("step failed", 2.5, "a#1: Busy: the bank", attempt=1),
        noted("worker lost", 7.5, "given back", worker=3),
        noted("signalled", 8, None),
    ]
    marks = [mark_of(one) for one in notes]
    assert marks[0] == Mark(at(2.5), "step failed", "a#1", "attempt 1, session 1, Busy: the bank")
    lines = lines_of(RunView(a_run(attempt=2), [a_step("a#1", 0, 10, attempt=2), a_step("b#1", 0, 10)], marks=marks))
    first, second = (bar(line) for line in lines if "│" in line)
    assert (first[WIDTH // 4], second[WIDTH // 4]) == ("✕", "█"), "in the bar of the step that failed"
    assert (first[3 * WIDTH // 4], second[3 * WIDTH // 4]) == ("╎", "╎"), "through all of them"
    assert "  ╎ after 7.5 s: worker lost (session 3, given back)" in lines
    assert "  ✕ after 2.5 s: a#1 step failed (attempt 1, session 1, Busy: the bank)" in lines
    assert not any("is recorded" in line or "not recorded" in line for line in lines), "nothing is missing then"


def test_of_many_notes_the_last_are_said() -> None:
    marks = [Mark(at(second), "retried") for second in range(20)]
    assert "  … 8 earlier" in lines_of(RunView(a_run(), marks=marks))


def noted(what: str, second: float, detail: str | None, *, worker: int = 1, attempt: int | None = None) -> Any:
    return SimpleNamespace(what=what, at=at(second), worker=worker, turn=1, attempt=attempt, detail=detail, actor=None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0002, "0.2 ms"), (0.04, "40 ms"), (1.23, "1.2 s"), (59, "59 s"), (90, "1.5 m"), (7200, "2.0 h"), (2e6, "23 d")],
)
def test_spans_have_the_unit_that_fits(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_moments_before_and_after_now() -> None:
    assert ago(datetime.now(UTC) - timedelta(hours=2)) == "2.0 h ago"
    assert ago(datetime.now(UTC) + timedelta(hours=2, seconds=1)) == "in 2.0 h"
    assert ago(None) == ""


def test_what_is_given_is_read_as_text_json_or_one_value() -> None:
    assert parsed(["a=1", "b:=[2]", "c=x=y"]) == ([], {"a": "1", "b": [2], "c": "x=y"})
    assert parsed(["1900"]) == ([1900], {})
    assert parsed(["ada@example.org"]) == (["ada@example.org"], {})
    assert parsed(["https://example.org/?a=b"]) == (["https://example.org/?a=b"], {})
    assert parsed([]) == ([], {})
    assert fitted({"n": "3", "s": "3", "d": "2026-01-01", "j": [1]}, {"n": int, "s": str, "d": datetime}) == {
        "n": 3,
        "s": "3",
        "d": "2026-01-01",
        "j": [1],
    }


async def test_long_work_is_told_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> int:
        await asyncio.sleep(0.001)
        tell_done(2)
        tell_done(3)
        await asyncio.sleep(0.001)
        return 7

    monkeypatch.setattr(patience, "APPEARS", 0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes what it writes to for a terminal
    assert await patience.patiently(Invocation(None, as_json=False), work(), "pruning") == 7
    assert capsys.readouterr().err == "", "not in a log"
    monkeypatch.setattr(patience, "is_lively", lambda _: True)
    assert await patience.patiently(Invocation(None, as_json=True), work(), "pruning") == 7
    assert capsys.readouterr().err == "", "not with --json"
    assert await patience.patiently(Invocation(None, as_json=False), work(), "pruning") == 7
    assert "5 done" in capsys.readouterr().err
    assert await patience.patiently(Invocation(None, as_json=False), work(), "pruning", 6) == 7
    assert "5 of 6" in capsys.readouterr().err


def test_values_as_json_and_as_letters() -> None:
    assert plain({"a": RunStatus.ERROR, "b": RunId(3), "c": (BEGAN,), "d": {1: object}})["a"] == "ERROR"
    assert short({"a": "x" * 100}, 20).endswith("…")
    assert drawable("✓ ◐ █ →", "ascii") == "ok * # ->"


@pytest.mark.parametrize("status", RunStatus)
@pytest.mark.parametrize("run_at", [None, BEGAN, datetime.now(UTC) + timedelta(days=3)], ids=["none", "past", "future"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"held_at": BEGAN},
        {"error_text": '{"type": "Paused"}'},
        {"last_error": "no"},
        {"cancel_requested_at": BEGAN},
    ],
    ids=["plain", "held", "step paused", "tried before", "cancelled"],
)
def test_every_word_for_a_status_can_be_asked_for(
    status: RunStatus, run_at: datetime | None, changes: dict[str, Any]
) -> None:
    """Each word that a list prints is one that `--status` takes, and it looks among the runs of that status."""
    run = a_run(status, None, run_at=run_at, **changes)
    _, word = word_of(run).split()
    assert status in STATUS_WORDS[word]
    assert status in STATUS_WORDS[status.lower()]
