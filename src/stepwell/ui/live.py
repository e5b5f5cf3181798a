"""Hints that something may have changed, as server-sent events: each open page then reads itself again.

A hint says nothing else, so that a lost one costs nothing. Each stream ends by itself after some minutes, and the
browser comes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

EVERY: Final = 1.0  # seconds between two hints
LONGEST: Final = 600.0  # seconds of a stream
MOST_STREAMS: Final = 200


class Hints:
    """The streams of one dashboard."""

    def __init__(self) -> None:
        self.streams = 0
        self._over = asyncio.Event()

    def end(self) -> None:
        """End all streams: the server is about to stop."""
        self._over.set()

    async def stream(self, request: Request) -> Response:
        """A stream of hints; refused with 503 if there are too many."""
        if self.streams >= MOST_STREAMS:
            return PlainTextResponse("too many pages are open; this one does not update by itself\n", 503)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._hints(), media_type="text/event-stream", headers=headers)

    async def _hints(self) -> AsyncIterator[str]:
        self.streams += 1
        try:
            yield "retry: 3000\n\n"
            end = time.monotonic() + LONGEST
            while time.monotonic() < end and not await self._is_over_within(EVERY):
                yield "event: look\ndata: 1\n\n"
        finally:
            self.streams -= 1

    async def _is_over_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
        return self._over.is_set()
