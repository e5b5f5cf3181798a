"""The rules of a run that restarts: what is the run's, and what is its generation's."""

from tests.mutants.mutant import Mutant

RESTART = "tests/runs/test_restart.py::"

RESTART_MUTANTS = (
    Mutant(
        "a run that was cancelled restarts",
        "L-14",
        "store/rules.py",
        "rows.input is not null and task.cancel_requested_at is null and task.held_at is null",
        "rows.input is not null and task.held_at is null",
        RESTART + "test_a_cancel_that_is_committed_first_wins",
    ),
    Mutant(
        "a restart is a way out of a pause",
        "P-02",
        "store/rules.py",
        "rows.input is not null and task.cancel_requested_at is null and task.held_at is null",
        "rows.input is not null and task.cancel_requested_at is null",
        RESTART + "test_if_it_was_paused_meanwhile_it_is_paused_and_restarts_when_it_is_let_go",
    ),
    Mutant(
        "a generation reads what another recorded",
        "protocol-07",
        "store/sql/steps.sql",
        "step.run_id = rows.id and step.generation = rows.generation",
        "step.run_id = rows.id",
        RESTART + "test_what_an_earlier_generation_records_late_is_not_read",
    ),
    Mutant(
        "a generation has the keys of another",
        "protocol-11",
        "store/rows.py",
        "return key if self.generation == 0 else",
        "return key if self.generation >= 0 else",
        RESTART + "test_its_generation_is_in_its_keys_and_in_its_chances",
    ),
    Mutant(
        "a generation has the chances of another",
        "S-01",
        "runs/context.py",
        'born = f"{task.created_at}" if task.generation == 0 else',
        'born = f"{task.created_at}" if task.generation >= 0 else',
        RESTART + "test_its_generation_is_in_its_keys_and_in_its_chances",
    ),
    Mutant(
        "a step of a queue is told a key of another generation",
        "protocol-11",
        "runs/children.py",
        '"key":{json.dumps(call.lasting_key)}',
        '"key":{json.dumps(call.lasting_key.replace(f".{run.task.generation}/", "/"))}',
        RESTART + "test_a_step_of_a_queue_is_asked_for_anew_in_every_generation",
    ),
    Mutant(
        "signals that nobody has taken go with the generation",
        "P-06",
        "store/sql/steps.sql",
        "delete from {step}\n where run_id {any_of rows} and generation < (select rows.generation from rows"
        " where rows.id = run_id)",
        "delete from {signal}\n where run_id {any_of rows}",
        RESTART + "test_signals_that_nobody_has_taken_are_the_next_generations",
    ),
    Mutant(
        "what a generation recorded stays",
        "SD-10",
        "store/tasks.py",
        "restarts=done.input is not None,",
        "restarts=False,",
        RESTART + "test_it_is_one_flush_and_what_it_recorded_goes_with_it",
    ),
    Mutant(
        "signals that were taken stay for ever",
        "SD-10",
        "store/run_waits.py",
        "if self._keep is not None and place % FORGET_EVERY == 0:",
        "if False:",
        RESTART + "test_what_it_leaves_behind_is_bounded",
    ),
    Mutant(
        "children that ended stay until a run that restarts for ever ends",
        "SD-10",
        "store/sql/upkeep.sql",
        "coalesce(parent.restarted_at, 0)) is null\n     order by task.finished_at\n",
        "0) is null\n     order by task.finished_at\n",
        RESTART + "test_what_it_leaves_behind_is_bounded",
    ),
    Mutant(
        "a key of a signal is forgotten with its generation",
        "P-06",
        "store/run_waits.py",
        "before = now - round(max(self._keep, KEYS_KEPT) * 1_000_000)",
        "before = now + 1",
        RESTART + "test_what_it_leaves_behind_is_bounded",
    ),
    Mutant(
        "a time limit is that of all generations",
        "L-14",
        "store/sql/tasks.sql",
        "started_at = case when {restarts} then null else task.started_at end,",
        "started_at = task.started_at,",
        RESTART + "test_a_time_limit_is_that_of_a_generation",
    ),
    Mutant(
        "steps are executed after a restart",
        "protocol-18",
        "runs/turn.py",
        "            self.unwinding = True  # the caller raises",
        "            pass  # the caller raises",
        RESTART + "test_nothing_after_the_call_is_executed_whatever_the_code_makes_of_it",
    ),
)
