"""Durable queues, workflows and deciders in one store, on the database you already have."""

from stepwell._version import __version__
from stepwell.admin import Admin, admin
from stepwell.backoff import Retry
from stepwell.connecting import Config, connect, connect_with
from stepwell.errors import (
    DriverMissing,
    ExecutionFailed,
    ForkError,
    IdempotencyConflict,
    InvalidName,
    InvalidOption,
    LeaseLost,
    Paused,
    PauseError,
    PayloadTooLarge,
    PermanentError,
    QueueNotFound,
    Refused,
    SchemaDiffers,
    SchemaMissing,
    SchemaNewer,
    SerializationError,
    StepwellError,
    StoreBusy,
    StoreClosed,
    StoreInUse,
    StoreUnavailable,
    Timeout,
    TransientError,
    UnknownStore,
    WorkflowNotFound,
    WrongLoop,
)
from stepwell.queue import Handler, handler
from stepwell.records import DeadLetter, Page, QueueInfo, RunStatus, Task, TaskId, TaskKind, WorkerInfo
from stepwell.store.store import Store
from stepwell.worker import Worker
