"""A worker whose process seems to be gone, or stands still for a while."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stepwell import Store
from stepwell.work.heartbeat import Heartbeat
from tests.ground.waiting import until


async def silence(store: Store) -> None:
    """Let no beat of the store's workers come any more; none is under way when this returns."""
    heartbeat = Heartbeat.of(store.database)
    if heartbeat._thread is None:
        return
    heartbeat._sessions.clear()
    heartbeat._wake.set()
    await until(heartbeat._quiet.is_set, 30)  # a beat under way may wait for its whole time, a third of the lease


@asynccontextmanager
async def stillness(store: Store) -> AsyncIterator[None]:
    """Let no beat of the store's workers come inside of the block: what others write of them is not heard before."""
    heartbeat = Heartbeat.of(store.database)
    sessions = list(heartbeat._sessions.values())
    await silence(store)
    try:
        yield
    finally:
        for session in sessions:
            heartbeat.add(session)
