"""Pytest plugin: a test that leaves a connection to Postgres open, or work on a closed loop, fails itself.

Otherwise the garbage collector finds it some tests later, and its warning fails whichever test is running then.
"""

import asyncio
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import asyncpg
import pytest

FRAMES: Final = 12  # of the code that opened a connection
_opened: Final[weakref.WeakKeyDictionary[Any, str]] = weakref.WeakKeyDictionary()
_loops: Final[weakref.WeakSet[asyncio.AbstractEventLoop]] = weakref.WeakSet()


def known(make: Callable[[], asyncio.AbstractEventLoop]) -> Callable[[], asyncio.AbstractEventLoop]:
    """The same loops; what a test leaves on one of them is noticed."""
    return partial(_noted, make)


def _noted(make: Callable[[], asyncio.AbstractEventLoop]) -> asyncio.AbstractEventLoop:
    loop = make()
    _loops.add(loop)
    return loop


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Look when all fixtures are torn down, and the loop of the test is closed."""
    yield
    left = [*open_connections(), *unfinished()]
    if left:
        pytest.fail("the test has left behind:\n" + "\n".join(left), pytrace=False)


def open_connections() -> Iterator[str]:
    """Connections that were opened since the last look, and are not closed."""
    for connection, where in list(_opened.items()):
        if not connection.is_closed():
            yield f"{connection!r}, opened at {where}"
        del _opened[connection]


def unfinished() -> Iterator[str]:
    """What has not ended on loops that are closed."""
    for loop in list(_loops):
        if loop.is_closed():
            _loops.discard(loop)
            yield from (f"{task!r}, on a closed loop" for task in asyncio.all_tasks(loop))


def _opening(real: Callable[..., None]) -> Callable[..., None]:
    def opened(connection: Any, *args: Any, **options: Any) -> None:
        real(connection, *args, **options)
        _opened[connection] = _where()

    return opened


def _where() -> str:
    """The innermost frames that are not of a library, the last call first."""
    frame, found = sys._getframe(2), list[str]()
    while frame is not None and len(found) < FRAMES:
        name = frame.f_code.co_filename
        if "stepwell" in name or "/tests/" in name:
            found.append(f"{name}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(found)


asyncpg.Connection.__init__ = _opening(asyncpg.Connection.__init__)
