"""The worker processes of the demo. None of them outlives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self


class Crew:
    """Worker processes; all of them are gone at the end of the `with` block."""

    def __init__(self, books: Path, complaints: Path) -> None:
        self._books = books
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
    def alive(self) -> list[int]:
        """Those who have not ended."""
        return [pid for pid, process in self._members.items() if process.poll() is None]

    def start(self, urls: Sequence[str], *, pace: float = 0.0, dies: str | None = None) -> int:
        """Start a process with a worker for each of the stores; returns its process id."""
        settings = {"urls": list(urls), "books": str(self._books), "pace": pace, "dies": dies}
        command = [sys.executable, "-P", "-m", "stepwell.cli.demo.shop", json.dumps(settings)]
        with self._complaints.open("ab") as complaints:
            process = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
                command,
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

    def has_ended(self, pid: int) -> bool:
        """True if the process is gone."""
        return self._members[pid].poll() is not None

    def ending_of(self, pid: int) -> int | None:
        """How a process ended: the signal that killed it, negative, or its exit code; None while it lives."""
        return self._members[pid].poll()

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
