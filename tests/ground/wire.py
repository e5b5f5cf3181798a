"""The client's half of a plain Postgres conversation, cut into its messages.

Knows enough of the protocol to say which SQL a message runs, also when it was prepared long before, and which
messages make the client wait for an answer. It reads; it never changes a byte.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
_ENDS = frozenset({"Q", "S", "F"})  # Query, Sync, FunctionCall: the server ends its answer with ReadyForQuery
_FLUSH = "H"


@dataclass(frozen=True, slots=True)
class Message:
    """One whole message: its kind (`?` before the session starts), its bytes, and the SQL it runs, if any."""

    kind: str
    raw: bytes
    runs: str | None = None

    @property
    def is_waited_for(self) -> bool:
        """Whether the client asks for an answer here: each of these is one round trip."""
        return self.ends_a_request or self.kind == _FLUSH

    @property
    def ends_a_request(self) -> bool:
        """Whether the server will say that it is ready for the next request."""
        return self.kind in _ENDS

    @property
    def asks_for_encryption(self) -> bool:
        """Whether the client would rather speak through TLS or GSS."""
        return self.kind == "?" and _code_of(self.raw) in {SSL_REQUEST, GSS_REQUEST}


class FrontendReader:
    """Cuts the bytes of one client into messages and remembers what it prepared."""

    def __init__(self) -> None:
        self._rest = b""
        self._has_started = False
        self._prepared: dict[bytes, str] = {}

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield every message that is whole by now."""
        self._rest += data
        while message := self._next():
            self._rest = self._rest[len(message.raw) :]
            yield message

    def _next(self) -> Message | None:
        head = 1 if self._has_started else 0  # the first messages of a session have no letter
        if len(self._rest) < head + 4:
            return None
        (length,) = struct.unpack_from("!I", self._rest, head)
        if len(self._rest) < head + length:
            return None
        raw = self._rest[: head + length]
        if not self._has_started:
            self._has_started = _code_of(raw) not in {SSL_REQUEST, GSS_REQUEST}
            return Message("?", raw)
        kind = chr(raw[0])
        return Message(kind, raw, self._sql_run_by(kind, raw[5:]))

    def _sql_run_by(self, kind: str, body: bytes) -> str | None:
        if kind == "Q":
            return body[:-1].decode(errors="replace")
        if kind == "P":
            name, sql, _ = body.split(b"\0", 2)
            self._prepared[name] = sql.decode(errors="replace")
        if kind == "B":
            _, name, _ = body.split(b"\0", 2)
            return self._prepared.get(name)
        return None


class BackendReader:
    """Counts how often the server said that it is ready for the next request."""

    def __init__(self) -> None:
        self._rest = b""
        self.ready = 0

    def feed(self, data: bytes) -> None:
        """Read on; `ready` grows with every ReadyForQuery that is whole by now."""
        self._rest += data
        place = 0
        while len(self._rest) >= place + 5:
            (length,) = struct.unpack_from("!I", self._rest, place + 1)
            if len(self._rest) < place + 1 + length:
                break
            self.ready += self._rest[place : place + 1] == b"Z"
            place += 1 + length
        self._rest = self._rest[place:]


def _code_of(raw: bytes) -> int:
    code: int = struct.unpack_from("!I", raw, 4)[0] if len(raw) >= 8 else 0
    return code
