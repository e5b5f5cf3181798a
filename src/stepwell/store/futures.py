"""Answering those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def resolve(future: asyncio.Future[T], answer: T | BaseException) -> None:
    """Give whoever waits an answer, or the reason why there is none; nothing if they have one, or have gone."""
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
        future.exception()  # looked at: perhaps nobody waits for it
    else:
        future.set_result(answer)


def resolve_all(futures: Iterable[asyncio.Future[T]], error: BaseException) -> None:
    """Tell all who wait why there is no answer."""
    for future in futures:
        resolve(future, error)
