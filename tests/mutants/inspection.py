"""The rules of reading an instance at one moment, and of decisions that are not made."""

from tests.mutants.mutant import Mutant

INSPECTION = "tests/deciders/test_inspection.py::"

INSPECTION_MUTANTS = (
    Mutant(
        "inspection: its statements see what was committed between them (Postgres)",
        "I-08",
        "store/postgres/driver.py",
        'isolation="repeatable_read", readonly=True',
        'isolation="read_committed", readonly=True',
        INSPECTION + "test_under_writers_an_inspection_never_shows_a_state_that_does_not_fit_its_history",
    ),
    Mutant(
        "inspection: its statements see what was committed between them (SQLite)",
        "I-08",
        "store/embedded/driver.py",
        '        connection.execute("begin")\n        try:\n            return play',
        "        try:\n            return play",
        INSPECTION + "test_under_writers_an_inspection_never_shows_a_state_that_does_not_fit_its_history",
    ),
    Mutant(
        "inspection: a snapshot is never let go",
        "I-08",
        "store/embedded/driver.py",
        '        finally:\n            connection.execute("rollback")\n',
        "        finally:\n            pass\n",
        INSPECTION + "test_a_snapshot_that_fails_leaves_its_connection_usable",
    ),
    Mutant(
        "inspection: inputs of other instances are shown",
        "I-08",
        "store/sql/decisions.sql",
        "not task.ready and task.owner is null\n       and task.deleted_at is null and task.status in "
        "('PENDING', 'PAUSED', 'RUNNING')\n       and (task.kind = 'INPUT' and task.input ->> 'id' = :name) is true\n",
        "not task.ready and task.owner is null\n       and task.deleted_at is null and task.status in "
        "('PENDING', 'PAUSED', 'RUNNING')\n       and (task.kind = 'INPUT') is true\n",
        INSPECTION + "test_an_inspection_has_all_that_belongs_to_an_instance_and_nothing_of_another",
    ),
    Mutant(
        "inspection: the history at a version has what came later",
        "M-22",
        "store/inspection.py",
        "last = instance.version if query.until is None else min(query.until, instance.version)",
        "last = instance.version",
        INSPECTION + "test_what_an_instance_was_at_a_version_is_shown_beside_what_it_waits_for_now",
    ),
    Mutant(
        "inspection: a dry run asks an instance that has ended",
        "M-13",
        "deciders/history.py",
        "        if known.is_completed:\n            return DryRun",
        "        if False:\n            return DryRun",
        "tests/deciders/test_execute.py::test_a_dry_run_is_refused_as_the_input_would_be",
    ),
)
