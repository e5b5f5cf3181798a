"""The rules of inline projections: every event is in their rows, once, with the decision or not at all."""

from tests.mutants.mutant import Mutant

INLINE = "tests/projections/test_inline.py::"
REBUILT = INLINE + "test_it_is_rebuilt_and_swapped_under_writers_and_back"

INLINE_MUTANTS = (
    Mutant(
        "a projection becomes inline while a transaction that has appended is open",
        "PJ-05",
        "store/sql/inline.sql",
        "lock table {event} in share row exclusive mode;",
        "select 1;",
        INLINE + "test_a_transaction_that_has_appended_keeps_it_from_becoming_inline",
    ),
    Mutant(
        "a decision asks who writes the rows before it appends",
        "PJ-05",
        "store/decisions.py",
        "        woken |= yield from self._write(ruling.changes, supply)\n",
        "        asked = [(one.name,) for one in ruling.inline]\n"
        "        said = (yield Call('inline_builds', self._db.params(), asked)) if asked else ()\n"
        "        early = {row['name'] for row in said if row['inlined']}\n"
        "        object.__setattr__(ruling, 'inline', [one for one in ruling.inline if one.name in early])\n"
        "        woken |= yield from self._write(ruling.changes, supply)\n",
        INLINE + "test_a_decision_asks_who_writes_the_rows_after_it_has_appended",
    ),
    Mutant(
        "what was decided before a projection became inline is not in its rows",
        "PJ-05",
        "projections/inline.py",
        "                position, handled = await self._take_rest(held, tx)\n",
        "                position = (await self._db.feed.horizon()).head\n",
        INLINE + "test_the_last_events_before_it_is_inline_are_in_its_rows",
    ),
    Mutant(
        "a drain does not wait for the round that lets decisions write the rows",
        "PJ-05",
        "projections/inline.py",
        "            await self._rounds.another()\n",
        "            return\n",
        INLINE + "test_a_drain_waits_for_the_round_that_lets_decisions_write_the_rows",
    ),
    Mutant(
        "a projection with instances set aside becomes inline",
        "PJ-05",
        "projections/inline.py",
        "        if self._parked or self._alone",
        "        if self._alone",
        INLINE + "test_an_event_of_the_past_that_it_cannot_handle_keeps_it_from_being_inline",
    ),
    Mutant(
        "two decisions that begin the same row do not wait for each other",
        "PJ-05",
        "store/inline.py",
        '        if shared and self._db.statements.dialect == "postgres":',
        "        if False:",
        INLINE + "test_two_that_begin_the_same_row_wait_for_each_other",
    ),
    Mutant(
        "shared rows are locked in another order",
        "PJ-05",
        "store/inline.py",
        "sorted(set(_places(self._db.statements.schema, shared)))",
        "sorted(set(_places(self._db.statements.schema, shared)), reverse=True)",
        INLINE + "test_a_flush_reads_and_writes_each_table_once",
    ),
    Mutant(
        "a transaction that repeats its reads may write inline rows",
        "PJ-05",
        "store/inline.py",
        '    if not stand["sees_commits"]:\n',
        "    if False:\n",
        INLINE + "test_a_transaction_that_repeats_its_reads_is_refused",
    ),
    Mutant(
        "rows of other columns are written into an inline table",
        "PJ-05",
        "store/inline.py",
        '    if stand["inlined"] and stand["tables"] != fold.tables:\n',
        "    if False:\n",
        INLINE + "test_other_columns_are_refused_before_anything_is_written",
    ),
    Mutant(
        "a decision on the state at hand leaves inline rows alone",
        "PJ-05",
        "deciders/optimistic_decisions.py",
        "        if family.observe or family.inline or",
        "        if family.observe or",
        INLINE + "test_the_rows_are_there_when_the_decision_is",
    ),
    Mutant(
        "an inline projection that raises fails the decisions beside it",
        "PJ-05",
        "projections/inline.py",
        "        with _failing(self._name):\n            return self._folding.changed(found)\n",
        "        return self._folding.changed(found)\n",
        INLINE + "test_one_that_raises_fails_its_decision_and_no_other",
    ),
    Mutant(
        "an inline projection is swapped with a build that lacks the last events",
        "PJ-08",
        "projections/beside.py",
        "                if is_inline:  # before",
        "                if False:  # before",
        REBUILT,
    ),
    Mutant(
        "the old build of an inline projection handles what it has again",
        "PJ-08",
        "store/sql/projections.sql",
        "   set position = case when inlined then :head else position end, inlined = false, may_inline = false, live",
        "   set position = case when :head < 0 then 0 else position end, inlined = false, may_inline = false, live",
        REBUILT,
    ),
    Mutant(
        "a reset of an inline projection leaves it inline",
        "PJ-05",
        "store/sql/projections.sql",
        "       suspect = false, inlined = false, state",
        "       suspect = false, state",
        INLINE + "test_one_that_is_reset_follows_the_events_until_it_is_inline_again",
    ),
    Mutant(
        "a projection becomes inline though older code may decide without it",
        "PJ-05",
        "projections/inline.py",
        "not (await self._may_be() and await self._is_near(held))",
        "not await self._is_near(held)",
        INLINE + "test_where_something_was_decided_before_people_say_when",
    ),
    Mutant(
        "code that does not know a projection as inline lets it become so",
        "PJ-05",
        "store/sql/projections.sql",
        "may_inline = projection.may_inline and :inline,",
        "may_inline = projection.may_inline or :inline,",
        INLINE + "test_code_that_does_not_know_it_takes_back_that_it_may_be_inline",
    ),
)
