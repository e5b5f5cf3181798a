"""The worker processes of the demo. None of them outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self


class Crew:
    """Worker processes; all of them are gone at the end of the `with` block."""

    def __init__(self, url: str, books: Path, complaints: Path) -> None:
        self._command = [sys.executable, "-P", "-m", "stepwell.cli.demo.shop", url, str(books)]
        # They import what this process imported, not what lies in the folder the demo was started in.
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._complaints = complaints
        self._members: dict[int, subprocess.Popen[bytes]] = {}
        self.killed: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._members.values():
            process.kill()
        for process in self._members.values():
            process.communicate()

    @property
    def pids(self) -> list[int]:
        """Everyone who ever was in the crew, in order."""
        return list(self._members)

    @property
    def alive(self) -> list[int]:
        """Those who have not ended."""
        return [pid for pid, process in self._members.items() if process.poll() is None]

    @property
    def fallen(self) -> list[int]:
        """Those who ended although nobody killed them."""
        return [pid for pid in self._members if pid not in self.alive and pid not in self.killed]

    def start(self) -> int:
        """Start one more; returns its process id."""
        with self._complaints.open("ab") as complaints:
            process = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
                self._command,
                stdin=subprocess.PIPE,  # held open: its end tells them of ours
                stdout=complaints,
                stderr=complaints,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is ours to answer
            )
        self._members[process.pid] = process
        return process.pid

    def kill(self, pid: int) -> None:
        """`kill -9`, and wait until it is dead."""
        self.killed.append(pid)
        self._members[pid].kill()
        self._members[pid].wait()

    def stop(self, patience: float = 5) -> None:
        """Ask all to end, and wait for it; who does not is killed at the end of the block."""
        alive = [self._members[pid] for pid in self.alive]
        for process in alive:
            process.terminate()
        for process in alive:
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                return

    def complaints(self) -> str:
        """The end of what they wrote to their standard error."""
        return self._complaints.read_text(errors="replace")[-2000:] if self._complaints.exists() else ""
