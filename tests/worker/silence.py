"""A worker whose process seems to be gone."""

from stepwell import Store
from stepwell.work.heartbeat import Heartbeat
from tests.ground.waiting import until


async def silence(store: Store) -> None:
    """Let no beat of the store's workers come any more; none is under way when this returns."""
    heartbeat = Heartbeat.of(store)
    heartbeat._sessions.clear()
    heartbeat._wake.set()
    await until(heartbeat._quiet.is_set)
