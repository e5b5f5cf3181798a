"""Handlers: the functions that handle the messages of a queue."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, overload

from stepwell.base.backoff import Retry
from stepwell.base.durations import Duration, lease_of, timeout_of
from stepwell.base.limits import Limits, checked_limits, declared_limits
from stepwell.base.methods import bound, is_method, refuse_method, unserved_method
from stepwell.base.names import check_name, check_whole
from stepwell.base.program import Definition, know
from stepwell.errors import InvalidOption, SerializationError
from stepwell.store.rows import Claimed
from stepwell.values.codec import check_type, names_unknown_class
from stepwell.values.stamp import read_value, write_result
from stepwell.values.upcasters import versions_at
from stepwell.values.versions import check_place
from stepwell.work.body import Served, Slot
from stepwell.work.outcome import DONE, Done
from stepwell.work.processes import Executor, ProcessCall, check_executor
from stepwell.work.threads import Threads, in_thread
from stepwell.work.unreadable import Misfit

In_contra = TypeVar("In_contra", contravariant=True)
In = TypeVar("In")


class Handler(Generic[In_contra]):
    """A function and the queue whose messages it handles; calling it calls the function."""

    def __init__(
        self,
        fn: Callable[[Any], object],
        queue: str,
        *,
        retry: Retry | None,
        timeout: float | None,
        concurrency: int | None,
        batch: int | None,
        lease: float | None = None,
        limits: Limits | None = None,
        executor: Executor = "thread",
    ) -> None:
        self.fn = fn
        self.is_method = is_method(fn, "handler")  # it needs an instance of its class
        refuse_method(takes_self=self.is_method, executor=None if executor == "thread" else executor)
        self.in_process = check_executor("handler", fn, executor)
        self.queue = check_name("queue", queue)
        self.retry = retry
        self.timeout = timeout
        self.concurrency = concurrency
        self.batch = batch
        self.lease = lease
        self.limits = checked_limits(limits, queue, None)
        taken = _taken_type(bound(fn, self) if self.is_method else fn)
        self.returns: Any = typing.get_type_hints(fn).get("return", Any)
        know(self, self.queue, Definition(self.returns))
        self.payload_type = taken if batch is None else _element_type(fn, taken)
        check_place(self.payload_type, f"the payload of {self.queue}")
        self._is_async = inspect.iscoroutinefunction(fn)
        functools.update_wrapper(self, fn, updated=())  # a function's own attributes are not a handler's

    @property
    def max_attempts(self) -> int | None:
        """How often a message is tried in all, unless `enqueue` says otherwise; None is the store's policy."""
        return None if self.retry is None else self.retry.max_attempts

    def accepts(self, payload: In_contra, /) -> None:
        """Does nothing at run time: tells a type checker which payloads are allowed; `enqueue` checks them."""

    def __call__(self, payload: Any) -> Any:
        return self.fn(payload)

    def __repr__(self) -> str:
        return f"<handler {self.__name__} of {self.queue}>"  # type: ignore[attr-defined]

    def __get__(self, instance: object, owner: type | None = None) -> Handler[In_contra]:
        if instance is None or not self.is_method:
            return self
        own = copy.copy(self)
        own.fn, own.is_method = bound(self.fn, instance), False
        return own

    def served(self, retry: Retry, limit: int | None = None) -> Served:
        """The handler for a worker; its own policy goes before the store's, a worker's limit before its own."""
        if self.is_method:
            raise unserved_method(self.queue, self.fn)
        return Served(
            self.queue,
            self._body,
            self.retry or retry,
            self.timeout,
            limit or self.concurrency,
            self.batch or 1,
            declared_limits(self.limits, self.queue, None),
            lease=self.lease,
            reads=versions_at((self.payload_type,)),
            definition=Definition(self.returns),
        )

    async def _body(self, tasks: Sequence[Claimed], threads: Threads, slot: Slot) -> Done:
        try:
            payloads = [read_value(task.input or "null", self.payload_type) for task in tasks]
        except SerializationError as error:
            raise Misfit(error, was_read=names_unknown_class(error)) from error
        if self.in_process:
            keeps = tasks[0].keeps_result and self.batch is None
            return await self._elsewhere([task.input or "null" for task in tasks], threads, slot, keeps=keeps)
        argument = payloads[0] if self.batch is None else payloads
        if self._is_async:
            result: Any = await self.fn(argument)  # type: ignore[misc]
        else:
            result = await in_thread(lambda: self.fn(argument), threads, slot)
            if inspect.isawaitable(result):
                result = await result
        return self._kept(result, slot) if tasks[0].keeps_result and self.batch is None else DONE

    def _kept(self, returned: Any, slot: Slot) -> Done:
        options, what = slot.database.options, f"result of {self.queue}"
        limit, codec = options.payload_limit, options.codec
        return Done(write_result(returned, self.returns, what=what, limit=limit, codec=codec))

    async def _elsewhere(self, texts: Sequence[str], threads: Threads, slot: Slot, *, keeps: bool) -> Done:
        """Call the function in another process, and kill that when the attempt is stopped or takes too long."""
        asked = ProcessCall(self.fn, "asked handler" if keeps else "handler", texts)
        try:
            text = await in_thread(asked.run, threads, slot)
        except asyncio.CancelledError:
            asked.kill()
            raise
        return self._kept(read_value(text, self.returns), slot) if keeps else DONE


@overload
def handler(
    queue: str,
    /,
    *,
    retry: int | Retry | None = None,
    timeout: Duration | None = None,
    concurrency: int | None = None,
    batch: None = None,
    lease: Duration | None = None,
    limits: Limits | None = None,
    executor: Executor = "thread",
) -> Callable[[Callable[[In], object] | Callable[[Any, In], object]], Handler[In]]: ...
@overload
def handler(
    queue: str,
    /,
    *,
    batch: int,
    retry: int | Retry | None = None,
    timeout: Duration | None = None,
    concurrency: int | None = None,
    lease: Duration | None = None,
    limits: Limits | None = None,
    executor: Executor = "thread",
) -> Callable[[Callable[[list[In]], object] | Callable[[Any, list[In]], object]], Handler[In]]: ...
def handler(
    queue: str,
    /,
    *,
    retry: int | Retry | None = None,
    timeout: Duration | None = None,
    concurrency: int | None = None,
    batch: int | None = None,
    lease: Duration | None = None,
    limits: Limits | None = None,
    executor: Executor = "thread",
) -> Callable[[Callable[..., object]], Handler[Any]]:
    """Make the function the handler of a queue's messages, sync or async.

    Its parameter's annotation is the type the payload is read as. `retry` is how often a message is tried in all, three
    times unless the store says otherwise; `timeout` ends an attempt; `concurrency` bounds how many run at once in one
    worker. With `batch` it takes a list: up to that many messages, as many as there are. If that fails, each of them is
    delivered again alone, so that one bad message cannot spoil the others. `lease` is how long a worker that executes
    it may be silent before others take over, if that is not the store's. `limits` bounds how many of its messages are
    handled at once over all workers (`Limits`). What it returns is kept for messages that were enqueued with
    `result=True`.
    A method is a handler of the instance of its class that the worker serves, `Worker(store, [billing])`.
    With `executor="process"` a sync function that computes is called in another process, which is killed when its
    `timeout` is over.
    """
    check_name("queue", queue)  # here and not when it decorates: `@handler` without its queue is refused at once
    if concurrency is not None:
        check_whole("concurrency", concurrency, 1, 10_000)
    if batch is not None:
        check_whole("batch", batch, 1, 1_000)
    policy = None if retry is None else Retry.of(retry)
    seconds, silent = timeout_of(timeout), lease_of(lease)

    def decorate(fn: Callable[..., object]) -> Handler[Any]:
        if isinstance(fn, Handler):
            raise InvalidOption("handler", fn, f"it handles {fn.queue} already; give each queue a function of its own")
        return Handler(
            fn,
            queue,
            retry=policy,
            timeout=seconds,
            concurrency=concurrency,
            batch=batch,
            lease=silent,
            limits=limits,
            executor=executor,
        )

    return decorate


def _taken_type(fn: Callable[..., object]) -> Any:
    """The type of the function's one parameter; Any if it is not annotated."""
    name = getattr(fn, "__name__", fn)
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise InvalidOption("handler", name, "it has a `yield`: calling it would run nothing of it")
    signature = inspect.signature(fn)
    parameters = list(signature.parameters.values())
    try:
        signature.bind(None)  # just as a worker calls it
    except TypeError:
        why = f"a handler is called with the payload alone, and `{name}{signature}` cannot be"
        raise InvalidOption("handler", name, why) from None
    try:
        annotation = typing.get_type_hints(fn).get(parameters[0].name, Any)
    except NameError as error:
        why = f"its annotation cannot be read ({error}); define the class at the top of its module"
        raise InvalidOption("handler", name, why) from error
    check_type(annotation, what=f"payload of {getattr(fn, '__name__', fn)}")
    return annotation


def _element_type(fn: Callable[..., object], taken: Any) -> Any:
    """The type of one message if the function takes a list of them; Any if it is not annotated."""
    if taken is Any or taken is list:
        return Any
    if typing.get_origin(taken) in (list, Sequence):
        return typing.get_args(taken)[0]
    name = getattr(fn, "__name__", fn)
    raise InvalidOption("handler", name, f"with `batch` it takes a list of messages: annotate list[...], not {taken}")
