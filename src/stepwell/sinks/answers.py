"""What an answer to a webhook means. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from stepwell.errors import PermanentError, TransientError

LONGEST_PAUSE: Final = 3600.0  # seconds that a receiver may ask for
AGAIN: Final = frozenset((408, 425, 429))  # and 500 and above: the receiver may take it later


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
