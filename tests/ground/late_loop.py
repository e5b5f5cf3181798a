"""A loop on which whatever may come late comes late, now and then: what is sent, timers, what threads ask for.

What asyncio promises is kept: calls are made in the order they were asked for, each kind by itself. Code that relies on
more than that, on a thread being heard before a timer say, is wrong on some other loop or on a busy machine.
"""

import asyncio
import collections
import contextvars
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

LATE: Final = 0.4  # of what may be


class LateLoop(asyncio.SelectorEventLoop):
    """Asyncio's own loop, less punctual."""

    def __init__(self) -> None:
        super().__init__()
        self._chance = random.Random(random.random())  # of the seed that pytest-randomly prints
        self._asked: collections.deque[asyncio.Handle] = collections.deque()

    def call_soon_threadsafe(  # type: ignore[override]  # typeshed ties the arguments to the callback
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Have it called in its turn, perhaps some turns of the loop later."""
        given = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, given)
        self._asked.append(handle)
        super().call_soon_threadsafe(self._take)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        """Have it called when its time is over: at once if that is now, or a little later."""
        if delay <= 0 and self._is_late():
            return self.call_soon(callback, *args, context=context)
        return super().call_later(delay + self._chance.random() / 500, callback, *args, context=context)

    def _take(self) -> None:
        while self._asked:
            if self._is_late():
                self.call_soon(self._take)
                return
            handle = self._asked.popleft()
            if not handle.cancelled():
                handle._run()

    def _process_events(self, event_list: Sequence[Any]) -> None:
        # What is left out is told again by the next turn's select.
        super()._process_events([event for event in event_list if not self._is_late()])  # type: ignore[misc]

    def _is_late(self) -> bool:
        return self._chance.random() < LATE
