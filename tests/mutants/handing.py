"""The rules of handing a task over to a worker while it is added."""

from tests.mutants.mutant import Mutant

HANDING = "tests/worker/test_handing.py::"

HANDING_MUTANTS = (
    Mutant(
        "a task is handed to a session whose fence is down",
        "protocol-01",
        "store/sql/tasks.sql",
        "case when taking.paused then null else fence.worker_id end as worker",
        "case when taking.paused then null else rows.worker end as worker",
        HANDING + "test_a_session_that_was_declared_dead_is_handed_nothing",
    ),
    Mutant(
        "a task of a paused queue is handed over",
        "Q-01",
        "store/sql/tasks.sql",
        "case when taking.paused then null else fence.worker_id end as worker",
        "fence.worker_id as worker",
        HANDING + "test_not_with_a_key_a_delay_a_paused_queue_or_a_store_in_maintenance",
    ),
    Mutant(
        "more are handed over than there are places",
        "Q-06",
        "work/demand.py",
        "        demand.take(queue_id)\n",
        "        demand.take(-1)\n",
        HANDING + "test_no_more_are_handed_over_than_there_are_places",
    ),
    Mutant(
        "what is handed over runs in the context of whoever wrote it",
        "protocol-19",
        "work/claim.py",
        "self._context.copy().run(self._start, ((task,),), session)",
        "self._start(((task,),), session)",
        HANDING + "test_what_is_added_beside_an_idle_worker_is_executed_without_a_claim",
    ),
    Mutant(
        "whoever leaves takes along what it was adding",
        "promise-01",
        "store/handover.py",
        "return await asyncio.shield(handing.added)",
        "return await self._flusher.submit(operation)",
        HANDING + "test_whoever_leaves_while_it_is_written_does_not_take_it_along",
    ),
    Mutant(
        "every task that was handed over is remembered",
        "promise-18",
        "store/pending.py",
        "@lru_cache(maxsize=64)",
        "@lru_cache(maxsize=None)",
        HANDING + "test_what_was_handed_over_leaves_nothing_behind",
    ),
)
