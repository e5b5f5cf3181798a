"""One place of a worker at work: call the body, judge what came of it, settle."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from stepwell.engine.outcome import Done, Failed, Outcome, Released, judge, judge_batch, settlement_of
from stepwell.engine.served import Served, Slot
from stepwell.engine.session import Session
from stepwell.engine.threads import NoThread, Threads
from stepwell.errors import LeaseLost, Timeout
from stepwell.records import Claimed
from stepwell.store.polling import SWEEP_EVERY
from stepwell.store.store import Store
from stepwell.telemetry import LateWriteRefused, TaskDied, TaskFailed


class Execution:
    """The turns of the tasks that one place was given: one task, or one batch."""

    def __init__(
        self, store: Store, served: Served, session: Session, calls: Sequence[Sequence[Claimed]], slot: Slot
    ) -> None:
        self.session = session
        self.settled = 0
        self.job: asyncio.Task[None] | None = None
        self._store = store
        self._served = served
        self._calls = calls
        self._slot = slot
        self._begun = self._settling = self._given_up = self._left = False

    def __repr__(self) -> str:
        return f"<tasks {', '.join(str(task.id) for task in itertools.chain(*self._calls))} of {self._served.queue}>"

    async def run(self, threads: Threads) -> None:
        """Make each call and write what came of it; nothing, if the session was lost under it."""
        self._begun = True
        try:
            for tasks in self._calls:
                outcome = await self._outcome(tasks, threads)
                if tasks is self._calls[-1]:
                    self._leave()  # the last body has ended: whoever comes next need not wait for the database
                if outcome is not None:
                    await self._settle(tasks, outcome)
        finally:
            self._leave()
            for task in itertools.chain(*self._calls):
                self.session.settled(task.id, task.turn)

    def give_up(self) -> None:
        """Stop the body and begin no other; what has been judged already is still settled."""
        self._given_up = True
        if self._begun and not self._settling and self.job is not None:  # cancelled before its first step, a task
            self.job.cancel()  # would never give its place back

    async def _outcome(self, tasks: Sequence[Claimed], threads: Threads) -> Outcome | None:
        """What came of the body; None if the session was lost under it, so that nothing may be written."""
        served = self._served
        if served.body is None:
            return _no_handler(served.queue)
        if self._given_up or self._slot.outlived:
            return self._interrupted()
        limit = asyncio.timeout(served.timeout)
        try:
            async with limit:
                return Done(await served.body(tasks, threads, self._slot))
        except asyncio.CancelledError:
            # From outside, or from the body itself: the first is not its failure, the second is no reason to stop.
            if self._given_up:
                return self._interrupted()
            return self._judged(tasks, RuntimeError("the body was cancelled"))
        except TimeoutError as error:
            if not limit.expired():
                return self._judged(tasks, error)
            late = Timeout(f"the handler of {served.queue} ran longer than {served.timeout:g} s")
            return self._judged(tasks, late)
        except NoThread:
            return Released(SWEEP_EVERY)
        except KeyboardInterrupt:
            raise  # a person's wish to end the process, wherever it came in
        except BaseException as error:  # noqa: BLE001 - whatever else a body raises is its outcome, sys.exit() too
            return self._judged(tasks, error)

    def _interrupted(self) -> Outcome | None:
        return None if self.session.lost else Released()

    def _judged(self, tasks: Sequence[Claimed], error: BaseException) -> Outcome:
        if len(tasks) > 1:
            return judge_batch(error)
        [task] = tasks
        return judge(error, task.attempt, task.max_attempts, self._served.retry, self._store.clock.random())

    async def _settle(self, tasks: Sequence[Claimed], outcome: Outcome) -> None:
        self._settling = True
        try:
            # Together: the flush makes one transaction of them.
            await asyncio.gather(*(self._settle_one(task, outcome) for task in tasks))
        finally:
            self._settling = False

    async def _settle_one(self, task: Claimed, outcome: Outcome) -> None:
        try:
            status = await self._store.tasks.settle(task.id, self.session.id, task.turn, settlement_of(outcome))
        except LeaseLost:
            self._store.telemetry.emit(LateWriteRefused(self.session.id, task.id, task.turn))
        else:
            self.settled += 1
            self._tell(task, outcome, status)
        finally:
            self.session.settled(task.id, task.turn)

    def _tell(self, task: Claimed, outcome: Outcome, status: str) -> None:
        error = getattr(outcome, "error", None)
        if error is None:
            return
        described = f"{error.get('type')}: {error.get('message')}"[:500]
        if isinstance(outcome, Failed) and status == "ERROR":
            self._store.telemetry.emit(TaskDied(task.id, self._served.queue, described))
        else:
            self._store.telemetry.emit(TaskFailed(task.id, self._served.queue, task.attempt, described))

    def _leave(self) -> None:
        if not self._left:
            self._left = True
            self._slot.release()


def _no_handler(queue: str) -> Outcome:
    message = f"no_handler_registered: a worker claimed {queue} by its prefix and has no handler for it"
    return Failed({"type": "NoHandler", "message": message}, reason="no_handler_registered")
