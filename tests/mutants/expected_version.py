"""The rules of inputs that expect a version."""

from tests.mutants.mutant import Mutant

EXPECTED = "tests/deciders/test_expected_version.py::"

EXPECTED_VERSION_MUTANTS = (
    Mutant(
        "an input is decided on another version than it expects",
        "M-10",
        "deciders/proposal.py",
        "elif pending.expected is not None and pending.expected != self._version:",
        "elif False:",
        EXPECTED + "test_an_input_is_decided_on_the_version_that_it_expects_and_on_no_other",
    ),
    Mutant(
        "the expected version is compared outside of the lock",
        "M-10",
        "deciders/optimistic_decisions.py",
        "            if item.error is not None and pending.expected is not None:\n",
        "            if False:\n",
        EXPECTED + "test_the_state_at_hand_is_not_what_a_version_is_compared_with",
    ),
    Mutant(
        "a refused version leaves a receipt",
        "M-05",
        "deciders/proposal.py",
        "            item.error = VersionConflict(",
        '            item.receipt, item.error = Receipt("completed"), VersionConflict(',
        EXPECTED + "test_an_input_is_decided_on_the_version_that_it_expects_and_on_no_other",
    ),
    Mutant(
        "a duplicate is a conflict",
        "II-01",
        "deciders/proposal.py",
        "        elif (earlier := self._receipt_of(pending)) is not None:\n",
        "        elif pending.expected is None and (earlier := self._receipt_of(pending)) is not None:\n",
        EXPECTED + "test_a_duplicate_is_answered_as_one_whatever_it_expects",
    ),
    Mutant(
        "an instance that has ended answers whatever version is expected",
        "M-13",
        "deciders/proposal.py",
        "elif pending.expected is not None and pending.expected != self._version:",
        "elif not self.is_completed and pending.expected not in (None, self._version):",
        EXPECTED + "test_an_instance_that_has_ended_answers_so_only_at_its_version",
    ),
    Mutant(
        "a version is compared before it is known",
        "M-09",
        "deciders/proposal.py",
        "        is_counted = self._version is not None and not written.cancelled\n",
        "        is_counted = True\n",
        EXPECTED + "test_each_input_of_a_transaction_is_compared_with_what_those_before_it_led_to",
    ),
    Mutant(
        "an input overtakes one that waits for its version",
        "M-10",
        "deciders/proposal.py",
        "        self._is_full = self._is_full or budget.is_spent or is_open\n",
        "        self._is_full = budget.is_spent or is_open\n",
        EXPECTED + "test_each_input_of_a_transaction_is_compared_with_what_those_before_it_led_to",
    ),
)
