"""Branches: they give each call of a run a key that is the same on every replay.

A step's key is the path of its branch, its name, and how many calls of that name the branch made before. A branch is a
task: it is labelled when the task is created, by its coroutine's name and how many of that name its parent made before.
So loops, gathers of steps and gathers of whole sequences find their records again, whatever the loop does first.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stepwell.base.compat import AnyCoroutine, caller, made_by, unwrapped
from stepwell.errors import InvalidOption, NotInRun, PermanentError, TaskFactoryReplaced
from stepwell.work.current import current_branch

if TYPE_CHECKING:
    from stepwell.runs.turn import RunTurn

T = TypeVar("T")


class Branch:
    """One line of calls within a run."""

    __slots__ = ("_calls", "_children", "path", "run", "tasks")

    def __init__(self, run: RunTurn, path: str = "") -> None:
        self.run = run
        self.path = path
        self.tasks: set[asyncio.Task[Any]] = set()
        self._calls: dict[str, int] = {}
        self._children: dict[str, int] = {}

    def key(self, name: str) -> str:
        """The key of the next call of this name; taken when the call is made, not when it is awaited."""
        number = self._calls[name] = self._calls.get(name, 0) + 1
        return f"{self.path}{name}#{number}"

    def check_caller(self, call: str) -> None:
        """Refuse a call from another thread or from a task without a label: a replay could not find it again."""
        run = self.run
        if run.is_sync:
            return
        if threading.get_ident() != run.home:
            raise NotInRun(
                f"{call} was called in a thread that does not belong to run {run.task.id}; "
                "call it in the workflow itself; `.local(...)` calls a step's function without recording it"
            )
        if asyncio.current_task(run.loop) not in self.tasks:
            raise TaskFactoryReplaced(call)

    def child(self, label: str) -> Branch:
        """A new branch for a task with this label."""
        number = self._children[label] = self._children.get(label, 0) + 1
        path = f"{self.path}{label}:{number}/"
        self.run.journal.begin(path)
        return Branch(self.run, path)


class Made:
    """The calls of an async run that may not have begun: a coroutine without `await` does nothing."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[tuple[Coroutine[Any, Any, Any], str, CodeType, int]] = []

    def note(self, coroutine: Coroutine[Any, Any, T], call: str) -> Coroutine[Any, Any, T]:
        """Remember where a call was made until it has begun; nearly always it has when the next call is made."""
        calls = self._calls
        while calls and not _is_unbegun(calls[-1][0]):
            calls.pop()
        frame = caller("stepwell")
        calls.append((coroutine, call, frame.f_code, frame.f_lasti))
        return coroutine

    def forgive(self) -> None:
        """Forget all calls: those that have not begun may have been left out on purpose."""
        self._calls.clear()

    def forgotten(self, tasks: Iterable[asyncio.Task[Any]]) -> PermanentError | None:
        """The error of a run that returned without awaiting one of its calls; None if there is no such call."""
        given = {task.get_coro() for task in tasks}
        left = [one for one in self._calls if _is_unbegun(one[0]) and one[0] not in given]
        for coroutine, *_ in left:
            coroutine.close()  # or Python would warn of it later
        if not left:
            return None
        _, call, code, instruction = left[0]
        more = f" ({len(left) - 1} more)" if len(left) > 1 else ""
        return PermanentError(
            f"{call} was called without `await` in {place_of(code, instruction)}{more}, so it was not executed: "
            f"write `await {call}(...)`, deploy that, and retry the run"
        )


def _is_unbegun(coroutine: Any) -> bool:
    return coroutine.cr_frame is not None and not coroutine.cr_running and not coroutine.cr_suspended


def place_of(code: CodeType, instruction: int) -> str:
    """A place in code, for people: its file and line."""
    lines = [line for start, end, line in code.co_lines() if start <= instruction < end and line is not None]
    return f"{code.co_filename}, line {lines[0] if lines else code.co_firstlineno}"


def other_colour(run: RunTurn, call: str) -> PermanentError:
    """The error for an async call in a sync workflow, which would do nothing, or for a sync call in an async one."""
    frame = caller("stepwell")
    if run.is_sync:
        how = f"the async {call} was called in a sync workflow, which cannot await it: use that of `stepwell.sync`"
    else:
        how = f"the sync {call} was called in an async workflow, whose loop it would block: say `await {call}(...)`"
    return PermanentError(f"{how}, or `ctx`, in {place_of(frame.f_code, frame.f_lasti)}")


class Factory:
    """A task factory that gives every task created inside a run its branch, and leaves all others alone."""

    def __init__(self, before: Callable[..., asyncio.Task[Any]] | None) -> None:
        self.before = before
        self.users = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: AnyCoroutine, **options: Any) -> asyncio.Task[Any]:
        context: contextvars.Context | None = options.get("context")
        branch = current_branch.get() if context is None else context.get(current_branch)
        if not isinstance(branch, Branch) or self.users == 0:  # no run; or called by a later factory
            return self._make(loop, coro, options)
        inner = unwrapped(coro)
        own = branch if _continues(inner) else branch.child(_label_of(inner))
        options["context"] = context = contextvars.copy_context() if context is None else context.copy()
        context.run(current_branch.set, own)
        task = self._make(loop, coro, options)
        own.tasks.add(task)
        task.add_done_callback(own.tasks.discard)
        branch.run.joined(task, own.path)
        return task

    def _make(self, loop: asyncio.AbstractEventLoop, coro: AnyCoroutine, options: dict[str, Any]) -> asyncio.Task[Any]:
        if self.before is not None:
            return self.before(loop, coro, **options)
        return asyncio.Task(coro, loop=loop, **options)


class Labels:
    """Gives branches to the tasks that runs create on the running loop, until the block ends.

    It is not a generator: the garbage collector ends a generator that is left in its block, and a worker whose loop was
    closed would uninstall the factory of a loop that is gone.
    """

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        install(self._loop)

    def __exit__(self, *_: object) -> None:
        uninstall(self._loop)


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Set the factory on this loop; workers are counted, so that several share one factory."""
    for closed in [one for one in _installed if one.is_closed()]:
        del _installed[closed]
    factory = _installed.get(loop)
    if factory is None:  # set once: a factory that was set later may wrap this one, and no task gets two labels
        factory = _installed[loop] = Factory(loop.get_task_factory())  # type: ignore[arg-type]
        loop.set_task_factory(factory)
    factory.users += 1


def uninstall(loop: asyncio.AbstractEventLoop) -> None:
    """Restore the former factory when the last worker of the loop has stopped; one that was set later stays."""
    factory = _installed[loop]
    factory.users -= 1
    if factory.users == 0:
        del _installed[loop]
        if loop.get_task_factory() is factory:
            loop.set_task_factory(factory.before)


def is_serving() -> bool:
    """True if a worker of this process executes runs; one whose loop is closed does not count."""
    return any(not loop.is_closed() for loop in tuple(_installed))


_installed: Final[dict[asyncio.AbstractEventLoop, Factory]] = {}
CALLS: Final[set[CodeType]] = set()  # the code of coroutines that are one call of stepwell: they are no branch
WRAPPED: Final = "task"


def _label_of(coro: AnyCoroutine | None) -> str:
    return WRAPPED if coro is None else getattr(coro, "__qualname__", type(coro).__name__)


def _continues(coro: AnyCoroutine | None) -> bool:
    """True if the task goes on with its creator's branch: a step call, or what `wait_for` wraps before Python 3.12.

    Refuses coroutines given to `as_completed`, which creates their tasks in any order: their labels would be swapped.
    """
    if getattr(coro, "cr_code", None) in CALLS:
        return True
    maker = made_by(above=2)  # this function and the factory
    if maker == "as_completed":
        why = "it begins them in no order; give it tasks: `as_completed([asyncio.create_task(one) for one in ...])`"
        raise InvalidOption("as_completed", getattr(coro, "__qualname__", coro), why)
    return maker == "wait_for" and sys.version_info < (3, 12)
