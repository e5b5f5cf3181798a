"""Opening the store a command asks: only one that is there, with this release's tables."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from stepwell.backoff import waits
from stepwell.cli.exits import NO_STORE, USAGE, Stop
from stepwell.connecting import Config, file_of, open_store
from stepwell.errors import CannotOpen, StoreBusy, StoreUnavailable, StoreUnusable
from stepwell.redaction import redact_url
from stepwell.store.store import Store
from stepwell.telemetry import StoreBack, StoreLost, Telemetry

LONGEST_WAIT: Final = 1.0  # seconds between two tries


@asynccontextmanager
async def opened(
    url: str | None, *, install: bool = False, telemetry: Telemetry | None = None, patient: bool = False
) -> AsyncIterator[Store]:
    """The store, open; with `install` made or upgraded, else neither a file nor a table is made by looking at it.

    With `patient`, however long its database is away, slow or locked.
    """
    config = Config(url, install=install, listen=install, telemetry=telemetry or Telemetry(log=install))
    check_there(config, install=install)
    store = await (_open_patiently(config) if patient else open_store(config))
    try:
        yield store
    finally:
        await store.close()


async def _open_patiently(config: Config) -> Store:
    lost_at: float | None = None
    pauses = waits(LONGEST_WAIT, config.clock.random)
    while True:
        try:
            store = await open_store(config)
        except (CannotOpen, StoreBusy, StoreUnavailable) as error:
            if isinstance(error.__cause__, StoreUnusable):
                raise  # a person has to look at it
            config.telemetry.emit(StoreLost.by(error))
            lost_at = time.monotonic() if lost_at is None else lost_at
        else:
            if lost_at is not None:
                config.telemetry.emit(StoreBack(time.monotonic() - lost_at))
            return store
        await asyncio.sleep(next(pauses))


def check_there(config: Config, *, install: bool) -> None:
    """Refuse a file that is not there; opening it would make it."""
    if install or not config.url.startswith(("sqlite:", "turso:", "memory:")):
        return
    if config.url.startswith("memory:"):
        said = "memory: is a store of one process alone, and this one has just begun: there is nothing in it"
        raise Stop(USAGE, said, "--url sqlite:///stepwell.db")
    path = Path(file_of(config.url))
    if str(path) != ":memory:" and not path.exists():
        raise Stop(
            NO_STORE, f"there is no store at {redact_url(config.url)}", "--url, or `stepwell migrate` to make it"
        )
