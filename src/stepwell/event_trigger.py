"""Workflows that events trigger: `@on_event`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stepwell.base.names import check_priority
from stepwell.errors import InvalidOption
from stepwell.store.broadcasts import Listening, check_event
from stepwell.store.choice import choice_of
from stepwell.workflow import Workflow

W = TypeVar("W", bound=Workflow[..., Any])


def on_event(name: str, *, where: Mapping[str, Any] | None = None, priority: int = 0) -> Callable[[W], W]:
    """Trigger a run of the workflow for each event of this name that is broadcast: `@on_event("payment.received")`.

    It stands above `@workflow`, whose one parameter besides `ctx` is the event's data. With `where`, one field and its
    value, only events that have them count. Each event triggers one run of each workflow, from when a worker has served
    the workflow for the first time; then also while no worker does. Several may stand above one workflow; an event
    for which two of them stand triggers it once.
    """
    choice_of(where, b"")
    check_event(name)
    check_priority(priority)

    def decorate(workflow: W) -> W:
        _check_takes_event(workflow)
        attempts = None if workflow.retry is None else workflow.retry.max_attempts
        workflow.events = (*workflow.events, Listening(name, where, attempts, priority))
        return workflow

    return decorate


def _check_takes_event(workflow: object) -> None:
    """Refuse what is no workflow, or cannot be called with an event alone."""
    if not isinstance(workflow, Workflow) or not workflow.is_defined:
        raise InvalidOption("on_event", workflow, "it stands above `@workflow` and its function")
    arguments = workflow.arguments
    needed = [one for one in arguments.names if one not in arguments.defaults]
    if len(needed) > 1 or not arguments.names:
        why = "a workflow that an event triggers has one parameter besides `ctx`: the event's data"
        raise InvalidOption("on_event", workflow.name, why)
