"""The exit codes of the command line, and which error has which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stepwell import errors

OK: Final = 0
FAILED: Final = 1  # the run that was waited for failed, or a check found a problem
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4  # it is there, and its state does not allow this
NO_STORE: Final = 5  # the database does not answer, or its tables are missing, older or newer
INTERRUPTED: Final = 130

_HELPS: Final[dict[type[BaseException], str]] = {
    errors.DeciderNotFound: "--app with the module that has it",
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
        errors.QueueNotFound,
        errors.RunNotFound,
        errors.StepNotFound,
        errors.WorkflowNotFound,
    ),
    USAGE: (errors.InvalidName, errors.InvalidOption, errors.SerializationError, errors.UnknownStore, TypeError),
    FAILED: (errors.ExecutionFailed, errors.Timeout),
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


class Stop(Exception):  # noqa: N818 - it ends the command; most of the time that is an error, not always
    """The command ends here: with this sentence, and a command that helps."""

    def __init__(self, code: int, said: str, next_: str | None = None) -> None:
        super().__init__(said)
        self.code = code
        self.said = said
        self.next = next_


@dataclass(frozen=True, slots=True)
class Told:
    """An error as a person reads it: one sentence, and what to try."""

    code: int
    said: str
    next: str | None = None


def told(error: BaseException) -> Told:
    """The exit code, sentence and next command of an error that a command can end with."""
    match error:
        case Stop():
            return Told(error.code, error.said, error.next)
        case errors.SchemaMissing():
            missing = "the database has no stepwell tables, or older ones"
            said = str(error) if "has schema" in str(error) else missing
            return Told(NO_STORE, said.partition("; connect")[0], "stepwell migrate")
        case errors.WorkflowNotFound():
            return Told(NOT_FOUND, f"no workflow is named {error.name}", "stepwell worker APP, which makes those in it")
        case errors.QueueNotFound():
            return Told(NOT_FOUND, f"no queue is named {error.name}", "stepwell queue ls")
        case errors.RunNotFound():
            return Told(NOT_FOUND, str(error), "stepwell runs")
        case errors.IdempotencyConflict() | errors.KeyTaken():
            return Told(REFUSED, str(error), f"stepwell show {error.existing}")
        case errors.ExecutionFailed():
            return Told(FAILED, str(error).partition("; `store.")[0], f"stepwell show {int(error.run_id)}")
    for code, kinds in _CODES.items():
        if isinstance(error, kinds):
            return Told(code, str(error), _HELPS.get(type(error)))
    return Told(REFUSED, str(error))
