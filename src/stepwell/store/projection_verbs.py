"""The verbs by which people look after projections: see how they stand, pause, reset and rebuild them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepwell.base.durations import Duration
from stepwell.store.projections import ParkedInfo, ProjectionInfo

if TYPE_CHECKING:
    from stepwell.store.database import Database


class ProjectionVerbs:
    """Projections as operators see them."""

    database: Database

    async def projections(self) -> Sequence[ProjectionInfo]:
        """How every projection stands, by name: position, lag, rate, failures, what is parked, who drives it."""
        return await self.database.projections.infos()

    async def parked(self, projection: str) -> Sequence[ParkedInfo]:
        """The instances that a projection has set aside, the oldest first; a hundred at the most."""
        return await self.database.projections.parked_infos(projection)

    async def pause_projection(self, name: str, *, actor: str | None = None) -> bool:
        """Keep a projection where it is until it is resumed; False if it does not run. A batch under way is undone."""
        return await self.database.projections.change("pause_projection", name, self.database.by(actor))

    async def resume_projection(self, name: str, *, actor: str | None = None) -> bool:
        """Let a projection go on that was paused or has stopped; False if it runs."""
        return await self.database.projections.change("resume_projection", name, self.database.by(actor))

    async def reset_projection(self, name: str, *, actor: str | None = None) -> None:
        """Let a projection begin again with the first event; its `begin` is called first, to empty its tables."""
        await self.database.projections.reset(name, self.database.by(actor))

    async def inline_projection(self, name: str, *, inline: bool = True, actor: str | None = None) -> bool:
        """Let decisions write its rows, if every process that decides knows it as inline; False if nothing changes."""
        return await self.database.inline.let(name, self.database.by(actor), inline=inline)

    async def rebuild_projection(self, name: str, *, actor: str | None = None) -> int:
        """Make a projection anew from the first event on, beside the live one; returns the number of the build.

        A build that is beside it already is dropped. Raises `InvalidOption` if the projection does not say its tables.
        """
        return await self.database.builds.rebuild(name, self.database.by(actor))

    async def swap_projection(self, name: str, *, keep_old: Duration = "1d", actor: str | None = None) -> bool:
        """Let the build beside the live one become the live one as soon as it has come as far; False if there is none.

        A worker does it. The other build goes on beside it, so that another swap brings it back, for `keep_old`.
        """
        return await self.database.builds.ask_for_swap(name, keep_old, self.database.by(actor))

    async def retry_projection(
        self, name: str, instance: tuple[str, str] | None = None, *, actor: str | None = None
    ) -> bool:
        """Try again what failed: an instance `(type, id)` that was parked, else the event at which it has stopped.

        False if the instance is not parked, or the projection has not stopped.
        """
        verbs, by = self.database.projections, self.database.by(actor)
        if instance is None:
            return await verbs.change("resume_projection", name, by)
        return await verbs.retry(name, instance, by, skipped=0)

    async def skip_in_projection(
        self, name: str, instance: tuple[str, str] | None = None, *, actor: str | None = None
    ) -> bool:
        """As `retry_projection`, without the event that failed: the projection never sees it."""
        verbs, by = self.database.projections, self.database.by(actor)
        if instance is None:
            return await verbs.change("skip_failed_event", name, by)
        return await verbs.retry(name, instance, by, skipped=1)
