"""What keeps the tasks of an ordered group in their order, and none of them asleep."""

from tests.mutants.mutant import Mutant

ORDER = "tests/deciders/test_order.py::"
OPEN = "tests/deciders/test_order_open.py::"
IN_ORDER = ORDER + "test_inputs_are_decided_in_the_order_in_which_they_were_submitted"
FAILS = ORDER + "test_the_inputs_behind_one_that_fails_wait_for_it"
TAKEN_AWAY = ORDER + "test_when_the_first_is_taken_away_the_next_is_decided"
DELETED = ORDER + "test_a_head_that_is_deleted_while_it_is_executed_keeps_its_place_until_it_has_ended"

ORDERED_GROUP_MUTANTS = (
    Mutant(
        "what comes behind others in its group is ready",
        "IN-03",
        "store/sql/ordered_groups.sql",
        "order by before.position limit 1) is not null as waits",
        "order by before.position limit 1) is null and false as waits",
        ORDER + "test_what_comes_while_others_wait_is_behind_them",
    ),
    Mutant(
        "nothing tells an older snapshot that a group has become empty",
        "IN-03",
        "store/ordered_groups.py",
        '        yield Call("note_empty_groups", params, sorted(rest))\n',
        "        pass\n",
        OPEN + "test_a_transaction_with_an_old_snapshot_never_puts_an_input_to_sleep",
    ),
    Mutant(
        "a decision lets no next one go",
        "IN-03",
        "store/deliveries.py",
        "return (yield from let_next_go(self._db.params(), {one.group for one in",
        "return (yield from let_next_go(self._db.params(), {one.group for one in [] and",
        IN_ORDER,
    ),
    Mutant(
        "the end of a turn without a decision lets no next one go",
        "IN-07",
        "store/flush_calls.py",
        "        calls += letting_go(clock, left)\n",
        "        pass\n",
        ORDER + "test_the_inputs_behind_one_that_fails_continue_where_the_decider_says_so",
    ),
    Mutant(
        "a delete lets no next one go",
        "IN-03",
        "store/maintenance.py",
        "        yield from let_next_go(self._db.params(), groups_of(deleted))\n",
        "",
        TAKEN_AWAY,
    ),
    Mutant(
        "a drop lets no next one go",
        "IN-07",
        "store/dead_letters.py",
        "        yield from let_next_go(self._db.params(), groups_of(removed))\n",
        "",
        TAKEN_AWAY,
    ),
    Mutant(
        "recovery lets no next one go",
        "IN-03",
        "store/sessions.py",
        'groups_of(row for row in returned if row["position"] is None)',
        "[]",
        DELETED,
    ),
    Mutant(
        "an input that is executed leaves its group when it is deleted",
        "IN-03",
        "store/sql/upkeep.sql",
        "position = case when owner is null then null else position end",
        "position = null",
        DELETED,
    ),
    Mutant(
        "an input that was there before holds up the one behind it",
        "IN-03",
        "store/ordered_groups.py",
        "        *letting_go(params, added),  # the first may",
        "        # the first may",
        ORDER + "test_an_input_that_was_there_before_does_not_hold_its_group_up",
    ),
    Mutant(
        "what is taken along is decided in another order",
        "IN-03",
        "store/deliveries.py",
        """sorted(rows, key=lambda row: row["position"])""",
        """sorted(rows, key=lambda row: -row["position"])""",
        IN_ORDER,
    ),
    Mutant(
        "more is taken along than may be executed",
        "IN-03",
        "store/sql/ordered_groups.sql",
        "     where ends.position is null or ahead.position < ends.position\n",
        "     where ends.position is null or ahead.position <> ends.position\n",
        ORDER + "test_what_is_long_or_cannot_be_read_waits_for_its_own_turn",
    ),
    Mutant(
        "what was taken along is decided although the one before it failed",
        "IN-07",
        "deciders/proposal.py",
        "if self._is_full or (in_order and self._is_held_up):",
        "if self._is_full:",
        FAILS,
    ),
    Mutant(
        "the inputs behind one that fails never wait",
        "IN-07",
        "store/rules.py",
        "select ordered_group.after_failure = 'continue' from",
        "select ordered_group.after_failure <> '' from",
        FAILS,
    ),
    Mutant(
        "retention removes a dead letter that others wait for",
        "IN-07",
        "store/sql/upkeep.sql",
        "       and (task.position is null) is true\n       and (select queue",
        "       and (select queue",
        FAILS,
    ),
)
