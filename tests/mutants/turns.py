"""The rules of transactions that bodies begin: they commit in their turn or not at all, and hold nobody up."""

from tests.mutants.mutant import Mutant

OWN_CLOCK = "tests/worker/test_own_clock.py::"
TURNS = "tests/worker/test_turns.py::"
BEFORE = TURNS + "test_a_body_whose_turn_was_taken_before_it_began_commits_nothing"
MEANWHILE = TURNS + "test_a_body_whose_turn_is_taken_before_its_commit_commits_nothing"

TURN_MUTANTS = (
    Mutant(
        "a late transaction is committed",
        "L-09",
        "store/transaction.py",
        "                await play_async(turns.kept(), own.answer)\n",
        "                pass\n",
        BEFORE,
    ),
    Mutant(
        "the turn is asked for when the transaction begins",
        "protocol-08",
        "store/transaction.py",
        "            tx = Tx(self._db, own)\n"
        "            try:\n"
        "                yield tx\n"
        "            finally:\n"
        "                tx.is_over = True\n"
        "            if turns is not None:\n"
        "                await play_async(turns.kept(), own.answer)\n",
        "            if turns is not None:\n"
        "                await play_async(turns.before(turns.kept()), own.answer)\n"
        "            tx = Tx(self._db, own)\n"
        "            try:\n"
        "                yield tx\n"
        "            finally:\n"
        "                tx.is_over = True\n",
        MEANWHILE,
    ),
    Mutant(
        "the turn is only looked at",
        "protocol-08",
        "store/sql/transactions.sql",
        " order by task.id\n {for_share};\n",
        " order by task.id;\n",
        TURNS + "test_nobody_takes_the_turn_between_the_check_and_the_commit",
    ),
    Mutant(
        "an idle transaction of a body stays open",
        "protocol-08",
        "store/transaction.py",
        "None if turns is None else turns.lease",
        "None",
        TURNS + "test_the_server_ends_a_transaction_of_a_body_that_is_idle_for_longer_than_the_lease",
    ),
    Mutant(
        "an idle transaction of a body stays open for the lease of the store",
        "L-06",
        "store/transaction.py",
        "None if turns is None else turns.lease",
        "None if turns is None else self.options.lease",
        TURNS + "test_the_server_ends_a_transaction_of_a_body_that_is_idle_for_longer_than_the_lease",
    ),
    Mutant(
        "a body that knows that its session is dead begins a transaction",
        "L-09",
        "store/transaction.py",
        "    if turns.are_lost:\n        raise turns.lost()\n",
        "",
        TURNS + "test_a_body_that_knows_that_its_session_is_dead_begins_nothing",
    ),
    Mutant(
        "what a body leaves behind speaks for its turn",
        "L-09",
        "store/transaction.py",
        "    return turns if turns.are_held else None\n",
        "    return turns\n",
        TURNS + "test_what_a_body_leaves_behind_speaks_for_nobody_when_its_end_is_written",
    ),
    Mutant(
        "a verb in one's own transaction does not ask for the turn",
        "L-09",
        "store/transaction.py",
        "    return talk if turns is None else turns.before(talk)\n",
        "    return talk\n",
        TURNS + "test_a_verb_in_ones_own_transaction_asks_for_the_turn_first_and_leaves_it_as_it_was",
    ),
    Mutant(
        "a message begins on a lease that is over by its worker's own clock",
        "rule-10",
        "work/execution.py",
        "is_over = monotonic() > self.session.over_at and not await",
        "is_over = False and not await",
        OWN_CLOCK + "test_a_message_that_was_claimed_waits_for_the_beat",
    ),
    Mutant(
        "a step begins on a lease that is over by its worker's own clock",
        "rule-10",
        "runs/steps.py",
        "    if monotonic() > run.slot.session.over_at and begun is None:",
        "    if False:",
        OWN_CLOCK + "test_a_step_waits_for_the_beat",
    ),
    Mutant(
        "a usual step begins on a lease that is over by its worker's own clock",
        "rule-10",
        "runs/async_step.py",
        " or monotonic() > session.over_at",
        "",
        OWN_CLOCK + "test_a_step_waits_for_the_beat",
    ),
)
