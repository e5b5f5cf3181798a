"""Seals texts with AES-256-GCM, each bound to its place, and opens them. The only file that knows cryptography."""

from __future__ import annotations

import json
import os
import struct
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from collections.abc import Collection
from hashlib import blake2b
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from stepwell.errors import KeyMissing

PREFIX: Final = '{"$sw":{"c":"aes"},"d":"'
NONCE: Final = 12
# Whose key it is, which part of a row it is, the number of the key, and the row it belongs to.
_HEAD: Final = struct.Struct(">BBQQ")
_HEAD_LENGTH: Final = 4 * _HEAD.size // 3  # in base64
TENANT: Final = 1  # it is sealed with the data key of the tenant ...
SUBJECT: Final = 2  # ... or with the key of a subject
_OF_SUBJECT: Final = b"subject "
Key = AESGCM


class Head(NamedTuple):
    """What a sealed text says of itself in the clear."""

    form: int
    part: int
    number: int  # of its key
    row: int


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

    @property
    def key(self) -> Key:
        """The data key that new texts are sealed with."""
        return self._keys[self.current]

    def seal(
        self,
        text: str,
        part: int,
        row: int,
        clear: dict[str, str] | None = None,
        subject: tuple[int, Key] | None = None,
    ) -> str:
        """The text, sealed for this part of this row (0: any row), with what SQL has to see beside it."""
        number, key = (self.current, self._keys[self.current]) if subject is None else subject
        head = _HEAD.pack(TENANT if subject is None else SUBJECT, part, number, row)
        nonce = os.urandom(NONCE)
        data = key.encrypt(nonce, text.encode(), head + self._tenant)
        sealed = f'{PREFIX}{b64encode(head + nonce + data).decode()}"'
        return f"{sealed}}}" if not clear else f"{sealed},{json.dumps(clear, separators=(',', ':'))[1:]}"

    def open(self, sealed: str, parts: Collection[int], rows: Collection[int], subject: Key | None = None) -> str:
        """The text that was sealed; the sealed one itself if it is not of this place, or was changed, or has no key.

        What belongs to a subject is opened with the key of that subject.
        """
        if (head := head_of(sealed)) is None:
            return sealed
        key = self._keys.get(head.number) if head.form == TENANT else subject if head.form == SUBJECT else None
        if key is None or head.part not in parts or (head.row and rows and head.row not in rows):
            return sealed
        try:
            data = b64decode(sealed[len(PREFIX) : sealed.index('"', len(PREFIX))])
            nonce, text = data[_HEAD.size : _HEAD.size + NONCE], data[_HEAD.size + NONCE :]
            return key.decrypt(nonce, text, data[: _HEAD.size] + self._tenant).decode()
        except (InvalidTag, ValueError, NoBase64):
            return sealed


def head_of(sealed: str) -> Head | None:
    """What a sealed text says of itself; None if it is none. Its beginning is enough."""
    try:
        return Head(*_HEAD.unpack(b64decode(sealed[len(PREFIX) : len(PREFIX) + _HEAD_LENGTH])))
    except (ValueError, NoBase64, struct.error):
        return None


def new_subject_key(tenant_key: Key, subject: str) -> str:
    """A key for one subject's texts, encrypted with the data key of its tenant, in base64."""
    nonce = os.urandom(NONCE)
    return b64encode(nonce + tenant_key.encrypt(nonce, new_data_key(), _OF_SUBJECT + subject.encode())).decode()


def unwrapped_subject(tenant_key: Key, subject: str, wrapped: str) -> Key | None:
    """The key of a subject; None if it was made for another subject or tenant, or was changed."""
    try:
        data = b64decode(wrapped)
        return AESGCM(tenant_key.decrypt(data[:NONCE], data[NONCE:], _OF_SUBJECT + subject.encode()))
    except (InvalidTag, ValueError, NoBase64):
        return None


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
