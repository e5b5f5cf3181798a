"""The dashboard served by itself: uvicorn, on this machine alone unless there are tokens."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from stepwell.errors import InvalidOption
from stepwell.ui.access import Token, is_loopback

HEAD: Final = 10.0  # seconds that a connection has to say its first request
MOST_CONNECTIONS: Final = 1_000  # above this a request is answered with 503


class PatientProtocol(H11Protocol):
    """A connection that is closed if it does not say its first request in time."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._late.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def check_bind(host: str, tokens: Iterable[Token]) -> None:
    """Refuse to listen to other machines without a token."""
    if not is_loopback(host) and not tuple(tokens):
        why = "other machines could reach it: give tokens (--tokens FILE, or STEPWELL_UI_TOKEN), or 127.0.0.1"
        raise InvalidOption("host", host, why)


class DashboardServer(uvicorn.Server):
    """A server that leaves signals to the program that has started it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them."""
        yield

    async def shutdown(self, sockets: Any = None) -> None:
        """Stop; open streams end first, each of which would hold it up and be reported as broken."""
        hints = getattr(getattr(self.config.app, "state", None), "hints", None)
        if hints is not None:
            hints.end()
        await super().shutdown(sockets)


async def serve(app: ASGIApp, host: str, port: int, *, ready: Any = None) -> None:
    """Serve until SIGINT or SIGTERM, or until it is cancelled; `ready` is called with the port that it listens on."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        limit_concurrency=MOST_CONNECTIONS,
    )
    server, loop = DashboardServer(config), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: setattr(server, "should_exit", True))
    serving = asyncio.ensure_future(server.serve())
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn tells of it in no other way
            await asyncio.sleep(0.01)
        if server.started and ready is not None:
            ready(server.servers[0].sockets[0].getsockname()[1])
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
