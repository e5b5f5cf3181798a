"""Posting, through aiohttp: one deadline for a whole exchange, no redirects, no cookies, no proxy unless told so."""

from __future__ import annotations

import asyncio
import socket
import ssl as tls
from collections.abc import Mapping
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from stepwell.errors import TransientError
from stepwell.sinks.guard import refuse_private

MOST_READ: Final = 4096  # bytes of an answer: the rest of a longer one is left
# Seconds for which a connection is kept. Servers close theirs after five or more: one that is just being closed would
# cost an attempt.
KEPT: Final = 3.0


class Client:
    """The connections of one webhook on one loop."""

    def __init__(self, host: str, *, timeout: float, public_only: bool, ssl: tls.SSLContext | None) -> None:
        self._host, self._timeout = host, timeout
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=PublicResolver() if public_only else None,
                ssl=True if ssl is None else ssl,
                keepalive_timeout=KEPT,
                limit=0,  # the worker bounds how many are published at once
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout),
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str | None]:
        """Post once and return the answer's status and its `Retry-After`. One that breaks off is none."""
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                left = MOST_READ
                while left > 0 and (part := await answer.content.read(left)):
                    left -= len(part)
                return answer.status, answer.headers.get("retry-after")
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            # No cause, and nothing of its text: that may show the whole address.
            raise TransientError(f"{self._host}: {self._said(error)}") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    def _said(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no whole answer in {self._timeout:g} s"
        why = getattr(getattr(error, "os_error", error), "strerror", None)
        return f"no answer ({type(error).__name__}{f', {why}' if isinstance(why, str) else ''})"


class PublicResolver(AbstractResolver):
    """Finds public addresses only. The connection is made to what this returns, so no name changes in between."""

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host; refused if one of them is not public."""
        found = await self._resolver.resolve(host, port, family)
        for one in found:
            refuse_private(one["host"], host)
        return found

    async def close(self) -> None:
        """Holds nothing."""
