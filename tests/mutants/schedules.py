"""What makes a tick happen once: it is compared under a lock, by its plan, with the runs that are under way."""

from tests.mutants.mutant import Mutant

TICKS = "tests/schedules/test_ticks.py::"
SEEN = TICKS + "test_a_tick_that_was_seen_belongs_to_whom_was_first"
OVERLAP = TICKS + "test_what_happens_to_a_tick_while_a_run_is_under_way"
MISSED = TICKS + "test_what_no_worker_fired_in_time"
DECLARED = TICKS + "test_old_code_does_not_take_back_what_newer_code_declares"
PAUSED = TICKS + "test_a_schedule_is_paused_resumed_and_run_at_once"
ACTORS = "tests/schedules/test_actors.py::"
EDITS = "tests/schedules/test_edits.py::"
CHANGED = EDITS + "test_a_change_stays_over_a_deploy_until_it_is_reset"
DELETED = EDITS + "test_what_was_deleted_stays_away_until_it_is_reset"
RETIRED = EDITS + "test_a_schedule_that_no_code_declares_is_paused_and_goes_on_when_it_does"
CLOCKS = TICKS + "test_a_world_fires_what_is_due_over_a_change_of_clocks"

SCHEDULE_MUTANTS = (
    Mutant(
        "a tick is taken though another worker has moved the schedule on",
        "SC-01",
        "store/sql/schedules.sql",
        "schedule.next_at = :seen and schedule.version = :version and schedule.paused_at is null",
        "cast(:seen as bigint) is not null and schedule.version = :version and schedule.paused_at is null",
        SEEN,
    ),
    Mutant(
        "a tick is taken though its schedule was changed since it was seen",
        "SC-01",
        "store/sql/schedules.sql",
        "schedule.next_at = :seen and schedule.version = :version and schedule.paused_at is null",
        "schedule.next_at = :seen and cast(:version as bigint) is not null",
        SEEN,
    ),
    Mutant(
        "a run of a schedule is not known as one of it",
        "SC-04",
        "store/ticks.py",
        "        if added:\n            yield Call(",
        "        if False:\n            yield Call(",
        OVERLAP,
    ),
    Mutant(
        "a failed run that is retried is not under way",
        "SC-04",
        "store/sql/schedules.sql",
        "task.schedule_id is not null and task.finished_at is null",
        "task.schedule_id is not null and task.finished_at is null and task.restarted_at is not null",
        TICKS + "test_a_failed_run_that_is_retried_is_under_way_again",
    ),
    Mutant(
        "every tick that comes while a run is under way waits",
        "SC-04",
        "store/ticks.py",
        '(buffered is None or overlap == "cancel")',
        "True",
        OVERLAP,
    ),
    Mutant(
        "the tick that waits is fired before the run has ended",
        "SC-04",
        "store/ticks.py",
        "        if unfinished := (yield from self.unfinished(seen.id)):\n            return None,",
        "        if unfinished := []:\n            return None,",
        OVERLAP,
    ),
    Mutant(
        "the run before is not cancelled",
        "SC-04",
        "store/ticks.py",
        'unfinished if overlap == "cancel" else []',
        "[]",
        TICKS + "test_a_tick_cancels_the_run_before_it_and_waits_for_its_end",
    ),
    Mutant(
        "the tick of a schedule is counted from the moment at which it was fired",
        "SC-02",
        "store/plan.py",
        "    following = plan.following(newest)\n",
        "    following = None if plan.following(newest) is None else now + (plan.every or 0)\n",
        MISSED,
    ),
    Mutant(
        "the oldest missed tick is fired instead of the newest",
        "SC-05",
        "store/plan.py",
        "    newest = plan.latest(seen, now) or seen\n",
        "    newest = seen\n",
        MISSED,
    ),
    Mutant(
        "a tick is fired however late it is",
        "SC-05",
        "store/plan.py",
        "is_late = span is not None and now - newest > span",
        "is_late = False",
        MISSED,
    ),
    Mutant(
        "a schedule that goes on again fires what came meanwhile",
        "SC-06",
        "store/schedules.py",
        '        if plan.catch_up != "all":\n',
        "        if False:\n",
        PAUSED,
    ),
    Mutant(
        "a run is triggered by hand though one is under way",
        "SC-06",
        "store/schedules.py",
        'busy = not force and plan.overlap != "allow" and',
        "busy = False and",
        PAUSED,
    ),
    Mutant(
        "old code takes back what newer code declares",
        "SC-07",
        "store/schedules.py",
        "mark_of(new.name, hashes[-1]) in marks",
        "False",
        DECLARED,
    ),
    Mutant(
        "a rollback does not bring an old declaration back",
        "SC-07",
        "store/schedules.py",
        "new.hash in hashes[:-1] and mark_of(new.name, hashes[-1]) in marks",
        "new.hash in hashes[:-1]",
        DECLARED,
    ),
    Mutant(
        "the clock of the time zone is read as UTC",
        "SC-03",
        "base/timetable.py",
        "local = datetime_of(after).astimezone(zone_of(self.tz))",
        "local = datetime_of(after)",
        CLOCKS,
    ),
    Mutant(
        "the moment of the tick is not filled in",
        "SC-09",
        "store/plan.py",
        "        if not self.fills:\n",
        "        if True:\n",
        TICKS + "test_a_schedule_made_by_a_verb",
    ),
    Mutant(
        "a deploy takes back what an operator has changed of a schedule",
        "SC-10",
        "store/schedules.py",
        'plan_of(plan.text, row["edited"])',
        "plan",
        CHANGED,
    ),
    Mutant(
        "a deploy brings a schedule back that an operator has deleted",
        "SC-10",
        "store/schedules.py",
        '        if fields["removed_at"] is not None:\n',
        "        if False:\n",
        DELETED,
    ),
    Mutant(
        "a schedule is retired at the first look that finds no code for it",
        "SC-10",
        "store/schedule_edits.py",
        "sorted(alone & self._alone)",
        "sorted(alone)",
        RETIRED,
    ),
    Mutant(
        "a schedule is retired though no worker serves its workflow",
        "SC-10",
        "store/schedule_edits.py",
        'if row["workflow"] in marks and not any(',
        "if not any(",
        RETIRED,
    ),
    Mutant(
        "a schedule that code declares again fires what came meanwhile",
        "SC-10",
        "store/schedules.py",
        'plan_of(row["plan"]).times != plan.times or _is_back(row, fields)',
        'plan_of(row["plan"]).times != plan.times',
        RETIRED,
    ),
    Mutant(
        "a tick that has a run is made good again in the history of a schedule",
        "SC-05",
        "store/sql/schedules.sql",
        "and (tick.task_id is not null) is true;",
        "and (tick.task_id is null) is true;",
        EDITS + "test_the_ticks_of_a_span_are_made_good_once",
    ),
    Mutant(
        "a schedule goes on after a run that failed",
        "SC-06",
        "store/ticks.py",
        "if seen.plan.pause_on_error and",
        "if False and",
        EDITS + "test_a_run_that_failed_pauses_its_schedule_if_that_is_asked_for",
    ),
    Mutant(
        "who pauses a schedule is not noted",
        "SC-12",
        "store/schedules.py",
        '        yield from self.noted("pause", name, by)\n',
        "",
        ACTORS + "test_each_change_of_a_schedule_is_noted_with_its_actor",
    ),
    Mutant(
        "the run of a schedule does not say which has triggered it",
        "SC-13",
        "store/why.py",
        "    return told if origin is None else replace(",
        "    return told if True else replace(",
        ACTORS + "test_why_names_the_schedule_and_says_what_became_of_a_tick",
    ),
)
