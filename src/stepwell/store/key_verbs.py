"""The verbs by which people look after the keys of an encrypted store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepwell.base.names import check_key
from stepwell.errors import InvalidOption
from stepwell.store.audit import What

if TYPE_CHECKING:
    from stepwell.store.database import Database


class KeyVerbs:
    """The keys of a store that is encrypted."""

    database: Database

    async def rotate_keys(self, *, actor: str | None = None) -> int:
        """Encrypt the data key of this tenant with the current key of the ring; 0 if it was, else 1.

        Values stay as they are, and workers go on. A process that is killed meanwhile has changed nothing, or all.
        Afterwards the other keys may leave the ring: a process that still has the old ring only fails to open a store.
        """
        self._check_encrypted()
        driver: Any = self.database.driver
        if changed := int(await driver.rotate()):
            note = self.database.audit.of_store
            by, params = self.database.by(actor), self.database.params()
            await driver.transact(lambda: note(params, What.KEYS_ROTATED, f"to {driver.key_id}", by))
        return changed

    async def forget_subject(self, subject: str, *, actor: str | None = None) -> bool:
        """Destroy the key of a subject; False if nothing was ever stored of it, or it was forgotten before.

        What has the header `subject` with this name, and what that led to, cannot be read again: payloads, results,
        errors, steps, signals, values, streams, logs, events for outboxes, the audit. An instance of a `forgettable`
        decider is the subject `type/id`: it ends. Nothing can be added to the subject again. Another process may
        read it for a minute, for as long as it keeps keys.
        """
        self._check_encrypted()
        return await self.database.subjects.forget(check_key(subject, "subject"), self.database.by(actor))

    def _check_encrypted(self) -> None:
        self.database.check()
        if not self.database.options.encrypted:
            raise InvalidOption("codec", None, "the store was opened without encryption: `codec=Encrypted(...)`")
