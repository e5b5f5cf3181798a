"""What runs inside a worker beside the bodies: a part of it that breaks is told, and starts again."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepwell import Store, Worker, handler
from stepwell.base import telemetry
from stepwell.base.events import InternalTaskFailed
from stepwell.base.telemetry import LogBudget
from stepwell.work.heartbeat import Heartbeat
from stepwell.work.session import Session
from tests.ground.waiting import until
from tests.store.seam import ask

DEFECT = ZeroDivisionError("a defect of ours")


@pytest.fixture(autouse=True)
def budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log budget that no other test has spent."""
    monkeypatch.setattr(telemetry, "_budget", LogBudget())


@pytest.fixture
def broken(live_store: Store) -> list[str]:
    """The names of the internal tasks that were told to have failed, so far."""
    told: list[str] = []

    def hear(event: Any) -> None:
        if isinstance(event, InternalTaskFailed):
            told.append(event.name)

    live_store.database.telemetry.subscribe(hear)
    return told


def failing_twice(verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The same verb, but the first two calls meet a defect."""
    left = [1, 2]

    async def call(*args: Any, **options: Any) -> Any:
        if left:
            left.pop()
            raise DEFECT
        return await verb(*args, **options)

    return call


@pytest.mark.proves("rule-34")
@pytest.mark.parametrize(("verb", "name"), [("claim", "claim"), ("wake_due", "upkeep")])
async def test_a_loop_that_breaks_is_told_and_started_again(
    live_store: Store, monkeypatch: pytest.MonkeyPatch, broken: list[str], verb: str, name: str
) -> None:
    monkeypatch.setattr(live_store.database.tasks, verb, failing_twice(getattr(live_store.database.tasks, verb)))
    done: list[int] = []

    @handler("mail")
    async def send(number: int) -> None:
        done.append(number)

    async with Worker(live_store, [send]):
        await live_store.enqueue(send, 1, delay="100ms")  # needs both: upkeep to wake it, the claim to take it
        await until(lambda: done == [1])
        assert broken == [name, name]


@pytest.mark.proves("rule-34")
@pytest.mark.parametrize("verb", ["beat", "pulse"])
async def test_a_heartbeat_that_breaks_is_told_and_beats_again(
    live_store: Store, monkeypatch: pytest.MonkeyPatch, broken: list[str], verb: str
) -> None:
    real = getattr(live_store.database.sessions, verb)
    left = [1, 2]

    def call(*args: Any, **options: Any) -> Any:
        if left:
            left.pop()
            raise OSError(24, "Too many open files")
        return real(*args, **options)

    monkeypatch.setattr(live_store.database.sessions, verb, call)

    @handler("mail")
    async def send(number: int) -> None: ...

    async def beats() -> set[int]:
        return {row["beat_at"] for row in await ask(live_store, "select beat_at from {beat}")}

    async with Worker(live_store, [send]) as worker:
        session = worker.id
        await until(lambda: not left)
        before = await beats()

        async def has_beaten() -> bool:
            return bool(await beats() - before)

        await until(has_beaten)
        assert (broken, worker.id) == (["heartbeat", "heartbeat"], session)
    assert "stepwell-heartbeat" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.proves("L-03")
async def test_a_heartbeat_is_quiet_if_its_session_left_before_its_thread_began(live_store: Store) -> None:
    heartbeat = Heartbeat.of(live_store.database)
    ended = threading.Event()
    heartbeat._last = threading.Thread(target=ended.wait)  # that of a worker before, which still closes its helper
    heartbeat._last.start()
    session = Session(1, lambda _: None, lambda *_: None, lease=30)
    heartbeat.add(session)
    thread = heartbeat._last
    removed = asyncio.create_task(heartbeat.remove(session))
    await until(lambda: not heartbeat._sessions)
    ended.set()
    await removed
    await until(lambda: not thread.is_alive())
    assert heartbeat._quiet.is_set()
