"""Dead letters that are told: a run that ends in ERROR asks for a run of another workflow, in the same transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence

from stepwell.records import NewTask, TaskKind
from stepwell.store.adding import row_of
from stepwell.store.driver import Call, Script, Value
from stepwell.store.ids import BLOCK, ids_in, reserve_blocks

ATTEMPTS = 3


def tell_dead_letters(params: dict[str, Value], ended: Sequence[int]) -> Script[set[int]]:
    """Ask for a run of the workflow that each of these runs named for its failure; the queues that got one."""
    letters = (yield Call("letters_of", params, [(run_id,) for run_id in ended])) if ended else []
    if not letters:
        return set()
    blocks = yield from reserve_blocks(-(-len(letters) // BLOCK))
    ids = [task_id for block in sorted(blocks) for task_id in ids_in(block)]
    rows = []
    for letter, task_id in zip(letters, ids, strict=False):
        told = {"run_id": letter["id"], "workflow": letter["workflow"], "key": letter["key"]}
        told |= {name: json.loads(letter[name] or "null") for name in ("input", "error")}
        task = NewTask(TaskKind.RUN, letter["letter_queue_id"], "", json.dumps(told), max_attempts=ATTEMPTS)
        rows.append(row_of(task, task_id))
    yield Call("add_tasks", params, rows)
    return {letter["letter_queue_id"] for letter in letters}
