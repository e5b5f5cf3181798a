"""The rules of equal inputs, and of sending inputs from workflows."""

from tests.mutants.mutant import Mutant

DEDUPE = "tests/deciders/test_dedupe.py::"
TOGETHER = "tests/deciders/test_together.py::"
SERVED = "tests/deciders/test_served.py::"

DEDUPE_MUTANTS = (
    Mutant(
        "an instance remembers every input of the time",
        "II-04",
        "store/sql/decisions.sql",
        "counted.nth > counted.most",
        "false",
        DEDUPE + "test_no_more_inputs_are_remembered_than_the_decider_says",
    ),
    Mutant(
        "an instance remembers the oldest inputs instead of the last ones",
        "II-04",
        "store/sql/decisions.sql",
        "receipt.recorded_at desc, receipt.last_version desc, receipt.key",
        "receipt.recorded_at, receipt.last_version, receipt.key",
        DEDUPE + "test_no_more_inputs_are_remembered_than_the_decider_says",
    ),
    Mutant(
        "keys of their own count to the inputs that an instance remembers",
        "II-04",
        "store/sql/decisions.sql",
        "     where (substr(receipt.key, 1, 8) = 'content:') is true\n",
        "",
        DEDUPE + "test_no_more_inputs_are_remembered_than_the_decider_says",
    ),
    Mutant(
        "an equal input is a duplicate for as long as its receipt is kept",
        "II-04",
        "deciders/proposal.py",
        "pending.window is None or self.instance.now < earlier.at + pending.window",
        "True",
        DEDUPE + "test_an_equal_input_is_a_duplicate_until_the_time_is_over_and_then_begins_it_anew",
    ),
    Mutant(
        "an equal input that is decided again does not begin its time anew",
        "II-04",
        "store/sql/decisions.sql",
        ",\n       recorded_at = excluded.recorded_at;\n",
        ";\n",
        DEDUPE + "test_an_equal_input_is_a_duplicate_until_the_time_is_over_and_then_begins_it_anew",
    ),
    Mutant(
        "what a timer sends a second time is ignored",
        "II-04",
        "deciders/effects.py",
        "pending.sent_from_outside() if is_submitted else pending",
        "pending.sent_from_outside()",
        DEDUPE + "test_what_timers_and_effects_send_is_decided_each_time",
    ),
    Mutant(
        "equal inputs that were submitted are decided twice",
        "II-04",
        "deciders/effects.py",
        "pending.sent_from_outside() if is_submitted else pending",
        "pending",
        DEDUPE + "test_equal_inputs_that_are_submitted_are_decided_once",
    ),
    Mutant(
        "inputs of two classes with the same fields are equal",
        "II-04",
        "deciders/registry.py",
        "encode_ordered([name, version, input], ",
        "encode_ordered([version, input], ",
        DEDUPE + "test_equal_inputs_have_one_fingerprint_and_others_another",
    ),
    Mutant(
        "one statement writes a receipt twice",
        "II-04",
        "store/decisions.py",
        "self._keep_receipts(changes, list(receipts.values()))",
        "self._keep_receipts(changes, [row for one in changes for row in one.receipts])",
        DEDUPE + "test_equal_inputs_that_came_too_late_are_told_so_again_after_the_time",
    ),
    Mutant(
        "a workflow sends an input with every replay",
        "M-16",
        "deciders/service.py",
        "    if isinstance(current_branch.get(), Branch):\n",
        "    if False:\n",
        TOGETHER + "test_a_workflow_sends_inputs_in_its_steps_only",
    ),
    Mutant(
        "a worker takes no deciders from a module",
        "M-19",
        "workload.py",
        "    for found in deciders_in(modules, known):\n",
        "    for found in ():\n",
        SERVED + "test_a_worker_serves_the_deciders_and_engines_of_a_module",
    ),
)
