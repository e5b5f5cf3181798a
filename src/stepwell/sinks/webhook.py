"""Webhooks: a sink that posts events to an address, signed as Standard Webhooks has it."""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
import ssl as tls
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, assert_never
from urllib.parse import quote, urlsplit

from stepwell._version import __version__
from stepwell.base.durations import Duration, seconds_of
from stepwell.errors import DriverMissing, InvalidOption, PermanentError, TransientError
from stepwell.sinks.cloud_event import JSON, CloudEvent
from stepwell.sinks.guard import refuse_private
from stepwell.sinks.signature import Secret, Secrets

if TYPE_CHECKING:
    from stepwell.sinks.http_client import Client

_NAME: Final = re.compile("[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS: Final = ("ce-", "webhook-", "content-", "transfer-", "host", "connection")
LONGEST_PAUSE: Final = 3600.0  # seconds that a receiver may ask for
AGAIN: Final = frozenset((408, 425, 429))  # and 500 and above: the receiver may take it later
Mode = Literal["structured", "binary", "batched"]
# What a header may hold as it is, by the HTTP binding: printable ASCII but space, `"` and `%`.
_BARE = "".join(chr(one) for one in range(0x21, 0x7F) if chr(one) not in '"%')


class Webhook:
    """A sink that posts events: `Outbox("crm", Webhook("https://crm.example/hooks", secret="whsec_..."))`.

    `mode` says how a message looks, by the HTTP binding of CloudEvents: "structured" is a JSON object with all of the
    event, "binary" has the data as its body and the rest in headers, "batched" is a list of events, for an outbox with
    `batch=`. With `secret` each message is signed as Standard Webhooks has it; with two, while one is rotated, by both.

    An answer of 200 to 299 has taken the events. 408, 425, 429, 500 and above, and none at all within `timeout`, are
    tried again, when the answer's `Retry-After` says so, an hour later at most; any other is a dead letter at once.
    Redirects are not followed, cookies not kept, proxies of the environment not used.

    With `public_only` it connects to public addresses only: for addresses that your users give. `headers` are sent
    along; `ssl` is a context of your own, for a certificate authority of your own. It needs the extra `webhooks`.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: Secret | Sequence[Secret] | None = None,
        mode: Mode = "structured",
        headers: Mapping[str, str] | None = None,
        timeout: Duration = 10,
        public_only: bool = False,
        ssl: tls.SSLContext | None = None,
    ) -> None:
        if mode not in ("structured", "binary", "batched"):
            raise InvalidOption("mode", mode, "it is 'structured', 'binary' or 'batched'")
        seconds = seconds_of(timeout, "timeout")
        if not seconds:
            raise InvalidOption("timeout", timeout, "a receiver needs some time")
        self.mode: Final = mode
        self._url, self._host, self._shown = _checked(url, public_only=public_only)
        self._secrets, self._headers = Secrets(secret), _checked_headers(headers or {})
        self._make = partial(_client_class(), self._host, timeout=seconds, public_only=public_only, ssl=ssl)
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<webhook {self._shown}>"

    async def __call__(self, events: CloudEvent | Sequence[CloudEvent]) -> None:
        """Post an event, or a batch; raises unless the receiver has taken it."""
        posting = posting_of([events] if isinstance(events, CloudEvent) else events, self.mode)
        # This host's clock: receivers compare it with theirs, and refuse what is older than some minutes.
        signed = self._secrets.headers(posting.id, int(time.time()), posting.body)
        headers = {"user-agent": f"stepwell/{__version__}", **self._headers, **posting.headers, **signed}
        status, pause = await self._client.post(self._url, headers, posting.body)
        if (error := verdict(status, pause, datetime.now(UTC), self._host)) is not None:
            raise error

    async def aclose(self) -> None:
        """Close its connections on this loop; the next event opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    @property
    def _client(self) -> Client:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._make()
        return client


def _client_class() -> type[Client]:
    try:
        from stepwell.sinks.http_client import Client  # noqa: PLC0415 - only who has a webhook needs aiohttp
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise DriverMissing("webhooks") from error
    return Client


def _checked(url: str, *, public_only: bool) -> tuple[str, str, str]:
    """The address, its host, and what may be shown of it: a path or a query may be a secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except (AttributeError, TypeError, ValueError):
        parts, host, port = urlsplit(""), "", None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidOption("url", "***", "it is an address such as https://crm.example/hooks")
    if public_only:
        _refuse_private_literal(host)
    return url, host, f"{parts.scheme}://{host}{'' if port is None else f':{port}'}"


def _refuse_private_literal(host: str) -> None:
    """Names are looked at when they are resolved; an address that needs no resolving is looked at here."""
    literal: str | None = host if ":" in host else None
    if literal is None:
        try:
            literal = socket.inet_ntoa(socket.inet_aton(host))  # 127.1 and 2130706433 are addresses, too
        except OSError:
            return
    try:
        refuse_private(literal, host)
    except PermanentError as error:
        raise InvalidOption("url", host, str(error)) from None


def _checked_headers(headers: Mapping[str, Any]) -> dict[str, str]:
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or name.lower().startswith(_OURS):
            raise InvalidOption("headers", name, "it is no header, or one that the message itself has")
        if not isinstance(value, str) or not value.isprintable():
            raise InvalidOption("headers", name, "its value is a printable text")
    return dict(headers)


@dataclass(frozen=True, slots=True)
class Posting:
    """What is posted for one event, or for several."""

    id: str  # the same whenever the same events are posted
    headers: Mapping[str, str]
    body: bytes


def posting_of(events: Sequence[CloudEvent], mode: Mode) -> Posting:
    """The message; in every mode but batched it has one event."""
    match mode:
        case "structured":
            [event] = events
            return Posting(event.id, {"content-type": "application/cloudevents+json; charset=utf-8"}, event.json())
        case "binary":
            [event] = events
            named = {f"ce-{name}": quote(value, safe=_BARE) for name, value in event.attributes.items()}
            named["content-type"] = named.pop("ce-datacontenttype", JSON)
            return Posting(event.id, named, event.content)
        case "batched":
            body = b"[" + b",".join(one.json() for one in events) + b"]"
            kind = {"content-type": "application/cloudevents-batch+json; charset=utf-8"}
            return Posting(_id_of(events), kind, body)
        case _:
            assert_never(mode)


def _id_of(events: Sequence[CloudEvent]) -> str:
    """The id of a batch, in any order: no other events have it, so a receiver that drops what it has had loses none."""
    if len(events) == 1:
        return events[0].id
    return hashlib.blake2b("\n".join(sorted(one.id for one in events)).encode(), digest_size=16).hexdigest()


def verdict(status: int, retry_after: str | None, now: datetime, host: str) -> Exception | None:
    """None if the receiver has taken the events; else the error that says whether to try again, and when.

    The answer's text is no part of it: a receiver may repeat what it was sent, secrets included.
    """
    if 200 <= status < 300:
        return None
    if status >= 500 or status in AGAIN:
        return TransientError(f"{host} answered {status}", retry_after=pause_of(retry_after, now))
    if 300 <= status < 400:
        return PermanentError(f"{host} answered {status}: redirects are not followed; give the address it leads to")
    if status == 410:
        return PermanentError(f"{host} answered 410: the receiver is gone for good")
    return PermanentError(f"{host} answered {status}, which trying again does not change")


def pause_of(text: str | None, now: datetime) -> float | None:
    """The seconds that `Retry-After` asks for, an hour at most; None if it says nothing that can be read."""
    said = (text or "").strip()
    if said.isascii() and said.isdigit():
        return min(LONGEST_PAUSE, float(said[:12]))
    try:
        moment = parsedate_to_datetime(said)
    except ValueError:
        return None
    if moment.utcoffset() is None:
        moment = moment.replace(tzinfo=UTC)
    return min(LONGEST_PAUSE, max(0.0, (moment - now).total_seconds()))
