"""A projection for people: how it stands, in words, and what it has set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.operate.format import many, span
from stepwell.store.projections import ParkedInfo, ProjectionInfo
from stepwell.store.store import Store


@dataclass(frozen=True, slots=True)
class ProjectionView:
    """A projection, the instances that it has set aside, a hundred at the most, and a build beside it."""

    info: ProjectionInfo
    parked: Sequence[ParkedInfo]
    beside: ProjectionInfo | None


async def projection_view(store: Store, name: str) -> ProjectionView:
    """Read one projection; `ProjectionNotFound` if there is none of this name."""
    projections = store.database.projections
    info = await projections.info(name)
    others = [one for one in await projections.infos(name) if not one.live]
    return ProjectionView(info, await store.parked(name), others[0] if others else None)


def build_of(info: ProjectionInfo) -> str:
    """The number of its build, and how that stands beside the other."""
    beside = "" if info.live else ", to be swapped" if info.swapping else ", beside"
    return f"{info.build}{beside}"


def standing(info: ProjectionInfo) -> str:
    """How it stands, in a few words."""
    if info.state != "running":
        return info.state
    if info.inline:
        return "inline"
    if info.owner is None:
        return "no worker"
    return "live" if info.lag == 0 else f"{many(info.lag, 'position')} behind"


def progress(info: ProjectionInfo) -> str:
    """When and how fast it moves."""
    return f"{info.rate:.1f}/s, moved {span(info.age)} ago" if info.moved_at is not None else "not moved yet"
