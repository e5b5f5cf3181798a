"""The rules, what each looks like in the code, what it is broken into, and the test that is to notice."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule broken: `rule` is replaced by `broken` in a file below src/stepwell, and `test` must go red."""

    name: str
    proves: str
    file: str
    rule: str
    broken: str
    test: str


FENCE = "tests/store/test_fence.py::"
REAP = "tests/store/test_reap.py::"
CLAIM = "tests/store/test_claim.py::"
GROUP = "tests/store/test_group_commit.py::"
LOST = "tests/faults/test_lost_replies.py::"
EMBEDDED = "tests/store/test_embedded.py::"
PLANS = "tests/store/test_plans.py::"
SCHEMA = "tests/store/test_schema.py::"

MUTANTS = (
    Mutant(
        "a settle does not ask for the turn",
        "protocol-03",
        "store/sql/tasks.sql",
        "and task.owner = rows.worker and task.turn = rows.turn",
        "and task.owner = rows.worker",
        FENCE + "test_an_overtaken_thread_of_the_same_session_changes_nothing",
    ),
    Mutant(
        "a settle does not ask for the owner",
        "L-09",
        "store/sql/tasks.sql",
        "and task.owner = rows.worker and task.turn = rows.turn",
        "and task.turn = rows.turn",
        FENCE + "test_a_settle_by_another_living_session_changes_nothing",
    ),
    Mutant(
        "a settle does not ask for the fence",
        "protocol-03",
        "store/sql/tasks.sql",
        "   and rows.worker in (select fence.worker_id from fence)\n",
        "",
        FENCE + "test_the_fence_alone_stops_a_dead_session_that_still_stands_as_owner",
    ),
    Mutant(
        "a claim does not lock its fence",
        "protocol-01",
        "store/sql/tasks.sql",
        "where worker_id = :worker and slot = :slot for share",
        "where worker_id = :worker and slot = :slot",
        REAP + "test_a_claim_that_commits_while_the_reaper_waits_for_it_leaves_nothing_running_under_the_dead",
    ),
    Mutant(
        "the tasks are given back before the fence is down",
        "protocol-01",
        "store/sessions.py",
        '        yield Call("lower_fence", {"worker": worker_id})\n',
        "        yield from self._return([worker_id])\n"
        '        yield Call("lower_fence", {"worker": worker_id})\n'
        "        return []\n",
        REAP + "test_a_claim_that_commits_while_the_reaper_waits_for_it_leaves_nothing_running_under_the_dead",
    ),
    Mutant(
        "what recovery had to skip is never looked for again",
        "protocol-01",
        "store/recovery.py",
        "await self._store.sessions.return_stranded()",
        "[]",
        REAP + "test_a_task_left_under_a_dead_owner_is_returned_by_any_observer",
    ),
    Mutant(
        "a burial does not look whether the session has beaten since",
        "rule-12",
        "store/sql/sessions.sql",
        "delete from {beat} where worker_id = :worker and beat_at = :seen returning",
        "delete from {beat} where worker_id = :worker and :seen = :seen returning",
        REAP + "test_a_session_that_beats_between_look_and_burial_survives_and_goes_on_writing",
    ),
    Mutant(
        "what a lost claim took is never given back",
        "protocol-02",
        "engine/session.py",
        "        if orphans:\n",
        "        if orphans and False:\n",
        LOST + "test_tasks_of_a_claim_whose_reply_was_lost_are_released_at_the_second_beat_with_their_attempt",
    ),
    Mutant(
        "what a claim under way takes is given back",
        "protocol-02",
        "engine/session.py",
        "        self._claim_started = since\n",
        "        self._claim_started = None\n",
        LOST + "test_nothing_is_released_while_the_claim_that_may_have_taken_it_is_under_way",
    ),
    Mutant(
        "a settle whose reply was lost is a lost lease",
        "protocol-02",
        "store/tasks.py",
        "        if answer.repeated and (status",
        "        if False and (status",
        LOST + "test_a_settle_whose_reply_is_lost_is_success_and_not_a_lost_lease",
    ),
    Mutant(
        "an enqueue whose reply was lost is written again as it was",
        "rule-04",
        "store/flush.py",
        'REPEATABLE: Final = {"add_tasks": "add_tasks_once"}',
        "REPEATABLE: Final[dict[str, str]] = {}",
        LOST + "test_an_enqueue_whose_reply_is_lost_is_written_once_and_returns_its_id",
    ),
    Mutant(
        "one flush changes a row twice",
        "protocol-04",
        "store/flush.py",
        "            if operation.row_id in rows:\n",
        "            if operation.row_id in rows and False:\n",
        GROUP + "test_two_operations_on_one_row_go_in_two_flushes_in_order",
    ),
    Mutant(
        "a claim does not say that it is stale",
        "protocol-06",
        "store/tasks.py",
        'stale=row["seen_turn"] != row["turn"] - 1',
        "stale=False",
        CLAIM + "test_a_claim_that_was_blocked_after_its_snapshot_says_that_it_is_stale",
    ),
    Mutant(
        "operations of one task use any connection",
        "protocol-07",
        "store/flush.py",
        "        if operation.keeps_lane:\n",
        "        if operation.keeps_lane and False:\n",
        GROUP + "test_operations_of_one_task_always_use_the_same_connection",
    ),
    Mutant(
        "recovery waits for a lock as long as anybody",
        "protocol-08",
        "store/sessions.py",
        "        if not patient:\n",
        "        if not patient and False:\n",
        REAP + "test_the_reaper_gives_up_on_a_lock_quickly_and_nobody_waits_behind_it",
    ),
    Mutant(
        "stale by the database's clock is dead at once",
        "protocol-09",
        "store/recovery.py",
        "if now - since >= self._patience or",
        "if now - since >= 0 or",
        REAP + "test_a_fresh_observer_after_an_outage_declares_none_of_twenty_sessions_dead",
    ),
    Mutant(
        "an outage counts as silence",
        "protocol-09",
        "store/recovery.py",
        "        self._unchanged.clear()\n        self._silent.clear()\n",
        "        pass\n",
        REAP + "test_the_watch_begins_anew_after_a_gap_or_a_failed_look",
    ),
    Mutant(
        "all connections share one fence row",
        "protocol-10",
        "store/sessions.py",
        "[(worker_id, slot) for slot in range(self._slots)]",
        "[(worker_id, 0)]",
        FENCE + "test_an_attempt_is_counted_when_it_is_claimed",
    ),
    Mutant(
        "a flush takes whatever is pending",
        "protocol-14",
        "store/flush.py",
        "MOST_OPERATIONS: Final = 500",
        "MOST_OPERATIONS: Final = 500_000",
        GROUP + "test_a_batch_is_at_most_500_operations_or_8_mib",
    ),
    Mutant(
        "submitters never wait for room",
        "protocol-14",
        "store/flush.py",
        "        if not self._waiting and size <= self._free:\n",
        "        if True:\n",
        GROUP + "test_pending_bytes_are_bounded_and_submitters_wait_their_turn",
    ),
    Mutant(
        "a caller suffers for a neighbour",
        "protocol-15",
        "store/flush.py",
        "        if len(batch) == 1:\n            _fail(batch, error)",
        "        if batch:\n            _fail(batch, error)",
        GROUP + "test_of_64_enqueues_one_is_refused_and_the_others_are_written_in_four_transactions",
    ),
    Mutant(
        "rows are written in any order",
        "protocol-15",
        "store/flush.py",
        "key=lambda one: one.order)",
        "key=lambda one: 0)",
        GROUP + "test_two_processes_flushing_the_same_keys_in_opposite_order_never_deadlock",
    ),
    Mutant(
        "the database's clock is asked in the condition",
        "protocol-16",
        "store/sql.py",
        'return f"(select coalesce(cast(:{name} as bigint), {clock}))"',
        'return f"coalesce(cast(:{name} as bigint), {clock})"',
        PLANS + "test_plans_made_on_an_empty_table_stay_good_on_a_full_one",
    ),
    Mutant(
        "plans are left to the planner",
        "protocol-16",
        "store/postgres.py",
        '                "enable_seqscan": "off",\n',
        "",
        PLANS + "test_plans_made_on_an_empty_table_stay_good_on_a_full_one",
    ),
    Mutant(
        "in a backlog every claim begins at the beginning",
        "protocol-17",
        "engine/claiming.py",
        "        if now - self._plain_at >= PLAIN_EVERY or not self._last:\n",
        "        if True:\n",
        CLAIM + "test_in_a_backlog_the_claim_goes_on_where_it_ended_and_looks_behind_once_a_second",
    ),
    Mutant(
        "a beat waits its turn behind other writes",
        "protocol-24",
        "store/embedded.py",
        "self._flush(connection, calls), first=True)",
        "self._flush(connection, calls), first=False)",
        EMBEDDED + "test_a_beat_goes_before_everything_that_waits_for_the_writer",
    ),
    Mutant(
        "a flush is not a beat",
        "protocol-24",
        "store/embedded.py",
        "    flush_beats = True",
        "    flush_beats = False",
        EMBEDDED + "test_every_flush_of_a_session_is_a_beat_of_it_and_of_no_other",
    ),
    Mutant(
        "a missing lock file proves death",
        "protocol-25",
        "store/files.py",
        "        except FileNotFoundError:\n            return False\n        try:\n            fcntl.flock",
        "        except FileNotFoundError:\n            return True\n        try:\n            fcntl.flock",
        EMBEDDED + "test_a_free_lock_proves_death_and_a_held_or_missing_one_proves_nothing",
    ),
    Mutant(
        "a transaction begins as a reader",
        "B-05",
        "store/embedded.py",
        '"begin immediate"',
        '"begin"',
        EMBEDDED + "test_a_transaction_that_reads_first_lets_nobody_write_in_between",
    ),
    Mutant(
        "NUL is let through",
        "protocol-26",
        "names.py",
        "\\x00\\ud800",
        "\\ud800",
        EMBEDDED + "test_nul_is_refused_before_anything_is_written",
    ),
    Mutant(
        "an attempt is not counted at the claim",
        "rule-06",
        "store/sql/tasks.sql",
        "attempt = task.attempt + 1",
        "attempt = task.attempt",
        FENCE + "test_a_task_that_kills_its_workers_ends_in_error_after_its_attempts",
    ),
    Mutant(
        "a release costs an attempt",
        "rule-06",
        "engine/outcome.py",
        "delay=microseconds_of(delay), attempt_back=True)",
        "delay=microseconds_of(delay))",
        "tests/worker/test_stop.py::test_beyond_the_grace_it_is_released_with_its_attempt",
    ),
    Mutant(
        "a late result revives what was cancelled",
        "L-14",
        "store/sql/tasks.sql",
        "set status = case when task.cancel_requested_at is not null then 'CANCELLED' else rows.status end",
        "set status = rows.status",
        FENCE + "test_a_task_somebody_asked_to_cancel_ends_cancelled_whatever_came_of_it",
    ),
    Mutant(
        "migrators do not wait for each other",
        "DP-01",
        "store/schema.py",
        '    yield Call("lock_schema")\n',
        "",
        SCHEMA + "test_twenty_stores_of_one_process_install_at_once",
    ),
)
