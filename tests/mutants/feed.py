"""The rules of the feed: nothing that may still come is passed over."""

from tests.mutants.mutant import Mutant

FEED = "tests/deciders/test_feed.py::"
LATE = FEED + "test_an_event_that_commits_late_is_not_skipped"

FEED_MUTANTS = (
    Mutant(
        "an append in a transaction of the user's takes no low-water lock",
        "PJ-03",
        "store/sql/decisions.sql",
        "'1', true) || cast({low_water_lock} as text) end as held",
        "'1', true) end as held",
        LATE,
    ),
    Mutant(
        "a decision in one statement takes no low-water lock",
        "PJ-03",
        "store/sql/decisions.sql",
        "    select {low_water_lock} as held from (select count(*) from moved) as ready\n",
        "    select 1 as held from (select count(*) from moved) as ready\n",
        FEED + "test_decisions_in_one_statement_hold_readers_up_too",
    ),
    Mutant(
        "every append takes a lock of its own",
        "PJ-03",
        "store/sql/decisions.sql",
        "case when coalesce(current_setting({low_water_mark}, true), '') = ''\n",
        "case when true\n",
        FEED + "test_a_transaction_takes_one_lock_for_all_its_appends_and_a_savepoint_its_own",
    ),
    Mutant(
        "the mark of a low-water lock outlives its savepoint",
        "PJ-03",
        "store/sql/decisions.sql",
        "then set_config({low_water_mark}, '1', true)",
        "then set_config({low_water_mark}, '1', false)",
        FEED + "test_a_transaction_takes_one_lock_for_all_its_appends_and_a_savepoint_its_own",
    ),
    Mutant(
        "two schemas share the mark of the low-water lock",
        "PJ-03",
        "store/sql.py",
        "f\"'stepwell.low_water_{space}'\"",
        "\"'stepwell.low_water'\"",
        FEED + "test_two_schemas_of_one_transaction_each_hold_their_readers_up",
    ),
    Mutant(
        "the horizon is the highest number that was taken",
        "PJ-03",
        "store/sql/horizon.sql",
        "select least(head.at, coalesce(held.low_water, head.at)) as horizon",
        "select head.at as horizon",
        LATE,
    ),
    Mutant(
        "the locks are read before the head",
        "PJ-03",
        "store/sql/horizon.sql",
        "select least(head.at, coalesce(held.low_water, head.at)) as horizon",
        "select coalesce(held.low_water, (select last_value from {event_position_seq}, pg_sleep(0.3))) as horizon",
        FEED + "test_a_head_that_moves_while_the_locks_are_read_is_not_followed",
    ),
    Mutant(
        "the events are read before the horizon",
        "PJ-03",
        "deciders/global_order.py",
        "        horizon, head = await self._feed.horizon()\n"
        "        rows, reached = await self._feed.between(position, horizon, None, limit)\n",
        "        rows, _ = await self._feed.between(position, 2**62, None, limit)\n"
        "        horizon, head = await self._feed.horizon()\n"
        "        reached = horizon\n",
        FEED + "test_an_event_that_is_committed_during_a_read_is_read_by_the_next",
    ),
    Mutant(
        "the horizon is read with the events in one snapshot",
        "PJ-03",
        "store/horizon.py",
        "        return FeedPart(rows, rows[-1].position if len(rows) == limit else until)\n",
        "        until = (await self.horizon()).at\n"
        "        return FeedPart(rows, rows[-1].position if len(rows) == limit else until)\n",
        FEED + "test_an_event_that_is_committed_during_a_read_is_read_by_the_next",
    ),
    Mutant(
        "a standby shows events",
        "PJ-03",
        "store/horizon.py",
        '        if row["standby"]:\n',
        "        if False:\n",
        FEED + "test_a_prepared_transaction_holds_readers_up_through_a_crash_and_a_standby_is_refused",
    ),
    Mutant(
        "positions that sessions take ahead are not found",
        "PJ-03",
        "store/sql/migrations.sql",
        "case when numbered.seqcache > 1 then",
        "case when numbered.seqcache > 1000 then",
        FEED + "test_positions_that_are_taken_ahead_are_found",
    ),
    Mutant(
        "a page that is full is taken for the end of its window",
        "PJ-02",
        "store/horizon.py",
        "rows[-1].position if len(rows) == limit else until",
        "until",
        FEED + "test_the_feed_goes_on_from_where_it_was",
    ),
    Mutant(
        "a tenant sees the events of others",
        "PJ-02",
        "store/sql/horizon.sql",
        "event.position <= :until and event.tenant = :tenant\n",
        "event.position <= :until and :tenant = :tenant\n",
        FEED + "test_a_feed_of_one_tenant_passes_over_the_events_of_others",
    ),
)
