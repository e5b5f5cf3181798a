"""Who looks at the dashboard, and what that person may do: tokens, sessions in a signed cookie, names of hosts."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from stepwell.errors import InvalidOption

Right = Literal["look", "act"]
RIGHTS: Final[frozenset[Right]] = frozenset(("look", "act"))
SHORTEST_TOKEN: Final = 22  # characters: 128 bits where each has 6
SESSION: Final = 12 * 3600  # seconds for which a person stays logged in
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or program that uses the dashboard: its name, for the audit, and its rights."""

    name: str
    rights: frozenset[Right] = RIGHTS

    @property
    def may_act(self) -> bool:
        """True if it may change something."""
        return "act" in self.rights


Authorize = Callable[[Any], Awaitable[Principal | None] | Principal | None]


@dataclass(frozen=True, slots=True)
class Token:
    """A secret that opens the dashboard, for the person of this name: `Token("ann", secret)`."""

    name: str
    secret: str = field(repr=False)
    rights: frozenset[Right] = RIGHTS

    def __post_init__(self) -> None:
        if len(self.secret) < SHORTEST_TOKEN or not self.secret.isascii():
            why = (
                f"the token of {self.name} has fewer than {SHORTEST_TOKEN} ASCII characters; `stepwell ui --new-token`"
            )
            raise InvalidOption("token", "***", f"{why} makes one")
        if not self.name or "." in self.name or not self.name.isprintable():
            raise InvalidOption("token", self.name, "a token belongs to a name, without a full stop")

    @property
    def principal(self) -> Principal:
        """Who has it."""
        return Principal(self.name, frozenset(self.rights))


def new_secret() -> str:
    """A token of 256 bits."""
    return secrets.token_urlsafe(32)


def read_tokens(text: str) -> list[Token]:
    """The tokens of a file: on each line a name, `look` or `act`, and the token."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not (words := line.split()) or words[0].startswith("#"):
            continue
        if len(words) != 3 or words[1] not in RIGHTS:
            raise InvalidOption("tokens", f"line {number}", "each line is NAME, look or act, and the token")
        rights: frozenset[Right] = RIGHTS if words[1] == "act" else frozenset(("look",))
        found.append(Token(words[0], words[2], rights))
    return found


class Doorkeeper:
    """Knows the tokens, and whom a session cookie names: signed with the token itself, so that nothing is kept."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._tokens = tuple(tokens)

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def of_secret(self, secret: str) -> Token | None:
        """The token that is this secret; every token is compared, in constant time."""
        given, found = secret.encode(errors="replace"), None
        for one in self._tokens:
            if hmac.compare_digest(given, one.secret.encode()):
                found = one
        return found

    def session_of(self, token: Token) -> str:
        """The cookie of a person who has shown this token just now."""
        said = f"{token.name}.{int(time.time())}"
        return f"{said}.{_signature(token, said)}"

    def of_session(self, cookie: str) -> Token | None:
        """The token whose owner this cookie was given to, if that was not too long ago."""
        said, _, signature = cookie.rpartition(".")
        name, _, begun = said.rpartition(".")
        if not (begun.isdecimal() and len(begun) < 12 and 0 <= time.time() - int(begun) < SESSION):
            return None
        for one in self._tokens:
            if one.name == name and hmac.compare_digest(signature.encode(), _signature(one, said).encode()):
                return one
        return None


def _signature(token: Token, said: str) -> str:
    return hmac.new(token.secret.encode(), f"stepwell session {said}".encode(), hashlib.sha256).hexdigest()


def host_name(host: str) -> str:
    """The name in a Host header or an origin, without its port; empty if it is none."""
    host = host.strip().lower()
    if host.startswith("["):
        name, bracket, port = host.partition("]")
        return f"{name}]" if bracket and _is_port(port) else ""
    name, colon, port = host.partition(":")
    return name if _is_port(colon + port) else ""


def _is_port(text: str) -> bool:
    return text == "" or (text.startswith(":") and text[1:].isdecimal() and text.isascii())


def is_loopback(address: str | None) -> bool:
    """True for an address of this machine alone, and for a socket that is a file."""
    if address is None or address in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False
