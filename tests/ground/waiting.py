"""Waiting for a fact to become true, with a deadline and a message that says what did not happen."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")


class NotInTimeError(AssertionError):
    """The awaited fact did not become true before the deadline."""


def wait_for(fact: Callable[[], T], timeout: float, every: float = 0.05, message: str = "") -> T:
    """Return the first truthy value of `fact`, or raise `NotInTimeError` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() > deadline:
            raise _late(fact, value, timeout, message)
        time.sleep(every)


@overload
async def until(
    fact: Callable[[], Awaitable[T]], timeout: float = 30.0, every: float = 0.02, message: str = ""
) -> T: ...
@overload
async def until(fact: Callable[[], T], timeout: float = 30.0, every: float = 0.02, message: str = "") -> T: ...
async def until(fact: Callable[[], Any], timeout: float = 30.0, every: float = 0.02, message: str = "") -> Any:
    """Return the first truthy value of `fact`, plain or awaited, while the loop goes on turning."""
    deadline = time.monotonic() + timeout
    while True:
        answer = fact()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if time.monotonic() > deadline:
            raise _late(fact, value, timeout, message)
        await asyncio.sleep(every)


def _late(fact: object, value: object, timeout: float, message: str) -> NotInTimeError:
    code = getattr(fact, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else repr(fact)
    what = message or "the fact"
    return NotInTimeError(f"not within {timeout:g} s: {what}; last value {value!r}; asked at {where}")
