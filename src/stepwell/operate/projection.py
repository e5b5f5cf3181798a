"""A projection for people: how it stands, in words, and what it has set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.operate.format import many, span
from stepwell.store.projections import ParkedInfo, ProjectionInfo
from stepwell.store.store import Store


@dataclass(frozen=True, slots=True)
class ProjectionView:
    """A projection, and the instances that it has set aside; a hundred at the most."""

    info: ProjectionInfo
    parked: Sequence[ParkedInfo]


async def projection_view(store: Store, name: str) -> ProjectionView:
    """Read one projection; `ProjectionNotFound` if there is none of this name."""
    return ProjectionView(await store.projection_verbs.info(name), await store.parked(name))


def standing(info: ProjectionInfo) -> str:
    """How it stands, in a few words."""
    if info.state != "running":
        return info.state
    if info.owner is None:
        return "no worker"
    return "live" if info.lag == 0 else f"{many(info.lag, 'position')} behind"


def progress(info: ProjectionInfo) -> str:
    """When and how fast it moves."""
    return f"{info.rate:.1f}/s, moved {span(info.age)} ago" if info.moved_at is not None else "not moved yet"
