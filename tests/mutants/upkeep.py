"""The rules of upkeep: retention, deleting, draining, maintenance, unserved work."""

from tests.mutants.mutant import Mutant

RETENTION = "tests/upkeep/test_retention.py::"
SOFT = "tests/upkeep/test_soft_delete.py::"
DRAINING = "tests/upkeep/test_draining.py::"
MAINTENANCE = "tests/upkeep/test_maintenance.py::"
UNSERVED = "tests/upkeep/test_unserved.py::"
WALKS = "tests/upkeep/test_walks.py::"

UPKEEP_MUTANTS = (
    Mutant(
        "retention takes a child from its unfinished parent",
        "rule-25",
        "store/sql/upkeep.sql",
        "       and (select parent.id from {task} as parent where parent.id = task.parent_id"
        " and parent.finished_at is null\n               and task.created_at >="
        " coalesce(parent.restarted_at, 0)) is null\n     order by task.finished_at\n",
        "     order by task.finished_at\n",
        RETENTION + "test_a_child_stays_until_its_parent_is_finished",
    ),
    Mutant(
        "retention takes dead letters for finished tasks",
        "SD-10",
        "store/sql/upkeep.sql",
        "task.status in ('SUCCESS', 'CANCELLED') and task.deleted_at is null",
        "task.finished_at is not null and task.deleted_at is null",
        RETENTION + "test_only_what_is_finished_and_old_is_removed_whatever_its_kind",
    ),
    Mutant(
        "a piece of retention has no limit",
        "SD-10",
        "store/sql/upkeep.sql",
        "     limit :limit\n",
        "",
        RETENTION + "test_a_round_is_bounded_and_so_is_each_of_its_transactions",
    ),
    Mutant(
        "a round of retention goes on to the end",
        "SD-10",
        "store/retention.py",
        "self._finished(_ago(now, self._keep), PIECES)",
        "self._finished(_ago(now, self._keep))",
        RETENTION + "test_a_round_is_bounded_and_so_is_each_of_its_transactions",
    ),
    Mutant(
        "retention waits for rows that others have locked",
        "SD-10",
        "store/sql/upkeep.sql",
        "     {skip_locked}\n",
        "     {for_update}\n",
        RETENTION + "test_what_another_has_locked_is_left_to_it",
    ),
    Mutant(
        "what belongs to a task stays behind",
        "SD-06",
        "store/retention.py",
        "    yield from remove_belongings(removed)\n    return len(removed)\n",
        "    return len(removed)\n",
        RETENTION + "test_what_belongs_to_a_task_goes_in_its_transaction",
    ),
    Mutant(
        "retention removes a deleted task that is being executed",
        "SD-06",
        "store/sql/upkeep.sql",
        "task.deleted_at < :before and task.owner is null\n       and (task.status",
        "task.deleted_at < :before\n       and (task.status",
        RETENTION + "test_what_was_deleted_goes_after_its_time_unless_somebody_is_at_it",
    ),
    Mutant(
        "retention removes a deleted task that somebody holds by hand",
        "SD-06",
        "store/sql/upkeep.sql",
        "       and (task.status <> 'RUNNING' or task.run_at < :before)\n",
        "",
        RETENTION + "test_what_was_deleted_goes_after_its_time_unless_somebody_is_at_it",
    ),
    Mutant(
        "retention does not ask whose deleted tasks they are",
        "SD-06",
        "store/sql/upkeep.sql",
        "       and (select queue.tenant from {queue} as queue where queue.id = task.queue_id) = :tenant\n",
        "",
        RETENTION + "test_another_tenant_keeps_what_it_wants",
    ),
    Mutant(
        "a session is removed while it owns a task",
        "rule-08",
        "store/sql/upkeep.sql",
        "       and not exists (select 1 from {task} as task"
        " where task.owner is not null and task.owner = worker.id)\n",
        "",
        RETENTION + "test_an_ended_session_goes_after_a_day_but_not_while_it_owns_a_task",
    ),
    Mutant(
        "a restored task is ready before it is due",
        "SD-01",
        "store/sql/upkeep.sql",
        "ready = status = 'PENDING' and run_at is not null and run_at <= {now}",
        "ready = status = 'PENDING'",
        SOFT + "test_a_restored_task_is_ready_when_it_is_due_and_not_before",
    ),
    Mutant(
        "a dead letter that was deleted is dropped with the others",
        "SD-04",
        "store/sql/queues.sql",
        "where id {any_of rows} and status = 'ERROR' and deleted_at is null",
        "where id {any_of rows} and status = 'ERROR'",
        SOFT + "test_what_lists_tasks_leaves_deleted_ones_out",
    ),
    Mutant(
        "a queue that is being drained takes tasks without a key",
        "DP-09",
        "store/sql/tasks.sql",
        "  from rows where rows.queue_id in (select taking.id from taking)\nreturning",
        "  from rows where true\nreturning",
        DRAINING + "test_a_queue_that_is_drained_takes_nothing_new_whoever_asks",
    ),
    Mutant(
        "a queue that is being drained takes a bulk",
        "DP-09",
        "store/sql/tasks.sql",
        "where queue.id = :queue_id and not queue.draining {for_key_share};",
        "where queue.id = :queue_id {for_key_share};",
        DRAINING + "test_a_queue_that_is_drained_takes_nothing_new_whoever_asks",
    ),
    Mutant(
        "a queue is deleted while it is being filled",
        "Q-26",
        "store/sql/tasks.sql",
        "and not queue.draining {for_key_share}\n)",
        "and not queue.draining\n)",
        "tests/queue/test_enqueue.py::test_a_queue_that_is_deleted_while_it_is_filled_leaves_no_task_without_a_queue",
    ),
    Mutant(
        "a queue that is being drained takes tasks with a key",
        "DP-09",
        "store/sql/tasks.sql",
        "  from rows where rows.queue_id in (select taking.id from taking)\non conflict",
        "  from rows where true\non conflict",
        DRAINING + "test_a_queue_that_is_drained_takes_nothing_new_whoever_asks",
    ),
    Mutant(
        "a queue counts as drained while somebody is adding to it",
        "DP-09",
        "store/serving.py",
        '        found = yield Call("lock_queue", self._params(name=name))\n',
        "        found: list[Row] = []\n",
        DRAINING + "test_a_joined_message_is_refused_and_one_under_way_is_waited_for",
    ),
    Mutant(
        "workers claim in maintenance, on Postgres",
        "DP-10",
        "store/sql/tasks.sql",
        "\n                   and not exists (select 1 from {maintenance} as maintenance"
        " where maintenance.tenant = queue.tenant)",
        "",
        MAINTENANCE + "test_nobody_claims_in_any_way_while_it_lasts",
    ),
    Mutant(
        "workers claim in maintenance, on SQLite and Turso",
        "DP-10",
        "store/sql/tasks.sql",
        "\n                  and tenant not in (select maintenance.tenant from {maintenance} as maintenance)",
        "",
        MAINTENANCE + "test_nobody_claims_in_any_way_while_it_lasts",
    ),
    Mutant(
        "messages are taken by hand in maintenance, on Postgres",
        "DP-10",
        "store/sql/by_hand.sql",
        "\n                   and not exists (select 1 from {maintenance} as maintenance"
        " where maintenance.tenant = queue.tenant)",
        "",
        MAINTENANCE + "test_nobody_claims_in_any_way_while_it_lasts",
    ),
    Mutant(
        "messages are taken by hand in maintenance, on SQLite and Turso",
        "DP-10",
        "store/sql/by_hand.sql",
        "\n                  and tenant not in (select maintenance.tenant from {maintenance} as maintenance)",
        "",
        MAINTENANCE + "test_nobody_claims_in_any_way_while_it_lasts",
    ),
    Mutant(
        "work of workers that have ended counts as served",
        "PR-16",
        "store/sql/queues.sql",
        "select worker.id, worker.handlers from {worker} as worker join {beat} as beat",
        "select worker.id, worker.handlers from {worker} as worker left join {beat} as beat",
        UNSERVED + "test_queues_with_work_that_nobody_serves_are_listed",
    ),
    Mutant(
        "work that nobody serves is told again and again",
        "DP-08",
        "engine/upkeep.py",
        "changed, self._told = queues - self._told, queues",
        "changed, self._told = queues, queues",
        UNSERVED + "test_it_is_told_again_only_when_there_is_more_to_tell",
    ),
    Mutant(
        "retention looks for finished tasks beside their index",
        "SD-10",
        "store/sql/upkeep.sql",
        "where task.queue_id = :queue_id and task.status in",
        "where task.queue_id + 0 = :queue_id and task.status in",
        WALKS + "test_what_is_kept_costs_the_walk_nothing",
    ),
)
