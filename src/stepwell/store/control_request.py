"""Control requests: what somebody asked of the turn of a task that a worker has under way, as it is read and told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from stepwell.records import Wish
from stepwell.store.driver import Row

REQUESTS: Final = "control_requests"  # the statement that reads those of some sessions
# Told what is asked of which turns, by task.
Requested = Callable[[Wish, Mapping[int, int]], object]


def tell_requests(rows: Iterable[Row], told: Requested) -> None:
    """Tell what was read: first what is to be cancelled, since that need not be paused."""
    asked: dict[Wish, dict[int, int]] = {Wish.CANCEL: {}, Wish.PAUSE: {}}
    for row in rows:
        request, _, turn = row["answer"].partition(" ")
        turns = asked[Wish(request)]
        turns[row["id"]] = max(int(turn), turns.get(row["id"], 0))  # of two turns, the one that may be under way
    for wish, turns in asked.items():
        if turns:
            told(wish, turns)


def nobody(wish: Wish, turns: Mapping[int, int]) -> None:
    """Nobody has to be told."""
