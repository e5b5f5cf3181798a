"""The outside world of the demo: one service for stock, cards, parcels and mail, with its own record in one file.

It does not use stepwell. Like every good payment service it honours idempotency keys: a second request with the
same key gets the same answer and does nothing. The result of the demo is read from this file.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the service wrote it down; `done` is False if it had been done before under this key."""

    order: str
    act: str
    pid: int
    done: bool


class OutsideService:
    """The service. Any process may call it; requests are served one at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def do(self, order: str, act: str) -> bool:
        """Do it, unless it was done for this order before; True if it was done now."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # freed by the kernel, should the caller be killed right here
            done = not self.books().times(order)[act]
            line = {"order": order, "act": act, "pid": os.getpid(), "done": done}
            os.write(file, json.dumps(line).encode() + b"\n")
        finally:
            os.close(file)
        return done

    def books(self) -> Books:
        """What it has written down so far."""
        if not self._path.exists():
            return Books(())
        return Books(tuple(Request(**json.loads(line)) for line in self._path.read_text().splitlines()))


@dataclass(frozen=True, slots=True)
class Books:
    """The service's file, read."""

    requests: tuple[Request, ...]

    def times(self, order: str) -> Counter[str]:
        """How often each act was really done for an order."""
        return Counter(one.act for one in self.requests if one.order == order and one.done)

    def asked(self, order: str) -> Counter[str]:
        """How often each act was asked for."""
        return Counter(one.act for one in self.requests if one.order == order)

    def by(self, order: str, act: str) -> list[int]:
        """The processes that asked for it, in order."""
        return [one.pid for one in self.requests if one.order == order and one.act == act]
