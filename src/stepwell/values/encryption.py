"""Encryption of what is stored: which keys a program has, and the codec that says that all of it is to be sealed.

Nothing here imports cryptography; `values/cipher.py` does, where a store is opened that needs it.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from stepwell.base.names import check_key
from stepwell.errors import InvalidOption, KeyMissing
from stepwell.values.named_codecs import JSON, Codec

KEY_BYTES: Final = 32
KEYS_VARIABLE: Final = "STEPWELL_KEYS"
NAMED: Final = "encrypted"  # the codec by its name, in a URL: its keys are in the file that the variable says


@runtime_checkable
class Keys(Protocol):
    """Wraps data keys and unwraps them: a `Keyring`, or a service of yours that holds the keys."""

    @property
    def current(self) -> str:
        """The id of the key that new data keys are wrapped with."""

    def wrap(self, data_key: bytes, /) -> bytes | Awaitable[bytes]:
        """The data key, encrypted with the current key."""

    def unwrap(self, key_id: str, wrapped: bytes, /) -> bytes | Awaitable[bytes]:
        """The data key that was wrapped with the key of this id; `KeyMissing` if there is none."""


@dataclass(frozen=True)
class Keyring:
    """Keys of 32 random bytes by their ids, and which of them is current: `Keyring({"2026-11": key}, "2026-11")`.

    To rotate, add a key, make it the current one, and call `store.rotate_keys()`; then the old one may go.
    """

    keys: Mapping[str, bytes] = field(repr=False)
    current: str

    def __post_init__(self) -> None:
        for key_id, key in self.keys.items():
            check_key(key_id, "key id")
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise InvalidOption("keys", f"the key {key_id}", f"a key is {KEY_BYTES} random bytes: os.urandom(32)")
        if self.current not in self.keys:
            raise InvalidOption("current", self.current, f"the ring has {', '.join(self.keys) or 'no key'}")

    @classmethod
    def read(cls, path: str | Path) -> Keyring:
        """The keys of a file: `{"current": "2026-11", "keys": {"2026-11": "..."}}`, each key in base64."""
        try:
            said = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls({str(key_id): b64decode(key) for key_id, key in said["keys"].items()}, str(said["current"]))
        except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
            if isinstance(error, InvalidOption):
                raise
            why = f"it is a file with `current` and `keys`, each key in base64: {type(error).__name__}"
            raise InvalidOption("keys", str(path), why) from None

    def wrap(self, data_key: bytes, /) -> bytes:
        """The data key, encrypted with the current key."""
        from stepwell.values.cipher import wrapped_with  # noqa: PLC0415 - only who encrypts needs cryptography

        return wrapped_with(self.keys[self.current], self.current, data_key)

    def unwrap(self, key_id: str, wrapped: bytes, /) -> bytes:
        """The data key that was wrapped with the key of this id."""
        from stepwell.values.cipher import unwrapped_with  # noqa: PLC0415

        if key_id not in self.keys:
            raise KeyMissing(key_id, tuple(self.keys))
        return unwrapped_with(self.keys[key_id], key_id, wrapped)


@dataclass(frozen=True)
class Encrypted:
    """Encrypts what a codec writes, and what tells of it: errors, progress, snapshots, logs of runs, the audit.

    `connect(codec=Encrypted(JSON, keys=Keyring(...)))`. Every process of the store has it.
    """

    codec: Codec = JSON
    keys: Keys = field(kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.keys, Keys):
            raise InvalidOption(
                "keys", type(self.keys).__name__, "it is a `Keyring`, or has `current`, `wrap`, `unwrap`"
            )

    @classmethod
    def of(cls, said: object) -> Encrypted | None:
        """What the option `codec` says of encryption; None if it says nothing of it."""
        if said == NAMED and isinstance(said, str):
            return cls(keys=Keyring.read(os.environ.get(KEYS_VARIABLE, "")))
        return said if isinstance(said, Encrypted) else None

    @property
    def name(self) -> str:
        """That of the codec: what is stored is sealed as a whole, whatever wrote it."""
        return self.codec.name

    def encode(self, value: Any, /) -> bytes | None:
        """What the codec returns; it is sealed on its way to the database."""
        return self.codec.encode(value)

    def decode(self, data: bytes, type_: Any, /) -> Any:
        """What the codec returns."""
        return self.codec.decode(data, type_)
