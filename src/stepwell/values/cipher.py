"""Seals texts with AES-256-GCM, each bound to its place, and opens them. The only file that knows cryptography."""

from __future__ import annotations

import json
import os
import struct
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from collections.abc import Collection
from hashlib import blake2b
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from stepwell.errors import KeyMissing

PREFIX: Final = '{"$sw":{"c":"aes"},"d":"'
NONCE: Final = 12
# The first version of this form, which part of a row it is, the number of its data key, and the row it belongs to.
_HEAD: Final = struct.Struct(">BBQQ")
_FORM: Final = 1


class Cipher:
    """Seals and opens the texts of one tenant with its data keys."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant.encode()
        self._keys: dict[int, AESGCM] = {}
        self.current = 0
        self.secret = b""  # for digests of what has to be compared in the database: of the first data key, for ever

    def learn(self, number: int, data_key: bytes) -> None:
        """Know a data key by its number; the last one is what new texts are sealed with."""
        self._keys[number] = AESGCM(data_key)
        digest = blake2b(self._tenant, key=data_key, digest_size=32, person=b"stepwell hashes").digest()
        self.secret = self.secret or digest
        self.current = number

    def seal(self, text: str, part: int, row: int, clear: dict[str, str] | None = None) -> str:
        """The text, sealed for this part of this row (0: any row), with what SQL has to see beside it."""
        head = _HEAD.pack(_FORM, part, self.current, row)
        nonce = os.urandom(NONCE)
        data = self._keys[self.current].encrypt(nonce, text.encode(), head + self._tenant)
        sealed = f'{PREFIX}{b64encode(head + nonce + data).decode()}"'
        return f"{sealed}}}" if not clear else f"{sealed},{json.dumps(clear, separators=(',', ':'))[1:]}"

    def open(self, sealed: str, parts: Collection[int], rows: Collection[int]) -> str:
        """The text that was sealed; the sealed one itself if it is not of this place, or was changed, or has no key."""
        try:
            data = b64decode(sealed[len(PREFIX) : sealed.index('"', len(PREFIX))])
            form, part, number, row = _HEAD.unpack(data[: _HEAD.size])
        except (ValueError, NoBase64, struct.error):
            return sealed
        key = self._keys.get(number)
        if form != _FORM or key is None or part not in parts or (row and rows and row not in rows):
            return sealed
        nonce, text = data[_HEAD.size : _HEAD.size + NONCE], data[_HEAD.size + NONCE :]
        try:
            return key.decrypt(nonce, text, data[: _HEAD.size] + self._tenant).decode()
        except InvalidTag:
            return sealed


def new_data_key() -> bytes:
    """A key for one tenant's texts."""
    return AESGCM.generate_key(256)


def wrapped_with(key: bytes, key_id: str, data_key: bytes) -> bytes:
    """A data key, encrypted with a key of the ring."""
    nonce = os.urandom(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, data_key, key_id.encode())


def unwrapped_with(key: bytes, key_id: str, wrapped: bytes) -> bytes:
    """The data key; `KeyMissing` if it was wrapped with another key than the one that has this id now."""
    try:
        return AESGCM(key).decrypt(wrapped[:NONCE], wrapped[NONCE:], key_id.encode())
    except InvalidTag as error:
        raise KeyMissing(key_id, (f"another key under the id {key_id}",)) from error
