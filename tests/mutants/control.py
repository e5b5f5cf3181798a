"""The rules of cancelling."""

from tests.mutants.mutant import Mutant

CANCEL = "tests/runs/test_cancel.py::"

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
        "set status = case when task.cancel_requested_at is not null then 'CANCELLED'\n"
        "                     when rows.status in ('PENDING', 'PAUSED') and",
        "set status = case when rows.status in ('PENDING', 'PAUSED') and",
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
        "the heartbeat does not say what is to be cancelled",
        "L-12",
        "engine/session.py",
        "            self._on_wish(Wish.CANCEL, cancelled)\n",
        "            pass\n",
        CANCEL + "test_a_worker_of_another_store_hears_of_it_with_its_next_beat",
    ),
)
