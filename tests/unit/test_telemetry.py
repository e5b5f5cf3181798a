"""Events are counted and told; listeners cannot hurt the engine; the log stays within its budget."""

from __future__ import annotations

import logging
import threading
from typing import get_args

import pytest

from stepwell.base import telemetry
from stepwell.base.events import (
    BuildKept,
    ConditionUnanswered,
    Event,
    HelperLost,
    InstanceParked,
    InternalTaskFailed,
    LateWriteRefused,
    ListenerBack,
    ListenerLost,
    LoopBlocked,
    NoHelper,
    NotifyFailed,
    NoWorker,
    OrderRepaired,
    OrphansReleased,
    PoolerFound,
    ProjectionFailed,
    ProjectionInlined,
    ProjectionSwapped,
    ProjectionUnreadable,
    RunHeld,
    ScheduleKept,
    SessionLost,
    SessionsRecovered,
    SessionStarted,
    SignalSetAside,
    StepInDoubt,
    StepsUnasked,
    StoreBack,
    StoreLost,
    TaskDied,
    TaskFailed,
    TaskUnreadable,
    WorkUnserved,
)
from stepwell.base.telemetry import LogBudget, Telemetry, words_of

EVENTS: list[Event] = [
    StoreLost("connection reset"),
    StoreBack(2.5),
    SessionStarted(1),
    SessionLost(1, 4),
    LateWriteRefused(1, 2, 3),
    TaskFailed(2, "mail", 1, "ValueError: no"),
    TaskDied(2, "mail", "ValueError: no"),
    TaskUnreadable(2, "order:effects", "it was stored as Newer"),
    SessionsRecovered((1, 2), 5),
    OrphansReleased(1, tuple(range(30))),
    WorkUnserved((("mail", 3), ("zip", 10_000))),
    OrderRepaired(3, "order 7"),
    NoWorker("zip_files"),
    StepsUnasked(7, "zip_files", ("list#1", "zip#1")),
    RunHeld(7, "zip_files", ("list",), "list_all#1"),
    StepInDoubt(7, "zip_files", "list_all#1"),
    ConditionUnanswered(7, "zip_files", "paid", "OSError: gone"),
    SignalSetAside(7, "zip_files", "approved", "expected object"),
    InternalTaskFailed("sweep", "OSError: gone"),
    HelperLost(again=True),
    ProjectionFailed("orders", 7, 2, "ValueError: no"),
    InstanceParked("orders", "order", "o-1", 3, "ValueError: no"),
    ProjectionUnreadable("orders", "it was stored as Newer"),
    ProjectionSwapped("orders", 2),
    ProjectionInlined("orders", 17),
    BuildKept("orders", 1, "a view reads its table"),
    ScheduleKept("nightly"),
    NoHelper("sys.executable is empty"),
    LoopBlocked(12.5, "app.py:12 in work"),
    PoolerFound(),
    ListenerLost("nothing was heard"),
    ListenerBack(1.5),
    NotifyFailed("connection reset"),
]


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of a budget of this test's own; it stands still."""
    now = [100.0]
    monkeypatch.setattr(telemetry, "_budget", LogBudget(lambda: now[0]))
    return now


def test_every_event_has_words() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    for event in EVENTS:
        level, _, words = words_of(event)
        assert level >= logging.INFO
        assert words
        assert "\n" not in words
    assert "and 20 more" in words_of(OrphansReleased(1, tuple(range(30))))[2]
    assert words_of(SessionsRecovered((3,), 1))[2] == "recovered 1 task of worker session 3, which died"
    assert words_of(SessionsRecovered((3, 4), 2))[2] == "recovered 2 tasks of worker sessions that died: 3, 4"


def test_events_are_counted_by_type() -> None:
    told = Telemetry(log=False)
    told.emit(LateWriteRefused(1, 2, 3))
    told.emit(LateWriteRefused(1, 2, 4))
    assert told.counts[LateWriteRefused] == 2
    assert told.counts[StoreLost] == 0


def test_a_subscriber_hears_until_it_leaves() -> None:
    told, heard = Telemetry(log=False), list[Event]()
    leave = told.subscribe(heard.append)
    told.emit(EVENTS[0])
    leave()
    leave()
    told.emit(EVENTS[1])
    assert heard == [EVENTS[0]]


def test_one_function_may_subscribe_twice() -> None:
    told, heard = Telemetry(log=False), list[Event]()
    leave = told.subscribe(heard.append)
    told.subscribe(heard.append)
    leave()
    told.emit(EVENTS[0])
    assert heard == [EVENTS[0]]


def test_a_subscriber_that_raises_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    told, heard = Telemetry(log=False), list[Event]()

    def broken(event: Event) -> None:
        raise RuntimeError("mine")

    told.subscribe(broken)
    told.subscribe(heard.append)
    for _ in range(5):
        told.emit(EVENTS[0])
    assert heard == [EVENTS[0]] * 5
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_broken_log_hurts_nobody() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("disk full")

    handler = Broken()
    telemetry.logger.addHandler(handler)
    try:
        Telemetry().emit(EVENTS[0])
    finally:
        telemetry.logger.removeHandler(handler)


def test_one_line_a_second_for_each_cause(caplog: pytest.LogCaptureFixture, now: list[float]) -> None:
    told = Telemetry()
    for task_id in range(1_000):
        told.emit(TaskFailed(task_id, "mail", 1, "ValueError: no"))
    told.emit(TaskFailed(7, "zip", 1, "ValueError: no"))
    now[0] += 1.0
    told.emit(TaskFailed(1_000, "mail", 1, "ValueError: no"))
    assert [record.getMessage() for record in caplog.records] == [
        "task 0 of mail failed at attempt 1: ValueError: no",
        "task 7 of zip failed at attempt 1: ValueError: no",
        "task 1000 of mail failed at attempt 1: ValueError: no (999 more)",
    ]
    assert told.counts[TaskFailed] == 1_002


def test_stores_of_one_process_share_the_budget(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        Telemetry().emit(StoreLost("connection reset"))
    assert len(caplog.records) == 1


def test_the_budget_forgets_rather_than_grows() -> None:
    budget = LogBudget(lambda: 0.0)
    for cause in range(5_000):
        assert budget.spend(cause) == 0
    assert len(budget._last) <= 1_000


def test_threads_lose_no_count() -> None:
    told = Telemetry(log=False)

    def emit() -> None:
        for _ in range(1_000):
            told.emit(SessionStarted(1))

    threads = [threading.Thread(target=emit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told.counts[SessionStarted] == 8_000
