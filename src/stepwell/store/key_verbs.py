"""The verbs by which people look after the keys of an encrypted store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
        self.database.check()
        if not self.database.options.encrypted:
            raise InvalidOption("codec", None, "the store was opened without encryption: `codec=Encrypted(...)`")
        driver: Any = self.database.driver
        if changed := int(await driver.rotate()):
            note = self.database.audit.of_store
            by, params = self.database.by(actor), self.database.params()
            await driver.transact(lambda: note(params, What.KEYS_ROTATED, f"to {driver.key_id}", by))
        return changed
