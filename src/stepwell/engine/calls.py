"""A step, one call of it, and one attempt of that call: the plain values that the course of a step is made of."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from stepwell.arguments import Arguments
from stepwell.backoff import Retry
from stepwell.codec import encode_ordered
from stepwell.engine.branches import Branch, current_branch
from stepwell.engine.run import RunTurn
from stepwell.records import RunStatus, StepRow
from stepwell.store.lanes import Operation


@dataclass(frozen=True, slots=True)
class Definition:
    """What a step is: how it is called, how often it is tried, and as what its result comes back."""

    name: str
    fn: Callable[..., Any]
    arguments: Arguments | None  # None if it takes none
    returns: Any
    retry: Retry | None = None  # None leaves it to the store
    timeout: float | None = None
    raises: tuple[type[Exception], ...] = ()
    is_async: bool = False
    queue: str | None = None  # whose workers execute it, as a child of the run that calls it
    known_as: str | None = None  # what its body is told as its key where it is executed for a run elsewhere


class StepCall(msgspec.Struct, frozen=True, eq=False):
    """One call of a step within a run: which, by its key, and with what."""

    run: RunTurn
    key: str
    place: int
    definition: Definition
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    input: str | None

    @classmethod
    def made(cls, branch: Branch, definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepCall:
        """Take the call's number now, when it is made; when it is awaited is up to the loop."""
        run = branch.run
        key = branch.key(definition.name)
        run.journal.ask(key)
        arguments = definition.arguments
        if arguments is None:
            text = None
        else:
            stored = args[1:] if arguments.takes_context else args
            if definition.queue is not None:  # elsewhere the body gets what is given, and the text is only compared
                arguments.refuse_losses(stored, kwargs)
            text = arguments.encode(stored, kwargs, run.slot.store.options.payload_limit, encode_ordered)
        return cls(run, key, run.journal.place(key), definition, args, kwargs, text)

    @property
    def lasting_key(self) -> str:
        """A text that is the same in every attempt of this call, wherever its body is executed, and nowhere else."""
        return self.definition.known_as or f"{self.run.task.lasting_key}/{self.key}"

    def row(self, status: RunStatus, attempt: int, took: int) -> StepRow:
        """What is recorded of the call."""
        task = self.run.task
        return StepRow(task.id, task.generation, self.key, self.place, status, attempt, self.input, took=took)


class Attempt(msgspec.Struct, eq=False):
    """One try of a call, while its body is being executed."""

    call: StepCall
    number: int
    has_row: bool
    since: float = msgspec.field(default_factory=time.monotonic)
    shown: Operation | None = None  # the write that says it is at work, if it takes a while
    inputs: int = 0  # to deciders, that its body has asked for
    late: Callable[[Any], object] | None = None  # told what a body returned after its run was stopped

    @property
    def took(self) -> int:
        """Microseconds since it began."""
        return int((time.monotonic() - self.since) * 1_000_000)


def current_attempt() -> Attempt | None:
    """The attempt whose body asks; None anywhere else. While a body is executed it stands in place of the branch."""
    found = current_branch.get()
    return found if isinstance(found, Attempt) else None
