"""Deprecated names: those that pgqrs and the first designs used, for code that is moved bit by bit.

Each is another name for what it is called here, and says so with a DeprecationWarning when it is imported.

These have no counterpart: `QueueAlreadyExistsError` (to create what is there does nothing), `RateLimitedError` (nothing
limits how fast is enqueued), `StepNotReadyError` (a run is claimed when its step is due), `WorkerNotFoundError` (each
worker makes its own session).
"""

from __future__ import annotations

import warnings
from typing import Any, Final

from stepwell import api

ALIASES: Final = {
    "ConfigError": "InvalidOption",
    "MessageNotFoundError": "TaskInUse",
    "PausedError": "Paused",
    "PgqrsConnectionError": "StoreUnavailable",
    "PgqrsError": "StepwellError",
    "QueueMessage": "Message",
    "QueueNotFoundError": "QueueNotFound",
    "RetriesExhaustedError": "StepFailed",
    "RunRecord": "Run",
    "StateTransitionError": "RunUnfinished",
    "StepRecord": "StepInfo",
    "StepRetryPolicy": "Retry",
    "TimeoutError": "Timeout",
    "TransientStepError": "TransientError",
    "ValidationError": "InvalidOption",
    "WorkflowDef": "Workflow",
    "WorkflowRecord": "WorkflowInfo",
    "WorkflowStatus": "RunStatus",
}


def __getattr__(name: str) -> Any:
    if name not in ALIASES:
        raise AttributeError(f"stepwell.compat has no {name!r}; it has {', '.join(ALIASES)}")
    warnings.warn(f"{name} is called {ALIASES[name]} here: import that from stepwell", DeprecationWarning, stacklevel=2)
    return getattr(api, ALIASES[name])


def __dir__() -> list[str]:
    return sorted(ALIASES)
