"""`/healthz`, `/readyz` and `/metrics` of a worker process: enough HTTP for a probe and a scrape, and nothing else.

Healthy: the process answers, so its loop is not blocked. Ready: it has a session, has made its queues and
workflows, and the database answers. In maintenance it is ready: a restart would not help. The metrics are those of the
whole store, so it is enough to scrape one worker, and the counts of events of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from stepwell.cli.command import USAGE, Stop
from stepwell.errors import StepwellError
from stepwell.runs.branches import Branch
from stepwell.runs.call import Attempt
from stepwell.store.exposition import CONTENT_TYPE
from stepwell.store.store import Store
from stepwell.work.current import current_branch
from stepwell.worker import Worker

PATIENCE: Final = 2.0  # seconds, for the request and for the answer of the database
SCRAPE: Final = 8.0  # seconds, for the metrics: Prometheus waits for 10
WINDOW: Final = "5m"
LONGEST_REQUEST: Final = 8192
WORDS: Final = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}


@asynccontextmanager
async def healthy(address: str | None, store: Store, worker: Worker, number: int = 0) -> AsyncIterator[None]:
    """Answer probes at [HOST:]PORT during the block; without an address no port is opened.

    Several processes use consecutive ports.
    """
    if address is None:
        yield
        return
    host, port = _parted(address)
    port += number
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
        body = text.encode()
        head = f"HTTP/1.1 {code} {WORDS[code]}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
    writer.close()


async def _answer(store: Store, worker: Worker, path: bytes) -> tuple[int, str]:
    match path.partition(b"?")[0]:
        case b"/healthz":
            return 200, "ok\n"
        case b"/readyz":
            return await _in_time(PATIENCE, _ready(store, worker))
        case b"/metrics":
            return await _in_time(SCRAPE, store.prometheus(window=WINDOW))
        case _:
            return 404, "there is /healthz, /readyz and /metrics\n"


async def _ready(store: Store, worker: Worker) -> str:
    session = worker.id
    if not worker.is_serving:
        raise StepwellError(f"session {session} has begun, and its queues and workflows are being made")
    await store.maintenance()
    return f"session {session}\n"


async def _in_time(patience: float, asking: Awaitable[str]) -> tuple[int, str]:
    """The answer of the database, if it comes in time."""
    try:
        async with asyncio.timeout(patience):
            return 200, await asking
    except TimeoutError:
        return 503, f"the database has not answered for {patience:g} s\n"
    except StepwellError as error:
        return 503, f"{error}\n"


def _parted(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise Stop(USAGE, f"--health takes a port, or host:port, not {address!r}", "--health 8081")
    return host.strip("[]") or "127.0.0.1", int(port)


NAMES: Final = ("run", "workflow", "step", "attempt", "task", "queue", "worker")


class JsonLines(logging.Formatter):
    """A log record as one line of JSON: time, level, logger, message, run, step, attempt and traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_at_work(),
            **{name: one for name in NAMES if (one := getattr(record, name, None)) is not None},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _at_work() -> dict[str, Any]:
    """The run, step and attempt whose code writes the record; empty outside of runs."""
    found = current_branch.get()
    if isinstance(found, Attempt):
        run = found.call.run
        return {"run": int(run.task.id), "workflow": run.workflow, "step": found.call.key, "attempt": found.number}
    if isinstance(found, Branch):
        run = found.run
        return {"run": int(run.task.id), "workflow": run.workflow, "attempt": run.task.attempt}
    return {}
