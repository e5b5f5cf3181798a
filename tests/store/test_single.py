"""What one operation of one caller costs: no task, no timer, few turns of the loop."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import Store, connect, workflow
from tests.store.seam import watched

pytestmark = pytest.mark.usefixtures("backend")
TIMES = 20
Verb = Callable[[Store, int], Awaitable[object]]


@workflow
async def greet(number: int) -> int:
    """A workflow that is triggered, and signalled."""
    return number


@dataclass
class Turns:
    """What the loop of a test was asked to do."""

    tasks: list[str]
    timers: int = 0
    turns: int = 0


@contextlib.contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    """Count the tasks and timers that are made, and the turns of a loop that is written in Python."""
    loop: Any = asyncio.get_running_loop()
    seen = Turns([])

    class Task(asyncio.Task):  # type: ignore[type-arg]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            seen.tasks.append(self.get_name())

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "Task", Task)
        if isinstance(loop, asyncio.BaseEventLoop):  # uvloop's takes no other attribute
            call_at, run_once = loop.call_at, loop._run_once  # type: ignore[attr-defined]

            def later(*given: Any, **named: Any) -> Any:
                seen.timers += 1
                return call_at(*given, **named)

            def turned() -> None:
                seen.turns += 1
                run_once()

            patched.setattr(loop, "call_at", later)
            patched.setattr(loop, "_run_once", turned)
        yield seen


async def enqueued(store: Store, number: int) -> None:
    """One message."""
    await store.enqueue("mail", number)


async def triggered(store: Store, number: int) -> None:
    """One run."""
    await greet.trigger(number).options(require_worker="ignore").execute(store)


@pytest.mark.proves("protocol-14")
@pytest.mark.parametrize("verb", [enqueued, triggered])
async def test_one_caller_costs_no_task_no_timer_and_few_turns(
    store_url: str, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(store_url, listen=False) as opened:
        store, driver = watched(opened)
        await store.create_queue("mail")
        for number in range(3):  # connections, numbers and names are there from now on
            await verb(store, number)
        driver.forget()
        driver.reads.clear()
        with counted(monkeypatch) as seen:
            for number in range(TIMES):
                await verb(store, number)
        assert seen.tasks == []
        assert seen.timers <= 1, "one timer serves all that have to be answered in time"
        assert seen.turns <= 5 * TIMES
        assert (driver.transactions, [call.statement for call in driver.reads]) == (TIMES, []), "one statement each"
