"""Signatures of what is posted, as Standard Webhooks has them; and the secrets, which no text ever shows."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final

from stepwell.errors import InvalidOption

PREFIX: Final = "whsec_"
SHORTEST_SECRET, LONGEST_SECRET = 24, 64  # bytes, as Standard Webhooks asks for
Secret = str | bytes


class Secrets:
    """The secrets that sign: one, or the new one and the old one while receivers change over."""

    __slots__ = ("_keys",)

    def __init__(self, given: Secret | Sequence[Secret] | None) -> None:
        each: Sequence[Any] = () if given is None else list(given) if isinstance(given, list | tuple) else [given]
        if given is not None and not 1 <= len(each) <= 2:
            raise InvalidOption("secret", "***", "give one, or two while it is rotated: (new, old)")
        self._keys = tuple(map(_key, each))

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __repr__(self) -> str:
        return f"<{len(self._keys)} secrets>"

    def headers(self, id: str, timestamp: int, body: bytes) -> dict[str, str]:
        """The headers that prove who has posted this body, and when; none without a secret."""
        if not self._keys:
            return {}
        said = f"{id}.{timestamp}.".encode() + body
        signed = (base64.b64encode(hmac.digest(key, said, hashlib.sha256)).decode() for key in self._keys)
        return {
            "webhook-id": id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": " ".join(f"v1,{one}" for one in signed),
        }


def _key(secret: Any) -> bytes:
    """The bytes of a secret: as they are, or behind `whsec_` as base64. No error shows any of it."""
    key = secret
    if isinstance(secret, str):
        text = secret.removeprefix(PREFIX)
        try:
            key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise InvalidOption("secret", "***", f"it is bytes, or base64 such as {PREFIX}MfKQ9r8...") from None
    if not isinstance(key, bytes) or not SHORTEST_SECRET <= len(key) <= LONGEST_SECRET:
        raise InvalidOption("secret", "***", f"it has {SHORTEST_SECRET} to {LONGEST_SECRET} bytes, random ones")
    return key
