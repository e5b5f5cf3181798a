"""What an operator does to a store as a whole: `stepwell.admin(store)`.

The work is in `store/schema.py`; this is the door to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.store import schema

if TYPE_CHECKING:
    from stepwell.store.store import Store


def admin(store: Store) -> Admin:
    """The operator's side of a store; of a sync store, pass its `async_store` and await on its loop."""
    return Admin(store)


class Admin:
    """Installs and checks the tables of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def install(self) -> None:
        """Make or upgrade the tables; may be repeated, and called by any number of processes at once."""
        await schema.install(self._store.driver, self._store.statements)

    async def verify(self) -> None:
        """Raise unless the tables are exactly this release's: `SchemaMissing`, `SchemaNewer` or `SchemaDiffers`."""
        await schema.verify(self._store.driver, self._store.statements)
