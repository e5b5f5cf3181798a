"""When a helper beats, when it does not, and when it gives a worker up; and what its lines mean to it."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell.store import helper_process as helper
from stepwell.store.helper_process import BEAT, BLOCKED, END, HUNG, QUIET, SIGN, Helper, Silence

LEASE, LIMIT = 3.0, 60.0  # a beat every second


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Silence:
    monkeypatch.setattr(helper, "LINUX", True)
    return Silence(LEASE, LIMIT, 0.0)


@pytest.mark.proves("rule-11")
def test_it_is_silent_while_the_worker_beats(silence: Silence) -> None:
    for second in range(1, 200):
        assert silence.judge(second + 0.1, stopped=False) == QUIET
        silence.sign(second + 0.1)


@pytest.mark.proves("rule-11")
def test_a_late_worker_is_beaten_for_as_often_as_it_would_itself(silence: Silence) -> None:
    verdicts = [silence.judge(tenth / 10, stopped=False) for tenth in range(1, 100)]
    beats = [tenth / 10 for tenth, verdict in enumerate(verdicts, 1) if verdict == BEAT]
    assert beats == pytest.approx([1.2 + n for n in range(9)], abs=0.11 * 9)
    assert len(beats) in (8, 9)


@pytest.mark.proves("L-05")
def test_after_its_limit_it_is_given_up_until_it_gives_a_sign(silence: Silence) -> None:
    assert [silence.judge(float(second), stopped=False) for second in range(2, 60)] == [BEAT] * 58
    assert [silence.judge(float(second), stopped=False) for second in range(60, 63)] == [HUNG] * 3
    silence.sign(63.0)
    assert silence.judge(63.5, stopped=False) == QUIET


@pytest.mark.proves("L-05")
def test_a_stopped_worker_is_not_busy_and_its_time_is_no_silence(silence: Silence) -> None:
    assert {silence.judge(float(second), stopped=True) for second in range(2, 300)} == {QUIET}
    assert silence.judge(301.0, stopped=False) == BEAT, "it goes on: not hung, although it was silent for five minutes"


def test_a_helper_that_was_stopped_itself_accuses_nobody(silence: Silence) -> None:
    assert silence.judge(500.0, stopped=False) == BEAT


def test_where_nobody_sees_that_a_worker_is_stopped_it_is_helped_for_one_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "LINUX", False)
    silence = Silence(LEASE, LIMIT, 0.0)
    assert [silence.judge(second, stopped=False) for second in (1.3, 2.4, 3.1)] == [BEAT, BEAT, HUNG]


@pytest.mark.parametrize("now", [0.0, 0.5, 1.2, 1.7, 5.0, 59.9, 70.0])
def test_it_never_waits_for_longer_than_a_beat_nor_spins(silence: Silence, now: float) -> None:
    silence.judge(now, stopped=False)
    assert 0.01 <= silence.pause(now) <= 1.3


class Line:
    """A helper at the end of a pipe, with a database that notes what it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read, self.write = os.pipe()
        self.gone, self.ending = os.pipe()
        self.ran: list[Any] = []
        self.hung: list[float] = []
        monkeypatch.setattr(helper, "SQLite", lambda _: self)
        self.helper = Helper(os.getpid(), self.read, self.gone, hung=self.hung.append)

    def run(self, statements: list[Any], within: float) -> None:
        self.ran += statements

    def close(self) -> None:
        """Nothing is open."""

    def say(self, *lines: bytes | dict[str, Any]) -> None:
        words = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        os.write(self.write, b"".join(word + b"\n" for word in words))


PLACE: dict[str, Any] = {"kind": "sqlite", "address": "", "lock": None, "path": []}
PLACE |= {"lease": 0.3, "longest_lease": 0.3, "hang_after": 60.0}
SESSION = {"beat": [["beat", {}]], "gone": [["gone", {}]], "sessions": 1}


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    line = Line(monkeypatch)
    yield line
    for descriptor in (line.read, line.write, line.gone, line.ending):
        with contextlib.suppress(OSError):
            os.close(descriptor)


@pytest.mark.proves("L-03")
def test_gone_is_noted_for_the_sessions_there_are(line: Line) -> None:
    line.say({"place": PLACE}, SESSION, SIGN)
    os.close(line.ending)
    line.helper.watch()
    assert line.ran == [["gone", {}]]


def test_gone_is_not_noted_when_the_last_session_had_ended(line: Line) -> None:
    line.say({"place": PLACE}, SESSION, {"beat": [], "gone": [], "sessions": 0})
    os.close(line.ending)
    line.helper.watch()
    assert (line.ran, line.helper.begun) == ([], True)


def test_the_last_word_ends_it(line: Line) -> None:
    line.say({"place": PLACE}, SESSION, END)
    line.helper.watch()
    assert line.ran == []


@pytest.mark.proves("L-05")
def test_a_blocked_loop_is_given_up_at_once(line: Line) -> None:
    line.say({"place": PLACE}, SESSION, BLOCKED, BLOCKED)
    os.close(line.ending)
    line.helper.watch()
    assert line.hung == [60.0]


def test_the_end_of_the_lines_is_no_proof(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "LAST_LINE", 0.05)
    line.say({"place": PLACE}, SESSION)
    os.close(line.write)
    line.helper.watch()
    assert [one for one in line.ran if one[0] == "gone"] == []


def test_this_process_is_not_stopped_and_one_that_is_not_there_is() -> None:
    assert not helper.is_stopped(os.getpid())
    assert helper.is_stopped(2**22 + 1)


@pytest.mark.proves("L-05")
@pytest.mark.parametrize(
    ("executable", "frozen", "can"),
    [
        ("/usr/bin/python3", False, True),
        ("/Library/Frameworks/Python", False, True),
        ("/usr/bin/uwsgi", False, False),
        ("", False, False),
        (None, False, False),
        ("/opt/shop/python-shop", True, False),
    ],
)
def test_only_a_python_can_start_another(
    monkeypatch: pytest.MonkeyPatch, executable: str | None, frozen: bool, can: bool
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    assert helper.can_start() is can
