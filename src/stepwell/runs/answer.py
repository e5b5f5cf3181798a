"""Requests that a run takes and answers: a block takes the next one, and the answer is written when the block is left.

The answer is recorded in the transaction that keeps it for the sender, so no replay answers twice.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, overload

from stepwell.base.durations import Duration
from stepwell.base.names import REQUEST
from stepwell.errors import InvalidOption, LeaseLost, NonDeterminismError, Paused, StoreBusy, StoreUnavailable
from stepwell.records import RunStatus
from stepwell.runs.branches import Branch
from stepwell.runs.caller import branch_of, made
from stepwell.runs.journal import Replay
from stepwell.runs.rename import cleared
from stepwell.runs.requests import Course, asked, awaited, followed
from stepwell.runs.turn import RunTurn
from stepwell.runs.wait import waiting_for_request
from stepwell.store.rows import StepRow
from stepwell.store.wait_query import AnswerRequest
from stepwell.values.codec import encode
from stepwell.values.lossless import refuse_unnamed
from stepwell.values.stamp import write_value

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
# After these the run goes on elsewhere or later, with the request still open.
NO_ANSWER: Final = (LeaseLost, NonDeterminismError, Paused, StoreBusy, StoreUnavailable)


class AnswersAsync:
    """`ctx.request` of an async workflow."""

    _run: RunTurn

    @overload
    def request(self, name: str, type: type[T], *, timeout: None = None) -> RequestBlock[OpenRequest[T]]: ...
    @overload
    def request(self, name: str, type: type[T], *, timeout: Duration) -> RequestBlock[OpenRequest[T] | None]: ...
    @overload
    def request(self, name: str, *, timeout: Duration | None = None) -> RequestBlock[Any]: ...
    def request(self, name: str, type: Any = Any, *, timeout: Duration | None = None) -> RequestBlock[Any]:
        """A block that waits for a request of this name, which others make with `store.ask`, and answers it once.

        In the block, `request.data` is what was asked; `request.reply(value)` or `request.refuse(why)` is written when
        the block is left. Without either the reply is None; an exception that leaves the block refuses the request.
        What is not of this type is refused before the block begins. With `timeout`, the block gets None if no request
        comes in time.
        """
        return RequestBlock(branch_of(self._run, "request", is_sync=False), name, type, timeout)


class AnswersSync:
    """`ctx.request` of a sync workflow."""

    _run: RunTurn

    @overload
    def request(self, name: str, type: type[T], *, timeout: None = None) -> SyncRequestBlock[OpenRequest[T]]: ...
    @overload
    def request(self, name: str, type: type[T], *, timeout: Duration) -> SyncRequestBlock[OpenRequest[T] | None]: ...
    @overload
    def request(self, name: str, *, timeout: Duration | None = None) -> SyncRequestBlock[Any]: ...
    def request(self, name: str, type: Any = Any, *, timeout: Duration | None = None) -> SyncRequestBlock[Any]:
        """A block that waits for a request of this name, which others make with `store.ask`, and answers it once."""
        return SyncRequestBlock(branch_of(self._run, "request", is_sync=True), name, type, timeout)


class OpenRequest(Generic[T_co]):
    """A request that a run has taken, to be answered once."""

    def __init__(self, run: RunTurn, name: str, place: int, data: T_co) -> None:
        self.name = name
        self.data = data
        self.number = place  # of this request among those of its name, from 1
        self.said: tuple[str | None, str | None] | None = None  # a reply as JSON, or why it is refused
        self._run = run

    def reply(self, value: object = None) -> None:
        """Answer with a value, any that a step could return; it is sent when the block is left."""
        options, what = self._run.slot.database.options, f"reply to {self.name}"
        text = write_value(value, limit=options.payload_limit, what=what, codec=options.codec)
        refuse_unnamed(value, what=what, codec=options.codec)
        self._say(text, None)

    def refuse(self, why: str) -> None:
        """Refuse the request: who asked gets `RequestRefused` with this reason; it is sent when the block is left."""
        self._say(None, str(why)[:1000])

    def _say(self, reply: str | None, refused: str | None) -> None:
        branch_of(self._run, "reply")  # not the body of a step, which is not executed on a replay
        if self.said is not None:
            raise InvalidOption("request", self.name, "it is answered; a request has one answer")
        self.said = reply, refused


class RequestBlock(Generic[T_co]):
    """The block in which a run answers a request: `async with ctx.request(...) as request`."""

    def __init__(self, branch: Branch, name: str, type: Any, timeout: Duration | None) -> None:
        self._run, self._name = branch.run, name
        course = waiting_for_request(branch, name, type, timeout)
        self._waiting: Coroutine[Any, Any, Any] = made(branch, course, "request")
        self._open: OpenRequest[Any] | None = None

    async def __aenter__(self) -> T_co:
        self._open = opened(self._run, self._name, await self._waiting)
        return self._open  # type: ignore[return-value]  # None only if there is a timeout

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None and left(self._run, self._open, error):
            await awaited(self._run, answering(self._run, self._open))


class SyncRequestBlock(Generic[T_co]):
    """The block in which a sync run answers a request: `with ctx.request(...) as request`."""

    def __init__(self, branch: Branch, name: str, type: Any, timeout: Duration | None) -> None:
        self._run, self._name = branch.run, name
        self._waiting = waiting_for_request(branch, name, type, timeout)
        self._open: OpenRequest[Any] | None = None

    def __enter__(self) -> T_co:
        self._open = opened(self._run, self._name, followed(self._waiting))
        return self._open  # type: ignore[return-value]  # None only if there is a timeout

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None and left(self._run, self._open, error):
            followed(answering(self._run, self._open))


def opened(run: RunTurn, name: str, taken: tuple[int, Any] | None) -> OpenRequest[Any] | None:
    """The request that was taken, if one came in time."""
    if taken is None:
        return None
    run.open_requests = (*run.open_requests, name)
    return OpenRequest(run, name, *taken)


def left(run: RunTurn, request: OpenRequest[Any], error: BaseException | None) -> bool:
    """The block is left: whether the request is to be answered now, with a refusal if an exception has left it."""
    names = list(run.open_requests)
    names.remove(request.name)
    run.open_requests = tuple(names)
    if error is None:
        request.said = request.said or ("null", None)
        return True
    if not isinstance(error, Exception) or isinstance(error, NO_ANSWER) or run.unwinding or run.is_lost:
        return False
    request.said = None, f"{type(error).__name__}: {error}"[:1000]
    return True


def answering(run: RunTurn, request: OpenRequest[Any]) -> Course:
    """The course of the answer."""
    assert request.said is not None
    reply, refused = request.said
    key = branch_of(run, "reply").key("reply()")
    run.journal.ask(key)
    told = encode("replied" if refused is None else "refused")
    row = StepRow(run.task.id, run.task.generation, key, run.journal.place(key), RunStatus.SUCCESS, output=told)
    return _answered(run, AnswerRequest(run.task, row, REQUEST + request.name, request.number, reply, refused))


def _answered(run: RunTurn, answer: AnswerRequest) -> Course:
    run.check()
    key = answer.row.key
    verdict = run.journal.answer(key, None)
    if isinstance(verdict, Replay):
        return
    yield from cleared(run, key, verdict)
    yield from asked(run, answer)
