"""The rules of waiting for runs."""

from tests.mutants.mutant import Mutant

WAITING = "tests/results/test_waiting.py::"
OTHERS = "tests/results/test_other_processes.py::"
WORDS = "tests/results/test_words.py::"

RESULTS_MUTANTS = (
    Mutant(
        "a run is read before it is noted who waits",
        "RS-05",
        "store/results.py",
        "            self._ask([key])\n        tried =",
        "            self._learn([key], await self._db.driver.read(self._asking([key])))\n        tried =",
        WAITING + "test_a_word_that_comes_while_the_run_is_being_read_is_not_lost",
    ),
    Mutant(
        "a new run is waited for without a look at it",
        "RS-05",
        "store/results.py",
        "            self._loop.call_later(after, self._ask_if_awaited, key)\n",
        "            pass\n",
        WAITING + "test_a_new_run_that_ended_before_it_was_waited_for_is_seen_soon",
    ),
    Mutant(
        "a run that its key found is taken for new",
        "RS-05",
        "trigger.py",
        "is_new=self.trigger.key is None",
        "is_new=True",
        WAITING + "test_a_new_run_that_ends_here_costs_no_read_and_one_that_its_key_found_is_read_at_once",
    ),
    Mutant(
        "word that any may have ended is forgotten during a read",
        "RS-05",
        "store/results.py",
        "        self._hinted_poll_at = ended + rest",
        "        self._hinted_poll_at, self._hinted = ended + rest, False",
        WAITING + "test_word_of_any_run_that_comes_while_all_are_being_read_has_them_read_again",
    ),
    Mutant(
        "whoever waits for a run relies on words",
        "RS-06",
        "store/results.py",
        "self._poll_at = ended + max(rest,",
        "self._poll_at = 1e12 + max(rest,",
        WAITING + "test_without_any_word_the_next_poll_finds_it",
    ),
    Mutant(
        "a run that ends here is left to the next read",
        "RS-03",
        "store/results.py",
        "        if here:",
        "        if False:",
        WAITING + "test_a_word_that_comes_while_the_run_is_being_read_is_not_lost",
    ),
    Mutant(
        "nobody is told of a finished run",
        "RS-04",
        "store/results.py",
        "self._wakeups.tell_finished(run_id, soon=not here)",
        "pass",
        OTHERS + "test_every_way_to_end_is_told",
    ),
    Mutant(
        "listening begins without a look at the runs",
        "RS-06",
        "store/hints/listener.py",
        "            self._finished(None)  # ... and what was finished",
        "            pass",
        OTHERS + "test_what_ended_before_anybody_listened_is_read_when_listening_begins",
    ),
    Mutant(
        "a file that changed tells only of queues",
        "RS-08",
        "store/embedded/listener.py",
        ", finished=None)))",
        ")))",
        OTHERS + "test_a_run_that_another_process_finishes_is_heard_of_without_a_poll",
    ),
    Mutant(
        "what there is to tell grows with the runs",
        "rule-18",
        "store/hints/wakeups.py",
        "if len(self._finished) <= MOST_FINISHED:",
        "if True:",
        WORDS + "test_what_there_is_to_tell_does_not_grow_with_the_runs",
    ),
    Mutant(
        "the timeout of who waits is left out",
        "RS-07",
        "store/results.py",
        "timeout=timeout or None, return_when",
        "timeout=None, return_when",
        WAITING + "test_the_timeout_leaves_the_run_as_it_is",
    ),
    Mutant(
        "a deleted run is waited for for ever",
        "RS-03",
        "store/results.py",
        "if run_id not in found or RunStatus",
        "if run_id in found and RunStatus",
        WAITING + "test_a_run_that_is_deleted_is_not_waited_for_any_longer",
    ),
    Mutant(
        "each who waits is read alone",
        "RS-09",
        "store/results.py",
        "MOST_AT_ONCE: Final = 1000",
        "MOST_AT_ONCE: Final = 1",
        OTHERS + "test_a_thousand_runs_that_end_in_this_process_cost_one_read",
    ),
    Mutant(
        "a closed store leaves those who wait",
        "RS-03",
        "store/database.py",
        "                await self.results.close()\n",
        "                pass\n",
        WAITING + "test_closing_the_store_ends_all_waiting",
    ),
)
