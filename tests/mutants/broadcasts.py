"""What makes an event reach each subscriber once: waits look twice, places are cursors, and locks decide."""

from tests.mutants.mutant import Mutant

BOUNDS = "tests/store/test_bounds.py::test_with_plans_made_on_an_empty_database_every_statement_keeps_to_its_bound"
WAITS = "tests/broadcasts/test_waits.py::"
TRIGGERS = "tests/broadcasts/test_triggers.py::"

BROADCAST_MUTANTS = (
    Mutant(
        "a wait that is told is looked for among all that its run has open",
        "protocol-16",
        "store/sql/broadcasts.sql",
        "and (open.told is null and open.taken is null) is true) as id\n      from rows",
        "and open.told is null and open.taken is null) as id\n      from rows",
        BOUNDS,
    ),
    Mutant(
        "a wait does not look again for what was published while it began",
        "BC-02",
        "runs/wait.py",
        "            if isinstance(question, TakeEvent):\n",
        "            if False:\n",
        WAITS + "test_an_event_that_is_published_while_a_wait_begins_is_taken",
    ),
    Mutant(
        "a wait takes what a wait before it has taken",
        "BC-03",
        "store/sql/broadcasts.sql",
        "old.match = rows.match and old.taken < rows.place) is true",
        "old.match = rows.match and old.taken <= rows.place) is true",
        WAITS + "test_each_event_is_taken_once_and_in_the_order_of_publication",
    ),
    Mutant(
        "a wait forgets how far it looks back",
        "BC-03",
        "store/event_waits.py",
        "since = one.task.created_at if one.replay is None else now - one.replay",
        "since = one.task.created_at",
        WAITS + "test_how_far_a_wait_looks_back",
    ),
    Mutant(
        "an event wakes all who wait for its name",
        "BC-02",
        "store/choice.py",
        "    return _digest(field, stored, secret)\n",
        "    return EVERY\n",
        WAITS + "test_an_event_wakes_the_runs_that_wait_for_it_and_no_other",
    ),
    Mutant(
        "a wait that is over in time stays open",
        "BC-04",
        "store/event_waits.py",
        "    is_over = row.status is RunStatus.CANCELLED or",
        "    is_over = False and",
        WAITS + "test_a_wait_that_is_over_in_time_returns_its_default_and_takes_nothing",
    ),
    Mutant(
        "what a run was told of is removed when it is old",
        "BC-10",
        "store/sql/broadcasts.sql",
        "where subscription.told is not null and subscription.told = broadcast.id",
        "where subscription.told is not null and subscription.told = -1",
        WAITS + "test_what_is_old_is_removed_but_not_what_a_run_was_told_of",
    ),
    Mutant(
        "who has no key may try values on the digests of an encrypted store",
        "BC-08",
        "store/broadcasts.py",
        "        secret: bytes = driver.cipher.secret\n",
        '        secret: bytes = b"" and driver.cipher.secret\n',
        WAITS + "test_an_encrypted_store_shows_neither_an_event_nor_by_what_a_run_chooses",
    ),
    Mutant(
        "an event that is told again triggers its workflows again",
        "BC-11",
        "store/broadcasts.py",
        "key=run_key(sent.name, task.id),",
        'key=run_key(sent.name, task.id) + f".{task.turn}",',
        TRIGGERS + "test_an_event_that_is_told_again_triggers_nothing_and_wakes_no_run_again",
    ),
    Mutant(
        "code that is triggered by an event no more goes on being triggered",
        "BC-11",
        "store/broadcasts.py",
        "        if gone := sorted(known - wanted.keys()):\n",
        "        if gone := ():\n",
        TRIGGERS + "test_code_that_stands_under_no_event_any_more_withdraws_it",
    ),
    Mutant(
        "a queue that is being drained loses what an event triggers",
        "BC-11",
        "store/broadcasts.py",
        "                inside=True,\n",
        "",
        TRIGGERS + "test_a_paused_and_a_draining_queue_lose_no_event",
    ),
    Mutant(
        "all who wait are told in one transaction",
        "BC-12",
        "store/broadcasts.py",
        'after=after, limit=CHUNK)\n            page = await self._db.repeat(partial(self._db.driver.read, Call("open',
        'after=after, limit=10**6)\n            page = await self._db.repeat(partial(self._db.driver.read, Call("open',
        TRIGGERS + "test_many_are_told_so_many_at_a_time",
    ),
    Mutant(
        "a run that another transaction holds keeps all others waiting",
        "BC-12",
        "store/sql/broadcasts.sql",
        "where task.id {any_of rows} order by task.id {skip_locked}",
        "where task.id {any_of rows} order by task.id {for_update}",
        TRIGGERS + "test_a_run_that_another_transaction_has_locked_holds_up_no_other",
    ),
    Mutant(
        "a worker that has begun before there were events does not fan them out",
        "BC-13",
        "work/loop.py",
        "        if flows and BROADCASTS not in self._by_name:\n",
        "        if False:\n",
        WAITS + "test_an_event_wakes_the_runs_that_wait_for_it_and_no_other",
    ),
)
