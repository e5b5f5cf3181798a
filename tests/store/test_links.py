"""The deadline of a statement on Postgres: its own, although one timer serves many."""

import asyncio
from typing import Any

import asyncpg
import pytest

from stepwell.errors import StoreClosed, StoreUnavailable
from stepwell.store.postgres.connection import Link
from tests.ground.waiting import until

pytestmark = pytest.mark.proves("rule-19")


class Connection:
    """Answers at once, or not before it is terminated."""

    def __init__(self) -> None:
        self.hangs = False
        self.ends_with: Exception = asyncpg.ConnectionDoesNotExistError("closed in the middle of operation")
        self.terminated = False
        self._waiting: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    async def fetch(self, text: str, *values: object) -> list[Any]:
        return await self._waiting if self.hangs else [text, *values]

    def is_closed(self) -> bool:
        return self.terminated

    def terminate(self) -> None:
        self.terminated = True
        if not self._waiting.done():
            self._waiting.set_exception(self.ends_with)


class Dialer:
    def __init__(self) -> None:
        self.connections: list[Connection] = []

    async def connect(self, timeout: float, locks: float) -> Connection:
        self.connections.append(Connection())
        return self.connections[-1]


@pytest.fixture
def dialer() -> Dialer:
    return Dialer()


def linked(dialer: Any, timeout: float) -> Link:
    return Link(dialer, timeout)


async def test_one_timer_serves_many_statements(dialer: Dialer, monkeypatch: pytest.MonkeyPatch) -> None:
    link, loop = linked(dialer, 10.0), asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at

    def counted(when: float, *rest: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *rest, **options)

    await link.fetch("first", [])
    monkeypatch.setattr(loop, "call_at", counted)
    for number in range(100):
        assert await link.fetch("select", [number]) == ["select", number]
    assert (timers, len(dialer.connections)) == ([], 1)
    await link.close()


async def test_a_statement_has_all_its_time_although_the_timer_was_set_for_one_before(dialer: Dialer) -> None:
    link, loop = linked(dialer, 0.2), asyncio.get_running_loop()
    await link.fetch("sets the timer", [])
    await asyncio.sleep(0.1)
    [connection] = dialer.connections
    connection.hangs = True
    began = loop.time()
    with pytest.raises(StoreUnavailable, match="no answer in time"):
        await link.fetch("hangs", [])
    assert loop.time() - began >= 0.2
    assert connection.terminated
    assert await link.fetch("on another", []) == ["on another"]
    assert len(dialer.connections) == 2
    await link.close()


async def test_a_connection_that_nobody_uses_is_not_dropped(dialer: Dialer) -> None:
    link = linked(dialer, 0.05)
    await link.fetch("sets the timer", [])
    await until(lambda: link._timer is None)
    [connection] = dialer.connections
    assert not connection.terminated
    await link.close()


async def test_whatever_comes_of_dropping_it_is_an_answer_that_did_not_come(dialer: Dialer) -> None:
    link = linked(dialer, 0.05)
    await link.fetch("opens", [])
    dialer.connections[0].hangs = True
    # Between preparing and executing, asyncpg finds that its protocol is gone.
    dialer.connections[0].ends_with = AttributeError("'NoneType' object has no attribute 'bind_execute'")
    with pytest.raises(StoreUnavailable, match="no answer in time"):
        await link.fetch("hangs", [])
    await link.close()


async def test_an_answer_that_came_when_its_time_was_up_is_no_trouble_of_the_next(dialer: Dialer) -> None:
    link = linked(dialer, 0.05)

    async def answered_too_late(text: str, *values: object) -> list[Any]:
        await asyncio.sleep(0.1)
        return [text]

    await link.fetch("opens", [])
    dialer.connections[0].fetch = answered_too_late  # type: ignore[method-assign]
    assert await link.fetch("late", []) == ["late"]
    with pytest.raises(StoreUnavailable, match="broken"):
        async with link.using():
            raise asyncpg.InterfaceError("broken")
    await link.close()


async def test_a_late_answer_is_told_once(dialer: Dialer) -> None:
    link = linked(dialer, 0.05)
    await link.fetch("opens", [])
    dialer.connections[0].hangs = True
    with pytest.raises(StoreUnavailable, match="no answer in time"):
        await link.fetch("hangs", [])
    with pytest.raises(StoreUnavailable, match="broken"):
        async with link.using():
            raise asyncpg.InterfaceError("broken")
    await link.close()
    with pytest.raises(StoreClosed):
        await link.fetch("closed", [])
