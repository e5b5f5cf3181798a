"""Open the store of a command, if it exists with the tables of this release; and the exit codes of errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from stepwell import errors
from stepwell.base.backoff import waits
from stepwell.base.events import StoreBack, StoreLost
from stepwell.base.redaction import redact_url
from stepwell.base.telemetry import Telemetry
from stepwell.cli.command import FAILED, NO_STORE, NOT_FOUND, REFUSED, USAGE, Stop
from stepwell.connect import Config, file_of, open_store
from stepwell.errors import CannotOpen, StoreBusy, StoreUnavailable, StoreUnusable
from stepwell.operate.lookup import NameRefused
from stepwell.store.store import Store

LONGEST_WAIT: Final = 1.0  # seconds between two tries
_HELPS: Final[dict[type[BaseException], str]] = {
    errors.DeciderNotFound: "--app with the module that has it",
    errors.ProjectionNotFound: "stepwell projection ls",
    errors.ScheduleNotFound: "stepwell schedule ls",
    errors.CannotOpen: "start the database, or name another with --url or STEPWELL_URL",
    errors.SchemaDiffers: "stepwell migrate --sql, which prints what they should be",
    errors.SchemaNewer: "pip install --upgrade stepwell",
    errors.StoreUnavailable: "stepwell doctor",
    errors.StoreBusy: "the same once more",
    errors.UnknownStore: "--url sqlite:///stepwell.db",
}
_CODES: Final = {
    NOT_FOUND: (
        errors.DeciderNotFound,
        errors.ProjectionNotFound,
        errors.QueueNotFound,
        errors.RunNotFound,
        errors.NotInDoubt,
        errors.ScheduleNotFound,
        errors.StepNotFound,
        errors.WorkflowNotFound,
    ),
    USAGE: (errors.InvalidName, errors.InvalidOption, errors.SerializationError, errors.UnknownStore, TypeError),
    FAILED: (errors.ExecutionFailed, errors.RequestUnanswered, errors.Timeout),
    NO_STORE: (
        errors.DriverMissing,
        errors.SchemaDiffers,
        errors.SchemaMissing,
        errors.SchemaNewer,
        errors.StoreBusy,
        errors.StoreInUse,
        errors.StoreUnavailable,
        errors.StoreUnusable,
    ),
}
_REASONS: Final = {"missing": NOT_FOUND, "several": REFUSED, "malformed": USAGE}


@asynccontextmanager
async def opened(
    url: str | None, *, install: bool = False, telemetry: Telemetry | None = None, patient: bool = False
) -> AsyncIterator[Store]:
    """The open store; with `install` it is created or upgraded, otherwise no file or table is created.

    With `patient` it waits while the database is away, slow or locked.
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
    """Refuse a file that does not exist; to open it would create it."""
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


def stop_for(error: BaseException) -> Stop:
    """The exit code, sentence and next command for an error that ends a command."""
    match error:
        case NameRefused():
            return Stop(_REASONS[error.reason], str(error), error.instead)
        case errors.SchemaMissing():
            missing = "the database has no stepwell tables, or older ones"
            said = str(error) if "has schema" in str(error) else missing
            return Stop(NO_STORE, said.partition("; connect")[0], "stepwell migrate")
        case errors.WorkflowNotFound():
            return Stop(NOT_FOUND, f"no workflow is named {error.name}", "stepwell worker APP, which makes those in it")
        case errors.QueueNotFound():
            return Stop(NOT_FOUND, f"no queue is named {error.name}", "stepwell queue ls")
        case errors.RunNotFound():
            return Stop(NOT_FOUND, str(error), "stepwell runs")
        case errors.IdempotencyConflict() | errors.KeyInUse() | errors.KeyTaken():
            return Stop(REFUSED, str(error), f"stepwell show {error.existing}")
        case errors.ExecutionFailed():
            return Stop(FAILED, str(error).partition("; `store.")[0], f"stepwell show {int(error.run_id)}")
    for code, kinds in _CODES.items():
        if isinstance(error, kinds):
            return Stop(code, str(error), _HELPS.get(type(error)))
    return Stop(REFUSED, str(error))
