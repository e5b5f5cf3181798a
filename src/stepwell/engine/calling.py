"""Which course a step call takes: its body is executed here, or by any worker of the queue it names."""

from __future__ import annotations

from stepwell.engine.calls import StepCall
from stepwell.engine.children import spawned
from stepwell.engine.requests import Course
from stepwell.engine.steps import course_of


def course(call: StepCall) -> Course:
    """The course of a call."""
    return course_of(call) if call.definition.queue is None else spawned(call)
