"""Opening the store a command asks: only one that is there, with this release's tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stepwell.cli.exits import NO_STORE, USAGE, Stop
from stepwell.connecting import Config, connect_with, file_of
from stepwell.redaction import redact_url
from stepwell.store.store import Store
from stepwell.telemetry import Telemetry


@asynccontextmanager
async def opened(url: str | None, *, install: bool = False, telemetry: Telemetry | None = None) -> AsyncIterator[Store]:
    """The store, open; with `install` made or upgraded, else neither a file nor a table is made by looking at it."""
    config = Config(url, install=install, listen=install, telemetry=telemetry or Telemetry(log=install))
    check_there(config, install=install)
    async with connect_with(config) as store:
        yield store


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
