"""The rules of runs and their steps."""

from tests.mutants.mutant import Mutant

WORKFLOWS = "tests/workflows/"
FENCE = WORKFLOWS + "test_fence.py::"
STEPS = WORKFLOWS + "test_steps.py::"
VALUES = WORKFLOWS + "test_values.py::"
RUNS = WORKFLOWS + "test_runs.py::"
FAILURES = WORKFLOWS + "test_failures.py::"
PARALLEL = WORKFLOWS + "test_parallel.py::"
SUSPENDING = WORKFLOWS + "test_suspending.py::"
SHAPES = SUSPENDING + "test_in_every_shape_the_others_finish_first_and_the_run_is_given_back_once"
THREADED = SUSPENDING + "test_a_call_that_a_thread_has_made_is_waited_for_before_its_run_is_given_back"
BRANCHES = WORKFLOWS + "test_branches.py::"
KEYS = BRANCHES + "test_keys_are_as_documented_and_background_tasks_do_not_shift_them"
FACTORIES = (
    BRANCHES + "test_tasks_that_nobody_labelled_are_refused_and_a_factory_of_the_users_own_is_wrapped_and_put_back"
)
NOT_AT_WORK = PARALLEL + "test_no_body_of_a_run_is_at_work_when_it_is_given_back"
CONTRADICTION = RUNS + "test_a_call_that_contradicts_the_record_ends_the_run_and_names_both"

WORKFLOW_MUTANTS = (
    Mutant(
        "a new step does not ask for the fence",
        "S-23",
        "store/sql/steps.sql",
        "  from rows where rows.worker in (select fence.worker_id from fence)\nreturning",
        "  from rows where true\nreturning",
        FENCE + "test_a_session_without_a_fence_records_nothing_new_and_changes_nothing",
    ),
    Mutant(
        "a change of a step does not ask for the fence",
        "S-23",
        "store/sql/steps.sql",
        "  from rows where rows.worker in (select fence.worker_id from fence)\non conflict",
        "  from rows where true\non conflict",
        FENCE + "test_a_session_without_a_fence_records_nothing_new_and_changes_nothing",
    ),
    Mutant(
        "a result is overwritten by a later one",
        "S-23",
        "store/sql/steps.sql",
        " where step.status not in ('SUCCESS', 'ERROR')\n",
        "",
        FENCE + "test_the_first_result_stays_whatever_comes_after_it",
    ),
    Mutant(
        "who was overtaken goes on with the next step",
        "L-08",
        "engine/run.py",
        "return self.overtaken or session.lost",
        "return session.lost",
        FENCE + "test_of_two_executors_of_a_run_one_records_and_the_other_is_told",
    ),
    Mutant(
        "a thread records what its run no longer holds",
        "protocol-03",
        "engine/requests.py",
        "    request.run.check()\n    return await _submitted(request)\n",
        "    return await _submitted(request)\n",
        WORKFLOWS + "test_races.py::test_a_thread_whose_run_is_given_back_at_the_last_moment_records_nothing",
    ),
    Mutant(
        "a run is answered by what was read before its claim",
        "protocol-06",
        "store/steps.py",
        "            for run_id in asked:\n                del self._wanted[run_id]  # before it is read:"
        " whoever has claimed it since is answered by the next\n            try:\n"
        "                found = await self._grouped(asked)\n",
        "            try:\n                found = await self._grouped(asked)\n"
        "                for run_id in asked:\n                    del self._wanted[run_id]\n",
        WORKFLOWS + "test_races.py::test_whoever_has_claimed_a_run_since_does_not_share_what_was_read_before",
    ),
    Mutant(
        "an attempt that has ended is shown at work",
        "protocol-07",
        "engine/showing.py",
        "taken = self._begun.pop(attempt, self) is not self",
        "taken = self._begun.pop(attempt, self) is not None or True",
        WORKFLOWS + "test_races.py::test_an_attempt_that_ends_while_others_are_being_shown_is_not_shown",
    ),
    Mutant(
        "a short step is written twice",
        "protocol-07",
        "store/steps.py",
        "withdrawn = begun is None or self._flusher.withdraw(begun)",
        "withdrawn = begun is None",
        STEPS + "test_a_short_step_is_one_row_and_one_commit",
    ),
    Mutant(
        "nobody reads what a run has recorded",
        "S-02",
        "engine/running.py",
        "if task.turn > 1 else ()",
        "if task.turn > 9 else ()",
        STEPS + "test_after_a_crash_another_worker_goes_on_with_the_same_run",
    ),
    Mutant(
        "the first run raises what the body raised",
        "S-06",
        "engine/steps.py",
        'raise failure_of(definition, call.key, row.error or "{}") from value',
        "raise value",
        STEPS + "test_what_a_step_gave_up_with_is_the_same_on_the_first_run_and_on_every_replay",
    ),
    Mutant(
        "the first run returns what the body returned",
        "S-19",
        "engine/steps.py",
        "    return text, back\n",
        "    return text, value\n",
        VALUES + "test_results_are_equal_on_the_first_run_and_on_replay",
    ),
    Mutant(
        "a result comes back as something else",
        "S-19",
        "engine/steps.py",
        "if declared is Any and not _same(back, value):",
        "if False:",
        VALUES + "test_a_result_that_would_come_back_as_something_else_is_refused_with_the_place_to_annotate",
    ),
    Mutant(
        "arguments are written in the order of a set",
        "protocol-21",
        "codec.py",
        '_ORDERED: Final = msgspec.json.Encoder(enc_hook=_ordered_of, order="deterministic")',
        "_ORDERED: Final = msgspec.json.Encoder(enc_hook=_ordered_of)",
        VALUES + "test_processes_that_hash_differently_write_the_same_arguments",
    ),
    Mutant(
        "what has no order is written in any",
        "protocol-21",
        "codec.py",
        "return _ordered_by_walk(value, limit, what)  # it may",
        "return encode(value, limit=limit, what=what)  # it may",
        VALUES + "test_processes_that_hash_differently_write_the_same_arguments",
    ),
    Mutant(
        "a model's sets are written in the order of a set",
        "protocol-21",
        "codec.py",
        "    return in_order(value, plain) if isinstance(plain, dict | list) else plain",
        "    return plain",
        VALUES + "test_processes_that_hash_differently_write_the_same_arguments",
    ),
    Mutant(
        "arguments are not compared",
        "R-16",
        "engine/journal.py",
        "if row.input != input:",
        "if False:",
        CONTRADICTION,
    ),
    Mutant(
        "a contradiction that was caught is forgotten",
        "R-16",
        "engine/running.py",
        "            raise run.journal.contradiction ",
        "            pass ",
        CONTRADICTION,
    ),
    Mutant(
        "after a contradiction other steps are executed",
        "R-16",
        "engine/journal.py",
        "            raise self.contradiction\n        row =",
        "            pass\n        row =",
        CONTRADICTION,
    ),
    Mutant(
        "steps that nobody asks for are not reported",
        "protocol-21",
        "engine/running.py",
        "if unasked := run.journal.unasked:",
        "if unasked := ():",
        CONTRADICTION,
    ),
    Mutant(
        "a strict run takes a renamed step for a new one",
        "R-16",
        "engine/journal.py",
        "            if self._strict:\n",
        "            if False:\n",
        RUNS + "test_steps_may_be_added_and_with_strict_only_after_what_is_recorded",
    ),
    Mutant(
        "a step that gave up is tried again because its error is a transient one",
        "E-12",
        "engine/outcome.py",
        "    if hasattr(error, GAVE_UP):  # it is recorded, and no further attempt will call the step again\n"
        "        return True\n    if isinstance(error, policy.transient):\n        return False\n",
        "    if isinstance(error, policy.transient):\n        return False\n    if hasattr(error, GAVE_UP):\n"
        "        return True\n",
        FAILURES + "test_what_a_step_gave_up_with_is_final_although_the_run_would_try_such_an_error_again",
    ),
    Mutant(
        "a run that sleeps spends an attempt",
        "P-10",
        "engine/outcome.py",
        "                attempt_back=True,\n                wakes=wakes,",
        "                wakes=wakes,",
        SUSPENDING + "test_a_sleeping_run_holds_no_place_no_lease_no_memory_and_no_attempt",
    ),
    Mutant(
        "a replay sleeps from its own beginning",
        "P-09",
        "engine/context.py",
        "    answer = run.journal.answer(key, None)\n    if isinstance(answer, Replay):\n        due =",
        "    answer = run.journal.answer(key, None)\n    if False:\n        due =",
        SUSPENDING + "test_a_run_sleeps_until_a_moment_that_is_recorded_when_it_falls_asleep",
    ),
    Mutant(
        "a run that is given back calls its steps on the way out",
        "protocol-18",
        "engine/run.py",
        "        if self.unwinding:\n            raise Unwinding\n",
        "",
        SHAPES,
    ),
    Mutant(
        "a run is given back in the middle of a body",
        "protocol-18",
        "engine/run.py",
        "        self._under_way.add(work)\n",
        "",
        SHAPES,
    ),
    Mutant(
        "a run is given back although something may come from outside",
        "protocol-18",
        "engine/run.py",
        "all(self._waits(task) for task in (*job, *self._tasks))",
        "True",
        SHAPES,
    ),
    Mutant(
        "a sync run is given back while its thread works",
        "protocol-18",
        "engine/run.py",
        "if not self.is_at_work and all(",
        "if all(",
        WORKFLOWS
        + "test_bodies.py::test_while_a_thread_of_the_workflow_is_at_work_its_background_steps_wait_in_memory",
    ),
    Mutant(
        "who waits for other tasks counts as at work",
        "protocol-18",
        "engine/waits.py",
        "    return code in _PLACES or",
        "    return",
        SHAPES,
    ),
    Mutant(
        "what the workflow makes of being given back counts",
        "protocol-18",
        "engine/run.py",
        "        if await self._end():\n            raise self._given_back()\n",
        "        await self._end()\n",
        SHAPES,
    ),
    Mutant(
        "a run is given back while a body is in its thread",
        "S-13",
        "engine/run.py",
        "        if self._bodies and not self._stopped and (unwound or not stopped):\n"
        "            await asyncio.wait(self._bodies)\n",
        "",
        NOT_AT_WORK,
    ),
    Mutant(
        "a run is given back while a task of it is at work",
        "S-13",
        "engine/run.py",
        "        while self._tasks:\n",
        "        while False:\n",
        NOT_AT_WORK,
    ),
    Mutant(
        "a workflow that raises CancelledError counts as stopped",
        "S-13",
        "engine/run.py",
        "isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0",
        "isinstance(error, asyncio.CancelledError) and task is not None",
        NOT_AT_WORK,
    ),
    Mutant(
        "calls are numbered when they are awaited",
        "S-12",
        "step.py",
        "        calling = course(StepCall.made(branch, self.definition, args, kwargs))\n",
        "        made = lambda: (yield from course(StepCall.made(branch, self.definition, args, kwargs)))\n"
        "        calling = made()\n",
        PARALLEL + "test_calls_of_one_name_find_their_own_records_whatever_ends_first",
    ),
    Mutant(
        "branches are numbered by what was made before, whoever made it",
        "protocol-19",
        "engine/branches.py",
        "branch.child(_label_of(inner))",
        'branch.child("task")',
        KEYS,
    ),
    Mutant(
        "what anyio calls its own is in the keys of steps",
        "protocol-19",
        "engine/branches.py",
        "inner = _unwrapped(coro)",
        "inner: Any = coro",
        BRANCHES + "test_a_branch_in_a_task_group_of_anyio_is_called_the_same_in_every_version_of_anyio",
    ),
    Mutant(
        "a thread that has made a call is at work no more",
        "protocol-18",
        "engine/sync_turn.py",
        "        answer: concurrent.futures.Future[T] = concurrent.futures.Future()\n",
        "        answer: concurrent.futures.Future[T] = concurrent.futures.Future()\n"
        "        self._at_work.discard(threading.get_ident())\n",
        THREADED,
    ),
    Mutant(
        "a call of a thread is no part of its run",
        "protocol-18",
        "engine/sync_turn.py",
        "return (*self._tasks, *self._calls)",
        "return self._tasks",
        THREADED,
    ),
    Mutant(
        "a run that waits in a task group of anyio is held",
        "protocol-18",
        "engine/waits.py",
        " or _ends_group_of_anyio(code)",
        "",
        SHAPES,
    ),
    Mutant(
        "what wait_for wraps is a branch",
        "protocol-19",
        "engine/branches.py",
        "return sys.version_info < (3, 12)",
        "return False",
        KEYS,
    ),
    Mutant(
        "as_completed labels its coroutines in any order",
        "protocol-19",
        "engine/branches.py",
        "if frame.f_code is _AS_COMPLETED:",
        "if False:",
        FACTORIES,
    ),
    Mutant(
        "a task without a label makes calls",
        "protocol-19",
        "engine/branches.py",
        "if asyncio.current_task(run.loop) not in self.tasks:",
        "if False:",
        FACTORIES,
    ),
    Mutant(
        "the factory that was there is not put back",
        "protocol-19",
        "engine/branches.py",
        "            loop.set_task_factory(factory.before)\n",
        "            pass\n",
        FACTORIES,
    ),
    Mutant(
        "a factory inside another one labels once more",
        "protocol-19",
        "engine/branches.py",
        "if not isinstance(branch, Branch) or self.users == 0:",
        "if not isinstance(branch, Branch):",
        BRANCHES + "test_a_factory_that_was_set_since_and_wraps_ours_labels_nothing_twice",
    ),
    Mutant(
        "a step inside a step is recorded too",
        "protocol-19",
        "engine/requests.py",
        "    token = current_branch.set(attempt)\n",
        "    token = current_branch.set(current_branch.get())\n",
        STEPS + "test_outside_a_run_a_step_is_its_function",
    ),
    Mutant(
        "a thread without its run calls a step unrecorded",
        "protocol-20",
        "step.py",
        "            if branch is None and serving:\n",
        "            if False:\n",
        WORKFLOWS + "test_bodies.py::test_calls_of_the_other_colour_and_from_elsewhere_are_refused_with_the_way",
    ),
)
