"""Users with a transaction of their own, each through one library; what they do is the same, in one set of words."""

import asyncio
import contextlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, ClassVar, Self, TypeVar

import stepwell
from stepwell import connect

T = TypeVar("T")


class User(ABC):
    """Somebody who writes rows of their own and adds messages in the same transaction."""

    is_async: ClassVar[bool]

    def __init__(self, url: str) -> None:
        self.url = url
        self.store: Any = None

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Live through a story: on a loop, or (nothing in it ever waits) without one."""
        if self.is_async:
            return asyncio.run(story)
        try:
            story.send(None)
        except StopIteration as end:
            value: T = end.value
            return value
        raise AssertionError("a sync user has waited for a loop")

    async def __aenter__(self) -> Self:
        self.store = await connect(self.url, timeout=3) if self.is_async else stepwell.sync.connect(self.url, timeout=3)
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        await self.do("close")

    async def do(self, verb: str, *args: Any, **options: Any) -> Any:
        """Use the store, by the face that goes with the library."""
        value = getattr(self.store, verb)(*args, **options)
        return await value if inspect.isawaitable(value) else value

    async def add(self, queue: Any, payload: Any, **options: Any) -> Any:
        """Add a message in the user's own transaction."""
        return await self.do("enqueue", queue, payload, tx=self.tx, **options)

    async def leave(self) -> None:
        """Begin anew with another connection, whatever became of this one."""
        with contextlib.suppress(Exception):
            await self.rollback()
        with contextlib.suppress(Exception):
            await self.close()
        await self.open()

    @property
    @abstractmethod
    def tx(self) -> Any:
        """What the user passes as `tx`."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, with settings that are not the defaults."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of the connection."""

    @abstractmethod
    async def begin(self) -> None:
        """Begin a transaction, as one does with this library."""

    @abstractmethod
    async def commit(self) -> None:
        """Keep it."""

    @abstractmethod
    async def rollback(self) -> None:
        """Undo it."""

    @abstractmethod
    async def ask(self, sql: str) -> Any:
        """Execute a statement of the user's own; the first value of its answer, if it has one."""

    @abstractmethod
    def settings(self) -> object:
        """What the library shows of the connection's settings."""

    @abstractmethod
    async def in_autocommit(self) -> Any:
        """Something of this library that is in no transaction and would begin none."""
