"""A worker built step by step: `consumer(name, port, workflow).handler(fn).create(store)`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar, overload, runtime_checkable

from stepwell.base.names import check_name
from stepwell.errors import InvalidOption
from stepwell.queue import Handler
from stepwell.store.store import Store
from stepwell.worker import Worker
from stepwell.workflow import Workflow
from stepwell.workload import Serves

W_co = TypeVar("W_co", covariant=True)


@runtime_checkable
class MakesWorkers(Protocol[W_co]):
    """A store that makes its own kind of worker: one of `stepwell.sync.connect`."""

    def registered(self, serves: Sequence[Serves], *, name: str, port: int, concurrency: int) -> W_co:
        """A worker that others see and that claims nothing yet."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """The settings of a worker; nothing is written before `create`."""

    name: str
    port: int
    queues: tuple[str, ...]
    fn: Callable[..., Any] | None = None
    places: int = 10

    def handler(self, fn: Callable[..., Any]) -> Self:
        """Execute the runs of the workflow with this function; a decorated handler takes the messages of its queue."""
        return replace(self, fn=fn)

    def concurrency(self, places: int) -> Self:
        """Execute up to this many at once."""
        return replace(self, places=places)

    @overload
    def create(self, store: Store) -> Coroutine[Any, Any, Worker]: ...
    @overload
    def create(self, store: MakesWorkers[W_co]) -> W_co: ...
    def create(self, store: Any) -> Any:
        """Register the worker: from now on others see it, and `poll_forever` lets it work."""
        if isinstance(store, Store):
            return Worker(store, self._serves(), name=self.name, port=self.port, concurrency=self.places).register()
        if isinstance(store, MakesWorkers):
            return store.registered(self._serves(), name=self.name, port=self.port, concurrency=self.places)
        raise InvalidOption(
            "store", store, "pass an open one: `await stepwell.connect(...)`, or one of `stepwell.sync`"
        )

    def _serves(self) -> list[Serves]:
        fn = self.fn
        if fn is None:
            raise InvalidOption("handler", None, f"say what {self.queues[0]} is executed with: `.handler(fn)`")
        if isinstance(fn, Handler):
            return [self._named(fn, fn.queue)]
        if isinstance(fn, Workflow) and fn.name in self.queues:
            return [fn]
        function = fn.fn if isinstance(fn, Workflow) else fn
        return [Workflow(queue, function) for queue in self.queues]

    def _named(self, fn: Handler[Any], queue: str) -> Handler[Any]:
        if self.queues != (queue,):
            raise InvalidOption("handler", fn, f"it takes the messages of {queue}, not of {', '.join(self.queues)}")
        return fn


def consumer(name: str, port: int, queue: str | Sequence[str], /) -> Consumer:
    """Begin to build a worker with a name and a port, for a workflow (or several that one function executes)."""
    queues = (queue,) if isinstance(queue, str) else tuple(queue)
    if not queues:
        raise InvalidOption("queue", queue, "name at least one workflow")
    return Consumer(name, port, tuple(check_name("workflow", one) for one in queues))
