"""The program of a process that executes bodies: it reads what to call from its parent, line by line, and answers.

It ends with its parent, whatever it does then. Nothing but JSON passes between them.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import queue
import runpy
import sys
import threading
import traceback
from functools import lru_cache
from typing import IO, Any, Final

from stepwell.values.stamp import read_value, write_value

MAIN: Final = "__main__"


def main() -> None:
    """Serve until the parent closes the pipe or ends."""
    answers = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    begun = json.loads(sys.stdin.readline())
    sys.path[:] = begun["path"]
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    logging.getLogger().addHandler(_Told(answers))
    logging.getLogger().setLevel(begun["level"])
    while True:
        request = json.loads(asked.get())
        _tell(answers, _answer(request, begun["main"]))


def _listen(asked: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        asked.put(line)
    os._exit(0)  # the parent has ended, and what is being executed has no reader


def _answer(request: dict[str, Any], main_path: str | None) -> dict[str, Any]:
    try:
        found = _found(request["place"], main_path)
        if request["kind"] == "step":
            result = found.fn(**found.definition.arguments.decode(request["input"][0]))
            return {"result": write_value(result, found.definition.returns)}
        payloads = [read_value(text, found.payload_type) for text in request["input"]]
        returned = found.fn(payloads[0] if found.batch is None else payloads)
        if request["kind"] == "asked handler":
            return {"result": write_value(returned, found.returns)}
    except BaseException as error:  # noqa: BLE001 - whatever a body raises is its outcome
        return {"error": _told_of(error)}
    return {"result": "null"}


@lru_cache(maxsize=256)
def _found(place: str, main_path: str | None) -> Any:
    """The step or handler at a place such as `shop.pictures:thumbnail`."""
    module, _, name = place.partition(":")
    if module == MAIN:
        found: Any = _main_module(main_path)[name.partition(".")[0]]
        rest = name.split(".")[1:]
    else:
        found, rest = importlib.import_module(module), name.split(".")
    for each in rest:
        found = getattr(found, each)
    return found


@lru_cache(maxsize=1)
def _main_module(path: str | None) -> dict[str, Any]:
    """The program of the parent, without what it does as `__main__`."""
    return runpy.run_path(path or "", run_name="__stepwell_main__")


def _told_of(error: BaseException) -> dict[str, Any]:
    kind = type(error)
    try:
        args: Any = json.loads(json.dumps(error.args))
    except (TypeError, ValueError):
        args = [str(error)]
    trace = "".join(traceback.format_exception(error)).rstrip()
    return {"place": f"{kind.__module__}:{kind.__qualname__}", "args": args, "said": str(error), "trace": trace}


class _Told(logging.Handler):
    """Sends what is logged to the parent, which logs it where the run is known."""

    def __init__(self, answers: IO[str]) -> None:
        super().__init__()
        self._answers = answers

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
            if record.exc_info:
                message = f"{message}\n{''.join(traceback.format_exception(*record.exc_info)).rstrip()}"
            _tell(self._answers, {"log": [record.name, record.levelno, message]})
        except Exception:  # noqa: BLE001 - a line that cannot be logged stops nothing
            self.handleError(record)


_lock: Final = threading.Lock()


def _tell(answers: IO[str], answer: dict[str, Any]) -> None:
    with _lock:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == MAIN:
    main()
