"""In a real terminal: Ctrl-C ends whatever a command is at, and says what that means; sentences fit its width."""

import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from stepwell.cli.output import fold
from tests.cli.kit import Cli
from tests.ground.waiting import wait_for


class Terminal:
    """A command in a terminal of its own; Ctrl-C is pressed when it shows what is waited for."""

    def __init__(self, url: str | None, *words: str, columns: int = 120) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(self._ours, (24, columns))
        environment = {
            **os.environ,
            "STEPWELL_URL": str(url),
            "TERM": "xterm",
            "COLUMNS": f"{columns}",
            "NO_COLOR": "1",
        }
        environment["PYTHONIOENCODING"] = "utf-8"
        command = [sys.executable, "-m", "stepwell", *words]
        self._process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        self.shown = ""

    def ended(self) -> int:
        """The exit code of a command that ends by itself; all that was shown is in `shown`."""
        return self._all_of(self._process.wait(20))

    def interrupted_at(self, what: str) -> int:
        """The exit code after Ctrl-C at the moment when this is shown; all that was shown is in `shown`."""
        while what not in self.shown:
            self.shown += os.read(self._ours, 4096).decode(errors="replace")
        wait_for(self._is_waiting, 20, message="it waits for a key, or for time")
        self._process.send_signal(signal.SIGINT)
        return self._all_of(self._process.wait(20))

    def _all_of(self, code: int) -> int:
        """Read what is left to read; the exit code."""
        try:
            while more := os.read(self._ours, 4096):
                self.shown += more.decode(errors="replace")
        except OSError:
            pass  # the other end is closed, and all is read
        os.close(self._ours)
        return code

    def _is_waiting(self) -> bool:
        """True if its main thread sleeps: `input` misses a signal that comes between its question and its wait."""
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_question_can_be_left(desk: Cli) -> None:
    desk("trigger", "nap", "1h")
    terminal = Terminal(desk.url, "cancel", "--all")
    assert terminal.interrupted_at("Cancel 1 run? [y/N]") == 130
    assert "nothing was done" in terminal.shown
    assert [run["status"] for run in desk("runs", "--json").json["runs"]] == ["PENDING"]


@pytest.mark.parametrize("words", [("show", "@last", "-f"), ("trigger", "nap", "1h", "--wait")], ids=" ".join)
def test_a_run_that_is_no_longer_watched_is_left_alone_and_in_sight(desk: Cli, words: tuple[str, ...]) -> None:
    desk("trigger", "nap", "1h")
    terminal = Terminal(desk.url, *words)
    assert terminal.interrupted_at("no step is recorded yet") == 130
    after = terminal.shown.rpartition("no step is recorded yet")[2]
    assert "itself goes on" in after
    assert "Traceback" not in terminal.shown
    assert "\x1b[2K" not in after, "what was drawn last stays"
    assert {run["status"] for run in desk("runs", "--json").json["runs"]} == {"PENDING"}


def test_the_demo_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    terminal = Terminal(None, "demo")
    assert terminal.interrupted_at("order-1 is triggered") == 130
    assert "interrupted: the workers are killed" in terminal.shown
    assert list(tmp_path.iterdir()) == []


def test_sentences_are_broken_between_words_where_the_terminal_ends(desk: Cli) -> None:
    """And commands are not: they are copied."""
    app = "tests.cli.nowhere_that_has_a_name_of_some_length"
    terminal = Terminal(desk.url, "trigger", "nap", "1h", "--app", app, columns=60)
    assert terminal.ended() != 0
    [first, second, *_] = terminal.shown.splitlines()
    assert first.startswith("error: ")
    assert len(first) <= 60
    assert second.startswith("       ")


@pytest.mark.parametrize("words", ["metrics", "top --once", "limit show nap"])
def test_what_is_shown_fits_a_terminal_of_80_columns(desk: Cli, words: str) -> None:
    """Nor does anything seem to be cut that is whole."""
    desk("limit", "set", "nap", "rate=10/1s burst 2", "key_rate=50/1m burst 7", "key=span", "cost=what_it_takes")
    desk("trigger", "nap", "1ms", "--key", "a key of more than twenty letters")
    desk.work()
    terminal = Terminal(desk.url, *words.split(), columns=80)
    assert terminal.ended() == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.shown)
    assert [line for line in plain.splitlines() if len(line) > 80] == []
    assert "ago…" not in plain


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("error: it fits", ["error: it fits"]),
        ("error: one two three four", ["error: one two", "       three", "       four"]),
        ("error: /a/path/that/is/long it", ["error: /a/path/that/is/long", "       it"]),
        ("\x1b[32m!\x1b[0m data  one two", ["\x1b[32m!\x1b[0m data  one", "       two"]),
    ],
)
def test_a_line_is_folded(text: str, lines: list[str]) -> None:
    assert fold(text, 14, 7) == lines
