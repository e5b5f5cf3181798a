"""A step, a call of it, and an attempt of that call, as plain values."""

from __future__ import annotations

import inspect
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

import msgspec

from stepwell.base.backoff import Retry
from stepwell.base.limits import Limits
from stepwell.base.names import LONGEST_NAME
from stepwell.errors import InvalidName, InvalidOption, StepFailed
from stepwell.records import RunStatus
from stepwell.runs.branches import Branch
from stepwell.runs.turn import RunTurn
from stepwell.store.emission import Emission
from stepwell.store.pending import Operation
from stepwell.store.rows import StepRow
from stepwell.values.arguments import Arguments
from stepwell.values.codec import check_type, decode
from stepwell.values.own_exceptions import rebuilt
from stepwell.values.stamp import write_ordered
from stepwell.values.versions import check_place
from stepwell.work.current import current_branch
from stepwell.work.outcome import GAVE_UP, RECORDED

if TYPE_CHECKING:
    from stepwell.runs.log import AttemptLog

P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)

PASSED_ON: Final = ("type", "message", "code", "args", "fields", "as")  # to the run that called the step


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """A step: its function, its options, and the type of its result."""

    name: str
    fn: Callable[..., Any]
    arguments: Arguments | None  # None if it takes none
    returns: Any
    retry: Retry | None = None  # None for that of the store
    timeout: float | None = None
    raises: tuple[type[Exception], ...] = ()
    is_async: bool = False
    queue: str | None = None  # its workers execute the step, as a child of the run that calls it
    tx: Any = None  # True, or what opens the transaction in which its body writes and its result is recorded
    at_most_once: bool = False
    reconcile: Callable[..., Any] | None = None  # says what became of a body that was interrupted
    in_process: bool = False  # its body is called in another process
    limits: Limits | None = None  # of its queue, over all workers
    known_as: str | None = None  # the key that its body sees if it is executed for another run

    @property
    def stays_in_thread(self) -> bool:
        """Whether its body is called in the thread of a sync workflow, where nothing limits it."""
        return not (self.is_async or self.in_process) and self.timeout is None and self.tx is None


class IsStep(Protocol[P, T_co]):
    """A decorated step."""

    @property
    def definition(self) -> StepDefinition:
        """What it is."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Call it."""


class StepCall(msgspec.Struct, frozen=True, eq=False):
    """One call of a step within a run: its key and its arguments."""

    run: RunTurn
    key: str
    place: int
    definition: StepDefinition
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    input: str | None

    @classmethod
    def made(
        cls, branch: Branch, definition: StepDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> StepCall:
        """The call, with the next number of its name: it counts when it is made, not when it is awaited."""
        run = branch.run
        key = branch.key(definition.name)
        run.journal.ask(key)
        arguments = definition.arguments
        if arguments is None:
            text = None
        else:
            stored = args[1:] if arguments.takes_context else args
            if definition.queue is not None:  # otherwise the text is only compared
                arguments.refuse_losses(stored, kwargs)
            text = arguments.encode(stored, kwargs, run.slot.database.options.payload_limit, write_ordered)
        return cls(run, key, run.journal.place(key), definition, args, kwargs, text)

    @property
    def lasting_key(self) -> str:
        """A text that is the same in every attempt of this call, and unique to it."""
        return self.definition.known_as or f"{self.run.task.lasting_key}/{self.key}"

    def row(self, status: RunStatus, attempt: int, took: int) -> StepRow:
        """The row that records the call."""
        task = self.run.task
        return StepRow(task.id, task.generation, self.key, self.place, status, attempt, self.input, took=took)


class Attempt(msgspec.Struct, eq=False):
    """One attempt of a call, while its body is being executed."""

    call: StepCall
    number: int
    has_row: bool
    since: float = msgspec.field(default_factory=time.monotonic)
    shown: Operation | None = None  # the write of its row as RUNNING, if it takes long
    emissions: tuple[Emission, ...] = ()  # that its body has emitted, to be written with its result
    inputs: int = 0  # the number of inputs that its body has sent to deciders
    is_over: bool = False  # its body may go on in a thread, beside the next attempt
    reports: bool = False  # it has set a value or written to a stream
    transaction: Callable[[], Coroutine[Any, Any, Any]] | None = None  # executes a body that gets one
    log: AttemptLog | None = None  # of the lines that its body has logged
    late: Callable[[Any], object] | None = None  # called with what a body returned after its run was stopped
    rest: Callable[[], Awaitable[Any]] | None = None  # of a body that was called before: what is left of it

    @property
    def took(self) -> int:
        """Microseconds since it began."""
        return int((time.monotonic() - self.since) * 1_000_000)


def failure_of(definition: StepDefinition, key: str, error: str) -> Exception:
    """The exception of a step that gave up, from its record: of a class in `raises`, else `StepFailed`."""
    told: dict[str, Any] = decode(error)
    kind, message = str(told.get("type", "error")), str(told.get("message", ""))
    failure = rebuilt(told, definition.raises) or StepFailed(key, kind, message, told)
    BaseException.__setattr__(failure, GAVE_UP, key)  # also on one that is frozen
    BaseException.__setattr__(failure, RECORDED, {name: told[name] for name in PASSED_ON if name in told})
    return failure


def current_attempt() -> Attempt | None:
    """The attempt whose body calls this; None elsewhere. During a body it takes the place of the branch."""
    found = current_branch.get()
    return found if isinstance(found, Attempt) else None


_LAMBDA: Final = "<lambda>"
_read: Final[weakref.WeakKeyDictionary[Callable[..., Any], Arguments]] = weakref.WeakKeyDictionary()


def definition_of(step: Any, args: tuple[Any, ...], returns: Any) -> tuple[StepDefinition, tuple[Any, ...]]:
    """The definition of a step given to `ctx.step`, and the arguments of its function."""
    if not isinstance(step, str):
        definition = getattr(step, "definition", None)
        if not isinstance(definition, StepDefinition):
            raise InvalidOption("step", step, "it is a name followed by a function, or a function decorated with @step")
        return definition, args
    name = checked_step(step)
    if not args or not callable(args[0]):
        raise InvalidOption("step", step, 'a name is followed by what to call: `ctx.step("fetch", fetch, url)`')
    fn, *rest = args
    decorated = getattr(fn, "definition", None)
    if isinstance(decorated, StepDefinition):
        declared = decorated.returns if returns is None else _checked(returns)
        return replace(decorated, name=name, returns=declared), tuple(rest)
    is_async = inspect.iscoroutinefunction(fn)
    if not rest and getattr(fn, "__name__", None) == _LAMBDA:
        return StepDefinition(name, fn, None, Any if returns is None else _checked(returns), is_async=is_async), ()
    arguments = _arguments_of(fn)
    declared = arguments.returns if returns is None else _checked(returns)
    taken = arguments if arguments.names or rest else None
    return StepDefinition(name, fn, taken, declared, is_async=is_async), tuple(rest)


def checked_step(name: object) -> str:
    """The name, if a step may have it: printable text without the marks that stand between the parts of a key."""
    if not isinstance(name, str):
        raise InvalidName("step", name, f"a name is text, not {type(name).__name__}")
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or "/" in name or "#" in name:
        raise InvalidName("step", name, f"it has 1 to {LONGEST_NAME} printable characters, none of them / or #")
    return name


def _checked(returns: Any) -> Any:
    check_type(returns, what="returns")
    check_place(returns, "what a step returns")
    return returns


def _arguments_of(fn: Callable[..., Any]) -> Arguments:
    try:
        known = _read.get(fn)
    except TypeError:  # not every callable supports weak references
        return Arguments.of(fn, "step")
    if known is None:
        known = _read[fn] = Arguments.of(fn, "step")
    return known
