"""Every error that stepwell raises, in the families a caller can act on.

Each says what happened, to which id, and what to do next; the facts are attributes. Drivers translate into these
once, `from` the original, so the code above them knows no error of a database, and no message shows a password. An
error that no caller could act on must not be here.
"""

from stepwell.errors.base import Paused, PauseError, PermanentError, StepwellError, Timeout, TransientError
from stepwell.errors.deciders import DeciderNotFound, DuplicateDecider, UnknownRecord, UnknownWorkflowType
from stepwell.errors.runs import (
    DuplicateWorkflow,
    ExecutionFailed,
    NonDeterminismError,
    NotInRun,
    NoWorkerAvailable,
    RunCancelled,
    RunNotFound,
    RunUnfinished,
    StepFailed,
    StepNotFound,
    TaskFactoryReplaced,
    WorkflowNotFound,
)
from stepwell.errors.store import (
    CannotOpen,
    DriverMissing,
    ForkError,
    Refused,
    SchemaDiffers,
    SchemaMissing,
    SchemaNewer,
    StoreBusy,
    StoreClosed,
    StoreInUse,
    StoreLocked,
    StoreUnavailable,
    StoreUnusable,
    UnknownStore,
    WrongLoop,
)
from stepwell.errors.tasks import (
    IdempotencyConflict,
    KeyTaken,
    LeaseLost,
    QueueDraining,
    QueueInUse,
    QueueNotFound,
    TaskInUse,
)
from stepwell.errors.values import InvalidName, InvalidOption, PayloadTooLarge, SerializationError, UpcastFailed

__all__ = [
    "CannotOpen",
    "DeciderNotFound",
    "DriverMissing",
    "DuplicateDecider",
    "DuplicateWorkflow",
    "ExecutionFailed",
    "ForkError",
    "IdempotencyConflict",
    "InvalidName",
    "InvalidOption",
    "KeyTaken",
    "LeaseLost",
    "NoWorkerAvailable",
    "NonDeterminismError",
    "NotInRun",
    "PauseError",
    "Paused",
    "PayloadTooLarge",
    "PermanentError",
    "QueueDraining",
    "QueueInUse",
    "QueueNotFound",
    "Refused",
    "RunCancelled",
    "RunNotFound",
    "RunUnfinished",
    "SchemaDiffers",
    "SchemaMissing",
    "SchemaNewer",
    "SerializationError",
    "StepFailed",
    "StepNotFound",
    "StepwellError",
    "StoreBusy",
    "StoreClosed",
    "StoreInUse",
    "StoreLocked",
    "StoreUnavailable",
    "StoreUnusable",
    "TaskFactoryReplaced",
    "TaskInUse",
    "Timeout",
    "TransientError",
    "UnknownRecord",
    "UnknownStore",
    "UnknownWorkflowType",
    "UpcastFailed",
    "WorkflowNotFound",
    "WrongLoop",
]

# In which module a class stands is no part of the API: tracebacks and pickles name it as callers import it.
for _name in __all__:
    globals()[_name].__module__ = __name__
