"""A TCP proxy in front of Postgres that misbehaves on request and counts round trips.

`async with FaultProxy(host, port) as proxy` runs it on the test's loop. `with FaultProxy.in_thread(host, port) as
proxy` runs it on a loop of its own, which code that blocks the test's loop cannot hold up. Every control may
be called from any thread and has taken effect when it returns. Plain connections only: a wish for TLS is declined.
"""

import asyncio
import random
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Self, TypeVar

from tests.ground.databases import with_port
from tests.ground.ports import free_port
from tests.ground.wire import BackendReader, FrontendReader, Message

T = TypeVar("T")


class Mode(Enum):
    """What the proxy does with bytes."""

    PASS = "pass"
    STALL = "stall"
    STALL_REPLIES = "stall replies"


@dataclass(eq=False)
class Trap:
    """Waits for a request whose SQL matches `pattern`; `sprung` is set once the connection was reset for it."""

    pattern: re.Pattern[str]
    lets_it_run: bool
    sprung: threading.Event = field(default_factory=threading.Event)
    sql: str | None = None


@dataclass
class Counters:
    """What went through the proxy since it started."""

    opened: int = 0
    resets: int = 0


class FaultProxy:
    """Forwards connections to `host:port`, as badly as it was told to."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.host, self.port = "127.0.0.1", free_port()
        self.mode = Mode.PASS
        self.counters = Counters()
        self.statements: deque[str] = deque(maxlen=10_000)
        """The SQL that clients ran, oldest first, also when it was prepared before."""
        self.trips_of: list[int] = []
        """Requests that each connection waited for (Query, Sync, Flush), in the order of opening; no logging in."""
        self.turns = 0
        """How often a server's bytes followed a client's: round trips as the network sees them, logging in included."""
        self._delay = self._jitter = 0.0
        self._traps: list[Trap] = []
        self._links: set[_Link] = set()
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._open.set()
        self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._deafen()
        while self._tasks:  # a connection that is just being made is reset as soon as it is there
            self._reset()
            done, _unfinished = await asyncio.wait(self._tasks, timeout=0.05)
            for task in done:
                task.result()
        await asyncio.sleep(0)  # the closed sockets say goodbye on the next turn

    @classmethod
    @contextmanager
    def in_thread(cls, host: str, port: int) -> Iterator[Self]:
        """Run a proxy in a thread of its own until the `with` block ends."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="fault-proxy", daemon=True)
        thread.start()
        proxy = cls(host, port)
        try:
            asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result(10)
            try:
                yield proxy
            finally:
                asyncio.run_coroutine_threadsafe(proxy.__aexit__(), loop).result(10)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def url(self, url: str) -> str:
        """Return the address `url` as it is reached through this proxy."""
        return with_port(url, self.host, self.port)

    @property
    def round_trips(self) -> int:
        """How many requests the clients waited for, on all connections; logging in is not counted."""
        return sum(self.trips_of)

    @property
    def open_connections(self) -> int:
        """How many connections are being forwarded now."""
        return len(self._links)

    def heal(self) -> None:
        """Forward everything again, at once, and forget every trap; what was held back is delivered."""
        self._on_loop(self._heal)

    def stall(self) -> None:
        """Keep connections open and forward nothing: a peer that hangs."""
        self._on_loop(lambda: self._hold(Mode.STALL))

    def stall_replies(self) -> None:
        """Forward requests and hold the replies: what was asked for happens, and nobody is told."""
        self._on_loop(lambda: self._hold(Mode.STALL_REPLIES))

    def refuse(self) -> None:
        """Refuse new connections and keep the old ones, until `heal`."""
        self._on_loop(self._deafen)

    def reset(self) -> int:
        """Reset every open connection now, and return how many there were."""
        return self._on_loop(self._reset)

    def delay(self, seconds: float, jitter: float = 0.0) -> None:
        """Add latency in each direction."""

        def slow_down() -> None:
            self._delay, self._jitter = seconds, jitter

        self._on_loop(slow_down)

    def drop_reply(self, pattern: str) -> Trap:
        """Let the server finish the next request whose SQL matches, then reset the connection before its answer."""
        return self._on_loop(lambda: self._lay(pattern, lets_it_run=True))

    def cut_request(self, pattern: str) -> Trap:
        """Reset the connection before the next request whose SQL matches reaches the server."""
        return self._on_loop(lambda: self._lay(pattern, lets_it_run=False))

    def _on_loop(self, change: Callable[[], T]) -> T:
        async def run() -> T:
            return change()

        if asyncio._get_running_loop() is self._loop:
            return change()
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def _heal(self) -> None:
        self.mode = Mode.PASS
        self._delay = self._jitter = 0.0
        self._traps.clear()
        self._open.set()
        self._listen()

    def _hold(self, mode: Mode) -> None:
        self.mode = mode
        self._open.set()  # whoever is held looks again, and waits anew if this mode holds it too
        self._open = asyncio.Event()

    def _reset(self) -> int:
        links = list(self._links)
        for link in links:
            link.reset()
        return len(links)

    def _lay(self, pattern: str, *, lets_it_run: bool) -> Trap:
        trap = Trap(re.compile(pattern, re.IGNORECASE | re.DOTALL), lets_it_run)
        self._traps.append(trap)
        return trap

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((self.host, self.port))
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _deafen(self) -> None:
        """Close the listening socket, so that the kernel itself refuses, as it does for a server that is gone."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionError):  # the client has thought better of it
            client, _ = listener.accept()
            task = self._loop.create_task(self._serve(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            server_reader, server_writer = await asyncio.open_connection(*self.target)
        except OSError:
            _abort(writer)
            return
        self.counters.opened += 1
        link = _Link(self, reader, writer, server_reader, server_writer)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def _hold_up(self, *, is_reply: bool) -> None:
        while self.mode is Mode.STALL or (self.mode is Mode.STALL_REPLIES and is_reply):
            await self._open.wait()
        if self._delay or self._jitter:
            await asyncio.sleep(max(0.0, self._delay + random.uniform(-self._jitter, self._jitter)))

    def _trap_for(self, sql: str) -> Trap | None:
        """Take the first trap that `sql` falls into; each catches one request."""
        for trap in self._traps:
            if trap.pattern.search(sql):
                self._traps.remove(trap)
                trap.sql = sql
                return trap
        return None


class _Link:
    """One client's connection and the server's connection that answers it."""

    def __init__(
        self,
        proxy: FaultProxy,
        client_reader: asyncio.StreamReader,
        client_writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._client_reader, self._client_writer = client_reader, client_writer
        self._server_reader, self._server_writer = server_reader, server_writer
        self._number = len(proxy.trips_of)
        proxy.trips_of.append(0)
        self._requests, self._replies = FrontendReader(), BackendReader()
        self._asked = 0
        self._client_spoke_last = False
        self._trap: Trap | None = None
        self._ends_trapped = 0
        self._pumps: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Carry bytes both ways until either side ends or the link is reset."""
        self._pumps = [asyncio.create_task(self._carry_requests()), asyncio.create_task(self._carry_replies())]
        await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in self._pumps:
            pump.cancel()
        ends = await asyncio.gather(*self._pumps, return_exceptions=True)
        self._client_writer.close()
        self._server_writer.close()
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, OSError):
                raise end

    def reset(self) -> None:
        """Break both connections at once, so that the client sees a reset and not an orderly end."""
        self._proxy.counters.resets += 1
        _abort(self._client_writer)
        _abort(self._server_writer)
        for pump in self._pumps:
            pump.cancel()

    async def _carry_requests(self) -> None:
        while data := await self._client_reader.read(65536):
            self._client_spoke_last = True
            await self._proxy._hold_up(is_reply=False)
            for message in self._requests.feed(data):
                self._carry(message)
            await self._server_writer.drain()

    def _carry(self, message: Message) -> None:
        proxy = self._proxy
        if message.asks_for_encryption:
            self._client_writer.write(b"N")
            return
        if message.runs is not None:
            proxy.statements.append(message.runs)
            self._trap = self._trap or self._fall_into(proxy._trap_for(message.runs))
        if self._trap and not self._trap.lets_it_run:
            return
        proxy.trips_of[self._number] += message.is_waited_for
        self._asked += message.ends_a_request
        self._server_writer.write(message.raw)

    async def _carry_replies(self) -> None:
        while data := await self._server_reader.read(65536):
            if self._client_spoke_last:
                self._client_spoke_last = False
                self._proxy.turns += 1
            self._replies.feed(data)
            if self._trap:
                if self._replies.ready >= self._ends_trapped:
                    self._spring(self._trap)
                continue
            await self._proxy._hold_up(is_reply=True)
            self._client_writer.write(data)
            await self._client_writer.drain()

    def _fall_into(self, trap: Trap | None) -> Trap | None:
        # The server says that it is ready once after the log-in and once after each request.
        self._ends_trapped = 1 + self._asked + 1
        if trap and not trap.lets_it_run:
            self._spring(trap)
        return trap

    def _spring(self, trap: Trap) -> None:
        self.reset()
        trap.sprung.set()


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close at once with a TCP reset."""
    with suppress(OSError):
        connection: socket.socket | None = writer.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
