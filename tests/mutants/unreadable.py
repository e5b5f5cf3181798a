"""The rules of what the code of a worker cannot read."""

from tests.mutants.mutant import Mutant

MESSAGES = "tests/queue/test_unreadable.py::"
RUNS = "tests/workflows/test_unreadable.py::"
LEFT = RUNS + "test_a_run_for_other_code_is_left_to_it_and_says_so"
HELD = RUNS + "test_a_run_that_no_code_can_read_for_a_week_is_held"

OTHER_CODE_MUTANTS = (
    Mutant(
        "other code: what a run restarted with is its sender's error",
        "DP-06",
        "work/unreadable.py",
        "misfit.was_read or task.generation > 0",
        "misfit.was_read",
        RUNS + "test_the_input_that_a_run_restarts_with_was_read_by_the_code_that_gave_it",
    ),
    Mutant(
        "other code: what an earlier turn had is its sender's error",
        "DP-06",
        "work/unreadable.py",
        "    return task.started_at < latest\n",
        "    return False\n",
        MESSAGES + "test_a_message_for_other_code_is_left_to_it_and_says_so",
    ),
    Mutant(
        "other code: a class that is not here is its sender's error",
        "DP-06",
        "values/codec.py",
        'return str(cause).startswith("Invalid value ")',
        "return False",
        MESSAGES + "test_a_message_for_other_code_is_left_to_it_and_says_so",
    ),
    Mutant(
        "other code: what no code has ever read is offered for a week",
        "W-11",
        "work/unreadable.py",
        "(await _error_of(store, task)).get(BATCH, task.claimed_at)",
        "task.claimed_at",
        MESSAGES + "test_a_payload_that_no_code_has_read_is_its_senders_error",
    ),
    Mutant(
        "other code: a batch hides that an earlier turn had the message",
        "DP-06",
        "work/unreadable.py",
        "BATCH: min(task.claimed_at for task in tasks)}",
        "BATCH: 0}",
        MESSAGES + "test_a_batch_that_old_code_gave_back_is_left_to_it",
    ),
    Mutant(
        "other code: a message that was left spoils a batch",
        "DP-06",
        "work/execution.py",
        "        if isinstance(outcome, NotThisCode) and self._served.batch > 1:",
        "        if False:",
        MESSAGES + "test_a_message_that_was_left_joins_no_batch",
    ),
    Mutant(
        "other code: a step of a queue dies of arguments that other code can read",
        "R-16",
        "workflow.py",
        "raise current_run().hold(Misfit(error, was_read=names_unknown_class(error))) from None",
        "raise error",
        RUNS + "test_the_arguments_of_a_step_of_a_queue_are_judged_like_an_input",
    ),
    Mutant(
        "other code: a run that is left outlives its deadline",
        "R-16",
        "work/deadline.py",
        "case Again() | NotThisCode() if outcome.delay > left:",
        "case Again() if outcome.delay > left:",
        RUNS + "test_a_run_that_is_left_still_ends_at_its_deadline",
    ),
    Mutant(
        "other code: an answer of a condition that does not fit is recorded",
        "P-03",
        "runs/conditions.py",
        "                decode(text, type_, what=what)\n",
        "                pass\n",
        "tests/waiting/test_pausing.py::test_an_answer_that_does_not_fit_the_step_is_reported_and_asked_for_again",
    ),
    Mutant(
        "other code: an input dies of an event whose class has changed",
        "F-15",
        "deciders/proposal.py",
        "            raise UnknownRecord(what, row.type, row.type_version, why) from error",
        "            raise",
        "tests/deciders/test_unreadable.py::test_an_input_waits_for_code_that_reads_an_event_whose_class_has_changed",
    ),
    Mutant(
        "other code: a workflow can catch that a recorded result cannot be read",
        "R-16",
        "runs/turn.py",
        "            raise self.hold(Misfit(error, was_read=True)) from None",
        "            raise error",
        LEFT,
    ),
    Mutant(
        "other code: a run that has recorded something dies of its input",
        "R-16",
        "runs/body.py",
        "was_read=bool(recorded) or",
        "was_read=",
        RUNS + "test_a_run_that_is_retried_or_forked_with_other_code_is_left_to_that_which_has_read_it",
    ),
    Mutant(
        "other code: a run that no code can read dies",
        "R-16",
        "work/unreadable.py",
        " if isinstance(outcome, Failed) and task.kind is TaskKind.RUN else outcome",
        " if False else outcome",
        HELD,
    ),
    Mutant(
        "other code: the code that has held a run lets it go again and again",
        "R-16",
        "work/execution.py",
        "            self.withheld = (await mark_of(tasks[0]),)\n",
        "            pass\n",
        HELD,
    ),
    Mutant(
        "other code: what a parent never could read is taken for what it has read",
        "R-16",
        "runs/children.py",
        "        return _misfit(row, ends, [type_]) or msgspec",
        "        return msgspec",
        RUNS + "test_what_a_child_returns_and_its_parent_never_could_read_is_the_parents_to_catch",
    ),
    Mutant(
        "other code: why does not say that a run cannot be read",
        "R-16",
        "store/why.py",
        """    if run.error.get("type") == "NotThisCode" and not run.is_due:\n""",
        "    if False:\n",
        LEFT,
    ),
    Mutant(
        "other code: a changed class of an effect is a dead letter at once",
        "F-15",
        "deciders/effects.py",
        "    except SerializationError as error:\n        raise Misfit(error, was_read=True) from error\n",
        "    except UnknownRecord as error:\n        raise Misfit(error, was_read=True) from error\n",
        "tests/deciders/test_unreadable.py::"
        "test_a_class_that_has_changed_under_its_name_is_left_to_the_code_that_wrote_it",
    ),
    Mutant(
        "other code: a handler that has acted is offered again without an attempt",
        "F-15",
        "deciders/effects.py",
        "            raise TransientError(str(error)) from error\n",
        "            raise\n",
        "tests/deciders/test_unreadable.py::"
        "test_a_handler_that_meets_what_this_code_cannot_read_has_acted_and_spends_an_attempt",
    ),
)
