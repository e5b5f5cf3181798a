"""A receiver of webhooks that answers, fails, hangs and lies as it is told: a real server on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass(frozen=True)
class Request:
    """What was posted."""

    line: str
    headers: dict[str, str]
    body: bytes


def answering(status: int, *headers: str, body: bytes = b"") -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} Said", *headers, f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


@dataclass
class Receiver:
    """Answers each request with the next of `answers`, and with 200 when there are none left.

    An answer is the bytes to be written; empty ones are never written: the receiver hangs. After those in `resets` the
    connection is reset.
    """

    answers: list[bytes] = field(default_factory=list)
    resets: set[bytes] = field(default_factory=set)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/hooks?token=sesame"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        self.connections += 1
        try:
            while request := await _read(reader):
                self.requests.append(request)
                self.heard.set()
                answer = self.answers.pop(0) if self.answers else OK
                if not answer:
                    await reader.read()  # until the other side has had enough
                    return
                writer.write(answer)
                await writer.drain()
                if answer in self.resets:
                    writer.transport.abort()
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head.strip().split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
    return Request(line, headers, await reader.readexactly(int(headers["content-length"])))


@contextlib.asynccontextmanager
async def receiving(*answers: bytes, resets: bool = False) -> AsyncIterator[Receiver]:
    """A receiver with these answers, until the end of the block."""
    receiver = Receiver(list(answers), set(answers) if resets else set())
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
