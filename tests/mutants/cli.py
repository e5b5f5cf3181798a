"""The rules of the command line."""

from tests.mutants.mutant import Mutant

REFUSALS = "tests/cli/test_refusals.py::"

CLI_MUTANTS = (
    Mutant(
        "looking at a store that is not there makes it",
        "VR-06",
        "cli/opening.py",
        "    if install or not config.url",
        "    if True or not config.url",
        REFUSALS + "test_a_missing_file_is_not_made_by_looking",
    ),
    Mutant(
        "a key of two workflows means the first",
        "VR-06",
        "cli/naming.py",
        "    if len(found) > 1:",
        "    if len(found) > 9:",
        REFUSALS + "test_a_key_of_two_workflows_is_refused_with_both",
    ),
    Mutant(
        "a queue is emptied without asking",
        "MM-02",
        "cli/queues.py",
        '    sure(f"Delete what is in {name} for good ({held})?", yes=yes)\n',
        "",
        "tests/cli/test_operating.py::test_queues_are_listed_paused_and_purged",
    ),
    Mutant(
        "a dry run retries",
        "MM-10",
        "cli/runs.py",
        "fits and (dry_run or await store.retry(run.id))",
        "fits and (await store.retry(run.id) or dry_run)",
        "tests/cli/test_runs.py::test_a_failed_run_is_shown_with_its_line_and_retried_from_its_step",
    ),
    Mutant(
        "a module hides the decorator of its name",
        "DD-02",
        "__init__.py",
        "        if not (isinstance(value, ModuleType) and name in _HIDDEN):\n            super()",
        "        if True:\n            super()",
        "tests/cli/test_start.py::test_a_fresh_process_finds_the_decorators",
    ),
    Mutant(
        "a clock that is behind goes unnoticed",
        "MM-07",
        "cli/checks.py",
        "    if abs(ahead) > FAR_CLOCK:",
        "    if ahead > FAR_CLOCK:",
        "tests/cli/test_doctor.py::test_a_situation_and_its_answer",
    ),
    Mutant(
        "a card that was charged twice is no problem of the demo",
        "G-01",
        "cli/demo/story.py",
        "        if result.done != dict.fromkeys(ACTS, 1):",
        "        if not result.done:",
        "tests/cli/test_demo.py::test_a_card_charged_twice_fails_it",
    ),
    Mutant(
        "the age of what is ready is that of the newest",
        "MM-07",
        "store/sql/health.sql",
        "min(task.run_at) as since",
        "max(task.run_at) as since",
        "tests/store/test_health.py::test_queues_are_counted_by_state_and_the_oldest_is_aged",
    ),
    Mutant(
        "another tenant's queues are counted",
        "MM-02",
        "store/sql/health.sql",
        " where queue.tenant = :tenant\n",
        " where :tenant = :tenant\n",
        "tests/store/test_health.py::test_another_tenants_queues_are_not_counted",
    ),
)
