"""Messages taken by hand, one call at a time or as they come."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stepwell.base.durations import Duration, microseconds_of, seconds_of
from stepwell.base.names import check_id, check_whole
from stepwell.errors import InvalidOption, StepwellError
from stepwell.records import RunStatus
from stepwell.store.taken_messages import Handed, Message, message_of

if TYPE_CHECKING:
    from stepwell.store.database import Database

SHORTEST_VISIBILITY: Final = 10_000


@dataclass(eq=False)
class Messages:
    """Hands out messages to programs that have no worker."""

    _db: Database

    async def take(
        self, queue: str | Sequence[str], limit: int, type_: Any, until: Duration | None, visibility: Duration | None
    ) -> list[Message[Any]]:
        """Take up to `limit` messages; waits up to `until` for the first. Several queues take turns being first."""
        names = [queue] if isinstance(queue, str) else list(queue)
        check_whole("limit", limit, 1, 10_000)
        if not names:
            raise InvalidOption("queue", queue, "name at least one queue")
        wait = None if until is None else seconds_of(until, "until")
        ids = {await self._db.queue_id(name): name for name in names}
        hidden = self._visibility(visibility)
        rows = await self._db.taken_messages.poll(list(ids), limit, hidden, wait)
        return [message_of(row, ids[row["queue_id"]], type_, self._db.taken_messages) for row in rows]

    async def taken(self, task_id: int, turn: int, type_: Any) -> Message[Any] | None:
        """A message that was taken elsewhere; None if it is not held now under this turn."""
        check_whole("turn", turn, 0, 2**63 - 1)
        row = await self._db.taken_messages.look(check_id(task_id))
        if row is None or (row["status"], row["owner"], row["turn"]) != (RunStatus.RUNNING, None, turn):
            return None
        return message_of(row, row["queue"], type_, self._db.taken_messages)

    @contextlib.asynccontextmanager
    async def consume(
        self, queue: str | Sequence[str], limit: int, visibility: Duration | None
    ) -> AsyncIterator[AsyncIterator[Message[Any]]]:
        """Iterate over messages as they come; those that are not closed are given back.

        Those that have waited here for half of `visibility` are given back too, and taken anew: a consumer that comes
        to one late would find that another has it.
        """
        waiting: collections.deque[Message[Any]] = collections.deque()
        handed, hidden = Handed(), self._visibility(visibility)

        async def messages() -> AsyncGenerator[Message[Any], None]:
            loop, patience = asyncio.get_running_loop(), hidden / 2_000_000
            while True:
                handed.left()
                waiting.extend(await self.take(queue, limit, Any, None, visibility))
                until = loop.time() + patience
                while waiting and loop.time() < until:
                    yield handed.out(waiting.popleft(), hidden)
                await give_back()

        async def give_back() -> None:
            while waiting:
                with contextlib.suppress(StepwellError):  # its visibility timeout brings it back
                    await waiting.popleft().release()

        iterator = messages()
        try:
            yield iterator
        except Exception:
            handed.forget()
            raise
        finally:
            await iterator.aclose()
            waiting.extendleft(reversed(handed.left()))
            await give_back()

    def _visibility(self, visibility: Duration | None) -> int:
        hidden = microseconds_of(self._db.options.visibility if visibility is None else visibility, "visibility")
        if hidden < SHORTEST_VISIBILITY:
            raise InvalidOption("visibility", visibility, "it is at least 10 ms: the time you need for a message")
        return hidden
