"""The rules of plans that are made on empty tables."""

from tests.mutants.mutant import Mutant

BOUNDS = "tests/store/test_bounds.py::"
KEEPS = BOUNDS + "test_with_plans_made_on_an_empty_database_every_statement_keeps_to_its_bound"
SCANS = "tests/store/test_scans.py::"

PLAN_MUTANTS = (
    Mutant(
        "whoever waits for a run walks the index of all runs",
        "protocol-16",
        "store/sql/results.sql",
        "and (task.kind = 'RUN' or task.keeps_result) is true and",
        "and task.kind = 'RUN' and",
        KEEPS,
    ),
    Mutant(
        "a run is read by the index of all runs",
        "protocol-16",
        "store/sql/runs.sql",
        "where task.id {any_of rows} and (task.kind = 'RUN') is true and (queue.tenant = :tenant) is true",
        "where task.id {any_of rows} and task.kind = 'RUN' and queue.tenant = :tenant",
        KEEPS,
    ),
    Mutant(
        "runs are deleted by the index of all runs",
        "protocol-16",
        "store/sql/control.sql",
        "and task.deleted_at is null and (task.kind = 'RUN') is true\nreturning",
        "and task.deleted_at is null and task.kind = 'RUN'\nreturning",
        KEEPS,
    ),
    Mutant(
        "a beat lists what all sessions own to find its own",
        "protocol-16",
        "store/sql/sessions.sql",
        "on task.owner = rows.worker and task.owner {any_of rows.worker}",
        "on task.owner = rows.worker",
        KEEPS,
    ),
    Mutant(
        "a sweep sorts all that it may remove",
        "protocol-16",
        "store/postgres/connection.py",
        '            "enable_bitmapscan": "off",\n',
        "",
        KEEPS,
    ),
    Mutant(
        "a statement says nothing of its cost",
        "protocol-16",
        "store/sql/results.sql",
        "-- name: endings\n-- bound: ",
        "-- name: endings\n-- about: ",
        BOUNDS + "test_every_statement_says_what_it_may_cost",
    ),
    Mutant(
        "an embedded store reads all tasks for a count",
        "PR-15",
        "store/sql/upkeep.sql",
        "     where task.deleted_at is not null and task.deleted_at < :before and task.owner is null\n"
        "       and (task.status <> 'RUNNING' or task.run_at < :before)\n"
        "       and (task.finished_at is null or task.finished_at < :before)\n"
        "       and (select queue.tenant from {queue} as queue where queue.id = task.queue_id) = :tenant\n)",
        "     where task.deleted_at + 0 < :before and task.owner is null\n"
        "       and (task.status <> 'RUNNING' or task.run_at < :before)\n"
        "       and (task.finished_at is null or task.finished_at < :before)\n"
        "       and (select queue.tenant from {queue} as queue where queue.id = task.queue_id) = :tenant\n)",
        SCANS + "test_no_statement_reads_all_of_a_table_or_an_index_unless_it_says_why",
    ),
)
