"""How far a run is, in its own words: the latest is written with whatever is written next, and nobody waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepwell.codec import encode
from stepwell.store.lanes import Operation
from stepwell.store.tasks import PROGRESS_LIMIT

if TYPE_CHECKING:
    from stepwell.engine.run import RunTurn

ROOM_AFTER: Final = 0.1  # seconds after which one for which there was no room is written, if it still is the latest


def tell(run: RunTurn, value: object) -> None:
    """Have this written, from any thread; one that was told before and is not on its way yet never is."""
    text = encode(value, limit=PROGRESS_LIMIT, what="progress")
    run.on_loop(lambda: run.progress.tell(text))


class Progress:
    """What one turn of a run has said. Lives on the worker's loop."""

    def __init__(self, run: RunTurn) -> None:
        self._run = run
        self._latest: str | None = None
        self._writing: Operation | None = None

    def tell(self, text: str) -> None:
        """Have this written, unless another is told first."""
        self._latest = text
        self._write(text)

    def _write(self, text: str) -> None:
        run = self._run
        if text is not self._latest or run.unwinding or run.is_lost:
            return
        task = run.task
        self._writing = run.slot.store.tasks.note_progress(task.id, task.owner, task.turn, text, self._writing)
        if self._writing is None:
            run.loop.call_later(ROOM_AFTER, self._write, text)
