"""The rules of projections: each event once, in order, by one session at a time."""

from tests.mutants.mutant import Mutant

SERVED = "tests/projections/test_served.py::"
POISON = "tests/projections/test_poison.py::"
TAKEOVER = "tests/projections/test_takeover.py::"
ONE_SESSION = TAKEOVER + "test_one_session_drives_a_projection_and_another_takes_it_over"
PARKS = POISON + "test_a_poison_event_parks_its_instance_and_the_others_go_on"
RETRIES = POISON + "test_a_parked_instance_is_retried_in_order_and_then_goes_on_with_the_others"

PROJECTION_MUTANTS = (
    Mutant(
        "a batch of a projection is committed by a session that drives it no more",
        "PJ-15",
        "store/projections.py",
        "        if not (yield call):\n            raise LeaseLost(held.worker)\n",
        "        yield call\n",
        ONE_SESSION,
    ),
    Mutant(
        "the position of a projection is not compared",
        "PJ-15",
        "store/sql/projections.sql",
        "       moved_at = {now}\n where tenant = :tenant and name = :name and turn = :turn and position = :before\n",
        "       moved_at = {now}\n where tenant = :tenant and name = :name and turn = :turn and :before <> -1\n",
        ONE_SESSION,
    ),
    Mutant(
        "a projection is taken from a session that lives",
        "PJ-15",
        "store/sql/projections.sql",
        "where fence.worker_id = projection.owner limit 1) is null)",
        "where fence.worker_id = projection.owner limit 1) is null or true)",
        ONE_SESSION,
    ),
    Mutant(
        "a session without a fence takes a projection",
        "PJ-15",
        "store/sql/projections.sql",
        "   and (select fence.worker_id from {fence} as fence where fence.worker_id = :worker limit 1) is not null\n",
        "",
        ONE_SESSION,
    ),
    Mutant(
        "a pause of a projection lets the batch under way be committed",
        "PJ-15",
        "store/sql/projections.sql",
        "update {projection} set state = 'paused', owner = null, turn = turn + 1\n",
        "update {projection} set state = 'paused', owner = null\n",
        POISON + "test_a_pause_undoes_the_batch_under_way",
    ),
    Mutant(
        "a reset of a projection leaves its tables full",
        "PJ-08",
        "store/sql/projections.sql",
        "   set position = 0, begun = false, tried = 0",
        "   set position = 0, tried = 0",
        POISON + "test_a_reset_replays_all_events_and_forgets_what_was_parked",
    ),
    Mutant(
        "a projection that parks an instance handles its next event",
        "PJ-12",
        "projections/runner.py",
        "            if event.row.instance_id in self._parked:  # by an event before it\n                continue\n",
        "",
        PARKS,
    ),
    Mutant(
        "a projection handles what was parked before it read its events",
        "PJ-12",
        "projections/runner.py",
        "            if row.instance_id in self._parked:\n                continue\n",
        "",
        PARKS,
    ),
    Mutant(
        "a retry of a parked instance leaves out the event that failed",
        "PJ-12",
        "store/sql/projections.sql",
        "event.version >= :version",
        "event.version > :version",
        RETRIES,
    ),
    Mutant(
        "the attempts of a projection begin anew in each process",
        "PJ-12",
        "store/sql/projections.sql",
        "update {projection} set tried = tried + 1, failed_at = :failed_at\n",
        "update {projection} set tried = 1, failed_at = :failed_at\n",
        POISON + "test_attempts_are_counted_over_processes_and_before_the_handler_is_called",
    ),
    Mutant(
        "a projection that was left by a dead session goes on in batches",
        "PJ-12",
        "store/sql/projections.sql",
        "suspect = projection.owner is not null and projection.owner <> :worker",
        "suspect = false",
        POISON + "test_after_a_worker_died_events_are_handled_one_at_a_time",
    ),
    Mutant(
        "a projection passes over an event that it cannot read",
        "PJ-03",
        "projections/runner.py",
        "                if not found:\n                    raise\n",
        "                if not found:\n                    continue\n",
        POISON + "test_an_event_that_this_code_cannot_read_is_left_to_other_code",
    ),
    Mutant(
        "the transaction of a projection has the isolation that the database has by default",
        "PJ-05",
        "store/postgres/driver.py",
        'isolation="read_committed"',
        "isolation=None",
        SERVED + "test_a_batch_reads_what_is_committed_whatever_the_default",
    ),
    Mutant(
        "a projection may commit by itself",
        "PJ-05",
        "store/transaction.py",
        "                        if (ended := await _ended_inside(tx)) is not None:\n"
        "                            raise ended\n",
        "",
        SERVED + "test_a_handler_that_commits_by_itself_is_refused",
    ),
    Mutant(
        "a projection executes inputs in its transaction",
        "PJ-07",
        "store/transaction.py",
        "        if tx.refuses is not None:\n",
        "        if False:\n",
        SERVED + "test_a_projection_cannot_decide_enqueue_or_trigger_in_its_transaction",
    ),
    Mutant(
        "a projection gets the events of other deciders under the same name",
        "PJ-10",
        "projections/runner.py",
        "if self._projection.wants(row)]\n",
        "]\n",
        SERVED + "test_events_of_one_name_and_two_deciders_are_told_apart",
    ),
    Mutant(
        "a shutdown does not wait for a projection",
        "PJ-17",
        "work/loop.py",
        "            await asyncio.wait(self._beside_tasks, timeout=self._grace)\n",
        "            pass\n",
        SERVED + "test_a_shutdown_finishes_the_events_under_way_and_stores_the_position",
    ),
    Mutant(
        "a projection gets parts of an event that it has not asked for",
        "PJ-10",
        "projections/runner.py",
        "            if isinstance(value, self._projection.classes):",
        "            if True:",
        "tests/projections/test_versions.py::test_an_event_that_was_split_is_read_under_its_old_name_and_counts_as_one",
    ),
    Mutant(
        "a projection does not look for the older names of its events",
        "U-02",
        "deciders/type_names.py",
        "        return self.routes.names_of(cls) if cls in self._written else ()",
        "        return tuple(name for name, known in self.by_name.items() if known is cls)",
        "tests/projections/test_versions.py::test_an_event_that_was_split_is_read_under_its_old_name_and_counts_as_one",
    ),
)
