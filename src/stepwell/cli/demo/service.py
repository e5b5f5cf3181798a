"""The outside world of the demo: a service that charges cards and sends parcels, and keeps its own books in one file.

It knows nothing of stepwell. Like every good payment service it honours idempotency keys: asked a second time under the
same key, it answers as before and does nothing. The demo's verdict is read from this file.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Act = Literal["charge", "parcel"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the service wrote it down; `done` is False if it had been done before under this key."""

    act: Act
    key: str
    pid: int
    done: bool


class Service:
    """The service. Any process may call it; requests are served one at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def charge(self, cents: int, *, key: str) -> bool:
        """Charge the card unless it was charged under this key; True if it was charged now."""
        return self._serve("charge", key, {"cents": cents})

    def send_parcel(self, *, key: str) -> bool:
        """Send the parcel unless it was sent under this key; True if it was sent now."""
        return self._serve("parcel", key, {})

    def books(self) -> Books:
        """What it has written down so far."""
        if not self._path.exists():
            return Books(())
        lines = map(json.loads, self._path.read_text().splitlines())
        return Books(tuple(Request(line["act"], line["key"], line["pid"], line["done"]) for line in lines))

    def _serve(self, act: Act, key: str, details: dict[str, int]) -> bool:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # freed by the kernel, should the caller be killed right here
            done = not self.books().times(act)[key]
            line = {"act": act, "key": key, "pid": os.getpid(), "done": done, **details}
            os.write(file, json.dumps(line).encode() + b"\n")
        finally:
            os.close(file)
        return done


@dataclass(frozen=True, slots=True)
class Books:
    """The service's file, read."""

    requests: tuple[Request, ...]

    def times(self, act: Act) -> Counter[str]:
        """How often it was really done, by key."""
        return Counter(request.key for request in self.requests if request.act == act and request.done)

    def asked(self, act: Act) -> Counter[str]:
        """How often it was asked for, by key."""
        return Counter(request.key for request in self.requests if request.act == act)

    def begun_by(self, pid: int) -> list[str]:
        """The keys that this process asked a charge for."""
        return [request.key for request in self.requests if request.act == "charge" and request.pid == pid]

    def unfinished_by(self, pid: int) -> list[str]:
        """The keys that this process asked a charge for and no parcel: what it is in the middle of."""
        sent = {request.key for request in self.requests if request.act == "parcel" and request.pid == pid}
        return [key for key in self.begun_by(pid) if key not in sent]
