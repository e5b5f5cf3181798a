"""A row set in one statement does what its rows do one after the other, on a database that takes both."""

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import aiosqlite
import pytest

import stepwell
from stepwell import Store
from stepwell.records import TaskId
from stepwell.store.driver import Call, Value
from stepwell.store.embedded.render import Rendered
from stepwell.store.sql import Statement, Statements
from tests.store.seam import DONE, ask, begin, claim, do, watched
from tests.store.steps import Stepped

ONLY_SQLITE = pytest.mark.backends("sqlite", reason="the only embedded database that takes many rows at once")
NEW = ("MESSAGE", 1, 0, 0, None, 3)  # kind, queue, priority, delay, run_at, max_attempts
NEXT = (
    "INPUT",
    4,
    0,
    0,
    None,
    3,
    None,
    "ever",
    None,
    "1",
    None,
    None,
    0,
    None,
    None,
    None,
)  # of a group, up to its place in it
DIFFICULT = (
    "",
    "12",
    "-0.5e3",
    "true",
    "null",
    '["a","b"]',
    '{"a": 1, "b":2.50, "c": 1e400}',
    "\\u0000 \\ \\\\ \" ' \\n",
    "".join(map(chr, range(1, 160))),
    "\u2028\u2029\ufeff\ufffe\uffff",
    "\U0001f600\U0010ffff e\u0301",
    "x" * 1_000_000,
    -(2**63),
    2**63 - 1,
    2**53 + 1,
    0,
    True,
    False,
    None,
)
NO = (None,) * 4
CANCELLED = "status, finished_at, cancel_requested_at, parent_id"
WAIT = "@word#1"  # the key of a wait for a broadcast
# For each statement with a row set, rows of which some fit nothing; those of ids that a call may say twice do so.
ROWS: dict[str, list[tuple[Value, ...]]] = {
    "add_tasks": [(901, *NEW, None, "ever", None, "1", None, None, 0, None, None, None),
                  (900, *NEW, "new", "ever", "h", "2", '["t"]', None, 1, None, 3, None),
                  (902, "MESSAGE", 9, 0, 0, None, 3, None, "ever", None, "3", None, None, 0, None, None, None),
                  (903, "MESSAGE", 2, 7, 5, 44, 3, None, "ever", None, "4", None, None, 1, None, 3, None)],
    "add_tasks_once": [(905, *NEW, "b", "ever", "h1", "1", None, None, 0, None, None, None),
                       (904, *NEW, "b", "ever", "h2", "2", None, None, 0, None, None, None),
                       (906, *NEW, "k1", "ever", "h3", "3", None, None, 0, None, None, None),
                       (1, *NEW, "c", "ever", "h4", "4", None, None, 0, None, None, None),
                       (907, *NEW, "d", "ever", "h5", "5", None, None, 1, None, 3, None),
                       (907, *NEW, "e", "ever", "h6", "6", None, 1, 1, None, 3, None)],
    "add_with_conditions": [(951, *NEW, "w", "unfinished", "h1", "1", None, None, 0, None, None, None, 1, None, None,
                             0, 60, None, None),
                            (952, *NEW, "w", "unfinished", "h2", "2", None, None, 0, None, None, None, 1, 5, None, 1,
                             None, 9, "cancel"),
                            (953, *NEW, None, "ever", None, "3", None, None, 0, None, None, None, 0, None, 77, 1,
                             None, None, "leave"),
                            (954, *NEW, "k1", "ever", "h", "4", None, None, 0, None, None, None, 0, 6, None, 0,
                             None, None, None)],
    "added_before": [(1,), (2,), (999,)],
    "lock_waiting": [(951, 1, "k1"), (952, 1, "t"), (953, 1, "none"), (954, 2, "k1")],
    "replace_waiting": [(1, 961, 1, 4, 0, None, 5, "h", "7", '["t"]', None, None, None, None, None, None, 1, 60),
                        (53, 962, 1, 0, 50, None, 3, "h", "8", None, "k", 4, None, 10, 5, None, 0, None),
                        (11, 963, 1, 0, 0, None, 3, "h", "9", None, None, None, None, None, None, None, 0, None)],
    "lock_expired": [(2,), (1,), (999,)],
    "load_task": [(901, "MESSAGE", 1, True, 0, 5, 3, "ever", None, None, 5, 5, "1"),
                  (900, "MESSAGE", 1, False, 0, 6, 3, "ever", '["t"]', '{"a":"b"}', 5, 5, "2")],
    "find_added": [(900, 1, "k1"), (2, 1, None), (3, 1, "k1"), (901, 1, "none"), (902, 2, "k1")],
    "limited_among": [(2,), (1,), (9,)],
    "paid_of_keys": [(2, "a"), (2, "b"), (1, "a")],
    "pay_keys": [(2, "a", 5), (2, "new", 6)],
    "costs_of": [(12, 1, 5), (16, 2, 5), (999, 1, 5)],
    "note_costs": [(12, 1, 5), (16, 2, 5), (999, 1, 5)],
    "oldest": [(2,), (1,), (9,)],
    "settle": [(12, 1, 1, "SUCCESS", 0, None, 0, 0, None, None, '{"a":1}', None, None, 0, None),
               (16, 1, 1, "PENDING", 5, 2_000, 1, 0, None, None, None, None, None, 0, None),
               (13, 1, 9, "SUCCESS", 0, None, 0, 0, None, None, None, None, None, 0, None),
               (14, 9, 1, "SUCCESS", 0, None, 0, 0, None, None, None, None, None, 0, None),
               (15, 1, 1, "ERROR", 0, None, 0, 0, None, None, None, '{"type":"E"}', "E: \x1f", 0, None),
               (11, 1, 1, "PENDING", 0, None, 1, 0, None, None, None, None, None, 0, '{"next":1}')],
    "hand_over": [(910, *NEW, None, "ever", None, "1", None, None, 0, None, None, None, 1),
                  (911, *NEW, None, "ever", None, "2", None, 5, 0, None, 2, None, 9),
                  (912, "MESSAGE", 2, 0, 0, None, 3, None, "ever", None, "3", None, None, 0, None, None, None, 1)],
    "lock_instances": [("order", "a", None), ("order", "b", 1), ("order", "none", None)],
    "look_at_instances": [("order", "a", None), ("order", "b", 1), ("order", "none", None)],
    "make_instances": [(61, "order", "a"), (62, "order", "new")],
    "unmake_instances": [(51,), (52,), (999,)],
    "events_after": [(51, 0, 9), (51, 1, 1), (999, 0, 9)],
    "inline_builds": [("orders",), ("none",)],
    "receipts_of": [(51, "k"), (51, "none"), (999, "k")],
    "events_caused_by": [(51, 0, "c"), (51, 1, "none"), (999, 0, "c")],
    "open_turns": [(12, 1, 1), (11, 1, 9), (13, 9, 1)],
    "pending_timers": [(1, "t"), (1, "k1"), (2, "t")],
    "move_instances": [(51, 2, 4, "{}", 4, 1, 1), (52, 9, 10, None, None, None, 0)],
    "append_events": [(51, 3, "Paid", 1, "{}", "c"), (52, 1, "Made", 1, "{}", None)],
    "add_receipts": [(51, "new", "applied", 1, 2), (52, "new", "completed", None, None)],
    "forget_contents": [(51, 1), (999, 1)],
    "cancel_timers": [(53,), (1,), (999,)],
    "end_timers": [(51,), (999,)],
    "add_of_instances": [(921, "TIMER", 1, 5, 3, "u", "1", 51, 0, None),
                         (922, "EFFECT", 1, None, 3, None, "2", 51, 1, '{"a":"b"}')],
    "keep_answer": [(12, 1, 1, "1"), (11, 1, 9, "2"), (13, 9, 1, "3")],
    "dead_effects": [(54,), (1,), (999,)],
    "find_children": [(1, "PENDING"), (1, "ERROR"), (9, "ERROR")],
    "lock_turns": [(12, 1, 1), (11, 1, 9), (13, 9, 1), (999, 1, 1)],
    "first_signals": [(12, "a", "a#1"), (12, "b", "b#1"), (999, "a", "a#1")],
    "take_signals": [(12, "a", 1, "a#1"), (12, "a", 9, "a#2"), (999, "a", 1, "a#1")],
    "answer_requests": [(12, "a", 1, "1", None), (12, "a", 9, None, "no"), (999, "a", 1, "1", None)],
    "answers": [(41, "a", "k"), (41, "b", "k"), (999, "a", "k")],
    "wake_parents": [(901, "SUCCESS", 1), (902, "ERROR", 1), (903, "PENDING", 2), (904, "SUCCESS", None)],
    "ends_of": [(1,), (31,), (999,)],
    "note": [(12, None, 1, "failed", 1, 1, 1, '"E: m"', None, "", None), (16, None, 1, "paused", *NO, "ann", "", 0),
             (11, "a#1", 1, "step failed", 1, None, 2, '"a#1: E"', *NO[:3]), (13, None, 1, "deleted", *NO, *NO[:3])],
    "subject_keys": [("customer/1",), ("none",)],
    "subject_keys_by_number": [(1,), (999,)],
    "add_subject_keys": [("customer/1", "w"), ("customer/2", "w"), ("customer/2", "again")],
    "seals_of_tasks": [(12,), (31,), (999,)],
    "reseal_steps": [(32, "failed#1", "1", None, None), (32, "z#1", "1", "2", None), (999, "a#1", None, "3", None)],
    "put_under_seal": [(16, 1), (16, 9), (999, 9)],
    "note_progress": [(12, 1, 1, "1"), (11, 1, 9, "2"), (13, 9, 1, "3")],
    "add_reports": [(12, 1, 1, "value", "a", 1, "[1]"), (12, 1, 1, "value", "b", 2, "[1,2]"),
                    (13, 1, 1, "stream", "a", 1, "[1]"), (11, 1, 9, "value", "a", 1, "[2]"),
                    (13, 9, 1, "value", "a", 1, "[3]")],
    "news": [(41, "value", "a", 0), (41, "stream", "a", 3), (12, "value", "a", 0), (999, "value", "a", 0)],
    "edit_steps": [(31, "failed#1", "1"), (31, "none#1", "2")],
    "delete_runs": [(41,), (31,), (999,)],
    "add_steps": [(12, 1, 0, "a#2", 2, "SUCCESS", 1, 5, "null", "1", None, None),
                  (11, 1, 0, "a#1", 1, "PAUSED", 1, 5, None, None, None, "{}"),
                  (12, 9, 0, "b#1", 3, "SUCCESS", 1, 5, "null", "1", None, None)],
    "change_steps": [(31, 1, 0, "kept#1", 1, "ERROR", 2, 5, "null", None, "{}", None),
                     (31, 1, 0, "begun#1", 2, "SUCCESS", 1, 5, "null", "1", None, None),
                     (31, 9, 0, "failed#1", 3, "SUCCESS", 1, 5, "null", "1", None, None),
                     (31, 1, 0, "new#1", 4, "PENDING", 1, 5, "null", None, "{}", None)],
    "end_steps": [(31, "CANCELLED", "kept#1"), (32, "SUCCESS", None), (999, "ERROR", None)],
    "settle_steps": [(31, None, 0, "kept#1", 1, "ERROR", 2, 5, "null", None, "{}", None),
                     (31, None, 0, "begun#1", 2, "PAUSED", 1, 5, "null", "1", None, "{}"),
                     (31, None, 0, "new#1", 4, "PENDING", 1, 5, "null", None, "{}", None)],
    "record_in_turn": [(12, 1, 1, 0, "a#1", 1, 1, 5, "null", "1"), (11, 1, 9, 0, "a#1", 1, 1, 5, "null", "1"),
                       (13, 1, 1, 0, "a#1", 1, 2, 5, "null", "2"), (31, 1, 1, 0, "kept#1", 1, 1, 5, "null", "3")],
    "outlast_turns": [(12, 1, 1), (11, 1, 9), (13, 9, 1)],
    "record_late": [(31, 0, 0, "begun#1", 2, 1, 5, "null", "1"), (14, 1, 0, "a#1", 1, 1, 5, "null", "1"),
                    (11, 1, 0, "a#1", 1, 1, 5, "null", "1"), (32, 7, 0, "a#1", 1, 1, 5, "null", "1")],
    "forget_steps": [(32, "1"), (999, "1")],
    "steps_of": [(32, 0), (31, 0), (31, 1), (9, 0)],
    "reopen_steps": [(31, 0, "failed#1"), (31, 0, "kept#1"), (32, 1, "failed#1"), (31, 0, "none#1")],
    "forget_generations": [(31, 1), (32, 0), (999, 1)],
    "mark_run": [(31, 0, "#accepted/a"), (31, 0, "kept#1"), (32, 1, "#held/b")],
    "any_held": [(1,), (2,), (9,)],
    "let_go_held": [(1,), (2,), (9,)],
    "lock_tasks": [(12, 1), (11, 1), (999, 1)],
    "lock_families": [(42,), (1,), (999,)],
    "lock_trees": [(1,), (12,), (999,)],
    "lock_ending": [(12, 1), (11, 1), (999, 1)],
    "check_turns": [(12, 1, 1), (11, 1, 9), (13, 9, 1)],
    "keep_turns": [(12, 1, 1), (11, 1, 9), (13, 9, 1)],
    "note_helper": [(1, "beats"), (9, "none")],
    "note_gone": [(1,), (9,)],
    "runs": [(31,), (41,), (999,)],
    "cancelled_runs": [(46,), (31,), (999,)],
    "cancelled_with": [(46,), (31,), (999,)],
    "retry_cancelled": [(46,), (31,), (999,)],
    "cancel_tasks": [(1,), (11,), (31,), (999,)],
    "cancelled_before": [(1,), (14,), (31,), (999,)],
    "request_control": [(1, 11, 1), (1, 12, 1), (9, 11, 1)],
    "control_requests": [(1,), (9,), (2,)],
    "forget_requests": [(1,), (9,), (2,)],
    "unfinished_children": [(1,), (31,)],
    "children_to_end": [(1, 1), (31, 0)],
    "ended_with": [(46, 1), (31, 0)],
    "told_of": [(31,), (41,), (999,)],
    "failed_runs": [(31,), (41,), (999,)],
    "find_runs": [(1, "PENDING"), (1, "ERROR"), (9, "ERROR")],
    "find_tagged_runs": [(1, "PENDING"), (1, "ERROR"), (9, "ERROR")],
    "count_settled": [(12, "SUCCESS", 1, 7, 1, 0, 0, 5, 6), (11, "PENDING", 1, 7, 0, 0, 1, 0, 6),
                      (15, "ERROR", 2, 7, 0, 1, 0, 1, 2), (16, "SUCCESS", 1, 8, 1, 0, 0, 3, 4)],
    "turns_of": [(12,), (1,), (999,)],
    "close_taken": [(22, 1, "SUCCESS", 0, 0), (21, 1, "PENDING", 0, 1), (23, 2, "SUCCESS", 0, 0),
                    (12, 1, "SUCCESS", 0, 0)],
    "extend_taken": [(22, 1, 500), (21, 1, 400), (23, 2, 300), (12, 1, 200)],
    "delete_taken": [(22, 1), (21, 2), (23, 1), (12, 1)],
    "purge": [(2,), (1,), (12,), (2,), (999,)],
    "requeue": [(32,), (31,), (1,), (32,)],
    "drop": [(32,), (31,), (1,), (32,)],
    "closed_queues": [(2,), (1,), (9,)],
    "begin_fence": [(1, 3), (1, 2)],
    "beat": [(1,), (9,)],
    "owned": [(1,), (9,)],
    "join_groups": [(4, "empty", "wait", 2, 0), (4, "new", "continue", 1, 1)],
    "add_in_order": [(931, *NEXT, 1, 7, None, 0, 60, 9, "leave", "g", 1, 0),
                     (932, *NEXT, 0, None, 9, 1, None, None, None, "g", 0, 0),
                     (933, *NEXT, 0, None, None, 0, None, None, None, "empty", 0, 1)],
    "order_keys": [(951, 1, "1", None), (952, 3, "2", "k"), (953, 3, "2", None)],
    "place_in_order": [(1, "g"), (11, "g"), (999, "g")],
    "hold_back": [(4, "g"), (4, "empty"), (9, "g")],
    "positions_of": [(45,), (1,), (999,)],
    "remove_kept": [(1,), (2,), (999,)],
    "lock_groups": [(4, "g"), (4, "empty"), (9, "g")],
    "next_in_group": [(4, "g"), (4, "empty"), (9, "g")],
    "note_empty_groups": [(4, "g"), (4, "empty"), (9, "g")],
    "asleep_groups": [(4,), (1,), (9,)],
    "note_repaired": [(4, "g"), (4, "empty"), (9, "g")],
    "task": [(1,), (31,), (999,)],
    "moved_before": [(1, "k1"), (1, "none"), (9, "k1")],
    "move_tasks": [(941, "MESSAGE", 1, "PENDING", 5, 1, 1, 3, "m1", 5, 6, *NO, *NO[:2], "1", None),
                   (942, "RUN", 2, "SUCCESS", 5, 1, 1, 3, "m2", 5, 6, 6, 6, None, 7, None, None, "1", '{"a":1}'),
                   (943, "MESSAGE", 1, "PENDING", 5, 0, 0, 3, "k1", 5, 6, *NO, *NO[:2], "1", None)],
    "move_steps": [(31, "moved#1", 5, "SUCCESS", 1, 5, 6, "null", "1", None),
                   (32, "moved#1", 5, "ERROR", 2, 5, 6, None, None, "{}")],
    "searched_runs": [(1, "ERROR"), (1, "PENDING"), (9, "ERROR")],
    "mark_scheduled": [(1,), (31,), (999,)],
    "add_ticks": [(10, "tick", "fired", 1, 31), (20, "gap", "missed", 7, None), (10, "manual", "fired", 1, None)],
    "add_observations": [("order", "a", "Pay", 1, "{}", "applied", "open", "paid", 3, 3, None, "k", "c"),
                         ("order", "b", "Pay", 1, "{}", "refused", None, None, None, None, "E", None, "d")],
    "publish": [(12, "word", "1"), (701, "word", "2"), (11, "other", '{"a": 1}')],
    "add_broadcast_keys": [("*",), ("new",), ("one",)],
    "subscribed": [("*",), ("none",), ("only:workflow",)],
    "lock_subscribers": [(44,), (12,), (999,)],
    "tell_subscriptions": [(44, 0, WAIT), (43, 0, WAIT), (12, 0, "@word#2"), (12, 1, "@word#2"), (999, 0, WAIT)],
    "wake_runs": [(44,), (12,), (41,), (999,)],
    "subscribe": [(44, 0, "@word#2", "word", "*", 3), (44, 0, WAIT, "word", "*", 3), (12, 0, "@word#3", "word", "*", 3),
                  (12, 0, "@new#1", "new", "one", 0)],
    "first_broadcasts": [(44, 0, WAIT), (12, 0, "@word#2"), (12, 0, WAIT), (45, 0, WAIT), (999, 0, WAIT)],
    "take_broadcasts": [(44, 0, WAIT, 1), (12, 0, "@word#2", 2), (43, 1, WAIT, 1), (999, 0, WAIT, 1)],
    "ask_again": [(12, 0, WAIT), (44, 0, WAIT), (12, 1, WAIT), (999, 0, WAIT)],
    "unsubscribe": [(44, 0, WAIT), (12, 0, WAIT), (43, 0, WAIT), (999, 0, WAIT)],
    "forget_taken": [(12, "word", "*", 2), (44, "word", "*", 2), (43, "other", "*", 2), (999, "word", "*", 2)],
    "declare_event_workflows": [("word", "*", 1, 5, 2), ("word", "*", 2, 3, 0), ("new", "one", 1, 3, 0)],
    "withdraw_events": [("word", "*"), ("word", "only:workflow"), ("none", "*")],
}  # fmt: skip
TASK = """insert into {{task}} (id, kind, queue_id, max_attempts, input, created_at, updated_at, run_at, ready, {more})
          values ({id}, 'MESSAGE', 1, 3, '1', 1, 1, 1, {values})"""
STEP = "insert into {{step}} (run_id, key, place, status) values ({run}, '{key}', 1, '{status}')"
SILENT = {
    "load_task",
    "unmake_instances",
    "append_events",
    "add_receipts",
    "request_control",
    "add_observations",
}  # what they return is not asked for
INSTANCE = """insert into {{instance}} (id, type, name, version, created_at, updated_at)
              values ({id}, 'order', '{name}', {version}, 1, 1)"""
EVENT = """insert into {{event}} (instance_id, version, type, data, cause, recorded_at)
           values (51, {version}, 'Made', '1', '{cause}', 1)"""
GROUP = """insert into {{ordered_group}} (queue_id, group_key, last_position, after_failure)
           values (4, '{key}', 5, 'wait')"""
SIGNAL = "insert into {{signal}} (run_id, name, place, sent_at) values (12, '{name}', {place}, 1)"
REPORT = """insert into {{report}} (run_id, kind, name, place, chunks, data, recorded_at)
            values ({run}, '{kind}', 'a', 3, 2, '[1,2]', 1)"""
SUBSCRIPTION = """insert into {{subscription}} (run_id, generation, key, tenant, name, match, after, told, taken,
                                                asked_at)
                  values ({run}, 0, '@word#{number}', '', 'word', '*', 0, {told}, {taken}, 1)"""
STEPS = {"kept#1": "SUCCESS", "begun#1": "RUNNING", "failed#1": "ERROR"}
TABLES = (
    *("task", "step", "signal", "audit", "rollup", "fence", "beat", "instance", "event", "receipt"),
    *("control_request", "ordered_group", "observation", "report", "tick", "key_paid"),
    *("broadcast", "broadcast_key", "subscription", "event_workflow"),
)
UNDER_WAY = "status, owner, turn, attempt, claimed_at"
PARAMS: dict[str, Value] = {
    "request": "cancel",
    "now": 1_000,
    "beat_now": 2_000,
    "slot": 0,
    "shard": 3,
    "tenant": "",
    "deleted": False,
    "succeeded": True,
    "error": "{}",
    "last_error": "E",
    "reason": None,
    "parent": 1,
}
PARAMS |= {"never": 1, "mark": "#held/c", "seal": 7, "schedule_id": 3, "most": 0, "whole": True}
PARAMS |= {"name": "word", "place": 2, "queue_id": 1}  # of a broadcast, and of the workflow that it triggers
PARAMS |= {"since": 0, "until": 100, "after_time": 100, "after_id": 100, "limit": 5, "key": None}
PARAMS |= {"prefix": None, "tags": None}


def with_row_sets() -> list[str]:
    statements = Statements("sqlite", "stepwell")._statements
    return [name for name, statement in statements.items() if statement.columns and not statement.singly]


async def fill_with_all_sorts(store: Store) -> None:
    """Two queues, a session, and tasks in every state."""
    await store.create_queue("q")
    await store.create_queue("closed")
    await store.create_queue("order:effects")
    await store.create_queue("order:inputs")
    await begin(store)
    await do(
        store,
        "update {queue} set draining = true where name = 'closed'",
        "update {queue} set limited = true, ordered = 'skip' where id = 3",
        TASK.format(id=1, more="key", values="true, 'k1'"),
        TASK.format(id=2, more="priority", values="true, 5"),
        *(TASK.format(id=task, more=UNDER_WAY, values="false, 'RUNNING', 1, 1, 1, 9") for task in range(11, 17)),
        *(TASK.format(id=task, more=UNDER_WAY, values="false, 'RUNNING', null, 1, 1, 9") for task in range(21, 24)),
        *(TASK.format(id=task, more="status, finished_at", values="false, 'ERROR', 8") for task in range(31, 34)),
        TASK.format(id=41, more="status, finished_at", values="false, 'ERROR', 8").replace("'MESSAGE'", "'RUN'"),
        *(STEP.format(run=31, key=key, status=status) for key, status in STEPS.items()),
        STEP.format(run=32, key="failed#1", status="ERROR"),
        *(
            INSTANCE.format(id=number, name=name, version=version)
            for number, name, version in ((51, "a", 2), (52, "b", 0))
        ),
        *(EVENT.format(version=version, cause=cause) for version, cause in ((1, "c"), (2, "d"))),
        "update {task} set cancel_requested_at = 5 where id = 14",
        "update {task} set expires_at = 5, replaced_by = 999 where id = 2",
        "insert into {subject_key} (tenant, subject, wrapped, created_at) values ('', 'customer/1', 'w', 1)",
        "insert into {limiter} (queue_id, updated_at) values (2, 1)",
        "insert into {audit} (task_id, place, what, seal, recorded_at) values (16, 9, 'paused', 0, 1)",
        "insert into {control_request} (worker_id, task_id, turn, request)"
        " values (1, 11, 1, 'cancel'), (1, 12, 7, 'pause'), (9, 13, 1, 'pause')",
        "insert into {receipt} (instance_id, key, outcome, recorded_at) values (51, 'k', 'completed', 1)",
        "insert into {receipt} (instance_id, key, outcome, recorded_at) values (51, 'content:1', 'applied', 2)",
        "insert into {receipt} (instance_id, key, outcome, recorded_at) values (51, 'content:2', 'applied', 1)",
        TASK.format(id=53, more="key, instance_id", values="true, 't', 51").replace("'MESSAGE'", "'TIMER'"),
        TASK.format(id=54, more="status, finished_at", values="false, 'ERROR', 8").replace(
            "'MESSAGE', 1", "'EFFECT', 3"
        ),
        *(REPORT.format(run=run, kind=kind) for run, kind in ((12, "value"), (41, "value"), (41, "stream"))),
        *(SIGNAL.format(name=name, place=place) for name, place in (("a", 1), ("a", 2), ("b", 1))),
        TASK.format(id=42, more="parent_id", values="true, 1"),
        TASK.format(id=44, more="status, error", values="false, 'PAUSED', '{}'").replace("'MESSAGE'", "'RUN'"),
        TASK.format(id=43, more="parent_id", values="true, 1").replace("'MESSAGE'", "'RUN'"),
        TASK.format(id=46, more=CANCELLED, values="false, 'CANCELLED', 8, 5, null").replace("'MESSAGE'", "'RUN'"),
        TASK.format(id=47, more=CANCELLED, values="false, 'CANCELLED', 8, 9, 46").replace("'MESSAGE'", "'RUN'"),
        "update {task} set tags = '[\"vip\"]' where id = 41",
        *(GROUP.format(key=key) for key in ("g", "empty")),
        *(f"insert into {{key_paid}} (queue_id, limit_key, paid) values (2, '{key}', 1)" for key in "ab"),
        "update {task} set limit_key = 'a' where id in (12, 16)",
        TASK.format(id=45, more="group_key, position, waits_for_previous", values="false, 'g', 4, true").replace(
            "1, 3", "4, 3"
        ),
        'insert into {workflow} (queue_id, options, created_at) values (1, \'{"dead_letter":"q"}\', 1)',
        "insert into {broadcast} (tenant, name, task_id, data, published_at)"
        " values ('', 'word', 701, '1', 1), ('', 'word', 702, '2', 2), ('', 'other', 703, '3', 3)",
        "insert into {broadcast_key} (tenant, name, match, broadcast_id)"
        " values ('', 'word', '*', 1), ('', 'word', '*', 2), ('', 'word', 'one', 2), ('', 'other', '*', 3)",
        SUBSCRIPTION.format(run=44, number=1, told="null", taken="null"),
        SUBSCRIPTION.format(run=43, number=1, told=1, taken="null"),
        SUBSCRIPTION.format(run=12, number=1, told="null", taken=1),
        SUBSCRIPTION.format(run=12, number=2, told="null", taken="null"),
        "insert into {event_workflow} (tenant, name, match, queue_id, max_attempts, priority, declared_at)"
        " values ('', 'word', '*', 1, 3, 0, 1), ('', 'word', 'only:workflow', 2, 3, 0, 1)",
    )


@pytest.fixture
async def connection(store: Store, backend: str) -> AsyncIterator[Any]:
    """The driver's own kind of connection to a file with two queues, a session, and tasks in every state."""
    await fill_with_all_sorts(store)
    driver: Any = store.database.driver
    opened = driver._engine.connect(reading=False)
    yield opened
    opened.close()


def outcome(connection: Any, rendered: Rendered, call: Call, rows: Sequence[Sequence[Value]]) -> tuple[Any, Any]:
    """What it returned, in no order, and what the tables held then; rolled back."""
    connection.execute("begin immediate")
    try:
        found = rendered.execute(connection, call, rows)
        tables = [connection.execute(f"select * from stepwell_{table}") for table in TABLES]
        return _sorted(found), [_sorted(table) for table in tables]
    finally:
        connection.execute("rollback")


def _sorted(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=repr)


@ONLY_SQLITE
@pytest.mark.proves("B-03")
def test_there_are_rows_for_every_statement_that_takes_them(backend: str) -> None:
    assert set(ROWS) == set(with_row_sets())
    statements = Statements("sqlite", "stepwell")._statements
    types = {column.type for name in ROWS for column in statements[name].columns}
    assert types <= {"bigint", "bool", "name", "text", "json"}, "can JSON say a value of this type?"


@ONLY_SQLITE
@pytest.mark.proves("B-03", "protocol-05")
@pytest.mark.parametrize("name", with_row_sets())
async def test_many_rows_at_once_do_what_they_do_one_by_one(store: Store, connection: Any, name: str) -> None:
    call = Call(name, PARAMS | ({"tags": '["vip"]'} if name == "find_tagged_runs" else {}))
    one_by_one = outcome(connection, Rendered(store.database.statements, many_rows=False), call, ROWS[name])
    at_once = outcome(connection, Rendered(store.database.statements, many_rows=True), call, ROWS[name])
    if name == "wake_parents":  # a row for each parent, one by one for each task
        one_by_one = (sorted(set(one_by_one[0])), one_by_one[1])
        at_once = (sorted(set(at_once[0])), at_once[1])
    assert at_once == one_by_one
    assert name in SILENT or at_once[0], "none of the rows fits: void"


@ONLY_SQLITE
@pytest.mark.proves("B-03", "rule-35")
def test_values_cross_as_they_are(backend: str) -> None:
    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "something else"

    statements = Statements("sqlite", "s")
    tokens = statements._tokens("with rows as ({rows a text}) select rows.a, typeof(rows.a) as type from rows", {})
    statements._statements["echo"] = Statement("echo", tuple(tokens))
    rows = [(value,) for value in (*DIFFICULT, TaskId(2**62 + 1), Text("as it is"))]
    with sqlite3.connect(":memory:") as plain:
        one_by_one = Rendered(statements, many_rows=False).execute(plain, Call("echo"), rows)
        assert Rendered(statements, many_rows=True).execute(plain, Call("echo"), rows) == one_by_one
    plain.close()
    assert [value for value, _ in one_by_one[: len(DIFFICULT)]] == list(DIFFICULT)
    assert one_by_one[-2:] == [(2**62 + 1, "integer"), ("as it is", "text")]


@ONLY_SQLITE
@pytest.mark.proves("promise-20")
def test_what_no_database_stores_is_refused(backend: str) -> None:
    rendered = Rendered(Statements("sqlite", "s"), many_rows=True)
    odd: Any = object()
    with pytest.raises(TypeError, match="which no database stores"):
        list(rendered.each(Call("find_added"), [(1, 1, None), (2, 1, odd)]))
    for number in (2**63, -(2**63) - 1, 2**64):
        with pytest.raises(OverflowError):  # which the driver says is `Refused`, as it is of a parameter
            list(rendered.each(Call("turns_of"), [(1,), (number,)]))


@ONLY_SQLITE
@pytest.mark.proves("B-03")
def test_one_row_and_none_are_spelled_as_before(backend: str) -> None:
    rendered = Rendered(Statements("sqlite", "s"), many_rows=True)
    assert list(rendered.each(Call("turns_of"), [])) == []
    assert list(rendered.each(Call("turns_of"), None)) == []
    [(text, values)] = rendered.each(Call("turns_of"), [(7,)])
    assert "json_each" not in text
    assert values["row_id"] == 7


@pytest.mark.proves("Q-05")
async def test_of_two_messages_with_one_key_in_a_batch_the_first_is_written(store: Store) -> None:
    await store.create_queue("q")
    keys = ["b", "a", "b", "c", "a"]
    ids = await store.enqueue_many("q", ["1", "2", "1", "3", "2"], keys=keys)
    assert [task_id.created for task_id in ids] == [True, True, False, True, False]
    assert ids[2] == ids[0]
    assert ids[4] == ids[1]
    rows = await ask(store, "select id, key from {task} order by id")
    assert [(row["id"], row["key"]) for row in rows] == [(ids[0], "b"), (ids[1], "a"), (ids[3], "c")]


class Traced:
    """What a connection of SQLite executes; to be set as its trace callback."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def __call__(self, text: str) -> None:
        self._texts.append(text)

    def writes(self) -> Iterator[str]:
        """The table that each statement wrote to, in order."""
        for text in self._texts:
            for verb, table in itertools.pairwise(text.split()):
                if verb in {"into", "update"} and table.startswith("stepwell_"):
                    yield table.removeprefix("stepwell_")


@ONLY_SQLITE
@pytest.mark.proves("protocol-14", "protocol-24")
async def test_a_flush_is_a_statement_for_each_of_its_parts(store: Store, backend: str) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    await store.create_queue("q")
    await store.enqueue_many("q", range(50))
    tasks = await claim(store, worker, "q", 50)
    inner: Any = driver
    traced = Traced()
    await asyncio.wrap_future(inner._writer.submit(lambda writer: writer.set_trace_callback(traced)))
    settles = [store.database.tasks.settle(task.id, worker, task.turn, DONE) for task in tasks]
    assert await asyncio.gather(*settles) == ["SUCCESS"] * 50
    assert len(driver.flushes) == 1, "not one flush: void"
    assert list(traced.writes()) == ["task", "rollup", "beat"]
    [row] = await ask(store, "select sum(succeeded) as succeeded from {rollup}")
    assert row["succeeded"] == 50


@ONLY_SQLITE
@pytest.mark.proves("Q-25", "protocol-22")
async def test_a_batch_in_your_own_transaction_is_one_statement_too(
    live_store: Store, store_url: str, backend: str
) -> None:
    await live_store.create_queue("q")
    path = store_url.removeprefix("sqlite:///")
    awaited, plain = Traced(), Traced()
    async with aiosqlite.connect(path) as mine:
        await mine.set_trace_callback(awaited)
        ids = await live_store.enqueue_many("q", range(50), tx=mine)
        await mine.commit()

    def in_a_thread() -> None:
        with stepwell.sync.connect(store_url) as store, closing(sqlite3.connect(path)) as mine:
            mine.set_trace_callback(plain)
            ids.extend(store.enqueue_many("q", range(50, 100), tx=mine))
            mine.commit()

    await asyncio.to_thread(in_a_thread)
    for traced in (awaited, plain):
        assert list(traced.writes()).count("task") == 1
    rows = await ask(live_store, "select id, input from {task}")
    assert {row["id"]: int(row["input"]) for row in rows} == dict(zip(ids, range(100), strict=True))


@ONLY_SQLITE
@pytest.mark.proves("promise-18", "protocol-16")
async def test_a_row_costs_no_more_among_many(store: Store, connection: Any) -> None:
    stepped = Stepped(store)
    kinds: dict[str, Callable[[int], tuple[Value, ...]]] = {
        "settle": lambda task: (task, 1, 1, "SUCCESS", 0, None, 0, 0, None, None, None, None, None, 0),
        "extend_taken": lambda task: (task, 1, 5),
        "requeue": lambda task: (task,),
        "find_added": lambda task: (task, 1, f"k{task}"),
        "turns_of": lambda task: (task,),
        "owned": lambda task: (task,),
    }
    for name, row in kinds.items():
        few, many = (Call(name, PARAMS, [row(task) for task in range(1_000, 1_000 + size)]) for size in (20, 400))
        assert await stepped.steps([many]) < 20 * await stepped.steps([few]) * 1.2, name
        plan = await stepped.plan(many)
        # Old versions of SQLite keep the rows apart without it, so their plans do not tell.
        assert "json_each(:rows) limit -1" in stepped.text(many), name
        assert any(line.endswith(("MATERIALIZE rows", "CO-ROUTINE rows")) for line in plan), (name, plan)
        assert not any(line.startswith(("SCAN task", "SCAN stepwell_task")) for line in plan), (name, plan)
