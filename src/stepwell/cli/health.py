"""`/healthz` and `/readyz` of a worker process: enough HTTP for a probe, and nothing else.

Healthy: the process answers, so its loop is not blocked. Ready: it has a session and the database answers. In
maintenance it is ready: being restarted would help nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from stepwell.cli.exits import USAGE, Stop
from stepwell.errors import StepwellError
from stepwell.store.store import Store
from stepwell.worker import Worker

PATIENCE: Final = 2.0  # seconds, for the asker's request and for the database's answer
LONGEST_REQUEST: Final = 8192
WORDS: Final = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}


@asynccontextmanager
async def healthy(address: str | None, store: Store, worker: Worker) -> AsyncIterator[None]:
    """Answer probes at [HOST:]PORT meanwhile; nothing is opened without an address."""
    if address is None:
        yield
        return
    host, port = _parted(address)
    try:
        server = await asyncio.start_server(partial(_serve, store, worker), host, port, limit=LONGEST_REQUEST)
    except OSError as error:
        raise Stop(USAGE, f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    async with server:
        yield


async def _serve(store: Store, worker: Worker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request and close."""
    with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(PATIENCE):
            request = (await reader.readuntil(b"\r\n\r\n")).split(b" ")
        code, text = await _answer(store, worker, request[1] if len(request) > 1 else b"")
        body = f"{text}\n".encode()
        head = f"HTTP/1.1 {code} {WORDS[code]}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
    writer.close()


async def _answer(store: Store, worker: Worker, path: bytes) -> tuple[int, str]:
    match path.partition(b"?")[0]:
        case b"/healthz":
            return 200, "ok"
        case b"/readyz":
            return await _ready(store, worker)
        case _:
            return 404, "there is /healthz and /readyz"


async def _ready(store: Store, worker: Worker) -> tuple[int, str]:
    try:
        async with asyncio.timeout(PATIENCE):
            session = worker.id
            await store.maintenance()
    except TimeoutError:
        return 503, f"the database has not answered for {PATIENCE:g} s"
    except StepwellError as error:
        return 503, str(error)
    return 200, f"session {session}"


def _parted(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise Stop(USAGE, f"--health takes a port, or host:port, not {address!r}", "--health 8081")
    return host.strip("[]") or "127.0.0.1", int(port)
