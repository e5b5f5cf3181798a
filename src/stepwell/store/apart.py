"""Tasks of the store's own, apart from whoever happened to cause them.

A task inherits the context of the code that makes it. Work that serves everybody must not: made inside a run, it would
belong to that run, and be cancelled with it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def begin_apart(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Begin the work in a context of its own, past any task factory: those are for the tasks of users."""
    return asyncio.Task(work, loop=asyncio.get_running_loop(), name=name, context=contextvars.Context())
