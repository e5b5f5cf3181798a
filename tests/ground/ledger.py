"""The outside witness: a file of facts that knows nothing of the library it judges."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self


class Ledger:
    """An append-only file of JSON lines that any number of threads and processes may write to at once."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, *, durable: bool = False, **fields: Any) -> None:
        """Append one line in one system call; `pid` says who wrote it and `at` when, in seconds since boot."""
        line = json.dumps({"pid": os.getpid(), "at": _since_boot(), **fields}).encode() + b"\n"
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes of a ledger line were written to {self.path}")
        if durable:
            os.fsync(self._file)

    def read(self) -> list[dict[str, Any]]:
        """Return every whole line written so far, in the order of the file."""
        text = self.path.read_bytes()
        return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]

    def counts(self, by: str, **where: Any) -> Counter[Any]:
        """Count the lines per value of the field `by`, among those whose fields equal `where`."""
        lines = (line for line in self.read() if all(line.get(name) == value for name, value in where.items()))
        return Counter(line[by] for line in lines if by in line)

    def close(self) -> None:
        """Give the file back; closing twice is harmless."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _since_boot() -> float:
    """Return a clock that all processes of this machine share and that no one can set."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
