"""Steps that workers execute for runs elsewhere: a queue of them is a workflow that calls the one it is asked for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from stepwell.engine.context import Context, SyncContext, current_run
from stepwell.errors import InvalidOption, StepwellError
from stepwell.step import Step
from stepwell.workflow import Workflow


def workflows_of(steps: Iterable[Step[..., Any]]) -> list[Workflow[..., Any]]:
    """The steps as a worker serves them: a workflow for each of their queues."""
    queues: dict[str, dict[str, Step[..., Any]]] = {}
    for step in steps:
        if step.definition.queue is None:
            why = "it names no queue, so the runs that call it execute it themselves; say `@step(queue=...)`"
            raise InvalidOption("serves", step, why)
        known = queues.setdefault(step.definition.queue, {})
        if known.setdefault(step.id, step) is not step:
            raise InvalidOption("serves", step, f"two steps of the queue {step.definition.queue} are named {step.id}")
    return [Workflow(queue, _calling(queue, known)) for queue, known in queues.items()]


def _calling(queue: str, steps: Mapping[str, Step[..., Any]]) -> Any:
    async def call(ctx: Context, step: str, arguments: Any = None, key: str | None = None) -> Any:
        if (known := steps.get(step)) is None:
            raise StepwellError(f"this worker serves {queue} without the step {step}; serve the module that has it")
        definition = dataclasses.replace(known.definition, queue=None, known_as=key)
        taken = known.definition.arguments
        given = {} if taken is None else taken.decode(json.dumps(arguments))
        face = ctx if definition.is_async else SyncContext(current_run())
        context = (face,) if taken is not None and taken.takes_context else ()
        return await ctx.step(Step(known.fn, definition), *context, **given)

    return call
