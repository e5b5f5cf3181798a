"""The rules of cancelling."""

from tests.mutants.mutant import Mutant

CANCEL = "tests/runs/test_cancel.py::"
PAUSE = "tests/runs/test_pause.py::"
REQUESTS = "tests/runs/test_control_requests.py::"

CONTROL_MUTANTS = (
    Mutant(
        "a finished run is cancelled",
        "L-16",
        "store/sql/control.sql",
        " and task.finished_at is null\nreturning",
        "\nreturning",
        CANCEL + "test_a_finished_run_stays_what_it_is",
    ),
    Mutant(
        "a cancel whose reply was lost came too late",
        "L-11",
        "store/control.py",
        '        if again and found[0]["status"]',
        '        if False and found[0]["status"]',
        CANCEL + "test_a_cancel_whose_reply_is_lost_answers_what_it_did",
    ),
    Mutant(
        "a late success revives a cancelled run",
        "L-14",
        "store/sql/tasks.sql",
        "set status = case when {cancelled} then 'CANCELLED'\n                     when {is_to",
        "set status = case when {is_to",
        CANCEL + "test_a_late_success_does_not_revive_it",
    ),
    Mutant(
        "a step runs in the finally of a run that is being stopped",
        "protocol-18",
        "engine/execution.py",
        "        self.on_stop()\n",
        "",
        CANCEL + "test_a_run_under_way_is_stopped_and_records_nothing_more",
    ),
    Mutant(
        "what is asked of a turn is told after the answers to its records",
        "L-12",
        "store/flush.py",
        "            self._tell(calls, rows)\n            self._resolve(batch, _answers(calls, rows))\n",
        "            self._resolve(batch, _answers(calls, rows))\n"
        "            self._loop.call_soon(self._tell, calls, rows)\n",
        REQUESTS + "test_no_step_begins_after_the_record_that_brings_the_request",
    ),
    Mutant(
        "what was asked of one turn is heard by the next",
        "P-10",
        "engine/runtime.py",
        "if held.get(task_id) == turn}",
        "if task_id in held}",
        REQUESTS + "test_a_run_that_was_let_go_is_not_stopped_again_by_what_was_asked_of_its_last_turn",
    ),
    Mutant(
        "a flush does not read what is asked of its workers",
        "L-12",
        "store/flush.py",
        "        if not STEPS.isdisjoint(by_part):\n",
        "        if False:\n",
        REQUESTS + "test_no_step_begins_after_the_record_that_brings_the_request",
    ),
    Mutant(
        "a worker reads what is asked of it with its records alone",
        "L-18",
        "engine/runtime.py",
        "                    await self._store.tasks.hear_requests(self.session.id)\n",
        "                    pass\n",
        REQUESTS + "test_a_body_that_records_nothing_hears_of_it_long_before_a_beat",
    ),
    Mutant(
        "a held run is paused only if it has not come to its end",
        "P-02",
        "store/sql/tasks.sql",
        "                     when task.held_at is not null then 'PAUSED'\n",
        "                     when rows.status in ('PENDING', 'PAUSED') and task.held_at is not null then 'PAUSED'\n",
        PAUSE + "test_a_held_run_is_paused_whatever_came_of_its_turn",
    ),
    Mutant(
        "a held run whose worker died in its last attempt fails",
        "P-02",
        "store/sql/sessions.sql",
        "                     when task.held_at is not null then 'PAUSED'\n"
        "                     when lost.spent then 'ERROR' else",
        "                     when lost.spent then 'ERROR'\n"
        "                     when task.held_at is not null then 'PAUSED' else",
        PAUSE + "test_a_held_run_whose_worker_died_stays_paused",
    ),
    Mutant(
        "an unpause leaves what was asked of the turn",
        "P-02",
        "store/control.py",
        '            yield Call("take_back_request", place)\n',
        "            pass\n",
        PAUSE + "test_a_pause_that_is_taken_back_before_the_worker_hears_of_it_changes_nothing",
    ),
    Mutant(
        "a beat leaves what was asked of turns that have ended",
        "L-12",
        "store/sql/control.sql",
        "delete from {control_request}\n where worker_id {any_of rows.worker}\n",
        "delete from {control_request}\n where worker_id < 0 and worker_id {any_of rows.worker}\n",
        REQUESTS + "test_a_request_is_written_for_the_turn_under_way_and_goes_with_it",
    ),
    Mutant(
        "what a session was asked stays when it has ended",
        "L-12",
        "store/sessions.py",
        '            yield Call("forget_requests_of", {"worker": worker})\n',
        "",
        REQUESTS + "test_what_a_session_was_asked_goes_with_it",
    ),
)
