"""A call of every statement, about the few tasks that stand above all others in a full store (`world.py`).

A value goes by the name of its parameter or column; what a statement needs besides stands in `_own`.
"""

import json
from collections.abc import Mapping
from typing import Any

from stepwell.store.driver import Call, Value
from stepwell.store.rows import NEVER
from stepwell.store.sql import Parameter, Statement
from tests.store.world import CROWD, FAR, FEW, NOW, TYPE, Subjects

NEW = 2 * 10**9  # ids that nothing has


def sample(statement: Statement, of: Subjects) -> Call:
    """One call of a statement that finds what it asks for, with several rows where it takes rows."""
    own = _own(of).get(statement.name, {})
    names = {token.name for token in statement.tokens if isinstance(token, Parameter)}
    params = {name: _said(statement, name, own, _params(of)) for name in names}
    if not statement.columns:
        return Call(statement.name, params)
    columns = [_said(statement, column.name, own, _columns(of)) for column in statement.columns]
    return Call(statement.name, params, [[_nth(cell, place) for cell in columns] for place in range(FEW)])


def _said(statement: Statement, name: str, own: Mapping[str, Any], common: Mapping[str, Any]) -> Any:
    for given in (own, common):
        if name in given:
            return given[name]
    raise AssertionError(
        f"say in tests/store/samples.py what {name!r} is in a sample of the statement {statement.name}"
    )


def _nth(cell: Any, place: int) -> Value:
    """A column's value for one row: of as many as there are rows, or the same for all."""
    value: Value = cell[place % len(cell)] if isinstance(cell, range | list) else cell
    return value


def _params(of: Subjects) -> dict[str, Any]:
    return {
        "now": NOW,
        "beat_now": NOW,
        "tenant": "",
        "slot": 0,
        "shard": 0,
        "worker": of.worker,
        "limit": 20,
        "least": 0,
        "most": 20,
        "id": of.running[0],
        "ids": ",".join(str(number) for number in of.ended[:3]),
        "fork_id": NEW,
        "next_id": NEW,
        "queue_id": of.flow,
        "queue": "flow",
        "other": "flow",
        "other_id": of.flow,
        "queues": f"{of.flow},{of.messages}",
        "never": NEVER,
        "mark": "mark",
        "beside": True,
        "locks": "5s",
        "longest": "5s",
        "helper": "helper",
        "cleanup": None,
        "request": "cancel",
        "turn": 1,
        "generation": 0,
        "name": "flow",
        "key": f"key-{of.running[0]}",
        "type": TYPE,
        "kind": None,
        "error": None,
        "last_error": None,
        "tag": None,
        "reason": "because",
        "cause": "because",
        "input": "1",
        "instance": None,
        "effects": "flow:effects",
        "inputs": "flow:inputs",
        "options": "{}",
        "deleted": False,
        "succeeded": True,
        "paused": True,
        "draining": True,
        "dead_letters": True,
        "since": NOW - 1,
        "until": FAR,
        "before": 1000,
        "after": 0,
        "after_id": 0,
        "after_time": 0,
        "after_type": "",
        "after_name": "",
        "started": None,
        "place": 2,
        "seen": 1,
        "count": 2,
        "taken": True,
        "waits": True,
        "visibility": 1_000_000,
        "parent": of.parents[0],
        "data": "1",
        "types": '["Rung"]',
        "position": 2000,
        "handled": 1,
        "alone": True,
        "failed_at": 2000,
        "version": 1,
        "skipped": 1,
    }


def _columns(of: Subjects) -> dict[str, Any]:
    return {
        "id": of.running,
        "run_id": of.running,
        "instance_id": of.instances,
        "queue_id": of.flow,
        "parent_id": of.parents,
        "worker": of.worker,
        "slot": range(100, 100 + FEW),
        "turn": 1,
        "kind": "RUN",
        "status": "SUCCESS",
        "answer": "SUCCESS",
        "ready": True,
        "priority": 0,
        "delay": 0,
        "run_at": None,
        "max_attempts": 3,
        "attempt": 1,
        "attempt_back": 0,
        "alone": 0,
        "cleans_up": 0,
        "inside": 1,
        "generation": 0,
        "helper": "helper",
        "task_id": of.progressing,
        "wakes": None,
        "needed": None,
        "key": [f"key-{number}" for number in of.running],
        "key_scope": "ever",
        "payload_hash": "hash",
        "input": "1",
        "output": "1",
        "error": None,
        "accepts": None,
        "last_error": None,
        "tags": None,
        "progress": "1",
        "place": 1,
        "took": 1,
        "nth": 1,
        "what": "failed",
        "detail": None,
        "name": "word",
        "type": TYPE,
        "known": None,
        "visibility": 1_000_000,
        "capacity": 10,
        "least": 0,
        "most": 2,
        "minute": 10**9,
        "succeeded": 1,
        "failed": 0,
        "retried": 0,
        "wait_us": 0,
        "run_us": 1,
        "created_at": NOW,
        "updated_at": NOW,
    }


def _own(of: Subjects) -> dict[str, dict[str, Any]]:
    """What single statements need: tasks that are where the statement looks for them, keys that are taken or free."""
    new, once, handed = (range(NEW + block, NEW + block + FEW) for block in (0, 100, 200))
    free = [f"free-{number}" for number in new]
    crowd = range(of.worker + 1, of.worker + 1 + FEW)
    free_once = [f"free-{number}" for number in once]
    names = [f"name-{number}" for number in of.instances]
    timers = [f"key-{number}" for number in of.set_timers]
    step = {"key": "two#1", "status": "SUCCESS", "place": 2}
    return {
        "acquit": {"worker": of.worker + 2},
        "add_of_instances": {"id": new, "kind": "TIMER", "queue_id": of.timers, "key": free},
        "add_queue": {"name": "new"},
        "add_receipts": {"outcome": "applied", "first_version": 1, "last_version": 2},
        "add_signal": {"name": "word", "key": "new"},
        "add_steps": {"key": "new#1", "place": 3},
        "add_tasks": {"id": new, "key": free},
        "add_tasks_once": {"id": once, "key": free_once},
        "add_workflow": {"queue_id": of.messages},
        "append_events": {"version": 3, "type_version": 1, "data": "1", "cause": "cause"},
        "beat": {"worker": crowd},
        "control_requests": {"worker": crowd},
        "forget_requests": {"worker": crowd},
        "note_gone": {"worker": crowd},
        "note_helper": {"worker": crowd},
        "begin_beat": {"worker": of.worker + CROWD + 1},
        "archive_waiting": {"id": of.suspects[0]},
        "begin_worker": {
            "name": "w",
            "host": "h",
            "pid": 1,
            "port": None,
            "version": "0",
            "handlers": "[]",
            "lease": 1,
        },
        "cancelled_before": {"id": of.parents},
        "cancel_timers": {"id": of.set_timers},
        "catalogue": {"place": "stepwell"},
        "change_steps": step,
        "record_late": {"run_id": of.failed, "turn": 1, "key": "three#1", "place": 3},
        "claim": {"queue_id": of.messages},
        "claim_above": {"queue_id": of.messages, "id": 0, "run_at": 0},
        "close_taken": {"id": of.taken},
        "closed_queues": {"id": new},
        "copy_steps": {"id": of.ended[0]},
        "dead_effects": {"id": of.dead_effects},
        "decide_at_once": _decided(of),
        "delete_queue": {"id": of.idle},
        "delete_taken": {"id": of.removed},
        "delete_workflow": {"id": of.flow},
        "drop": {"id": of.failed},
        "edit_steps": {"run_id": of.ended, "key": "two#1"},
        "end_maintenance": {"tenant": "other"},
        "end_steps": {"id": of.failed, "answer": "CANCELLED", "key": None},
        "settle_steps": {"id": of.failed, "answer": None, "generation": 0, "key": "three#1", "place": 3},
        "events_after": {"after": 1, "until": 2},
        "events_caused_by": {"after": 0, "cause": "cause"},
        "extend_taken": {"id": of.extended},
        "failed_runs": {"id": of.failed},
        "find_added": {"key": free},  # a search for a key that is there may end at the first one
        "find_children": {"status": "RUNNING", "since": 0, "after_time": FAR, "key": None},
        "forget_loss": {"worker": of.worker + 2},
        "find_runs": {"status": "SUCCESS", "since": 0, "after_time": FAR, "key": None},
        "first_signals": {"key": "word#1"},
        "forget_steps": {"id": of.removed},
        "forget_generations": {"generation": 1},
        "forget_signals": {"id": of.held[0], "name": "word"},
        "fork_run": {"id": of.ended[0]},
        "hand_over": {"id": handed},
        "has_ready": {"queue_id": of.messages},
        "history": {"id": of.failed[0]},
        "hold_of": {"id": of.accepting[0]},
        "hold_run": {"id": of.parents_of_taken[0]},
        "instances": {"type": None},
        "stored_versions": {"most": 1000},
        "key_holder": {"id": of.deleted[0]},
        "let_go_run": {"id": of.held[0]},
        "let_go_accepted": {"id": of.accepting[0]},
        "letters_of": {"id": of.failed},
        "live_runs": {"queue_id": [of.flow, of.inputs], "status": "PENDING"},
        "load_task": {"id": new},
        "lock_instances": {"name": names},
        "look_at_instances": {"name": names},
        "lock_trees": {"id": of.parents},
        "look_in": {"place": "stepwell"},
        "make_instances": {"id": new, "name": free},
        "maintenance": {"tenant": "other"},
        "mark_run": {"key": "mark"},
        "move_instances": {
            "id": of.instances,
            "before": 2,
            "after": 3,
            "snapshot": None,
            "snapshot_version": None,
            "snapshot_schema": None,
            "completed": 0,
        },
        "note_migration": {"number": 1000, "name": "new"},
        "note": {"answer": "SUCCESS", "attempt": 2},
        "note_progress": {"id": of.progressing},
        "note_loss": {"worker": of.stranded},
        "notify": {"channel": "stepwell", "word": "word"},
        "owned": {"worker": crowd},
        "open_queue": {"queue_id": of.messages},
        "open_tasks_of": {"name": names[0]},
        "paused_steps": {"id": of.running[0]},
        "parked": {"name": "flow"},
        "parked_events": {"id": of.instances[0], "until": FAR},
        "fail_parked": {"id": of.instances[0], "error": "error"},
        "move_parked": {"id": of.instances[0], "version": 2},
        "unpark": {"id": of.instances[0]},
        "park_instance": {"id": of.bare[0], "error": "error"},
        "retry_parked": {"instance": names[0]},
        "make_projection": {"name": "new"},
        "note_projection_failure": {"error": "error"},
        "resume_projection": {"name": "paused"},
        "skip_failed_event": {"name": "stopped"},
        "pending_timers": {"queue_id": of.timers, "key": timers},
        "purge": {"id": of.ended},
        "receipts_of": {"key": "key"},
        "remove_finished": {"queue_id": of.messages},
        "remove_rollup": {"before": 60_000_000 * 1000},
        "remove_signals": {"ids": str(of.running[0])},
        "reopen_steps": {"run_id": of.failed, "key": "two#1"},
        "requeue": {"id": of.failed},
        "restore_task": {"id": of.deleted[-1]},
        "return_tasks": {"worker": of.stranded},
        "run_of_key": {"queue_id": of.flow},
        "settle": {"input": None},
        "settled_since": {"since": 60_000_000},
        "stop_beat": {"worker": crowd[0], "seen": NOW},
        "take": {"queue_id": of.messages},
        "take_signals": {"key": "word#1"},
        "task": {"id": of.ended[0]},
        "unfinished": {"queue_id": of.messages},
        "unfinished_children": {"id": of.parents},
        "unmake_instances": {"id": of.bare},
        "untaken_signals": {"name": "word", "key": "k"},
        "uses_of_queue": {"name": "q"},
        "wake_parents": {"id": of.running, "answer": "SUCCESS"},
        "wake_run": {"id": of.held[0]},
        "workflows": {"name": None},
    }


def _decided(of: Subjects) -> dict[str, str]:
    """A batch of decisions, as `at_once.py` says them."""
    moves = [{"id": number, "before": 2, "after": 3, "completed": 0} for number in of.instances]
    events = [
        {"instance_id": number, "version": 3, "type": "Rung", "type_version": 1, "data": 1, "cause": "cause"}
        for number in of.instances
    ]
    receipts = [
        {"instance_id": number, "key": "new", "outcome": "applied", "first_version": 3, "last_version": 3}
        for number in of.instances
    ]
    tasks = [
        {
            "id": NEW + place,
            "kind": "EFFECT",
            "queue_id": of.effects,
            "run_at": None,
            "max_attempts": 3,
            "input": 1,
            "instance_id": number,
        }
        for place, number in enumerate(of.instances)
    ]
    given = {"moves": moves, "events": events, "receipts": receipts, "tasks": tasks}
    return {name: json.dumps(rows) for name, rows in given.items()}
