"""The verbs by which people read the audit, seal it, and find out whether a row was changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.records import AuditNote, Page
from stepwell.store.seals import AuditVerdict

if TYPE_CHECKING:
    from stepwell.store.database import Database


class AuditVerbs:
    """The audit as people read it."""

    database: Database

    async def audit(self, *, limit: int = 100, after: str | None = None) -> Page[AuditNote]:
        """What was noted of all tasks and of the store itself, the newest first."""
        return await self.database.excerpts.notes(limit=limit, after=after)

    async def seal_audit(self) -> str:
        """Seal all notes that wait for it, and return the hash of the newest seal, empty if there is none.

        Workers do it once a minute, with `connect(seal_audit=True)`. Keep the hash where those who can write to the
        database cannot: `verify_audit(head=)` then notices, too, if seals were cut off, or all made anew.
        """
        return await self.database.seals.seal_all()

    async def verify_audit(self, *, head: str | None = None) -> AuditVerdict:
        """Look whether each seal still fits its notes and the seal before; `head` is a hash that was kept elsewhere.

        It finds notes that were changed, removed or added under a seal, and seals that were changed or removed. It
        reads all of the audit that is sealed.
        """
        return await self.database.seals.verify(head)
