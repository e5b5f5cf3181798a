"""A queue or a workflow to which a test adds work: messages and runs alike."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from stepwell import Store, Worker, handler, workflow
from stepwell.base.clock import TestClock


class Work:
    """A queue or a workflow, and what of it was executed, in order."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.done: list[Any] = []
        self.during: Callable[[Any], Any] | None = None  # called while one is executed

        async def body(n: int) -> None:
            self.done.append(n)
            if self.during is not None:
                await self.during(n)

        if kind == "messages":
            self.target: Any = handler("mail")(body)
        else:
            self.target = workflow(name="flow")(body)

    async def add(self, store: Store, n: int, *, tx: object = None, **options: Any) -> Any:
        if self.kind == "messages":
            return await store.enqueue(self.target, n, tx=tx, **options)
        return await store.trigger(self.target.trigger(n).options(require_worker="ignore", **options), tx=tx)

    async def add_many(
        self, store: Store, each: Sequence[tuple[int, str]], *, tx: object = None, **options: Any
    ) -> Any:
        if self.kind == "messages":
            keys = [key for _, key in each]
            return await store.enqueue_many(self.target, [n for n, _ in each], keys=keys, tx=tx, **options)
        options |= {"require_worker": "ignore"}
        return await store.trigger_many([self.target.trigger(n).options(key=key, **options) for n, key in each], tx=tx)

    async def drain(self, store: Store) -> list[Any]:
        """What is executed until nothing is due."""
        before = len(self.done)
        await Worker(store, [self.target]).drain()
        return self.done[before:]


def of_both_kinds(test: Callable[[Store, Work, TestClock], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The test for messages and then, in the same store, for runs."""

    async def for_both(store: Store, clock: TestClock) -> None:
        for kind in ("messages", "runs"):
            await test(store, Work(kind), clock)

    for_both.__name__, for_both.__doc__, for_both.__module__ = test.__name__, test.__doc__, test.__module__
    return for_both
