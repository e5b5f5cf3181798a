"""The rules of the helper: when it beats for a worker, when it does not, and what its word is worth."""

from tests.mutants.mutant import Mutant

UNIT = "tests/unit/test_helper.py::"
HELD = "tests/crash/test_held.py::"
REAP = "tests/store/test_reap.py::"
CLI = "tests/cli/test_supervisor.py::"

HELPER_MUTANTS = (
    Mutant(
        "a helper beats although the worker does",
        "rule-11",
        "store/helper.py",
        "        if now - self._heard < PATIENCE * self.every or now - self._beaten < self.every:\n",
        "        if now - self._beaten < self.every:\n",
        UNIT + "test_it_is_silent_while_the_worker_beats",
    ),
    Mutant(
        "a helper never beats",
        "L-07",
        "store/helper.py",
        "                    self._run(self._beat)\n",
        "                    pass\n",
        HELD + "test_held_for_many_leases_it_is_executed_once_and_stopped_it_is_taken_over",
    ),
    Mutant(
        "a stopped worker counts as busy",
        "L-05",
        "store/helper.py",
        "stopped=is_stopped(self._pid)",
        "stopped=False",
        HELD + "test_held_for_many_leases_it_is_executed_once_and_stopped_it_is_taken_over",
    ),
    Mutant(
        "a hung worker is helped for ever",
        "L-05",
        "store/helper.py",
        "        if now - self._heard - self._excused >= self.hang_after:\n            return HUNG\n",
        "",
        HELD + "test_held_for_longer_than_it_may_be_it_is_taken_over",
    ),
    Mutant(
        "a blocked loop keeps its tasks for ever",
        "L-05",
        "engine/heartbeat.py",
        "        hung = self._blockade.seconds >= self._store.options.hang_after\n",
        "        hung = False\n",
        HELD + "test_a_loop_that_is_blocked_for_longer_than_it_may_be_is_told_of_and_taken_over",
    ),
    Mutant(
        "the helper's word that a worker is gone is not taken as proof",
        "L-03",
        "store/sessions.py",
        "        return worker.gone or self._driver",
        "        return self._driver",
        REAP + "test_a_session_whose_helper_saw_its_process_end_is_dead_at_once",
    ),
    Mutant(
        "what was seen before a wait for the database is taken as proof",
        "L-05",
        "store/sessions.py",
        "        if self._clock.monotonic() > until:\n            return None\n",
        "",
        REAP + "test_what_was_seen_before_a_wait_for_the_database_proves_nothing",
    ),
    Mutant(
        "a worker outlives its supervisor",
        "rule-34",
        "cli/supervisor.py",
        "        end_with(pid)\n",
        "",
        CLI + "test_a_killed_supervisor_leaves_no_worker",
    ),
    Mutant(
        "a crashed worker is not started anew",
        "rule-34",
        "cli/supervisor.py",
        "        self._later(pause, lambda: self._begin_anew(number))\n",
        "",
        CLI + "test_a_crashed_worker_is_started_anew_and_a_signal_ends_both",
    ),
)
