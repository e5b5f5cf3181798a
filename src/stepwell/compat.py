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
from stepwell.engine import Engine
from stepwell.store.store import Store
from stepwell.worker import Worker

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
BUILDERS: Final = ("build_engine", "build_runtime", "build_service")


def build_service(store: Store, *deciders: Any) -> Engine:
    """An engine that executes inputs of these deciders; no worker is started: here `Engine(store).register(...)`."""
    _warn("build_service", "Engine(store).register(...)")
    return _engine(store, deciders)


def build_runtime(store: Store, *deciders: Any) -> Worker:
    """A worker for what inputs of these deciders lead to, and nothing else: here `Worker(store, [engine])`."""
    _warn("build_runtime", "Worker(store, [engine])")
    return Worker(store, [_engine(store, deciders)])


def build_engine(store: Store, *deciders: Any) -> Engine:
    """An engine that executes inputs, and whose `run` is the worker for what they lead to: here `Engine(store)`."""
    _warn("build_engine", "Engine(store).register(...)")
    return _engine(store, deciders)


def _engine(store: Store, deciders: tuple[Any, ...]) -> Engine:
    engine = Engine(store)
    for decider in deciders:
        engine.register(decider)
    return engine


def _warn(name: str, instead: str) -> None:
    warnings.warn(f"{name} is written {instead} here", DeprecationWarning, stacklevel=3)


def __getattr__(name: str) -> Any:
    if name not in ALIASES:
        raise AttributeError(f"stepwell.compat has no {name!r}; it has {', '.join([*ALIASES, *BUILDERS])}")
    warnings.warn(f"{name} is called {ALIASES[name]} here: import that from stepwell", DeprecationWarning, stacklevel=2)
    return getattr(api, ALIASES[name])


def __dir__() -> list[str]:
    return sorted([*ALIASES, *BUILDERS])
