"""Processes for sync bodies that compute: each executes one body at a time, and can be killed while it does.

A thread of the worker waits for the process, so all else is as for a body in a thread. Only JSON passes between them:
the name of the function, its arguments, its result, what it logs.
"""

from __future__ import annotations

import atexit
import inspect
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeVar

from stepwell.errors import InvalidOption, TransientError

T = TypeVar("T")
Executor = Literal["thread", "process"]
PROGRAM: Final = "stepwell.work.process_child"
MOST_IDLE: Final = os.cpu_count() or 1


class ProcessCall:
    """One call of a body in a process of its own."""

    def __init__(self, fn: Callable[..., Any], kind: str, texts: Sequence[str]) -> None:
        self._request = {"place": place_of(fn), "kind": kind, "input": list(texts)}
        self._child: BodyProcess | None = None
        self._is_killed = False
        self._lock = threading.Lock()

    def run(self) -> str:
        """Call it, in this thread: the JSON text of what it returns, or its exception."""
        child = _idle_child()
        with self._lock:
            if self._is_killed:
                child.close()
                raise _ended(child)
            self._child = child
        try:
            answer = child.ask(self._request)
        except (OSError, ValueError) as error:
            child.close()
            raise _ended(child) from error
        finally:
            with self._lock:
                self._child = None
        _put_back(child)
        if "error" in answer:
            raise error_of(answer["error"])
        text: str = answer["result"]
        return text

    def kill(self) -> None:
        """End it, wherever it is."""
        with self._lock:
            self._is_killed = True
            if self._child is not None:
                self._child.process.kill()


class BodyProcess:
    """A process that executes bodies."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        command = [sys.executable, "-m", PROGRAM, str(writing)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of ours
            command, stdin=subprocess.PIPE, pass_fds=(writing,), env=environment, text=True, start_new_session=True
        )
        os.close(writing)
        self._answers = os.fdopen(reading, encoding="utf-8")
        main = getattr(sys.modules["__main__"], "__file__", None)
        self._send({"path": sys.path, "main": main, "level": logging.getLogger().getEffectiveLevel()})

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for the answer; what the body logs meanwhile is logged here, in its run's name."""
        self._send(request)
        for line in self._answers:
            answer: dict[str, Any] = json.loads(line)
            if "log" not in answer:
                return answer
            name, level, message = answer["log"]
            logging.getLogger(name).log(level, "%s", message)
        raise OSError("it has ended")

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        for one in (self._answers, self.process.stdin):
            if one is not None:
                try:
                    one.close()
                except OSError:
                    continue

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()


def place_of(fn: Callable[..., Any]) -> str:
    """Where another process finds the function: its module and its name in there."""
    module, name = fn.__module__, fn.__qualname__
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if module == "__main__" and spec is not None:  # begun with `python -m`
        module = spec.name
    return f"{module}:{name}"


def check_executor(what: str, fn: Callable[..., Any], executor: object) -> bool:
    """Whether the function is executed in a process; refuses one that no other process could find and call."""
    if executor not in ("thread", "process"):
        raise InvalidOption("executor", executor, "it is 'thread' or 'process'")
    if executor == "thread":
        return False
    name = getattr(fn, "__qualname__", repr(fn))
    if inspect.iscoroutinefunction(fn):
        raise InvalidOption("executor", executor, f"the {what} {name} is async; a process is for code that computes")
    if "<" in name:
        raise InvalidOption("executor", executor, f"the {what} {name} is defined in a function; move it to its module")
    if "ctx" in inspect.signature(fn).parameters:
        raise InvalidOption("executor", executor, f"the {what} {name} takes `ctx`, which no other process has")
    return True


def error_of(told: dict[str, Any]) -> BaseException:
    """The exception that a body has raised, of its own class if this process knows that."""
    module, _, name = told["place"].partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    error: BaseException = RuntimeError(f"{name}: {told['said']}")
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            error = found(*told["args"])
        except Exception:  # noqa: BLE001 - its class takes other arguments
            error.add_note(f"it was raised as {told['place']}")
    error.add_note(f"In its process:\n{told['trace']}")
    return error


def _ended(child: BodyProcess) -> TransientError:
    return TransientError(f"the process of the body has ended, with {child.process.returncode}, before it answered")


_idle: Final[list[BodyProcess]] = []
_lock: Final = threading.Lock()


def _idle_child() -> BodyProcess:
    with _lock:
        while _idle:
            child = _idle.pop()
            if child.process.poll() is None:
                return child
            child.close()
    return BodyProcess()


def _put_back(child: BodyProcess) -> None:
    with _lock:
        if len(_idle) < MOST_IDLE:
            _idle.append(child)
            return
    child.close()


@atexit.register
def _close_all() -> None:
    while _idle:
        _idle.pop().close()
