"""What makes a step's rows and its result one: a fence in their commit, and the record that is read when in doubt."""

from tests.mutants.mutant import Mutant

OWN = "tests/workflows/test_step_transactions.py::"
LIBRARIES = "tests/workflows/test_step_sources.py::"

STEP_TRANSACTION_MUTANTS = (
    Mutant(
        "a transactional step records whatever became of its turn",
        "promise-06",
        "store/sql/steps.sql",
        "  from rows where rows.run_id in (select stands.id from stands)\n",
        "  from rows where true\n",
        OWN + "test_a_body_whose_turn_is_lost_commits_nothing_and_its_successor_commits_once",
    ),
    Mutant(
        "what a transactional step could not record is committed all the same",
        "promise-06",
        "store/result_transaction.py",
        "        if written is None:\n            raise NotRecorded\n",
        "",
        OWN + "test_a_body_whose_turn_is_lost_commits_nothing_and_its_successor_commits_once",
    ),
    Mutant(
        "a lost reply of a commit is a failed attempt",
        "promise-06",
        "runs/step_transaction.py",
        "            return await self._found(self._transaction.row, error)\n",
        "            raise\n",
        OWN + "test_after_a_lost_reply_of_the_commit_the_record_says_what_became_of_it",
    ),
    Mutant(
        "a lost reply of a commit counts as a commit",
        "promise-06",
        "runs/step_transaction.py",
        "        if row is None or not row.status.finished:\n            raise error\n",
        "        if row is None or not row.status.finished:\n            return Committed(mine, self._value)\n",
        OWN + "test_after_a_lost_reply_of_the_commit_the_record_says_what_became_of_it",
    ),
    Mutant(
        "a body that ended its transaction itself is tried again",
        "promise-06",
        "store/transaction.py",
        "class EndedInside(InvalidOption, PermanentError):",
        "class EndedInside(InvalidOption):",
        OWN + "test_a_body_that_ends_its_transaction_itself_fails_for_good",
    ),
    Mutant(
        "a body in a thread commits after its time was over",
        "promise-06",
        "runs/step_transaction.py",
        "            if self._is_given_up:\n                raise Late\n",
        "",
        LIBRARIES + "test_a_body_in_a_thread_that_returns_too_late_commits_nothing",
    ),
    Mutant(
        "what is asked of a run is not heard with the commit of its step",
        "promise-06",
        "store/steps.py",
        "        tell_requests(written.requests, self._flusher.requested)\n",
        "",
        OWN + "test_what_another_process_asks_of_the_run_is_heard_with_the_commit",
    ),
    Mutant(
        "events of a transactional step are lost",
        "O-09",
        "store/steps.py",
        "        added = (yield from self._db.outboxes.writing(emissions)) if emissions else set()\n",
        "        added: set[int] = set()\n",
        OWN + "test_the_rows_of_a_body_are_there_once_with_its_result",
    ),
)
