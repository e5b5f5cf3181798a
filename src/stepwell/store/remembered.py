"""Numbers that were looked up lately, by name: of queues and of workflows."""

from __future__ import annotations

import time
from typing import Final

REMEMBERED: Final = 10.0  # seconds: whoever deletes a queue and makes it anew gives it another number


class Remembered:
    """What each name stood for, for a while."""

    def __init__(self) -> None:
        self._ids: dict[str, tuple[int, float]] = {}

    def get(self, name: str) -> int | None:
        """The number of this name, None if it has to be looked up."""
        number, learned_at = self._ids.get(name, (None, 0.0))
        return number if time.monotonic() - learned_at < REMEMBERED else None

    def learn(self, name: str, number: int) -> int:
        """Remember the number from now on."""
        self._ids[name] = (number, time.monotonic())
        return number

    def forget(self, name: str) -> None:
        """Look the name up again next time: the database says it is not the one we knew."""
        self._ids.pop(name, None)
