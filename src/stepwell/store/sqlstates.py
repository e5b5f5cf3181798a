"""What an error of Postgres means, by its SQLSTATE, whichever driver reports it."""

from __future__ import annotations

from stepwell.errors import (
    InvalidOption,
    Refused,
    StepwellError,
    StoreBusy,
    StoreLocked,
    StoreUnavailable,
    StoreUnusable,
)


def meaning(state: str, error: object) -> StepwellError:
    """Say which of the driver's errors it is."""
    why = f"{error} [{state}]"
    if state == "55P03":  # lock timeout, or `nowait`
        return StoreLocked(why)
    if state in {"40001", "40P01", "57014"}:  # serialization, deadlock, statement timeout
        return StoreBusy(why)
    if state[:2] in {"22", "23"}:
        return Refused(why)
    if state[:2] in {"0A", "28", "3D", "3F", "42"}:  # feature, login, database, schema; a right, a table, our own SQL
        return StoreUnusable(why)
    # Whatever else it is (a fail-over makes the server read-only, a restart refuses logins) may pass.
    return StoreUnavailable(why)


def refused_transaction(tx: object, state: str) -> InvalidOption | None:
    """The error if it is the user's own transaction that takes no more; None if it is something else."""
    match state:
        case "25P02":
            return InvalidOption("tx", tx, "its transaction has failed: roll it back and begin another")
        case "25006":
            return InvalidOption("tx", tx, "its transaction is read-only: join one that may write")
        case _:
            return None
