"""Single clauses of the rows about deciders, projections and their tests: each broken alone."""

from tests.mutants.mutant import Mutant

EXECUTE = "tests/deciders/test_execute.py::"
EFFECTS = "tests/deciders/test_effects.py::"
TIMERS = "tests/deciders/test_timers.py::"
IN_ORDER = TIMERS + "test_timers_that_were_due_while_nobody_worked_are_delivered_once_in_their_order"
BY_JSON = EXECUTE + "test_an_input_as_json_is_the_same_as_the_input"
OF_EACH_TYPE = EFFECTS + "test_each_type_of_an_engine_has_its_own_handler_and_all_are_served_until_the_shutdown"
DYNAMIC = "return await self.execute(read, key=key, expected_version=expected_version, tx=tx)"

CLAUSE_MUTANTS = (
    Mutant(
        "an input as JSON is decided on any version",
        "M-15",
        "deciders/service.py",
        DYNAMIC,
        "return await self.execute(read, key=key, tx=tx)",
        BY_JSON,
    ),
    Mutant(
        "an input as JSON is decided in a transaction of its own",
        "M-15",
        "deciders/service.py",
        DYNAMIC,
        "return await self.execute(read, key=key, expected_version=expected_version)",
        BY_JSON,
    ),
    Mutant(
        "an engine serves the first of its types alone",
        "M-19",
        "deciders/service.py",
        "return [one for family in self.registry for one in",
        "return [one for family in list(self.registry)[:1] for one in",
        OF_EACH_TYPE,
    ),
    Mutant(
        "the handler of the first type gets the effects of all",
        "F-02",
        "deciders/effects.py",
        "handle: Callable[..., Any] = family.decider.handle",
        "handle: Callable[..., Any] = next(iter(self._registry)).decider.handle",
        OF_EACH_TYPE,
    ),
    Mutant(
        "an effect is told when it was claimed instead of when it was made",
        "F-09",
        "deciders/effects.py",
        "created_at=datetime_of(task.created_at)",
        "created_at=datetime_of(task.claimed_at)",
        EFFECTS + "test_an_effect_without_an_answer_is_done",
    ),
    Mutant(
        "an effect is told another id",
        "F-09",
        "deciders/effects.py",
        "effect_id=task.id,",
        "effect_id=task.id + 1,",
        EFFECTS + "test_an_effect_without_an_answer_is_done",
    ),
    Mutant(
        "a dead letter that is requeued has no attempts left",
        "F-06",
        "store/sql/queues.sql",
        "run_at = {now}, attempt = 0, losses = 0,",
        "run_at = {now}, losses = 0,",
        EFFECTS + "test_an_effect_that_fails_for_good_is_a_dead_letter_until_it_is_requeued",
    ),
    Mutant(
        "a timer is stored without its key",
        "TM-01",
        "deciders/proposal.py",
        'yield NewInstanceTask("TIMER", queue_id, due, ATTEMPTS, stored, text',
        'yield NewInstanceTask("TIMER", queue_id, due, ATTEMPTS, None, text',
        EXECUTE + "test_an_input_makes_its_instance_and_all_it_leads_to_is_there_at_once",
    ),
    Mutant(
        "a timer without a key has fewer attempts",
        "TM-05",
        "deciders/proposal.py",
        'yield NewInstanceTask("TIMER", queue_id, due, ATTEMPTS, None, text',
        'yield NewInstanceTask("TIMER", queue_id, due, 3, None, text',
        TIMERS + "test_a_timer_that_cannot_be_delivered_is_tried_again_and_then_a_dead_letter",
    ),
    Mutant(
        "what is delivered is decided on the state of the beginning",
        "TM-03",
        "deciders/proposal.py",
        "decision = family.decide(self.state, item.pending.input, self._now)",
        "decision = family.decide("
        "self.state if item.pending.delivery is None else family.decider.initial(), item.pending.input, self._now)",
        TIMERS + "test_a_timer_is_decided_on_what_has_happened_since_it_was_set",
    ),
    Mutant(
        "what is due is claimed in the order in which it was written (SQLite)",
        "TM-14",
        "store/sql/tasks.sql",
        "order by walk.priority desc, walk.run_at, walk.id",
        "order by walk.priority desc, walk.id",
        IN_ORDER,
    ),
    Mutant(
        "what is due is claimed in the order in which it was written (Postgres)",
        "TM-14",
        "store/sql/tasks.sql",
        "order by task.priority desc, task.run_at, task.id",
        "order by task.priority desc, task.id",
        IN_ORDER,
    ),
    Mutant(
        "an event is told to be of version 1, whatever its version",
        "PJ-13",
        "deciders/global_order.py",
        "row.type_version,\n        row.cause",
        "1,\n        row.cause",
        "tests/projections/test_versions.py::test_upcasters_are_chained_for_projections_and_the_feed_as_for_replay",
    ),
    Mutant(
        "a projection that has nothing to do looks again after two seconds",
        "PJ-06",
        "projections/runner.py",
        "else (POLL, SOON)",
        "else (10 * POLL, SOON)",
        "tests/projections/test_served.py::test_a_projection_with_nothing_to_do_looks_again_after_the_same_pause",
    ),
    Mutant(
        "a flush of a test waits for nothing",
        "TU-04",
        "testing/world.py",
        "await self.store.database.flusher.settled()",
        "await asyncio.sleep(0)",
        "tests/kit/test_world.py::test_what_was_begun_before_a_flush_is_written_when_it_returns",
    ),
)
