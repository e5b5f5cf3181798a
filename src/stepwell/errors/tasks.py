"""Errors of queues and the tasks in them."""
# ruff: noqa: N818 - the names are the API's words; `LeaseLost` says more than `LeaseLostError`

from __future__ import annotations

from stepwell.errors.base import StepwellError, shown


class QueueNotFound(StepwellError):
    """No queue has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no queue is named {shown(name)}; create it with `store.create_queue(name)`")
        self.name = name


class QueueInUse(StepwellError):
    """A queue cannot be deleted while something uses it."""

    def __init__(self, name: str, tasks: int, workers: int, workflows: int) -> None:
        super().__init__(
            f"queue {shown(name)} has {tasks} messages, {workers} living workers and {workflows} workflows; "
            "stop the workers and `purge` it first, and remove a workflow with `store.delete_workflow(name)`"
        )
        self.name = name
        self.tasks = tasks
        self.workers = workers
        self.workflows = workflows


class QueueDraining(StepwellError):
    """A queue takes no new messages while it is being drained."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"queue {shown(name)} is being drained and takes no new messages: nothing was written; enqueue to the "
            "queue that replaces it, or end the draining with `store.reopen_queue(name)`"
        )
        self.name = name


class TaskInUse(StepwellError):
    """A worker is executing the task, so no other program may close it."""

    def __init__(self, task_id: int, worker_id: int) -> None:
        held = f"task {task_id} is being executed by worker session {worker_id}"
        super().__init__(f"{held}; wait until it has ended, or stop that worker, which gives it back")
        self.task_id, self.worker_id = task_id, worker_id


class IdempotencyConflict(StepwellError):
    """A key is taken by a task with another payload."""

    def __init__(self, queue: str, key: str, existing: int) -> None:
        super().__init__(
            f"key {shown(key)} in {shown(queue)} belongs to task {existing}, which has another payload; "
            "use another key, or look at that task"
        )
        self.queue = queue
        self.key = key
        self.existing = existing


class KeyTaken(StepwellError):
    """A deleted task cannot be restored while another one has its key."""

    def __init__(self, task_id: int, queue: str, key: str, existing: int) -> None:
        super().__init__(
            f"task {task_id} stays deleted: its key {shown(key)} in {shown(queue)} belongs to task {existing} now; "
            "delete that one first, or enqueue the payload anew under another key"
        )
        self.task_id = task_id
        self.queue = queue
        self.key = key
        self.existing = existing


class LeaseLost(StepwellError):
    """This session no longer owns what it wrote to; nothing was written, and someone else does the work."""

    def __init__(self, worker_id: int, task_id: int | None = None) -> None:
        held = "its tasks" if task_id is None else f"task {task_id}"
        super().__init__(
            f"worker session {worker_id} no longer holds {held}: nothing was written. Another session does the work; "
            "if this happens often, raise `lease` or look for what blocks the process"
        )
        self.worker_id = worker_id
        self.task_id = task_id
