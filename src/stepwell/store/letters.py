"""Dead letters that are told, in the transaction that makes them: a run that ends in ERROR asks for a run of another
workflow, and an effect that is given up sends its instance an input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from stepwell.records import NewTask, TaskKind
from stepwell.store.adding import row_of
from stepwell.store.driver import Call, Script, Value
from stepwell.store.ids import BLOCK, ids_in, reserve_blocks

ATTEMPTS = 3
DECIDER_ATTEMPTS = 5


def tell_dead_letters(params: dict[str, Value], ended: Sequence[int]) -> Script[set[int]]:
    """Ask for a run of the workflow that each of these runs named for its failure; the queues that got one."""
    if not ended:
        return set()
    told = yield from _tell_instances(params, ended)
    letters = yield Call("letters_of", params, [(run_id,) for run_id in ended])
    if not letters:
        return told
    blocks = yield from reserve_blocks(-(-len(letters) // BLOCK))
    ids = [task_id for block in sorted(blocks) for task_id in ids_in(block)]
    rows = []
    for letter, task_id in zip(letters, ids, strict=False):
        said = {"run_id": letter["id"], "workflow": letter["workflow"], "key": letter["key"]}
        said |= {name: json.loads(letter[name] or "null") for name in ("input", "error")}
        task = NewTask(
            TaskKind.RUN, letter["letter_queue_id"], "", json.dumps(said), max_attempts=ATTEMPTS, inside=True
        )
        rows.append(row_of(task, task_id))
    yield Call("add_tasks", params, rows)
    return told | {letter["letter_queue_id"] for letter in letters}


def _tell_instances(params: dict[str, Value], ended: Sequence[int]) -> Script[set[int]]:
    """Have the deciders of effects that were given up tell it to their instances: an input of its own for each."""
    effects = yield Call("dead_effects", {}, [(task_id,) for task_id in ended])
    if not effects:
        return set()
    blocks = yield from reserve_blocks(-(-len(effects) // BLOCK))
    ids = [task_id for block in sorted(blocks) for task_id in ids_in(block)]
    rows = []
    for effect, task_id in zip(effects, ids, strict=False):
        said = json.dumps({"id": effect["instance"], "dead_letter": effect["id"]})
        queue_id = effect["inputs_queue_id"]
        task = NewTask(TaskKind.INPUT, queue_id, "", said, max_attempts=DECIDER_ATTEMPTS, inside=True)
        rows.append(row_of(task, task_id))
    yield Call("add_tasks", params, rows)
    return {effect["inputs_queue_id"] for effect in effects}
