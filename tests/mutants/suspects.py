"""The rules of what was lost with a worker: who is a suspect, who is blamed, who is executed alone."""

from tests.mutants.mutant import Mutant

SUSPECTS = "tests/store/test_suspects.py::"
TURNS = "tests/unit/test_suspects.py::"
AT_WORK = "tests/worker/test_suspects.py::"
READY = "tests/store/test_ready.py::"

SUSPECT_MUTANTS = (
    Mutant(
        "a death in company costs an attempt",
        "rule-07",
        "store/sql/sessions.sql",
        "case when lost.in_company and task.max_attempts > 1 then task.attempt - 1\n",
        "case when 1 = 2 then task.attempt - 1\n",
        SUSPECTS + "test_who_is_lost_in_company_loses_no_attempt_and_is_claimed_alone",
    ),
    Mutant(
        "a death in company counts as one alone",
        "rule-07",
        "store/sql/sessions.sql",
        "death.died and task.id <> death.blamed as in_company",
        "false as in_company",
        SUSPECTS + "test_who_is_lost_in_company_loses_no_attempt_and_is_claimed_alone",
    ),
    Mutant(
        "each death in company counts",
        "rule-07",
        "store/sql/sessions.sql",
        "                     when lost.in_company and task.losses > 0 then task.losses\n",
        "",
        SUSPECTS + "test_losses_in_company_count_as_one",
    ),
    Mutant(
        "with one attempt a second one is made",
        "rule-07",
        "store/sql/sessions.sql",
        "then task.max_attempts = 1\n",
        "then false\n",
        SUSPECTS + "test_with_one_attempt_nothing_is_executed_twice",
    ),
    Mutant(
        "a loss in company does not count for what dies alone later",
        "E-07",
        "store/sql/sessions.sql",
        " or (death.died and task.losses + 1 >= task.max_attempts)",
        "",
        SUSPECTS + "test_what_kills_its_process_ends_after_as_many_starts_as_it_has_attempts",
    ),
    Mutant(
        "a suspect is ready",
        "rule-07",
        "store/sql/sessions.sql",
        " and not lost.died and {may_be_ready task}",
        " and task.deleted_at is null and task.held_at is null",
        SUSPECTS + "test_who_is_lost_in_company_loses_no_attempt_and_is_claimed_alone",
    ),
    Mutant(
        "a suspect that others were begun beside is not blamed",
        "rule-07",
        "store/sql/sessions.sql",
        "(task.losses = 0 or beside.losses > 0\n"
        "                                            or beside.claimed_at <= task.claimed_at)",
        "true",
        SUSPECTS + "test_a_suspect_that_others_were_begun_beside_is_blamed_and_they_are_not",
    ),
    Mutant(
        "what recovery skipped is judged by what is left",
        "rule-07",
        "store/sql/sessions.sql",
        "coalesce((select worker.blamed from {worker} as worker where worker.id = :worker), 0) as blamed",
        "coalesce((select min(task.id) from {task} as task where task.owner = :worker"
        " having count(*) = 1), 0) as blamed",
        SUSPECTS + "test_what_recovery_skipped_is_judged_by_what_the_session_held",
    ),
    Mutant(
        "a session that ends by its own wish makes suspects",
        "rule-07",
        "store/sessions.py",
        '        if died:\n            yield Call("note_loss"',
        '        if True:\n            yield Call("note_loss"',
        SUSPECTS + "test_what_a_session_leaves_by_its_own_wish_is_no_suspect",
    ),
    Mutant(
        "a settle does not acquit",
        "rule-07",
        "store/sql/tasks.sql",
        "       losses = 0, lost_by = null,\n",
        "",
        SUSPECTS + "test_whatever_settles_a_suspect_acquits_it",
    ),
    Mutant(
        "a suspect is claimed by a session that has others",
        "rule-07",
        "store/sql/tasks.sql",
        "       and (cast(:beside as boolean)\n"
        "            or not exists (select 1 from {task} as held where held.owner is not null"
        " and held.owner = :worker))\n",
        "       and (cast(:beside as boolean) or true)\n",
        SUSPECTS + "test_a_suspect_does_not_go_beside_others_unless_it_is_said",
    ),
    Mutant(
        "the sweep makes a suspect ready",
        "rule-07",
        "store/sql.py",
        ', "losses": "= 0"}',
        "}",
        READY + "test_what_makes_others_ready_does_not_make_a_suspect_so",
    ),
    Mutant(
        "a worker that was cut off does not acquit",
        "L-08",
        "engine/runtime.py",
        "            self._store.tasks.hint(await self._store.sessions.acquit(self.session.id))\n",
        "",
        AT_WORK + "test_a_worker_that_was_only_cut_off_makes_no_suspects",
    ),
    Mutant(
        "an acquittal clears what another session lost",
        "rule-07",
        "store/sql/sessions.sql",
        " and task.lost_by = :worker\n",
        " and task.lost_by is not null\n",
        SUSPECTS + "test_a_session_that_was_declared_dead_and_lives_acquits_what_was_lost_with_it",
    ),
    Mutant(
        "what is given back after an acquittal is suspect",
        "rule-07",
        "store/sessions.py",
        '        yield Call("forget_loss", {"worker": worker})\n',
        "",
        SUSPECTS + "test_what_is_given_back_after_the_acquittal_is_no_suspect_either",
    ),
    Mutant(
        "a suspect is begun beside what is under way",
        "rule-07",
        "engine/suspects.py",
        "        return self.is_on and self._long.issuperset(executions)\n",
        "        return self.is_on\n",
        TURNS + "test_what_is_under_way_ends_before_a_suspect_begins_and_one_ends_before_the_next",
    ),
    Mutant(
        "a place is offered beside a suspect",
        "rule-07",
        "engine/runtime.py",
        "            return 0 if turns.is_on else None\n",
        "            return None\n",
        AT_WORK + "test_suspects_are_executed_one_at_a_time_with_nothing_beside_them",
    ),
    Mutant(
        "a suspect of hours has the worker for hours",
        "rule-07",
        "engine/suspects.py",
        "                self.end(now, left=True)  # a suspect of hours: ordinary work goes on beside it\n",
        "                pass\n",
        TURNS + "test_a_suspect_of_hours_has_the_worker_for_a_lease",
    ),
    Mutant(
        "ordinary work has no time of its own",
        "rule-07",
        "engine/suspects.py",
        "self._rests_until = now + (now - self._since)",
        "self._rests_until = now",
        TURNS + "test_ordinary_work_keeps_half_of_the_time_whatever_the_bodies_take",
    ),
)
