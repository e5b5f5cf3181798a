"""Coroutines in a context of their own, on the task that awaits them."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any


@types.coroutine
def in_context(context: Context, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Await the coroutine with its context variables in `context`: none that it sets is seen by whoever awaits.

    A task of its own would do that too, at nine times the price (8 us), and would be another current task.
    """
    go_on, given = coroutine.send, None
    try:
        while True:
            waits_for = context.run(go_on, given)
            try:
                go_on, given = coroutine.send, (yield waits_for)
            except GeneratorExit:
                context.run(coroutine.close)
                raise
            except BaseException as error:  # noqa: BLE001 - what is thrown in is for the coroutine
                go_on, given = coroutine.throw, error
    except StopIteration as end:
        return end.value
