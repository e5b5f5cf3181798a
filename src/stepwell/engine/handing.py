"""A place of a worker that is kept free for a task while that is being added."""

from __future__ import annotations

from collections.abc import Callable

from stepwell.engine.claiming import Demand
from stepwell.engine.session import Session
from stepwell.records import Claimed


class FreeSeat:
    """One place, taken from the moment it is offered: no claim counts on it."""

    def __init__(
        self,
        demand: Demand,
        session: Session,
        queue_id: int,
        task_id: int,
        *,
        begin: Callable[[Claimed, Session], None],
        left: Callable[[], None],
    ) -> None:
        self.worker = session.id
        self._demand = demand
        self._session = session
        self._queue_id = queue_id
        self._task_id = task_id
        self._begin = begin
        self._left = left
        demand.take(queue_id)
        session.handing.add(task_id)

    def taken(self, task: Claimed) -> None:
        """The task is ours: execute it. A session that was lost meanwhile has lost it as well."""
        self._session.held[task.id] = task.turn
        self._leave()
        if not self._session.lost:
            self._begin(task, self._session)

    def missed(self) -> None:
        """It is not, or nobody knows: then the heartbeat finds out."""
        self._leave()

    def _leave(self) -> None:
        self._demand.give_back(self._queue_id)
        self._session.handing.discard(self._task_id)
        self._left()
