"""Lines that code logs inside a run: they are kept with the run, by step and attempt, while a worker serves workflows.

Nothing is configured: what the program's own `logging` lets through is kept, and goes wherever else it went before. A
line never stops or slows the code that logs it. What is kept of an attempt is bounded, and so is what is kept of a run.
"""

from __future__ import annotations

import contextlib
import logging
import math
import traceback
from collections import deque
from typing import Any, Final

import msgspec

from stepwell.base.names import UNSTORABLE
from stepwell.base.redaction import redact
from stepwell.runs.branches import Branch, Labels
from stepwell.runs.call import Attempt
from stepwell.runs.reports import Report, reporter_of
from stepwell.runs.turn import RunTurn
from stepwell.store.reports import LOG, STREAM
from stepwell.work.current import current_branch

FIRST: Final = 1000  # lines of an attempt that are written as they come, ...
FIRST_SIZE: Final = 256 * 1024  # ... as long as they have fewer characters than this
LAST: Final = 100  # of the others the last ones are written at its end
LONGEST: Final = 4000  # characters of a line; of a longer one the beginning and the end are kept
KEPT: Final = 10_000  # lines of a run
LEAST: Final = {"none": math.inf, "debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
MOST_WAITING: Final = 1024 * 1024  # characters of one run that wait to be written


class AttemptLog:
    """What an attempt has logged."""

    def __init__(self) -> None:
        self.lines = 0  # written as they came
        self.size = 0
        self.last: deque[str] = deque(maxlen=LAST)
        self.missed = 0


class Attended(Labels):
    """Gives branches to the tasks of runs, and keeps what runs log, until the block ends."""

    def __enter__(self) -> None:
        super().__enter__()
        _handler.attend()

    def __exit__(self, *error: object) -> None:
        _handler.leave()
        super().__exit__(*error)


class LogHandler(logging.Handler):
    """Keeps what is logged inside a run; on the root logger while a worker of this process serves workflows."""

    def __init__(self) -> None:
        super().__init__()
        self._workers = 0

    def attend(self) -> None:
        """A worker begins to serve workflows."""
        self._workers += 1
        if self not in logging.root.handlers:
            logging.root.addHandler(self)

    def leave(self) -> None:
        """A worker has stopped."""
        self._workers -= 1
        if self._workers == 0:
            logging.root.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line if code of a run logs it; it is on its way when this returns."""
        if self._is_alone(record):
            _as_without(record)
        place = current_branch.get()
        if not isinstance(place, Attempt | Branch) or record.name.partition(".")[0] == "stepwell":
            return
        run = place.call.run if isinstance(place, Attempt) else place.run
        if record.levelno < LEAST[run.slot.database.options.logs]:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
            if isinstance(place, Attempt):
                _keep_of_attempt(run, place, record)
            else:
                _keep_of_branch(run, place, record)

    def _is_alone(self, record: logging.LogRecord) -> bool:
        """True if nothing else handles the record: then Python would have written it to stderr."""
        found = logging.root.manager.loggerDict.get(record.name)
        logger: logging.Logger | None = found if isinstance(found, logging.Logger) else logging.root
        while logger is not None:
            if any(one is not self for one in logger.handlers):
                return False
            logger = logger.parent
        return True


_handler: Final = LogHandler()


def end_of(attempt: Attempt) -> None:
    """Write the last lines of an attempt that has logged more than is written as it comes."""
    log, run = attempt.log, attempt.call.run
    if log is None or not log.last:
        return
    if log.missed:
        told = f"{log.missed} lines of this attempt before the next ones are not kept"
        _write(run, _text(run, "WARNING", "stepwell", told, attempt))
    for line in log.last:
        _write(run, line)
    log.last.clear()


def _keep_of_attempt(run: RunTurn, attempt: Attempt, record: logging.LogRecord) -> None:
    if attempt.is_over:
        return  # it has outlived its time limit: the next attempt logs
    log = attempt.log = attempt.log or AttemptLog()
    line = _text(run, record.levelname, record.name, _said(record), attempt)
    if log.lines < FIRST and log.size < FIRST_SIZE and not log.last and _has_room(run):
        log.lines += 1
        log.size += len(line)
        _write(run, line)
    else:
        log.missed += len(log.last) == LAST
        log.last.append(line)


def _keep_of_branch(run: RunTurn, branch: Branch, record: logging.LogRecord) -> None:
    """Keep a line of the workflow's own code, unless an earlier turn has."""
    label, _, number = branch.key(f"{STREAM}/{LOG}").rpartition("#")
    count = int(number)
    if count <= run.journal.told(label) or count > FIRST + 1 or not _has_room(run):
        return
    line = _text(run, record.levelname, record.name, _said(record), None)
    if count > FIRST:
        line = _text(run, "WARNING", "stepwell", "further lines of this part of the workflow are not kept", None)
    _write(run, line, label, count)


def _write(run: RunTurn, line: str, label: str | None = None, count: int = 0) -> None:
    report = Report(STREAM, LOG, line, KEPT, label, count)
    run.on_loop(lambda: reporter_of(run).add(report))


def _has_room(run: RunTurn) -> bool:
    return run.reporting is None or run.reporting.size < MOST_WAITING


def _text(run: RunTurn, level: str, logger: str, said: str, attempt: Attempt | None) -> str:
    of = (None, None) if attempt is None else (attempt.call.key, attempt.number)
    line: list[Any] = [run.now(), level, logger[:LONGEST], said, *of, run.task.turn]
    return msgspec.json.encode(line).decode()


def _said(record: logging.LogRecord) -> str:
    """The text of a record with its traceback, short enough, and without what looks like a secret."""
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit; other handlers report that
        text = f"{record.msg} {record.args}"
    if record.exc_info and record.exc_info[0] is not None:
        text += "\n" + "".join(traceback.format_exception(*record.exc_info))
    elif record.exc_text:
        text += "\n" + record.exc_text
    if record.stack_info:
        text += "\n" + record.stack_info
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 2 :]}"
    return redact(UNSTORABLE.sub("\ufffd", text))


def _as_without(record: logging.LogRecord) -> None:
    if (last := logging.lastResort) is not None and record.levelno >= last.level:
        last.handle(record)
