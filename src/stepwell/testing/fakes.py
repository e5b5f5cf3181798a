"""Bodies of steps that are replaced in one world, and in no other that may exist beside it."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any, Final

from stepwell.clock import TestClock
from stepwell.engine.context import current_run
from stepwell.errors import InvalidOption
from stepwell.step import Step

UNSAID: Final = object()
Body = Callable[[], Any]


class Fakes:
    """What stands in place of some steps' bodies, for the runs of all stores that go by one of these clocks."""

    def __init__(self) -> None:
        self.clocks: weakref.WeakSet[TestClock] = weakref.WeakSet()
        self._steps: set[Step[..., Any]] = set()

    def put(self, step: Step[..., Any], returns: object = UNSAID, raises: object = UNSAID) -> None:
        """Have the step return or raise this instead of calling its function; the last word counts."""
        if not isinstance(step, Step):
            raise InvalidOption("step", step, "pass a function decorated with @step")
        if (returns is UNSAID) == (raises is UNSAID):
            raise InvalidOption("fake", step.id, "say what the step `returns` or what it `raises`, one of them")
        if raises is not UNSAID and not _is_exception(raises):
            raise InvalidOption("raises", raises, "it is an exception, or a class of them")
        faked = _faked.setdefault(step, Faked(step))
        faked.bodies[self] = (lambda: returns) if raises is UNSAID else _raising(raises)
        self._steps.add(step)

    def undo(self) -> None:
        """Put every function back."""
        for step in self._steps:
            faked = _faked[step]
            del faked.bodies[self]
            if not faked.bodies:
                step.definition = faked.definition
                del _faked[step]
        self._steps.clear()


class Faked:
    """A step with a body that asks, at every call, whose run calls it."""

    def __init__(self, step: Step[..., Any]) -> None:
        self.definition = step.definition
        self.bodies: dict[Fakes, Body] = {}
        fn = self._async if self.definition.is_async else self._sync
        step.definition = dataclasses.replace(self.definition, fn=fn)

    async def _async(self, *args: Any, **kwargs: Any) -> Any:
        body = self._body()
        return await self.definition.fn(*args, **kwargs) if body is None else body()

    def _sync(self, *args: Any, **kwargs: Any) -> Any:
        body = self._body()
        return self.definition.fn(*args, **kwargs) if body is None else body()

    def _body(self) -> Body | None:
        clock = current_run().slot.store.clock
        return next((body for fakes, body in self.bodies.items() if clock in fakes.clocks), None)


_faked: Final[dict[Step[..., Any], Faked]] = {}


def _is_exception(raises: object) -> bool:
    return isinstance(raises, BaseException) or (isinstance(raises, type) and issubclass(raises, BaseException))


def _raising(raises: Any) -> Body:
    def body() -> Any:
        raise raises

    return body
