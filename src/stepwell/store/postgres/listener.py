"""Hints over Postgres's LISTEN and NOTIFY: the words they travel as, and the ear that hears them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Any, Final

from stepwell.store.driver import Heard, Hint, Lost
from stepwell.store.postgres.connection import Link

LONGEST_WORD: Final = 3900  # of queues, and of runs that may be finished ...
LONGEST: Final = 7950  # ... and of all that there is to tell: Postgres takes 7,999 bytes
GOODBYE: Final = 1.0


def written(hint: Hint) -> str:
    """The hint as it travels: `sender?probe`, or `sender:` and the queues, then `!` and the runs that may be finished
    if there are any, then `+` and those that have reported something.

    `*` is all, and too many. `sender-` says that a worker's process is gone.
    """
    if hint.probe is not None:
        return f"{hint.sender}?{hint.probe}"
    if hint.gone:
        return f"{hint.sender}-"
    runs = "" if hint.finished == frozenset() else f"!{_joined(hint.finished)}"
    told = f"{hint.sender}:{_joined(hint.queues)}{runs}"
    if hint.reported == frozenset():
        return told
    news = _joined(hint.reported)
    return f"{told}+{news if len(told) + len(news) < LONGEST else '*'}"


def read(word: str) -> Hint:
    """The hint that a word is. Any client may notify: a word that is not ours is a hint for all queues and runs."""
    if found := _PROBE.fullmatch(word):
        return Hint(found[1], probe=int(found[2]))
    if found := _IDS.fullmatch(word):
        return Hint(found[1], _parted(found[2]), finished=_parted(found[3]), reported=_parted(found[4]))
    if found := _GONE.fullmatch(word):
        return Hint(found[1], frozenset(), gone=True)
    return Hint(word.partition(":")[0], finished=None)


def _joined(ids: frozenset[int] | None) -> str:
    word = "*" if ids is None else ",".join(map(str, sorted(ids)))
    return word if len(word) <= LONGEST_WORD else "*"


def _parted(word: str | None) -> frozenset[int] | None:
    return None if word == "*" else frozenset(map(int, word.split(","))) if word else frozenset()


_PROBE: Final = re.compile(r"([0-9a-f]+)\?([0-9]{1,18})")
_GONE: Final = re.compile(r"([0-9a-f]+)-")
_SOME: Final = r"\*|[0-9]{1,18}(?:,[0-9]{1,18})*"
_IDS: Final = re.compile(rf"([0-9a-f]+):(?:({_SOME})|(?=[!+]))(?:!({_SOME}))?(?:\+({_SOME}))?")


class PostgresEar:
    """A connection of its own that listens to one channel."""

    def __init__(self, link: Link, channel: str, heard: Heard, lost: Lost) -> None:
        self._link = link
        self._channel = channel
        self._heard = heard
        self._lost = lost
        self._connection: Any = None

    async def open(self) -> None:
        """Connect and listen; from here on everything that is told is heard, or `lost` is called."""
        async with self._link.using() as connection:
            connection.add_termination_listener(self._ended)
            await connection.add_listener(self._channel, self._said)
            self._connection = connection

    async def close(self) -> None:
        """Hear nothing more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(GOODBYE):
                    # Said and not left to the closing: a pooler may lend the server's connection to others.
                    await connection.remove_listener(self._channel, self._said)
        await self._link.close()

    def _said(self, _connection: Any, _pid: int, _channel: str, word: str) -> None:
        self._heard(read(word))

    def _ended(self, _connection: Any) -> None:
        if self._connection is not None:
            self._lost("its connection was closed")
