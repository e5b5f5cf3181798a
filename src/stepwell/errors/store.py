"""Errors of the database and of the store that has it open."""
# ruff: noqa: N818 - the names are the API's words; `LeaseLost` says more than `LeaseLostError`

from __future__ import annotations

from stepwell.base.redaction import redact, redact_url
from stepwell.errors.base import StepwellError, shown

_DRIVERS = {"postgres": "asyncpg", "turso": "pyturso", "webhooks": "aiohttp"}


class UnknownStore(StepwellError):
    """A URL names no kind of store."""

    def __init__(self, url: str) -> None:
        self.url = redact_url(url)
        super().__init__(
            f"no store opens {shown(self.url)}; use postgresql://..., sqlite:///file.db, turso:///file.db or memory:"
        )


class DriverMissing(StepwellError):
    """The driver for this kind of store, or for webhooks, is not installed."""

    def __init__(self, extra: str) -> None:
        package = _DRIVERS.get(extra, extra)
        super().__init__(
            f"the driver for {extra} is not installed: pip install {package}, or install stepwell with its extra "
            f"`{extra}` from where you have it"
        )
        self.extra = extra


class StoreUnavailable(StepwellError):
    """The database did not answer; whether it did the work is unknown."""

    def __init__(self, why: object = "no answer") -> None:
        self.why = redact(str(why))
        super().__init__(
            f"the database did not answer ({self.why}); whether it did the work is unknown: repeat what has a "
            "key, look first at what has none"
        )


class CannotOpen(StoreUnavailable):
    """The store could not be opened; nothing was asked of it yet."""

    def __init__(self, url: str, why: object) -> None:
        StepwellError.__init__(self, f"cannot open {redact_url(url)}: {redact(str(why))}")
        self.url = redact_url(url)
        self.why = redact(str(why))


class StoreBusy(StepwellError):
    """The database is locked by other writers; nothing was written, try again."""


class StoreLocked(StoreBusy):
    """A transaction that has not ended holds a row or a key that this needs; nothing was written, try again."""


class Refused(StepwellError):
    """The database refused this row, for its integrity or its data; repeating will not help."""

    def __init__(self, why: object) -> None:
        self.why = redact(str(why))
        super().__init__(f"the database refused the row: {self.why}; repeating will not help")


class StoreUnusable(StepwellError):
    """The database will not do this, now or later: a table, a right or a feature is missing."""

    def __init__(self, why: object) -> None:
        self.why = redact(str(why))
        super().__init__(
            f"the database will not do this: {self.why}; check the rights of the user and, with "
            "`stepwell.admin(store).verify()`, the tables"
        )


class SchemaNewer(StepwellError):
    """The store was written by a later release."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(f"the store has schema {found}, this release knows up to {known}; upgrade stepwell here")
        self.found = found
        self.known = known


class SchemaMissing(StepwellError):
    """The database holds no stepwell tables; connect once with `install=True`."""


class SchemaDiffers(StepwellError):
    """The tables are not the ones this release made."""

    def __init__(self, difference: str) -> None:
        said = f"the tables differ from this release's schema: {difference}"
        super().__init__(f"{said}; restore them, or use another `schema`")
        self.difference = difference


class StoreInUse(StepwellError):
    """Another process has this Turso file open."""

    def __init__(self, pid: int | None = None) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{holder} has this file open and Turso serves one process; stop it, or use sqlite:///")
        self.pid = pid


class StoreClosed(StepwellError):
    """This store is closed; open another with `stepwell.connect`."""


class ForkError(StepwellError):
    """This store was opened before the process forked; open one of your own in the child."""


class WrongLoop(StepwellError):
    """This store belongs to another event loop or thread; open one there, or use `stepwell.sync.connect`."""
