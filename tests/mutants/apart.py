"""What keeps tenants apart, how much may come in, and what decides between a signal and a timeout."""

from tests.mutants.mutant import Mutant

TENANTS = "tests/store/test_tenants.py::"
LIMITS = "tests/queue/test_limits.py::"
LOST = "tests/waiting/test_lost_signals.py::"

APART_MUTANTS = (
    Mutant(
        "a run is steered by another tenant",
        "MT-02",
        "store/sql/control.sql",
        "task.deleted_at is null and queue.tenant = :tenant\n",
        "task.deleted_at is null and :tenant = :tenant\n",
        TENANTS + "test_no_verb_tells_or_changes_anything_of_another_tenant",
    ),
    Mutant(
        "another tenant's workers serve",
        "MT-02",
        "store/sql/runs.sql",
        " where worker.tenant = :tenant\n",
        " where :tenant = :tenant\n",
        TENANTS + "test_a_tenant_with_the_same_names_changes_only_its_own_and_has_its_own_workers",
    ),
    Mutant(
        "a run is told how another tenant's ended",
        "MT-02",
        "store/sql/waiting.sql",
        "queue.id = task.queue_id and queue.tenant = :tenant\n",
        "queue.id = task.queue_id and :tenant = :tenant\n",
        TENANTS + "test_a_tenant_with_the_same_names_changes_only_its_own_and_has_its_own_workers",
    ),
    Mutant(
        "another tenant reads the stream of a run",
        "MT-02",
        "store/sql/reports.sql",
        "   and (select queue.tenant = :tenant\n",
        "   and (select :tenant = :tenant\n",
        TENANTS + "test_no_verb_tells_or_changes_anything_of_another_tenant",
    ),
    Mutant(
        "what is kept for a wait has no limit",
        "security-09",
        "store/signals.py",
        "text = write_value(data, limit=options.payload_limit,",
        "text = write_value(data, limit=10**9,",
        LIMITS + "test_what_is_too_large_or_too_deep_is_refused_at_every_door",
    ),
    Mutant(
        "an error is stored however long it is",
        "security-09",
        "values/exceptions.py",
        "ERROR_LIMIT: Final = 65_536",
        "ERROR_LIMIT: Final = 655_360",
        LIMITS + "test_the_text_of_an_error_is_cut_with_a_mark",
    ),
    Mutant(
        "the schema's name stands bare in the text",
        "security-02",
        "store/sql.py",
        """return f'"{self._schema}".{name}' if""",
        """return f"{self._schema}.{name}" if""",
        "tests/queue/test_hostile.py::test_a_tenant_is_a_value_and_a_word_of_sql_may_be_a_schema",
    ),
    Mutant(
        "a timeout is recorded like None that was sent",
        "rule-15",
        "store/wait_query.py",
        "        return Recorded(_ended(one.row, None, encode(told)))",
        "        return Recorded(_ended(one.row, None, None))",
        LOST + "test_of_a_signal_and_a_timeout_one_wins_and_stays_the_winner",
    ),
    Mutant(
        "an input waits for its instance for ever",
        "rule-28",
        "deciders/mailbox.py",
        "now - pending.since >= pending.within:",
        "now - pending.since >= 1_000 * pending.within:",
        "tests/deciders/test_races.py::test_an_input_waits_for_the_lock_of_its_instance_and_not_for_ever",
    ),
    Mutant(
        "a condition is asked every hour, whatever the store says",
        "CF-02",
        "runs/steps.py",
        "int(1_000_000 * run.slot.database.options.pause_check_interval)",
        "3_600_000_000",
        "tests/waiting/test_pausing.py::test_the_interval_is_the_stores_and_one_hour_if_nothing_is_said",
    ),
    Mutant(
        "a run that fails leaves its steps at work",
        "promise-20",
        "store/settle.py",
        "CUT_SHORT: Final = (RunStatus.ERROR, RunStatus.CANCELLED)",
        "CUT_SHORT: Final = (RunStatus.CANCELLED,)",
        "tests/store/test_group_commit.py::test_a_run_fails_beside_a_row_that_is_refused_and_its_steps_are_closed",
    ),
)
