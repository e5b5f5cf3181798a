"""Who is told of the end of a task, in the transaction that writes it: a workflow, an instance, the outside world."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from stepwell.records import RunStatus, TaskKind
from stepwell.store.driver import Call, Row, Script
from stepwell.store.emission import Emission
from stepwell.store.ids import BLOCK, ids_in, reserve_blocks
from stepwell.store.ordered_groups import add_each
from stepwell.store.rows import NewTask
from stepwell.values.named_codecs import shown_value

if TYPE_CHECKING:
    from stepwell.store.database import Database

ATTEMPTS: Final = 3
DECIDER_ATTEMPTS: Final = 5
NO_HANDLER: Final = "no_handler_registered"
# What a workflow may have emitted of its runs, by the status that an attempt has left.
EMITTED: Final = {
    RunStatus.SUCCESS: ("succeeded",),
    RunStatus.PENDING: ("failed",),
    RunStatus.ERROR: ("failed", "dead_letter", "no_handler"),
}


def tell_ends(database: Database, ended: Sequence[int]) -> Script[set[int]]:
    """Tell others of these tasks, which have just been settled, as they have asked; return the queues that got tasks.

    The workflow that a workflow names for its failures is triggered; an effect that is given up sends its instance an
    input; what a workflow says of its life is emitted.
    """
    if not ended:
        return set()
    params = database.params()
    told = yield from _tell_instances(database, ended)
    runs = yield Call("told_of", params, [(run_id,) for run_id in ended])
    letters = [row for row in runs if row["letter_queue_id"] is not None and row["status"] == RunStatus.ERROR]
    told |= yield from _tell_workflows(database, letters)
    if emissions := [one for row in runs for one in emissions_of(row)]:
        told |= yield from database.outboxes.writing(emissions)
    return told


def emissions_of(row: Row) -> list[Emission]:
    """The events that a workflow wants of a run that stands so. They are in no order: each says its attempt."""
    wanted = json.loads(row["options"]).get("lifecycle", ())
    named = [name for name in EMITTED.get(RunStatus(row["status"]), ()) if name in wanted]
    if row["last_error"] != NO_HANDLER:
        named = [name for name in named if name != "no_handler"]
    if not named:
        return []
    said: dict[str, Any] = {name: row[name] for name in ("workflow", "key", "attempt")} | {"run_id": row["id"]}
    if row["status"] != RunStatus.SUCCESS:
        error = shown_value(row["error"])  # its traceback stays here
        said["error"] = {name: error.get(name) for name in ("type", "message")} if isinstance(error, dict) else error
    text, subject = json.dumps(said), f"{row['workflow']}/{row['id']}"
    return [Emission(event_type(row["workflow"], name), text, subject, headers=row["headers"]) for name in named]


def event_type(workflow: str, name: str) -> str:
    """The type of such an event."""
    return f"{workflow}.{name}.v1"


def _tell_workflows(database: Database, letters: Sequence[Row]) -> Script[set[int]]:
    """Trigger the workflow that each of these failed runs names for its failure."""
    if not letters:
        return set()
    blocks = yield from reserve_blocks(-(-len(letters) // BLOCK))
    ids = [task_id for block in sorted(blocks) for task_id in ids_in(block)]
    tasks = []
    for letter in letters:
        said = {"run_id": letter["id"], "workflow": letter["workflow"], "key": letter["key"]}
        said |= {name: shown_value(letter[name]) for name in ("input", "error")}
        task = NewTask(
            TaskKind.RUN,
            letter["letter_queue_id"],
            "",
            json.dumps(said),
            max_attempts=ATTEMPTS,
            inside=True,
            headers=letter["headers"],
        )
        tasks.append(task)
    yield from _added(database, tasks, ids)
    return {letter["letter_queue_id"] for letter in letters}


def _tell_instances(database: Database, ended: Sequence[int]) -> Script[set[int]]:
    """Add an input for the instance of each effect that was given up; its decider decides what the instance is told."""
    effects = yield Call("dead_effects", {}, [(task_id,) for task_id in ended])
    if not effects:
        return set()
    blocks = yield from reserve_blocks(-(-len(effects) // BLOCK))
    ids = [task_id for block in sorted(blocks) for task_id in ids_in(block)]
    tasks = []
    for effect in effects:
        said = json.dumps({"id": effect["instance"], "dead_letter": effect["id"]})
        queue_id = effect["inputs_queue_id"]
        task = NewTask(TaskKind.INPUT, queue_id, "", said, max_attempts=DECIDER_ATTEMPTS, inside=True)
        tasks.append(task)
    yield from _added(database, tasks, ids)
    return {effect["inputs_queue_id"] for effect in effects}


def _added(database: Database, tasks: Sequence[NewTask], ids: Sequence[int]) -> Script[None]:
    params = database.params()
    added = yield from add_each("add_tasks", params, tasks, ids[: len(tasks)])
    yield from database.audit.created(params, added)
