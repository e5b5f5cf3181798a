"""The process above the workers of `stepwell worker`: it starts them, helps them, and restarts one that crashed.

It does not import the application, so nothing that the application does can stop this process. It beats for a worker
whose interpreter is held, records at once when one is gone (`store/helper_process.py`), passes signals on, and reaps
ended processes, as the first process of a container has to. When it ends, its workers end too.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

from stepwell.store.helper_process import Helper

VARIABLE: Final = "STEPWELL_SUPERVISOR"  # in the environment of a worker: the pid of its supervisor, and the pipe to it
PARENT: Final = "STEPWELL_PARENT"  # in the environment of a command that ends with its parent process
FIRST_PAUSE: Final = 0.1  # seconds before a crashed worker is restarted; doubled each time, ...
LONGEST_PAUSE: Final = 5.0
LIVED_WELL: Final = 60.0  # ... and reset after a worker has lived this long
MOST_FAILURES: Final = 5  # consecutive failed starts before the supervisor ends too
ABORT_WITHIN: Final = 10.0  # seconds for a hung worker to write its stack
LAST_NOTE: Final = 10.0  # seconds for recording that a worker is gone, when this process ends
PASSED_ON: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
ENDING: Final = (signal.SIGTERM, signal.SIGINT)
SET_PDEATHSIG: Final = 1  # of Linux's prctl


@dataclass(frozen=True, slots=True)
class Above:
    """The supervisor of this worker process: the pipe to it, and the index of this worker."""

    pipe: int
    number: int

    @classmethod
    def found(cls) -> Self | None:
        """The supervisor of this process, if it has one; removes it from the environment of child processes."""
        said = os.environ.pop(VARIABLE, "")
        if not said:
            return None
        pid, pipe, number = map(int, said.split(":"))
        end_with(pid)
        os.set_inheritable(pipe, False)
        return cls(pipe, number)


def end_with(pid: int) -> None:
    """Let the kernel send SIGTERM to this process when its parent, with this pid, ends; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != pid:  # it has ended already
        os.kill(os.getpid(), signal.SIGTERM)


def supervise(processes: int) -> int:
    """Run the command of this process in this number of worker processes; return the exit code."""
    from stepwell.base.compat import interpreter_flags

    return Supervisor([sys.executable, *interpreter_flags(), "-m", "stepwell", *sys.argv[1:]], processes).run()


@dataclass(eq=False, slots=True)
class WorkerProcess:
    """One worker process, and its helper."""

    number: int
    process: subprocess.Popen[bytes]
    helper: Helper
    ending: int  # closed when it has ended
    started_at: float
    heard: threading.Event  # all its messages have been read
    watch: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.watch = threading.Thread(target=self.helper.watch, name=f"stepwell-helper-{self.number}", daemon=True)
        self.watch.start()

    def ended(self, code: int) -> None:
        """The process has ended; when this returns, all its messages have been read."""
        self.process.returncode = code  # so that `Popen` does not wait for it again
        os.close(self.ending)
        self.heard.wait(LAST_NOTE)

    @property
    def by_its_own_wish(self) -> bool:
        """Whether its sessions were ended in order."""
        return self.helper.begun and not self.helper.sessions


class Supervisor:
    """Runs a command in child processes until they have ended by themselves or are told to end."""

    def __init__(self, command: Sequence[str], processes: int) -> None:
        self._command = command
        self._processes = processes
        self._events: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        self._children: dict[int, WorkerProcess] = {}
        self._watches: list[threading.Thread] = []
        self._pauses = [FIRST_PAUSE] * processes
        self._failures = [0] * processes
        self._waiting = 0  # for their restart
        self._passed_on: set[int] = set()
        self._ending = False
        self._code = 0

    def run(self) -> int:
        """Start the workers and look after them; returns the exit code of this process."""
        with self._signals():
            for number in range(self._processes):
                self._start(number)
            while self._children or (self._waiting and not self._ending):
                self._next()()
            for watch in self._watches:
                watch.join(LAST_NOTE)
        return self._code

    def _next(self) -> Callable[[], object]:
        """Wait for the next thing to do."""
        until = self._timers[0][0] - time.monotonic() if self._timers else None
        try:
            return self._events.get(timeout=None if until is None else max(0.0, until))
        except queue.Empty:
            return heapq.heappop(self._timers)[2]

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._count), action))

    def _start(self, number: int) -> None:
        lines, pipe = os.pipe()
        gone, ending = os.pipe()
        said = {VARIABLE: f"{os.getpid()}:{pipe}:{number}"}
        # In its own session: this process passes Ctrl-C on, once. From the main thread, as `end_with` requires.
        process = subprocess.Popen(  # noqa: S603 - the command of this very process, no shell
            self._command, pass_fds=[pipe], env={**os.environ, **said}, start_new_session=True
        )
        os.close(pipe)
        heard = threading.Event()

        def hung(seconds: float) -> None:
            self._events.put(lambda: self._abort(process.pid, seconds))

        def leaving() -> None:
            os.close(lines)
            os.close(gone)
            heard.set()

        helper = Helper(process.pid, lines, gone, hung=hung, leaving=leaving, stays=True)
        child = WorkerProcess(number, process, helper, ending, time.monotonic(), heard)
        self._children[process.pid] = child
        self._watches = [watch for watch in self._watches if watch.is_alive()] + [child.watch]

    def _reap(self) -> None:
        """Reap all processes that have ended, also those that were reparented to this one."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if (child := self._children.pop(pid, None)) is not None:
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: WorkerProcess, code: int) -> None:
        child.ended(code)
        shown = code if code >= 0 else 128 - code
        if self._ending:
            # It got the signal before it could handle it: nothing was under way.
            self._code = self._code or (0 if -code in self._passed_on and not child.helper.begun else shown)
        elif child.by_its_own_wish and code == 0:
            self._end(0)
        elif -code in self._passed_on or (not child.helper.begun and self._has_failed(child.number)):
            self._end(shown)
        else:
            self._start_anew(child, code)

    def _has_failed(self, number: int) -> bool:
        """True if the first start failed, or too many later ones: another try would not help."""
        first = self._pauses[number] == FIRST_PAUSE and not self._failures[number]
        self._failures[number] += 1
        return first or self._failures[number] >= MOST_FAILURES

    def _start_anew(self, child: WorkerProcess, code: int) -> None:
        number = child.number
        if child.helper.begun:
            self._failures[number] = 0
        if time.monotonic() - child.started_at > LIVED_WELL:
            self._pauses[number] = FIRST_PAUSE
        pause, self._pauses[number] = self._pauses[number], min(LONGEST_PAUSE, 2 * self._pauses[number])
        how = f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.Signals(-code).name})"
        _say(f"the worker (pid {child.process.pid}) ended with {how}; another is started in {pause:g} s")
        self._waiting += 1
        self._later(pause, lambda: self._begin_anew(number))

    def _begin_anew(self, number: int) -> None:
        self._waiting -= 1
        if not self._ending:
            self._start(number)

    def _abort(self, pid: int, seconds: float) -> None:
        if pid in self._children:
            _say(f"the worker (pid {pid}) has given no sign of life for {seconds:g} s: it is aborted")
            self._pass_on(signal.SIGABRT, [pid])
            self._later(ABORT_WITHIN, lambda: self._pass_on(signal.SIGKILL, [pid]))

    def _end(self, code: int) -> None:
        """End, with this exit code, when all workers have ended."""
        self._code, self._ending = code, True
        self._pass_on(signal.SIGTERM, tuple(self._children))

    def _told(self, number: int) -> None:
        """A signal came: pass it on to the workers."""
        self._passed_on.add(number)
        self._ending = self._ending or number in ENDING
        self._pass_on(number, tuple(self._children))

    def _pass_on(self, number: int, pids: Sequence[int]) -> None:
        for pid in pids:
            if pid in self._children:  # not reaped: the pid is still valid
                os.kill(pid, number)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def caught(number: int, _: Any) -> None:
            self._events.put(self._reap if number == signal.SIGCHLD else lambda: self._told(number))

        known = [getattr(signal, name) for name in PASSED_ON if hasattr(signal, name)]
        wanted = [one for one in known if one in ENDING or signal.getsignal(one) is not signal.SIG_IGN]
        before = {number: signal.signal(number, caught) for number in (*wanted, signal.SIGCHLD)}
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)


def _say(words: str) -> None:
    logging.getLogger("stepwell").warning(words)
