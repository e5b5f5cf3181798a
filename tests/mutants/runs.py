"""The rules of definitions, triggers and runs."""

from tests.mutants.mutant import Mutant

DEFINITIONS = "tests/runs/test_definitions.py::"
TRIGGERING = "tests/runs/test_triggering.py::"
REQUIRED = "tests/runs/test_required.py::"
READING = "tests/runs/test_reading.py::"
RETRY = "tests/runs/test_retry.py::"
JOINED = "tests/runs/test_joined.py::"
DISCOVERY = "tests/runs/test_discovery.py::"

RUNS_MUTANTS = (
    Mutant(
        "a second create_workflow writes again",
        "D-02",
        "store/workflows.py",
        "if found := await self._db.driver.read(find_workflow(self._db.params(), name)):",
        "if found := None:",
        DEFINITIONS + "test_creating_it_again_writes_nothing",
    ),
    Mutant(
        "a workflow's row is written although it is there",
        "D-03",
        "store/sql/runs.sql",
        "on conflict (queue_id) do nothing returning queue_id as id",
        "returning queue_id as id",
        DEFINITIONS + "test_stores_of_one_process_that_create_at_once_make_one",
    ),
    Mutant(
        "any queue counts as a workflow",
        "T-05",
        "store/sql/runs.sql",
        "  from {workflow} as workflow join {queue} as queue on queue.id = workflow.queue_id\n"
        " where queue.tenant = :tenant and queue.name = :name;",
        "  from {queue} as queue where queue.tenant = :tenant and queue.name = :name;",
        TRIGGERING + "test_an_unknown_name_is_refused_and_nothing_is_written",
    ),
    Mutant(
        "a bare name makes its workflow",
        "T-05",
        "workflow.py",
        "return Trigger(self.name, False, text",
        "return Trigger(self.name, True, text",
        TRIGGERING + "test_an_unknown_name_is_refused_and_nothing_is_written",
    ),
    Mutant(
        "arguments are not checked against the parameters",
        "T-04",
        "workflow.py",
        "        self.arguments.decode(text)\n",
        "",
        TRIGGERING + "test_arguments_that_do_not_fit_are_refused_before_anything_is_written",
    ),
    Mutant(
        "the payload limit does not hold for runs",
        "V-08",
        "store/draft.py",
        "(size := len(asked.input.encode())) > self._payload_limit:",
        "(size := len(asked.input.encode())) > 10 * self._payload_limit:",
        TRIGGERING + "test_the_stores_own_limit_holds_for_inputs",
    ),
    Mutant(
        "a missing worker is noticed after the definition was made",
        "V-01",
        "store/new_tasks.py",
        "            if not defines:\n                await self._db.workflow_id(name)\n",
        "            await self._db.workflow_id(name, create=defines)\n",
        REQUIRED + "test_an_error_is_raised_before_anything_is_written_and_after_the_name_is_known",
    ),
    Mutant(
        "a missing worker is asked for before the name",
        "V-01",
        "store/new_tasks.py",
        "            if not defines:\n                await self._db.workflow_id(name)\n",
        "            pass\n",
        REQUIRED + "test_an_error_is_raised_before_anything_is_written_and_after_the_name_is_known",
    ),
    Mutant(
        "an error goes by what was known a moment ago",
        "V-03",
        "store/workflows.py",
        '        if asks == "error":\n            self._judge(required, await self._learn())\n',
        '        if asks == "error" and not self._is_fresh:\n            self._judge(required, await self._learn())\n'
        '        elif asks == "error":\n            self._judge(required, self._served)\n',
        REQUIRED + "test_a_worker_that_is_silent_or_has_ended_does_not_count",
    ),
    Mutant(
        "a silent worker counts as living",
        "V-04",
        "store/sql/runs.sql",
        "\n   and beat.beat_at >= {beat_now} - worker.lease and beat.beat_at <= {beat_now} + worker.lease;",
        ";",
        REQUIRED + "test_a_worker_that_is_silent_or_has_ended_does_not_count",
    ),
    Mutant(
        "every trigger of a burst asks for workers",
        "V-05",
        "store/workflows.py",
        "served = self._served if self._is_fresh else await self._learn()",
        "served = await self._learn()",
        REQUIRED + "test_a_burst_asks_once_an_error_asks_afresh_and_nobody_asks_if_it_is_ignored",
    ),
    Mutant(
        "triggers of several workflows are written one by one",
        "T-10",
        "store/new_tasks.py",
        "        if len(drafted.queues) > 1:\n            return await self._write_together(drafted)\n",
        "        if len(drafted.queues) > 1:\n"
        "            each = [dataclasses.replace(drafted, tasks=[task], queues={task.queue: drafted.queues[task.queue]}"
        ") for task in drafted.tasks]\n"
        "            return [task_id for one in each for task_id in await self._write(one)]\n",
        TRIGGERING + "test_many_triggers_are_all_there_or_none",
    ),
    Mutant(
        "a joined trigger makes its definition through the store's own connection",
        "protocol-22",
        "store/new_tasks.py",
        "        ids = await self._db.transactions.play(self.joining(drafted), tx)\n",
        "        for name in drafted.queues:\n"
        "            await self._number(drafted, name, create=drafted.queues[name])\n"
        "        ids = await self._db.transactions.play(self.joining(drafted), tx)\n",
        JOINED + "test_every_promise_on_postgres",
    ),
    Mutant(
        "a run is shown through another workflow",
        "R-18",
        "workflow.py",
        "        if run.workflow != self.name:\n            raise RunNotFound(run_id, self.name)\n",
        "",
        READING + "test_a_run_is_found_through_its_own_workflow_only",
    ),
    Mutant(
        "messages are shown as runs",
        "R-18",
        "store/sql/runs.sql",
        " where task.id {any_of rows} and (task.kind = 'RUN') is true and (queue.tenant = :tenant) is true\n",
        " where task.id {any_of rows} and queue.tenant = :tenant\n",
        READING + "test_a_run_is_found_through_its_own_workflow_only",
    ),
    Mutant(
        "the output of an unfinished run is null",
        "RS-02",
        "records.py",
        "                raise RunUnfinished(self.id, self.status)",
        "                return None",
        READING + "test_output_is_typed_where_the_type_is_known_and_raises_unless_the_run_succeeded",
    ),
    Mutant(
        "a page forgets those of the moment it ended in",
        "R-19",
        "store/sql/runs.sql",
        "(task.created_at < :after_time or task.id < :after_id)",
        "task.created_at < :after_time",
        READING + "test_pages_show_every_run_once_although_many_were_made_in_one_moment",
    ),
    Mutant(
        "a list of runs does not walk its index",
        "R-19",
        "store/sql/schema/0001_initial.sql",
        "(queue_id, status, created_at, id) where kind = 'RUN'",
        "(queue_id, created_at) where kind = 'RUN'",
        READING + "test_what_does_not_fit_is_not_looked_at",
    ),
    Mutant(
        "a retried run keeps the step that ended it",
        "R-20",
        "store/dead_letters.py",
        "        yield from _reopen(failed, requeued)\n",
        "",
        RETRY + "test_a_failed_run_is_retried_only_when_asked_and_keeps_its_steps",
    ),
    Mutant(
        "a retry reopens every failed step",
        "R-20",
        "store/sql/runs.sql",
        " and step.generation = rows.generation and step.key = rows.key\n   and step.run_id",
        " and step.generation = rows.generation\n   and step.run_id",
        RETRY + "test_a_failed_run_is_retried_only_when_asked_and_keeps_its_steps",
    ),
    Mutant(
        "retry brings back messages",
        "R-20",
        "store/sql/runs.sql",
        "and (task.kind = 'RUN' and task.status = 'ERROR') is true\n order by task.id",
        "and (task.status = 'ERROR') is true\n order by task.id",
        RETRY + "test_nothing_else_is_retried",
    ),
    Mutant(
        "steps are reopened although their run was not requeued",
        "R-20",
        "store/dead_letters.py",
        ' for row in failed if row["id"] in again]',
        " for row in failed]",
        RETRY + "test_a_run_whose_key_was_taken_meanwhile_stays_failed_and_so_do_its_steps",
    ),
    Mutant(
        "discovery takes what a module imports",
        "DD-05",
        "workload.py",
        " and is_of(one.fn, module)]",
        "]",
        DISCOVERY + "test_a_modules_workflows_are_those_it_defines",
    ),
)
