"""The rules of measuring."""

from tests.mutants.mutant import Mutant

METRICS = "tests/store/test_metrics.py::"
PLANS = "tests/store/test_plans_of_metrics.py::"
TEXT = "tests/unit/test_exposition.py::"

METRICS_MUTANTS = (
    Mutant(
        "what ended before the window counts",
        "MM-04",
        "store/sql/metrics.sql",
        "task.deleted_at is null and task.finished_at >= :since",
        "task.deleted_at is null and task.finished_at >= :since - 1000000",
        METRICS + "test_the_window_begins_at_its_moment",
    ),
    Mutant(
        "an embedded store looks through the history for what ended in the window",
        "MM-08",
        "store/sql/metrics.sql",
        "task.deleted_at is null and task.finished_at >= :since",
        "task.deleted_at is null and task.finished_at + 0 >= :since",
        PLANS + "test_on_sqlite_the_instructions_of_measuring_do_not_grow",
    ),
    Mutant(
        "Postgres looks through the history for what ended in the window",
        "MM-08",
        "store/sql/metrics.sql",
        "task.deleted_at is null and task.finished_at >= :since",
        "task.deleted_at is null and task.finished_at + 0 >= :since",
        PLANS + "test_what_ended_before_the_window_is_not_looked_at",
    ),
    Mutant(
        "the steps of a window are joined all with all",
        "MM-08",
        "store/sql/metrics.sql",
        "      from {each_of ended}{step} as step\n     where {found_by step.run_id ended.id} and",
        "      from ended cross join {step} as step\n     where step.run_id = ended.id and",
        PLANS + "test_what_ended_before_the_window_is_not_looked_at",
    ),
    Mutant(
        "a run that was cancelled counts as failed",
        "MM-04",
        "store/metrics.py",
        "failed = self.runs[RunStatus.SUCCESS], self.runs[RunStatus.ERROR]",
        "failed = self.runs[RunStatus.SUCCESS], self.runs[RunStatus.ERROR] + self.runs[RunStatus.CANCELLED]",
        METRICS + "test_runs_are_counted_by_status_and_those_that_ended_in_a_window",
    ),
    Mutant(
        "a run that was cancelled is timed",
        "MM-05",
        "store/metrics.py",
        "        if status == RunStatus.SUCCESS:\n",
        "        if True:\n",
        METRICS + "test_the_window_begins_at_its_moment",
    ),
    Mutant(
        "a message in the queue of a workflow counts as a run",
        "MM-01",
        "store/measuring.py",
        '            if row["kind"] == TaskKind.RUN:\n',
        "            if True:\n",
        METRICS + "test_the_window_begins_at_its_moment",
    ),
    Mutant(
        "a worker that has fallen silent counts as live",
        "MM-03",
        "store/measuring.py",
        'abs(row["silent"]) > row["lease"]',
        'abs(row["silent"]) > 1000 * row["lease"]',
        METRICS + "test_workers_of_a_workflow_are_live_or_stale_and_last_seen",
    ),
    Mutant(
        "a worker that has ended was never seen",
        "MM-03",
        "store/metrics.py",
        "    seen += [one.stopped_at for one in ended if",
        "    seen += [one.stopped_at for one in () if",
        METRICS + "test_workers_of_a_workflow_are_live_or_stale_and_last_seen",
    ),
    Mutant(
        "another tenant's dead letters are counted",
        "MM-06",
        "store/sql/metrics.sql",
        " where queue.tenant = :tenant\n order by queue.name, dead.kind",
        " where :tenant = :tenant\n order by queue.name, dead.kind",
        METRICS + "test_another_tenants_work_is_not_measured",
    ),
    Mutant(
        "a dead letter that was deleted counts",
        "MM-06",
        "store/sql/metrics.sql",
        "where task.status = 'ERROR' and task.deleted_at is null\n     group",
        "where task.status = 'ERROR'\n     group",
        METRICS + "test_dead_letters_are_counted_by_queue_and_kind",
    ),
    Mutant(
        "a step is told by its call and not by its name",
        "MM-05",
        "store/sql/metrics.sql",
        "rtrim(rtrim(lengths.call, '0123456789'), '#') as name",
        "lengths.call as name",
        METRICS + "test_a_step_is_told_by_its_name_wherever_its_run_calls_it",
    ),
    Mutant(
        "versions stay apart",
        "MM-09",
        "store/measuring.py",
        "base_of(each) if join_versions else each",
        "each",
        METRICS + "test_versions_of_a_workflow_are_added_up",
    ),
    Mutant(
        "a quote in a label ends it",
        "MM-11",
        "store/exposition.py",
        """    return _escaped(text).replace('"', '\\\\"')\n""",
        "    return _escaped(text)\n",
        TEXT + "test_labels_and_help_are_escaped",
    ),
)
