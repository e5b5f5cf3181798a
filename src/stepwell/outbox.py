"""Outboxes: who takes the events that are emitted, and publishes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Literal, overload

from stepwell.base.backoff import Retry
from stepwell.base.durations import Duration, seconds_of
from stepwell.base.names import check_name, check_whole
from stepwell.errors import InvalidOption
from stepwell.sinks.cloud_event import CloudEvent
from stepwell.sinks.publisher import PATIENT, Publisher
from stepwell.sinks.webhook import Webhook
from stepwell.store.emission import QUEUE, Route, check_types
from stepwell.work.body import Served

AfterDead = Literal["stop", "skip"]


class Outbox:
    """The events of some types, and the sink that publishes them: a worker serves it like a handler.

    `types` are names of types, beginnings such as "order.*", or "*" for all. The sink is a function, async or sync: it
    is called with a `CloudEvent`, and has published it when it returns. With `batch` it is called with a list of up to
    that many, and returns None if all are published, else a list with None or an exception for each. If it has a method
    `aclose()`, that is awaited when the last worker here that serves it stops. `Webhook` is a sink that posts.

    What fails is tried again, as `retry` says: for about three days, unless the error is a `PermanentError`; then it
    is a dead letter. The events of a subject that were emitted as `ordered` are published one after the other; when one
    of them is a dead letter those behind it wait until that is requeued or dropped (`after_dead="stop"`), or go on
    without it ("skip"). Each event is published at least once, always with the same id.

    The name is its identity in the database: workers with an outbox of the same name share its events.
    """

    @overload
    def __init__(
        self,
        name: str,
        sink: Callable[[CloudEvent], object],
        *,
        types: str | Iterable[str] = "*",
        batch: None = None,
        after_dead: AfterDead = "stop",
        retry: int | Retry | None = None,
        timeout: Duration = 30,
        concurrency: int | None = None,
        source: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        sink: Callable[[list[CloudEvent]], Any],
        *,
        types: str | Iterable[str] = "*",
        batch: int,
        after_dead: AfterDead = "stop",
        retry: int | Retry | None = None,
        timeout: Duration = 30,
        concurrency: int | None = None,
        source: str | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        sink: Callable[[Any], Any],
        *,
        types: str | Iterable[str] = "*",
        batch: int | None = None,
        after_dead: AfterDead = "stop",
        retry: int | Retry | None = None,
        timeout: Duration = 30,
        concurrency: int | None = None,
        source: str | None = None,
    ) -> None:
        if not callable(sink):
            raise InvalidOption(
                "sink", sink, "it is a function that takes a `CloudEvent`, or a list of them with `batch`"
            )
        if isinstance(sink, Webhook) and (sink.mode == "batched") != (batch is not None):
            why = "a webhook takes batches with mode='batched', and then only: give both, such as `batch=100`"
            raise InvalidOption("batch", batch, why)
        if after_dead not in ("stop", "skip"):
            raise InvalidOption("after_dead", after_dead, "it is 'stop' or 'skip'")
        if source is not None and not source:
            raise InvalidOption("source", source, "it says where events come from: an address, or a path such as /shop")
        seconds = seconds_of(timeout, "timeout")
        if not seconds:
            raise InvalidOption("timeout", timeout, "a sink needs some time")
        self.queue = check_name("outbox", f"{QUEUE}{check_name('outbox', name)}")
        self.name = name
        self.batch = None if batch is None else check_whole("batch", batch, 1, 1_000)
        self.concurrency = None if concurrency is None else check_whole("concurrency", concurrency, 1, 10_000)
        self.retry = PATIENT if retry is None else Retry.of(retry)
        self.route = Route(self.queue, check_types(types), after_dead, self.retry.max_attempts)
        is_async = inspect.iscoroutinefunction(sink) or inspect.iscoroutinefunction(type(sink).__call__)
        takes_batches = batch is not None
        self._publisher = Publisher(name, sink, is_async, takes_batches, source or "", seconds, self.retry)

    def __repr__(self) -> str:
        return f"<outbox {self.name} of {', '.join(self.route.types)}>"

    def served(self, retry: Retry, limit: int | None = None) -> Served:
        """The outbox for a worker; a worker's limit goes before its own."""
        return Served(
            self.queue,
            self._publisher.body,
            self.retry,
            concurrency=limit or self.concurrency,
            batch=self.batch or 1,
            answers_each=True,
            open_while_served=self._publisher.open,
            in_order=True,
            route=self.route,
        )
