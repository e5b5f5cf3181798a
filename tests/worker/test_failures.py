"""What an exception costs: tried again after how long, or not at all, and what is told of it."""
# ruff: noqa: N818 - a user's own exceptions have names of their own

import asyncio
import json
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Paused, PermanentError, Retry, Store, Task, TransientError, Worker, handler, step, workflow
from stepwell.base.clock import TestClock
from stepwell.base.events import TaskDied, TaskFailed
from stepwell.work.outcome import is_ctrl_c
from tests.queue.raw import ask


async def attempt(store: Store, error: BaseException | Callable[[], object], **options: Any) -> Task:
    """The message after one attempt that raised this."""

    @handler("mail", **options)
    async def fail(payload: object) -> None:
        if isinstance(error, BaseException):
            raise error
        error()

    message = await store.enqueue(fail, "payload")
    assert await Worker(store, [fail]).drain() == 1
    task = await store.get(message)
    assert task is not None
    return task


def waits(task: Task) -> float:
    """How many seconds after its creation the task is due."""
    assert task.run_at is not None
    return (task.run_at - task.created_at) / timedelta(seconds=1)


@pytest.mark.proves("E-01")
async def test_a_permanent_error_ends_the_message_at_once(store: Store, clock: TestClock) -> None:
    task = await attempt(store, PermanentError("no such address"), retry=100)
    assert (task.status, task.attempt, task.ready, task.owner) == ("ERROR", 1, False, None)
    assert task.last_error == "PermanentError: no such address"
    clock.advance("30d")
    [letter] = await store.dead_letters()
    assert letter.id == task.id


@pytest.mark.proves("E-02")
async def test_a_transient_error_says_when_to_try_again(store: Store) -> None:
    spans: list[tuple[Any, float]] = [(45, 45.0), (0.25, 0.25), ("15m", 900.0), (timedelta(hours=2), 7200.0)]
    for after, seconds in spans:
        task = await attempt(store, TransientError("busy", retry_after=after))
        assert (task.status, task.ready, task.owner, task.attempt) == ("PENDING", False, None, 1)
        assert waits(task) == seconds
        assert task.error is not None
        assert task.error["retry_after"] == seconds
    assert await ask(store, "select count(*) from {task} where owner is not null or finished_at is not null") == [(0,)]


async def test_with_backoff_is_another_spelling(store: Store) -> None:
    assert waits(await attempt(store, TransientError.with_backoff(45, "busy"))) == 45


async def test_a_retry_after_nothing_is_due_at_once(store: Store) -> None:
    @handler("mail")
    async def fail(payload: int) -> None:
        raise TransientError("busy", retry_after=0)

    await store.enqueue(fail, 1)
    assert await Worker(store, [fail]).drain() == 3
    assert await store.counts("mail") == {"ERROR": 1}


@pytest.mark.proves("E-03")
@pytest.mark.parametrize("error", [ValueError("no"), TransientError("busy"), TimeoutError()])
async def test_any_other_error_backs_off_by_attempt(store: Store, clock: TestClock, error: Exception) -> None:
    delays: list[float] = []

    @handler("mail", retry=Retry(5, jitter=0.5))
    async def fail(payload: object) -> None:
        raise error

    message = await store.enqueue(fail, 1)
    worker = Worker(store, [fail])
    for number in range(1, 5):
        assert await worker.drain() == 1
        task = await store.get(message)
        assert task is not None
        assert task.run_at is not None
        assert (task.status, task.attempt, task.ready) == ("PENDING", number, False)
        delay = task.run_at.timestamp() - clock.now() / 1_000_000
        delays.append(delay)
        clock.advance(delay - 0.001)
        assert await worker.drain() == 0
        clock.advance(0.001)
    assert [2**n <= round(delay, 6) <= 1.5 * 2**n for n, delay in enumerate(delays)] == [True] * 4
    assert len({delay / 2**n for n, delay in enumerate(delays)}) == 4  # jitter


async def test_the_policy_of_the_handler_decides_the_pace(store: Store) -> None:
    assert waits(await attempt(store, ValueError(), retry=Retry(3, base="10s", jitter=0))) == 10
    assert waits(await attempt(store, ValueError(), retry=Retry(3, base=100, cap=7, jitter=0))) == 7


@pytest.mark.proves("E-06")
async def test_attempts_are_three_unless_set_by_handler_or_message(store: Store, clock: TestClock) -> None:
    tried: list[str] = []

    @handler("three")
    async def three(payload: str) -> None:
        tried.append(payload)
        raise ValueError(f"no. {len(tried)}")

    @handler("five", retry=5)
    async def five(payload: str) -> None:
        tried.append(payload)
        raise ValueError

    await store.enqueue(three, "3")
    await store.enqueue("three", "7", max_attempts=7)
    await store.enqueue(five, "5")
    await store.enqueue(five, "1", max_attempts=1)
    for _ in range(8):
        await Worker(store, [three, five]).drain()
        clock.advance("10m")
    assert {payload: tried.count(payload) for payload in "3751"} == {"3": 3, "7": 7, "5": 5, "1": 1}
    assert {letter.payload: letter.attempt for letter in await store.dead_letters()} == {"3": 3, "7": 7, "5": 5, "1": 1}


class Declined(Exception): ...


class Overloaded(PermanentError): ...


class SoftlyDeclined(Declined): ...


@pytest.mark.proves("E-12")
async def test_exceptions_are_mapped_without_the_librarys_classes(store: Store) -> None:
    policy = Retry(3, permanent=(Declined, LookupError), transient=(Overloaded, SoftlyDeclined))
    mapped = [
        (Declined(), "ERROR"),
        (SoftlyDeclined(), "PENDING"),
        (Overloaded(), "PENDING"),
        (PermanentError(), "ERROR"),
        (KeyError(), "ERROR"),
        (ValueError(), "PENDING"),
    ]
    for error, status in mapped:
        assert (await attempt(store, error, retry=policy)).status == status, error


@pytest.mark.proves("E-12")
async def test_a_message_pauses_without_spending_an_attempt(store: Store, clock: TestClock) -> None:
    tries: list[str] = []

    @handler("mail", retry=Retry(1, paused=(PermissionError,)))
    async def send(how: str) -> None:
        tries.append(how)
        if tries.count(how) == 1:
            raise PermissionError("not yet") if how == "mapped" else Paused("not yet", resume_after="10m")

    messages = {how: await store.enqueue(send, how) for how in ("mapped", "said")}
    worker = Worker(store, [send])
    assert await worker.drain() == 2
    for how, seconds in (("mapped", 3600), ("said", 600)):
        task = await store.get(messages[how])
        assert task is not None
        assert (task.status, task.attempt, task.owner, waits(task)) == ("PAUSED", 0, None, seconds)
        assert task.last_error == f"Paused: {'PermissionError: ' if how == 'mapped' else ''}not yet"
    clock.advance("10m")
    assert await worker.drain() == 1
    clock.advance("50m")
    assert await worker.drain() == 1
    for message in messages.values():
        task = await store.get(message)
        assert task is not None
        assert (task.status, task.attempt, task.error) == ("SUCCESS", 1, None)


@pytest.mark.proves("E-12")
async def test_of_a_batch_only_the_message_that_pauses_pauses(store: Store, clock: TestClock) -> None:
    taken: list[int] = []

    @handler("mail", batch=10, retry=1)
    async def send(numbers: list[int]) -> None:
        if 2 in numbers and 2 not in taken:
            if len(numbers) == 1:
                taken.append(2)
            raise Paused("not yet", resume_after="10m")
        taken.extend(numbers)

    await store.enqueue_many(send, [1, 2, 3])
    await Worker(store, [send]).drain()
    assert (sorted(taken), await store.counts("mail")) == ([1, 2, 3], {"SUCCESS": 2, "PAUSED": 1})
    clock.advance("10m")
    await Worker(store, [send]).drain()
    assert await store.counts("mail") == {"SUCCESS": 3}


@pytest.mark.proves("E-14")
async def test_a_message_that_succeeds_in_the_end_shows_no_error(store: Store, clock: TestClock) -> None:
    tries: list[int] = []

    @handler("mail")
    async def send(payload: int) -> None:
        tries.append(payload)
        if len(tries) < 3:
            raise ValueError("not yet")

    message = await store.enqueue(send, 1)
    worker = Worker(store, [send])
    await worker.drain()
    task = await store.get(message)
    assert task is not None
    assert task.last_error == "ValueError: not yet"
    for _ in range(2):
        clock.advance("1m")
        await worker.drain()
    task = await store.get(message)
    assert task is not None
    assert (task.status, task.attempt, task.error, task.last_error) == ("SUCCESS", 3, None, None)
    assert task.finished_at is not None


class Coded(Exception):
    code = "E42"
    retry_after = 30


@pytest.mark.proves("E-10")
async def test_the_stored_error_is_json_and_its_line_is_one(store: Store) -> None:
    task = await attempt(store, Coded("first\nsecond\tthird  "))
    assert task.error is not None
    assert {name: task.error[name] for name in ("type", "message", "code", "retry_after")} == {
        "type": "Coded",
        "message": "first\nsecond\tthird  ",
        "code": "E42",
        "retry_after": 30.0,
    }
    assert "test_failures.py" in task.error["traceback"]
    assert task.last_error == "Coded: first second third"
    [[stored]] = await ask(store, "select error from {task}")
    assert json.loads(stored) == task.error
    assert 1 <= waits(task) <= 1.5  # its own retry_after is told, but only a TransientError's is followed


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I will not say")


class Secretive(Exception):
    @property
    def code(self) -> str:
        raise RuntimeError("no")

    @property
    def retry_after(self) -> float:
        raise RuntimeError("no")


class NotText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307


def _chained() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


STRANGE: list[tuple[BaseException, str]] = [
    (ValueError("a\0b"), "ValueError: a\ufffdb"),
    (ValueError("a\ud800b"), "ValueError: a\ufffdb"),
    (ValueError("x" * 1_000_000), "ValueError: xxx"),
    (ValueError("é\n" * 300_000), "ValueError: é é"),
    (ValueError("\x1b[31m\x1f\x07"), "ValueError: [31m"),
    (ValueError(), "ValueError"),
    (ValueError(object(), 1), "ValueError: (<object"),
    (Unspeakable(), "Unspeakable: (its message could not be read: RuntimeError)"),
    (Secretive("s"), "Secretive: s"),
    (NotText(), "NotText: (its message could not be read: TypeError)"),
    (type("A\n" + "B" * 1000, (Exception,), {})("m"), "A BBB"),
    (ExceptionGroup("several", [ValueError("a"), KeyError("b")]), "ExceptionGroup: several (2 sub-exceptions)"),
    (_chained(), "ValueError: first"),
    (RecursionError("deep"), "RecursionError: deep"),
    (MemoryError(), "MemoryError"),
    (StopAsyncIteration("end"), "StopAsyncIteration: end"),
    (asyncio.CancelledError("by itself"), "RuntimeError: the body was cancelled"),
    (asyncio.InvalidStateError("x"), "InvalidStateError: x"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "RuntimeError: a body raised KeyboardInterrupt"),
    (BaseExceptionGroup("b", [SystemExit()]), "BaseExceptionGroup: b (1 sub-exception)"),
    (type("Own", (BaseException,), {})("own"), "Own: own"),
]


SYNC: list[tuple[BaseException, str]] = [(GeneratorExit("g"), "RuntimeError: a body raised GeneratorExit")]
ASYNC: list[tuple[BaseException, str]] = [(GeneratorExit("g"), "GeneratorExit: g")]


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_no_exception_keeps_a_message_from_being_settled(store: Store, colour: str) -> None:
    strange = [*STRANGE, *(ASYNC if colour == "async" else SYNC)]
    errors = [error for error, _ in strange]

    @handler("async")
    async def fail(number: int) -> None:
        raise errors[number]

    @handler("sync")
    def fail_too(number: int) -> None:
        raise errors[number]

    one = fail if colour == "async" else fail_too
    ids = await store.enqueue_many(one, range(len(errors)))
    assert await asyncio.wait_for(Worker(store, [one]).drain(), 30) == len(errors)
    wrong = []
    for task_id, (_, line) in zip(ids, strange, strict=True):
        task = await store.get(task_id)
        assert task is not None
        told = (task.status, task.attempt, task.owner)
        if told != ("PENDING", 1, None) or not (task.last_error or "").startswith(line):
            wrong.append(f"{line!a}: {told}, {task.last_error!a}")
        assert len(task.last_error or "") <= 500
        assert len(json.dumps(task.error)) < 1_000_000
    assert wrong == []


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_body_that_ends_an_iteration_has_failed(store: Store, colour: str) -> None:
    @handler("async")
    async def fail(payload: int) -> None:
        raise StopIteration

    @handler("sync")
    def fail_too(payload: int) -> None:
        next(iter([]))

    one = fail if colour == "async" else fail_too
    message = await store.enqueue(one, 1)
    await asyncio.wait_for(Worker(store, [one]).drain(), 30)
    task = await store.get(message)
    assert task is not None
    assert (task.status, task.attempt) == ("PENDING", 1)
    assert task.last_error is not None
    assert "StopIteration" in task.last_error


async def test_a_spoiled_retry_after_is_as_good_as_none(store: Store) -> None:
    for spoiled in (-5, "soon", float("nan"), object()):
        error = TransientError("busy", retry_after=5)
        error.retry_after = spoiled  # type: ignore[assignment]
        task = await attempt(store, error)
        assert (task.status, task.attempt) == ("PENDING", 1)
        assert 1 <= waits(task) <= 1.5


async def test_failures_and_deaths_are_told_as_events(store: Store, clock: TestClock) -> None:
    events: list[Any] = []
    store.database.telemetry.subscribe(events.append)

    @handler("mail", retry=2)
    async def fail(payload: int) -> None:
        raise ValueError("no")

    message = await store.enqueue(fail, 1)
    for _ in range(2):
        await Worker(store, [fail]).drain()
        clock.advance("1m")
    told = [event for event in events if isinstance(event, TaskFailed | TaskDied)]
    assert told == [TaskFailed(message, "mail", 1, "ValueError: no"), TaskDied(message, "mail", "ValueError: no")]


@pytest.mark.parametrize(("error", "line"), [(KeyboardInterrupt, "a body raised KeyboardInterrupt"), (SystemExit, "")])
@pytest.mark.parametrize("together", [False, True])
async def test_a_step_that_raises_what_ends_a_process_has_failed_and_its_worker_works_on(
    store: Store, error: type[BaseException], line: str, *, together: bool
) -> None:
    @step(retry=1)
    async def leave() -> None:
        raise error

    @workflow
    async def leaving() -> None:
        await asyncio.gather(*(leave() for _ in range(1 + together)))

    run_id = await leaving.trigger().execute(store)
    await asyncio.wait_for(Worker(store, [leaving]).drain(), 20)
    run = await store.get_run(run_id)
    assert run.status == "ERROR"
    assert line in (run.last_error or "")
    assert (await store.steps(run_id))[0].status == "ERROR"


def raised_by_a_person() -> KeyboardInterrupt:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        return error
    raise AssertionError("no signal came")


def raised_by_code() -> KeyboardInterrupt:
    try:
        raise KeyboardInterrupt  # noqa: TRY301 - just that
    except KeyboardInterrupt as error:
        return error


def test_ctrl_c_is_told_from_what_code_raises() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert is_ctrl_c(raised_by_a_person())
    finally:
        signal.signal(signal.SIGINT, before)
    assert not is_ctrl_c(raised_by_code())
