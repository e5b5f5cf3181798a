"""The one way by which new tasks are written, messages and runs alike: in a flush, in bulk, or in the user's own
transaction.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Final

import msgspec

from stepwell.errors import QueueNotFound, Refused, StepwellError, WorkflowNotFound
from stepwell.names import check_name
from stepwell.records import TaskId, TaskKind
from stepwell.store.draft import Drafted
from stepwell.store.driver import LOCKS, Call, Script
from stepwell.store.joined import add_joined, add_together
from stepwell.store.repeat import repeated
from stepwell.store.together import Together, Tx

READ_COMMITTED: Final = "read committed"


class Writing(Together):
    """What has been drafted becomes rows."""

    async def define(self, name: str) -> int:
        """The number of a workflow's queue; the definition is made if it is missing, together with the queue."""
        return await self._workflow_id(name, create=True)

    async def register_workflow(self, name: str, dead_letter: str | None, cleanup: float | None = None) -> int:
        """Define a workflow that a worker serves, and note which other one is told when a run of it fails for good.

        And for how many seconds a run of it may clean up when it is cancelled, by whoever that is.
        """
        self._workflows.forget(name)
        queue_id = await self.define(name)
        if dead_letter is not None:
            await self.define(dead_letter)
        options = {} if dead_letter is None else {"dead_letter": dead_letter}
        await repeated(
            lambda: self._workflows.describe(queue_id, options, cleanup),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )
        return queue_id

    async def workflow_id(self, name: str) -> int:
        """The number of a workflow's queue; `WorkflowNotFound` if it is no workflow."""
        return await self._workflow_id(name, create=False)

    def add_in_this_thread(self, drafted: Drafted, tx: object) -> list[TaskId]:
        """Write the tasks through the user's own sync connection, in the user's thread."""
        self.share_in_this_thread(drafted, tx)
        return self.play_joined_here(self.joining(drafted), tx)

    async def add(self, drafted: Drafted, tx: object = None) -> list[TaskId]:
        """Write tasks that were drafted, in a transaction of theirs or in the user's."""
        self.check()
        return await self._add(drafted, tx)

    async def _add(self, drafted: Drafted, tx: object) -> list[TaskId]:
        if not drafted.tasks:
            return []
        if tx is not None:
            return await self._add_joined(drafted, tx)
        try:
            return await self._write(drafted)
        except Refused as error:
            await self._explain(drafted, error)
        return await self._write(drafted)  # deleted under us; a handler or a workflow makes its queue again

    async def _write(self, drafted: Drafted) -> list[TaskId]:
        # By name an unknown queue is an error, a misspelling more often than not; a handler is its own definition.
        if len(drafted.queues) > 1:
            return await self._write_together(drafted)
        [(name, create)] = drafted.queues.items()
        queue_id = await self._number(drafted, name, create=create)
        if len(drafted.tasks) > 1:
            return await self.tasks.add_many(queue_id, drafted.tasks)
        return [await self.tasks.add(msgspec.structs.replace(drafted.tasks[0], queue_id=queue_id))]

    async def _write_together(self, drafted: Drafted) -> list[TaskId]:
        """Write tasks of several queues in one transaction; their ids are known before, so it may be repeated."""
        params, asked = self._params(), dataclasses.replace(drafted, required={})  # that was seen to already
        numbers = await self.ids.take(len(drafted.tasks))
        ids = await repeated(
            lambda: self.driver.transact(lambda: add_together(params, asked, numbers, self._living)),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )
        self.tasks.hint({await self._number(drafted, name, create=False) for name in drafted.queues})
        if delays := [task.delay for task in drafted.tasks if task.delay]:
            self.tasks.alarm.set(min(delays) / 1_000_000)
        return ids

    async def share(self, drafted: Drafted, tx: object) -> None:
        """Make the queues and workflows that are missing before these tasks join a transaction.

        Made inside of it, nobody else could use them, and whoever wanted to would wait, until it ends. One that sees
        only what was there when it began would not see them: they are made inside of that.
        """
        missing = await self._missing(drafted)
        if missing and await self.play_joined(_isolation(), tx) == READ_COMMITTED:
            await self._make(drafted, missing)

    def share_in_this_thread(self, drafted: Drafted, tx: object) -> None:
        """As `share`, for a transaction of the user's thread, which is this one."""
        missing = asyncio.run_coroutine_threadsafe(self._missing(drafted), self.loop).result()
        if missing and self.play_joined_here(_isolation(), tx) == READ_COMMITTED:
            asyncio.run_coroutine_threadsafe(self._make(drafted, missing), self.loop).result()

    async def _missing(self, drafted: Drafted) -> list[str]:
        if self.driver.key_slot is None:  # one writer: while it is not the user, we would wait for the user
            return []
        missing = []
        for name in (name for name, create in drafted.queues.items() if create):
            try:
                await self._number(drafted, name, create=False)
            except (QueueNotFound, WorkflowNotFound):
                missing.append(name)
        return missing

    async def _make(self, drafted: Drafted, names: list[str]) -> None:
        await self._living.check({name: policy for name, policy in drafted.required.items() if policy == "error"})
        for name in names:
            try:
                await (self._workflows if drafted.kind is TaskKind.RUN else self._queues).create(name, LOCKS)
            except StepwellError:
                return  # made by the user in this very transaction, perhaps: whoever joins it finds out

    async def _add_joined(self, drafted: Drafted, tx: object) -> list[TaskId]:
        await self.share(drafted, tx)
        ids = await self.play_joined(self.joining(drafted), tx)
        if isinstance(tx, Tx):
            tx.touched.update(drafted.queues)
        return ids

    def joining(self, drafted: Drafted) -> Script[list[TaskId]]:
        """Write tasks as part of a transaction that somebody else has begun."""
        return add_joined(self._params(), drafted, self._living)

    async def _explain(self, drafted: Drafted, error: Refused) -> None:
        """Raise why nothing was written, unless a queue was deleted under us that may be made again."""
        gone = False
        for name, create in drafted.queues.items():
            self._queues.forget(name)
            self._workflows.forget(name)
            try:
                await self._number(drafted, name, create=False)
            except (QueueNotFound, WorkflowNotFound) as missing:
                if not create:
                    raise missing from error
                gone = True
        if not gone:
            raise error

    async def _number(self, drafted: Drafted, name: str, *, create: bool) -> int:
        of = self._workflow_id if drafted.kind is TaskKind.RUN else self.queue_id
        return await of(name, create=create)

    async def _workflow_id(self, name: str, *, create: bool) -> int:
        self.check()
        check_name("workflow", name)
        return await self._number_in(self._workflows, name, create=create)


def _isolation() -> Script[str]:
    """How much of what others commit the user's transaction sees."""
    [row] = yield Call("isolation")
    level: str = row["level"]
    return level
