"""The rules, what each looks like in the code, what it is broken into, and the test that is to notice."""

from tests.mutants.apart import APART_MUTANTS
from tests.mutants.audit import AUDIT_MUTANTS
from tests.mutants.broadcasts import BROADCAST_MUTANTS
from tests.mutants.children import CHILDREN_MUTANTS
from tests.mutants.clauses import CLAUSE_MUTANTS
from tests.mutants.cleanup import CLEANUP_MUTANTS
from tests.mutants.cli import CLI_MUTANTS
from tests.mutants.codecs import CODEC_MUTANTS
from tests.mutants.composition import COMPOSITION_MUTANTS
from tests.mutants.conditions import CONDITION_MUTANTS
from tests.mutants.control import CONTROL_MUTANTS
from tests.mutants.dashboard import DASHBOARD_MUTANTS
from tests.mutants.deciders import DECIDER_MUTANTS
from tests.mutants.dedupe import DEDUPE_MUTANTS
from tests.mutants.doubt import DOUBT_MUTANTS
from tests.mutants.encryption import ENCRYPTION_MUTANTS
from tests.mutants.expected_version import EXPECTED_VERSION_MUTANTS
from tests.mutants.feed import FEED_MUTANTS
from tests.mutants.handing import HANDING_MUTANTS
from tests.mutants.helper import HELPER_MUTANTS
from tests.mutants.inline import INLINE_MUTANTS
from tests.mutants.inspection import INSPECTION_MUTANTS
from tests.mutants.joined import JOINED_MUTANTS
from tests.mutants.late_results import LATE_RESULTS_MUTANTS
from tests.mutants.limits import LIMIT_MUTANTS
from tests.mutants.metrics import METRICS_MUTANTS
from tests.mutants.model import MODEL_MUTANTS
from tests.mutants.moves import MOVE_MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.observation import OBSERVATION_MUTANTS
from tests.mutants.ordered_groups import ORDERED_GROUP_MUTANTS
from tests.mutants.outbox import OUTBOX_MUTANTS
from tests.mutants.plans import PLAN_MUTANTS
from tests.mutants.processes import PROCESS_MUTANTS
from tests.mutants.projections import PROJECTION_MUTANTS
from tests.mutants.remains import REMAINS_MUTANTS
from tests.mutants.renames import RENAME_MUTANTS
from tests.mutants.restart import RESTART_MUTANTS
from tests.mutants.results import RESULTS_MUTANTS
from tests.mutants.runs import RUNS_MUTANTS
from tests.mutants.saga import SAGA_MUTANTS
from tests.mutants.schedules import SCHEDULE_MUTANTS
from tests.mutants.signals import SIGNAL_MUTANTS
from tests.mutants.stalls import STALL_MUTANTS
from tests.mutants.steering import STEERING_MUTANTS
from tests.mutants.step_transactions import STEP_TRANSACTION_MUTANTS
from tests.mutants.suspects import SUSPECT_MUTANTS
from tests.mutants.sweep import SWEEP_MUTANTS
from tests.mutants.talk import TALK_MUTANTS
from tests.mutants.turns import TURN_MUTANTS
from tests.mutants.unreadable import OTHER_CODE_MUTANTS
from tests.mutants.upcasting import UPCASTING_MUTANTS
from tests.mutants.upkeep import UPKEEP_MUTANTS
from tests.mutants.wakeups import WAKEUP_MUTANTS
from tests.mutants.webhooks import WEBHOOK_MUTANTS
from tests.mutants.workflows import WORKFLOW_MUTANTS

FENCE = "tests/store/test_fence.py::"
REAP = "tests/store/test_reap.py::"
CLAIM = "tests/store/test_claim.py::"
GROUP = "tests/store/test_group_commit.py::"
LOST = "tests/faults/test_lost_replies.py::"
EMBEDDED = "tests/store/test_embedded.py::"
LOG = "tests/store/test_log.py::"
PLANS = "tests/store/test_plans.py::"
BOUNDS = "tests/store/test_bounds.py::test_with_plans_made_on_an_empty_database_every_statement_keeps_to_its_bound"
SCHEMA = "tests/store/test_schema.py::"
RENDERED = "tests/store/test_rendered.py::"
ENDINGS = "tests/worker/test_endings.py::"
FULL_SIZE = "tests/store/test_full_size.py::"
BATCHES = "tests/worker/test_batches.py::"
JOINED = "tests/queue/test_joined.py::"
JOINED_DRIVERS = "tests/queue/test_joined_drivers.py::"
JOINED_FRAMEWORKS = "tests/queue/test_joined_frameworks.py::"

MUTANTS = (
    Mutant(
        "a consumer keeps what others may see again",
        "Q-22",
        "store/messages.py",
        "                while waiting and loop.time() < until:\n",
        "                while waiting:\n",
        "tests/worker/test_reviewed.py::test_two_consumers_never_see_a_message_twice",
    ),
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
        "await self._db.sessions.return_stranded()",
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
        "work/session.py",
        "        if orphans:\n",
        "        if orphans and False:\n",
        LOST + "test_tasks_of_a_claim_whose_reply_was_lost_are_released_at_the_second_beat_with_their_attempt",
    ),
    Mutant(
        "what a claim under way takes is given back",
        "protocol-02",
        "work/session.py",
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
        '"add_tasks": "add_tasks_once", ',
        "",
        LOST + "test_an_enqueue_whose_reply_is_lost_is_written_once_and_returns_its_id",
    ),
    Mutant(
        "one flush changes a row twice",
        "protocol-04",
        "store/pending.py",
        "if in_use or operation.row_id in rows or",
        "if in_use or",
        GROUP + "test_two_operations_on_one_row_go_in_two_flushes_in_order",
    ),
    Mutant(
        "operations of one task use any connection",
        "protocol-07",
        "store/flush.py",
        "        if operation.lane is not None:  # the operations of one task",
        "        if False:  # the operations of one task",
        GROUP + "test_operations_of_one_task_stay_in_one_lane_while_any_of_them_waits",
    ),
    Mutant(
        "recovery waits for a lock as long as anybody",
        "protocol-08",
        "store/sessions.py",
        "transact(script, patience=PATIENCE)",
        "transact(script)",
        REAP + "test_the_reaper_gives_up_on_a_lock_quickly_and_nobody_waits_behind_it",
    ),
    Mutant(
        "stale by the database's clock is dead at once",
        "protocol-09",
        "store/recovery.py",
        "if now - since >= patience(beats[beat]) or",
        "if now - since >= 0 or",
        REAP + "test_a_fresh_observer_after_an_outage_declares_none_of_twenty_sessions_dead",
    ),
    Mutant(
        "a session is watched by the lease of whoever looks",
        "protocol-09",
        "store/recovery.py",
        "    return worker.lease / 3\n",
        "    return 10.0\n",
        REAP + "test_each_session_is_watched_by_its_own_lease_whatever_the_observers_is",
    ),
    Mutant(
        "who looks seldom never sees a short lease end",
        "L-06",
        "store/recovery.py",
        "        self.look_every = _look_every([self._db.options.lease, *(one.lease for one in living)])\n",
        "",
        REAP + "test_each_session_is_watched_by_its_own_lease_whatever_the_observers_is",
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
        "[(worker_id, slot) for slot in range(self._db.claim_slot + 1)]",
        "[(worker_id, 0)]",
        FENCE + "test_an_attempt_is_counted_when_it_is_claimed",
    ),
    Mutant(
        "a flush takes whatever is pending",
        "protocol-14",
        "store/pending.py",
        "MOST_OPERATIONS: Final = 500",
        "MOST_OPERATIONS: Final = 500_000",
        GROUP + "test_a_batch_is_at_most_500_operations_or_8_mib",
    ),
    Mutant(
        "submitters never wait for room",
        "protocol-14",
        "store/pending.py",
        "        if self._waiting or size > self._free:\n",
        "        if False:\n",
        GROUP + "test_pending_bytes_are_bounded_and_submitters_wait_their_turn",
    ),
    Mutant(
        "a caller suffers for a neighbour",
        "protocol-15",
        "store/flush.py",
        "        if len(batch) == 1 and isinstance(error, Refused):\n            self._fail(batch, error)",
        "        if batch:\n            self._fail(batch, error)",
        GROUP + "test_of_64_enqueues_one_is_refused_and_the_others_are_written_in_four_transactions",
    ),
    Mutant(
        "rows are written in any order",
        "protocol-15",
        "store/flush_calls.py",
        "        operations.sort(key=_order)\n",
        "",
        GROUP + "test_two_processes_flushing_the_same_keys_in_opposite_order_never_deadlock",
    ),
    Mutant(
        "the database's clock is asked in the condition",
        "protocol-16",
        "store/sql.py",
        'return f"(select coalesce(cast(:{name} as bigint), {clock}))"',
        'return f"coalesce(cast(:{name} as bigint), {clock})"',
        "tests/store/test_bounds.py::test_the_clock_of_the_database_bounds_the_walk_over_what_is_scheduled",
    ),
    Mutant(
        "a statement is judged by the timer that was set for one before",
        "rule-19",
        "store/postgres/connection.py",
        "        if self._due <= loop.time():\n",
        "        if self._due is not None:\n",
        "tests/store/test_links.py::test_a_statement_has_all_its_time_although_the_timer_was_set_for_one_before",
    ),
    Mutant(
        "what asyncpg stumbles over when it was too late is passed on",
        "rule-19",
        "store/postgres/connection.py",
        "        if late and isinstance(error, Exception):",
        "        if late and isinstance(error, asyncpg.PostgresError):",
        "tests/store/test_links.py::test_whatever_comes_of_dropping_it_is_an_answer_that_did_not_come",
    ),
    Mutant(
        "JSON by itself is left to the codec of the user's connection",
        "Q-25",
        "store/postgres/compose.py",
        'f"cast(cast(${place} as text) as json)"',
        'f"cast(${place} as json)"',
        "tests/queue/test_joined_drivers.py::test_what_the_users_connection_makes_of_json_does_not_touch_what_is_sent",
    ),
    Mutant(
        "a signal's data is left to the codec of the user's connection",
        "Q-25",
        "store/sql/waiting.sql",
        "{json_of data}",
        "cast(:data as {json})",
        "tests/queue/test_joined_drivers.py::test_what_the_users_connection_makes_of_json_does_not_touch_what_is_sent",
    ),
    Mutant(
        "an execution that ended before there was a task is broken off",
        "promise-01",
        "work/execution.py",
        "        if self.job is None:\n            return",
        "        assert self.job is not None\n        if False:\n            return",
        "tests/worker/test_endings.py::test_what_has_ended_before_there_is_a_task_for_it_is_settled_and_counted_once",
    ),
    Mutant(
        "a connection that nobody uses is dropped",
        "rule-19",
        "store/postgres/connection.py",
        "            finally:\n                self._due, self._late = None, False\n",
        "            finally:\n                pass\n",
        "tests/store/test_links.py::test_a_connection_that_nobody_uses_is_not_dropped",
    ),
    Mutant(
        "a timer for each statement",
        "rule-19",
        "store/postgres/connection.py",
        "        if self._timer is None:\n            self._timer = loop",
        "        if self._timer is None or True:\n            self._timer = loop",
        "tests/store/test_links.py::test_one_timer_serves_many_statements",
    ),
    Mutant(
        "the planner counts on one row",
        "protocol-16",
        "store/postgres/compose.py",
        'source = f"unnest(cast({given} as {_type(first)}[])) as first({first.name})"',
        'source = f"(select (cast({given} as {_type(first)}[]))[1]) as first({first.name})"',
        BOUNDS,
    ),
    Mutant(
        "every connection asks what an array of numbers is",
        "",
        "store/postgres/compose.py",
        'given = f"cast(${taken + 1} as text)" if first.type == "bigint" else f"${taken + 1}"',
        'given = f"${taken + 1}"',
        "tests/store/test_connections.py::test_no_connection_asks_the_server_what_its_types_are",
    ),
    Mutant(
        "an empty name by itself is not null",
        "B-03",
        "store/postgres/compose.py",
        'cell or None if column.type in ("json", "name") else cell for',
        "cell for",
        "tests/store/test_one_row.py::test_text_that_users_fill_is_kept_as_it_is_and_an_empty_name_is_null",
    ),
    Mutant(
        "plans are left to the planner",
        "protocol-16",
        "store/postgres/connection.py",
        '            "enable_seqscan": "off",\n',
        "",
        BOUNDS,
    ),
    Mutant(
        "in a backlog every claim begins at the beginning",
        "protocol-17",
        "work/demand.py",
        "        if now - self._plain_at >= PLAIN_EVERY or not self._last:\n",
        "        if True:\n",
        CLAIM + "test_in_a_backlog_the_claim_goes_on_where_it_ended_and_looks_behind_once_a_second",
    ),
    Mutant(
        "a beat waits its turn behind other writes",
        "protocol-24",
        "store/embedded/driver.py",
        "self._flush(connection, calls), first=True)",
        "self._flush(connection, calls), first=False)",
        EMBEDDED + "test_a_beat_goes_before_everything_that_waits_for_the_writer",
    ),
    Mutant(
        "a flush is not a beat",
        "protocol-24",
        "store/embedded/driver.py",
        "    flush_beats = True",
        "    flush_beats = False",
        EMBEDDED + "test_every_flush_of_a_session_is_a_beat_of_it_and_of_no_other",
    ),
    Mutant(
        "a missing lock file proves death",
        "protocol-25",
        "store/embedded/file.py",
        "        except FileNotFoundError:\n            return False\n        try:\n            fcntl.flock",
        "        except FileNotFoundError:\n            return True\n        try:\n            fcntl.flock",
        EMBEDDED + "test_a_free_lock_proves_death_and_a_held_or_missing_one_proves_nothing",
    ),
    Mutant(
        "a transaction begins as a reader",
        "B-05",
        "store/embedded/driver.py",
        '"begin immediate"',
        '"begin"',
        EMBEDDED + "test_a_transaction_that_reads_first_lets_nobody_write_in_between",
    ),
    Mutant(
        "NUL is let through",
        "protocol-26",
        "base/names.py",
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
        "work/outcome.py",
        "delay=microseconds_of(delay), attempt_back=True)",
        "delay=microseconds_of(delay))",
        "tests/worker/test_stop.py::test_beyond_the_grace_it_is_released_with_its_attempt",
    ),
    Mutant(
        "a late result revives what was cancelled",
        "L-14",
        "store/sql/tasks.sql",
        "set status = case when {cancelled} then 'CANCELLED'\n                     when {is_to",
        "set status = case when {is_to",
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
    Mutant(
        "a file that was removed is written on",
        "B-03",
        "store/embedded/driver.py",
        "                self._engine.check_file()\n",
        "",
        "tests/store/test_embedded.py::test_a_file_that_was_removed_or_replaced_is_noticed_and_not_written",
    ),
    Mutant(
        "a failed batch costs everybody in it an attempt",
        "Q-20",
        "work/outcome.py",
        "attempt_back=not isinstance(outcome, Again)",
        "attempt_back=isinstance(outcome, NotThisCode)",
        BATCHES + "test_a_batch_that_fails_is_delivered_again_one_by_one_and_costs_the_innocent_nothing",
    ),
    Mutant(
        "nobody remembers that a batch failed",
        "Q-20",
        "store/sql/tasks.sql",
        "       suspect = task.suspect or rows.alone = 1,\n",
        "",
        BATCHES + "test_a_batch_that_fails_is_delivered_again_one_by_one_and_costs_the_innocent_nothing",
    ),
    Mutant(
        "what failed alone is put into a batch again",
        "Q-20",
        "work/demand.py",
        "if task.suspect or (task.attempt > 1 and not answers_each)}\n",
        "if task.suspect}\n",
        BATCHES + "test_what_failed_as_a_batch_of_one_spoils_no_later_batch",
    ),
    Mutant(
        "priority starves what has waited longest",
        "promise-16",
        "store/poll.py",
        "OLDEST_EVERY: Final = 10\n",
        "OLDEST_EVERY: Final = 10_000\n",
        "tests/queue/test_order.py::test_in_a_backlog_every_tenth_claim_takes_what_has_waited_longest",
    ),
    Mutant(
        "SQLAlchemy is not told of the transaction",
        "protocol-22",
        "store/joins/sqlalchemy.py",
        "        if not connection.in_transaction():\n            connection.execute(select(1))\n",
        "",
        JOINED_FRAMEWORKS + "test_the_first_thing_a_sqlalchemy_session_does_may_be_a_joined_call",
    ),
    Mutant(
        "asyncpg below SQLAlchemy has not begun",
        "protocol-22",
        "store/joins/sqlalchemy.py",
        "if not connection.in_transaction() or not begun():",
        "if not connection.in_transaction():",
        JOINED_FRAMEWORKS + "test_the_first_thing_an_async_sqlalchemy_session_does_may_be_a_joined_call",
    ),
    Mutant(
        "asyncpg is joined outside a transaction",
        "protocol-22",
        "store/postgres/driver.py",
        "    if not begun:",
        "    if False:",
        JOINED + "test_every_promise_on_postgres",
    ),
    Mutant(
        "psycopg is joined outside a transaction",
        "protocol-22",
        "store/joins/psycopg.py",
        "if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:",
        "if False:",
        JOINED + "test_every_promise_on_postgres",
    ),
    Mutant(
        "a failed transaction is not named",
        "protocol-22",
        "store/postgres/connection.py",
        'case "25P02":',
        'case "25P0X":',
        JOINED_DRIVERS + "test_an_asyncpg_connection_that_takes_no_more_is_refused_with_what_to_do",
    ),
    Mutant(
        "Django's failed block is joined",
        "protocol-22",
        "store/joins/django.py",
        "if tx.in_atomic_block and tx.needs_rollback:",
        "if False:",
        JOINED_FRAMEWORKS + "test_djangos_default_connection_is_joined_by_its_proxy_and_savepoints_count",
    ),
    Mutant(
        "Django's connection of another thread is joined",
        "protocol-22",
        "store/joins/django.py",
        "tx.validate_thread_sharing()",
        "pass",
        JOINED_FRAMEWORKS + "test_a_django_connection_of_another_thread_is_refused",
    ),
    Mutant(
        "the queues are walked in another order",
        "Q-23",
        "store/sql/tasks.sql",
        "     cross join rows\n     cross join lateral (\n        select task.ctid as place from {task} as task\n"
        "         where task.queue_id = rows.queue_id and task.ready and task.priority between",
        "     cross join (select * from rows order by rows.queue_id) as rows\n     cross join lateral (\n"
        "        select task.ctid as place from {task} as task\n"
        "         where task.queue_id = rows.queue_id and task.ready and task.priority between",
        "tests/store/test_many_queues.py::test_the_queues_are_walked_in_the_order_given_whatever_the_planner_knew",
    ),
    Mutant(
        "a settle finds its tasks by their owner",
        "protocol-16",
        "store/sql/tasks.sql",
        "task.turn = rows.turn) is true",
        "task.turn = rows.turn)",
        FULL_SIZE + "test_on_postgres_the_pages_touched_do_not_grow",
    ),
    Mutant(
        "the claim sorts its backlog",
        "PR-15",
        "store/sql/tasks.sql",
        "order by task.priority desc, task.run_at, task.id\n         limit rows.capacity",
        "order by task.priority desc, task.run_at + 0, task.id\n         limit rows.capacity",
        FULL_SIZE + "test_on_postgres_the_pages_touched_do_not_grow",
    ),
    Mutant(
        "SQLite's claim sorts its backlog",
        "PR-15",
        "store/sql/tasks.sql",
        "order by walk.priority desc, walk.run_at, walk.id",
        "order by walk.priority desc, walk.run_at + 0, walk.id",
        FULL_SIZE + "test_on_sqlite_the_instructions_executed_do_not_grow",
    ),
    Mutant(
        "a heartbeat that cannot connect dies",
        "rule-34",
        "work/heartbeat.py",
        "except Exception as error:  # noqa: BLE001 - no file for its connection",
        "except ZeroDivisionError as error:  # noqa: BLE001 - no file for its connection",
        "tests/worker/test_loops.py::test_a_heartbeat_that_breaks_is_told_and_beats_again",
    ),
    Mutant(
        "a broken loop stays dead",
        "rule-34",
        "work/loop.py",
        "except Exception as error:  # noqa: BLE001 - a dead loop",
        "except MemoryError as error:  # noqa: BLE001 - a dead loop",
        "tests/worker/test_loops.py::test_a_loop_that_breaks_is_told_and_started_again",
    ),
    Mutant(
        "a flush on SQLite is a statement for each row",
        "protocol-14",
        "store/embedded/sqlite.py",
        "many_rows = True",
        "many_rows = False",
        RENDERED + "test_a_flush_is_a_statement_for_each_of_its_parts",
    ),
    Mutant(
        "every commit makes the log longer",
        "promise-18",
        "store/embedded/sqlite.py",
        "wal_checkpoint(restart)",
        "wal_checkpoint(truncate)",
        LOG + "test_commits_overwrite_the_log_in_place_and_it_stays_short",
    ),
    Mutant(
        "the log grows without end",
        "promise-18",
        "store/embedded/sqlite.py",
        "elif length > self._fold_at:",
        "elif False:",
        LOG + "test_so_it_does_when_two_stores_write_in_turns",
    ),
    Mutant(
        "a log that was long once stays long",
        "promise-18",
        "store/embedded/sqlite.py",
        "journal_size_limit = {LOG_BYTES}",
        "journal_size_limit = -1",
        LOG + "test_a_log_that_a_reader_kept_long_is_short_again_after_it",
    ),
    Mutant(
        "a row set is merged into its statement",
        "promise-18",
        "store/embedded/render.py",
        "json_each(:rows) limit -1",
        "json_each(:rows)",
        RENDERED + "test_a_row_costs_no_more_among_many",
    ),
    Mutant(
        "a number beyond 64 bits becomes a float",
        "promise-20",
        "store/embedded/render.py",
        'if column.type == "bigint"',
        'if column.type == "none"',
        RENDERED + "test_what_no_database_stores_is_refused",
    ),
    Mutant(
        "a settle that cannot be written keeps the store from closing",
        "promise-14",
        "work/loop.py",
        "        self._db.tasks.give_up({execution.session.id for execution in executions})\n",
        "",
        ENDINGS + "test_a_store_closes_while_a_settle_cannot_be_written",
    ),
    Mutant(
        "a thread that outlived its timeout counts as nobody",
        "W-19",
        "work/loop.py",
        "idle = not self.claims.executions and not self.claims.demand.busy",
        "idle = not self.claims.executions",
        ENDINGS + "test_draining_goes_on_after_a_thread_that_has_the_only_place",
    ),
    Mutant(
        "somebody beats for a loop that is closed",
        "L-03",
        "work/heartbeat.py",
        "if self._sessions and not self._loop.is_closed():",
        "if self._sessions:",
        ENDINGS + "test_nobody_beats_for_a_loop_that_is_closed",
    ),
    *RUNS_MUTANTS,
    *APART_MUTANTS,
    *AUDIT_MUTANTS,
    *ENCRYPTION_MUTANTS,
    *BROADCAST_MUTANTS,
    *CHILDREN_MUTANTS,
    *CLEANUP_MUTANTS,
    *COMPOSITION_MUTANTS,
    *CONDITION_MUTANTS,
    *CONTROL_MUTANTS,
    *CLI_MUTANTS,
    *CLAUSE_MUTANTS,
    *DECIDER_MUTANTS,
    *DEDUPE_MUTANTS,
    *EXPECTED_VERSION_MUTANTS,
    *FEED_MUTANTS,
    *PROJECTION_MUTANTS,
    *HANDING_MUTANTS,
    *HELPER_MUTANTS,
    *INLINE_MUTANTS,
    *INSPECTION_MUTANTS,
    *JOINED_MUTANTS,
    *METRICS_MUTANTS,
    *MODEL_MUTANTS,
    *OTHER_CODE_MUTANTS,
    *UPCASTING_MUTANTS,
    *PROCESS_MUTANTS,
    *SCHEDULE_MUTANTS,
    *SIGNAL_MUTANTS,
    *STALL_MUTANTS,
    *STEERING_MUTANTS,
    *SUSPECT_MUTANTS,
    *SWEEP_MUTANTS,
    *DASHBOARD_MUTANTS,
    *TALK_MUTANTS,
    *RENAME_MUTANTS,
    *RESTART_MUTANTS,
    *RESULTS_MUTANTS,
    *TURN_MUTANTS,
    *UPKEEP_MUTANTS,
    *WAKEUP_MUTANTS,
    *WORKFLOW_MUTANTS,
    *LATE_RESULTS_MUTANTS,
    *LIMIT_MUTANTS,
    *ORDERED_GROUP_MUTANTS,
    *MOVE_MUTANTS,
    *OBSERVATION_MUTANTS,
    *OUTBOX_MUTANTS,
    *STEP_TRANSACTION_MUTANTS,
    *DOUBT_MUTANTS,
    *SAGA_MUTANTS,
    *WEBHOOK_MUTANTS,
    *PLAN_MUTANTS,
    *REMAINS_MUTANTS,
    *CODEC_MUTANTS,
)
