"""The rules of children: whoever waits for them is made ready by their end, once and in time."""

from tests.mutants.mutant import Mutant

ENDS = "tests/waiting/test_child_ends.py::"
LOST = "tests/waiting/test_lost_wakeups.py::"
GROUPS = "tests/waiting/test_groups.py::"
ASKING = "tests/waiting/test_asking.py::"
INTERLEAVED = "tests/waiting/test_interleaved.py::"
MANY = "tests/waiting/test_many_children.py::"
SPAWNED = "tests/waiting/test_spawned.py::"
BOUNDS = "tests/store/test_bounds.py::test_with_plans_made_on_an_empty_database_every_statement_keeps_to_its_bound"
EVERY_END = ENDS + "test_every_end_of_a_child_makes_its_parent_ready"

CHILDREN_MUTANTS = (
    Mutant(
        "a run is given back while it is asking for a child",
        "S-13",
        "runs/children.py",
        "    run.enter(row.key)  # numbering",
        "    # numbering",
        "tests/waiting/test_races.py::test_a_run_that_is_asking_for_a_child_is_not_given_back",
    ),
    # every end of a child is told to its parent
    Mutant(
        "a settlement that ends a child tells nobody",
        "S-15",
        "store/flush_calls.py",
        '        calls.append(Call("wake_parents", clock, fed_by=closing))\n',
        "        pass\n",
        EVERY_END,
    ),
    Mutant(
        "a child that is cancelled as it is given back tells nobody",
        "S-15",
        "store/tasks.py",
        "            parent=parent,  # whatever",
        "            parent=None if done.status in (RunStatus.PENDING, RunStatus.PAUSED) else parent,  # whatever",
        EVERY_END,
    ),
    Mutant(
        "a child whose worker was lost for good tells nobody",
        "S-15",
        "store/sessions.py",
        "        yield from wake_parents(self._db.params(), returned)\n",
        "",
        EVERY_END,
    ),
    Mutant(
        "a cancelled child tells nobody",
        "S-15",
        "store/control.py",
        "    woken |= yield from wake_parents(params, ended)\n",
        "",
        EVERY_END,
    ),
    Mutant(
        "a purged child tells nobody",
        "S-15",
        "store/queues.py",
        "        yield from wake_parents(self._db.params(), [row for row in removed if",
        "        yield from wake_parents(self._db.params(), [row for row in () if",
        EVERY_END,
    ),
    Mutant(
        "a deleted child tells nobody",
        "S-15",
        "store/maintenance.py",
        "        yield from wake_parents(self._db.params(), [row for row in deleted if",
        "        yield from wake_parents(self._db.params(), [row for row in () if",
        EVERY_END,
    ),
    Mutant(
        "children deleted in bulk tell nobody",
        "S-15",
        "store/bulk.py",
        "        woken = yield from wake_parents(self._db.params(), unfinished, gone=True)\n",
        "        woken = set()\n",
        EVERY_END,
    ),
    Mutant(
        "a child kept too long by hand tells nobody",
        "S-15",
        "store/tasks.py",
        '    parents = yield from wake_parents(params, rows, status="answer")\n',
        "    parents = set()\n",
        EVERY_END,
    ),
    Mutant(
        "a child whose failure is told to another workflow tells its parent nothing",
        "S-15",
        "store/tasks.py",
        '        told |= yield from wake_parents(params, settled, status="answer")\n',
        "",
        ENDS + "test_a_child_whose_failure_is_told_to_another_workflow_makes_its_parent_ready",
    ),
    Mutant(
        "a child that is given back counts as ended",
        "S-15",
        "store/sql/waiting.sql",
        " and rows.answer not in ('PENDING', 'PAUSED', 'RUNNING')\n",
        "\n",
        ENDS + "test_a_child_that_has_not_ended_leaves_its_parent_alone",
    ),
    Mutant(
        "a run that was asked to cancel while it paused itself cannot be settled",
        "L-13",
        "store/sql/tasks.sql",
        "       run_at = case when {cancelled} then task.run_at\n                     when",
        "       run_at = case when",
        ENDS + "test_a_run_that_was_asked_to_cancel_while_it_paused_itself_is_cancelled",
    ),
    # no end is missed
    Mutant(
        "a suspension does not see the children that have ended since the look",
        "protocol-05",
        "store/sql/tasks.sql",
        "or coalesce(task.waiting + rows.needed <= 0, false)",
        "or false",
        LOST + "test_an_end_between_the_look_and_the_suspension_is_seen_by_the_suspension",
    ),
    Mutant(
        "a suspension forgets how many children are still needed",
        "protocol-05",
        "store/sql/tasks.sql",
        "waiting = coalesce(task.waiting + rows.needed, 0),",
        "waiting = coalesce(rows.needed, 0),",
        LOST + "test_an_end_after_the_suspension_wakes_it_when_it_is_the_last",
    ),
    Mutant(
        "a look does not wait for an end under way",
        "protocol-05",
        "store/sql/waiting.sql",
        " order by task.id\n {for_update_of_task};\n\n-- name: first_signals",
        " order by task.id;\n\n-- name: first_signals",
        INTERLEAVED + "test_a_look_behind_an_uncommitted_end_sees_it",
    ),
    Mutant(
        "a parent and its child are changed by one flush",
        "protocol-04",
        "store/pending.py",
        "                parent in rows or parents.get(",
        "                parents.get(",
        LOST + "test_a_parent_and_its_child_are_never_changed_by_one_flush",
    ),
    Mutant(
        "a child and then its parent are changed by one flush",
        "protocol-04",
        "store/pending.py",
        "operation.row_id in rows or operation.row_id in parents:",
        "operation.row_id in rows:",
        LOST + "test_a_parent_and_its_child_are_never_changed_by_one_flush",
    ),
    Mutant(
        "children that end in several ways in one flush are counted once",
        "protocol-04",
        "store/pending.py",
        "parent in rows or parents.get(parent, operation.statement) != operation.statement",
        "parent in rows",
        LOST + "test_children_that_end_in_several_ways_in_one_flush_are_all_counted",
    ),
    Mutant(
        "children whose reply was lost are asked for again",
        "rule-04",
        "store/run_waits.py",
        "        if again:  # an earlier try",
        "        if False:  # an earlier try",
        LOST + "test_a_question_whose_reply_is_lost_is_answered_once",
    ),
    Mutant(
        "a parent that is held back is woken by its children",
        "protocol-05",
        "store/sql/waiting.sql",
        "                              and {may_be_ready task}),\n",
        "                              and {may_be_ready task clears held_at}),\n",
        LOST + "test_a_parent_that_is_held_back_or_deleted_is_not_ready_and_goes_on_after",
    ),
    Mutant(
        "a deleted parent is woken by its children",
        "protocol-05",
        "store/sql/waiting.sql",
        "                              and {may_be_ready task}),\n",
        "                              and {may_be_ready task clears deleted_at}),\n",
        LOST + "test_a_parent_that_is_held_back_or_deleted_is_not_ready_and_goes_on_after",
    ),
    # who waits for what
    Mutant(
        "one child asked for twice has to end twice",
        "R-21",
        "store/wait_query.py",
        "    unfinished = {child for child, end in zip(one.ids, ends, strict=True) if end is None}",
        "    unfinished = [child for child, end in zip(one.ids, ends, strict=True) if end is None]",
        GROUPS + "test_one_child_asked_for_twice_is_waited_for_once",
    ),
    Mutant(
        "a run waits for all its groups before one of them goes on",
        "R-21",
        "runs/pause.py",
        "        needed=min((one.needed",
        "        needed=max((one.needed",
        GROUPS + "test_each_group_goes_on_when_its_own_children_have_ended",
    ),
    Mutant(
        "children that nobody waits for wake their parent",
        "R-21",
        "store/sql/waiting.sql",
        "task.waiting > 0 and ",
        "",
        GROUPS + "test_children_that_nobody_waits_for_wake_nobody",
    ),
    Mutant(
        "a run that is not its child is waited for as if it told its end",
        "R-21",
        "runs/children.py",
        "    if not waits.foreign:\n",
        "    if True:\n",
        GROUPS + "test_a_run_that_its_key_had_already_named_is_waited_for_by_looking_again",
    ),
    Mutant(
        "a child that has ended is late if its time is up",
        "R-21",
        "store/wait_query.py",
        "    if not unfinished:\n        return Recorded(one.recorded([end for end in ends if end is not None]))\n",
        "    if not unfinished and one.due is None:\n"
        "        return Recorded(one.recorded([end for end in ends if end is not None]))\n",
        ASKING + "test_a_child_that_has_ended_when_its_time_is_up_was_in_time",
    ),
    Mutant(
        "a cancelled run leaves its children alone",
        "S-16",
        "store/control.py",
        '        children = (yield Call("unfinished_children", {}, stopped)) if stopped else []\n',
        "        children = []\n",
        SPAWNED + "test_a_cancelled_run_cancels_the_steps_it_has_spawned",
    ),
    Mutant(
        "the error of a spawned step comes back as its run's",
        "S-16",
        "work/outcome.py",
        '        described["step_error"] = recorded',
        '        described["forgotten"] = recorded',
        SPAWNED + "test_its_error_is_raised_where_it_is_awaited",
    ),
    # what it costs
    Mutant(
        "each child of a gather is asked for by itself",
        "R-21",
        "store/run_waits.py",
        "            await asyncio.sleep(0)  # other runs that are about to ask",
        "            self._asked, left = self._asked[:1], self._asked[1:]\n"
        "            await self._answer(self._next())\n"
        "            self._asked = left + self._asked\n"
        "            continue  # other runs that are about to ask",
        MANY + "test_a_gather_asks_for_its_children_together",
    ),
    Mutant(
        "every flush looks for parents",
        "PR-15",
        "store/flush_calls.py",
        "    if part in ENDING and any(operation.parent is not None for operation in operations):\n",
        "    if part in ENDING:\n",
        MANY + "test_a_flush_that_ends_nobodys_child_says_nothing_of_parents",
    ),
    Mutant(
        "a look at children walks all tasks",
        "protocol-16",
        "store/sql/waiting.sql",
        "\n where task.id {any_of rows};",
        ";",
        BOUNDS,
    ),
    Mutant(
        "a spawned step is known by the child that executes it",
        "S-16",
        "runs/children.py",
        "json.dumps(call.lasting_key)",
        '"null"',
        "tests/waiting/test_spawned.py::test_its_key_is_that_of_the_call_however_often_its_run_is_retried",
    ),
    Mutant(
        "a replay walks the steps of all runs",
        "protocol-16",
        "store/sql/steps.sql",
        " where step.run_id {any_of rows}\n order by",
        " order by",
        BOUNDS,
    ),
    Mutant(
        "a repeated key walks all keys",
        "protocol-16",
        "store/sql/tasks.sql",
        "             where task.queue_id = rows.queue_id and task.key = rows.key and {has_key task}\n"
        "             limit 1) as id\n      from rows\n)\nselect there.asked, task.id, task.payload_hash",
        "             where task.queue_id = rows.queue_id and task.key || '' = rows.key and {has_key task}\n"
        "             limit 1) as id\n      from rows\n)\nselect there.asked, task.id, task.payload_hash",
        BOUNDS,
    ),
)
