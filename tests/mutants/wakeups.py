"""The rules of hints between processes."""

from tests.mutants.mutant import Mutant

WAKEUPS = "tests/wakeups/"

WAKEUP_MUTANTS = (
    Mutant(
        "a store hears its own hints",
        "rule-17",
        "store/hints/listener.py",
        "        if hint.probe is None and not own:",
        "        if hint.probe is None:",
        WAKEUPS + "test_telling.py::test_an_idle_worker_has_six_connections_at_most_and_does_not_hear_itself",
    ),
    Mutant(
        "an ear is believed without a proof",
        "rule-17",
        "store/hints/listener.py",
        "                if self._driver.notifies:",
        "                if False:",
        WAKEUPS + "test_other_processes.py::test_a_lost_listener_costs_time_only_and_comes_back",
    ),
    Mutant(
        "listening begins again without a poll",
        "rule-17",
        "store/hints/listener.py",
        "            self._wake(EveryQueue())",
        "            pass",
        WAKEUPS
        + "test_other_processes.py::test_what_was_added_while_nobody_listened_is_found_when_listening_begins_again",
    ),
    Mutant(
        "whoever waits relies on hints",
        "rule-17",
        "store/poll.py",
        "loop.call_later(pause if at_most is None else min(pause, at_most), resolve, self._rest, None)",
        "loop.call_later(3600, resolve, self._rest, None)",
        WAKEUPS + "test_other_processes.py::test_listening_can_be_switched_off",
    ),
    Mutant(
        "a flush does not say to which queues it has added",
        "rule-17",
        "store/flush.py",
        "            self._woken(added)\n",
        "            pass\n",
        WAKEUPS + "test_other_processes.py::test_a_message_of_another_process_begins_without_a_poll",
    ),
    Mutant(
        "a hint that comes during a claim is lost",
        "rule-17",
        "store/poll.py",
        "        if self._woken:\n            return\n",
        "",
        "tests/unit/test_polling.py::test_a_hint_during_a_claim_ends_the_pause_after_it",
    ),
    Mutant(
        "the file is not watched",
        "rule-17",
        "store/embedded/sqlite.py",
        "    watched = engine if in_file else None",
        "    watched = None",
        WAKEUPS + "test_other_processes.py::test_a_message_of_another_process_begins_without_a_poll",
    ),
    Mutant(
        "every enqueue is told by itself",
        "rule-18",
        "store/hints/wakeups.py",
        "if self._pending and self._job is None and self._rest is None:",
        "if self._pending and self._job is None:",
        WAKEUPS + "test_telling.py::test_the_first_is_told_at_once_and_the_rest_together",
    ),
    Mutant(
        "others are told on a caller's connection",
        "rule-18",
        "store/postgres/driver.py",
        "self._notifier.fetch(",
        "self._slots[0].fetch(",
        WAKEUPS + "test_telling.py::test_telling_is_a_statement_alone_on_a_connection_that_no_caller_uses",
    ),
    Mutant(
        "a process that ends tells nothing",
        "rule-18",
        "store/hints/wakeups.py",
        "                while self._job is not None:",
        "                while False:",
        WAKEUPS + "test_telling.py::test_one_is_under_way_at_a_time_however_long_it_takes",
    ),
    Mutant(
        "switched off, others are told all the same",
        "CF-06",
        "store/hints/wakeups.py",
        "if listen and driver.notifies else None",
        "if driver.notifies else None",
        WAKEUPS + "test_other_processes.py::test_listening_can_be_switched_off",
    ),
)
