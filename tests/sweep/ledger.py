"""A ledger of body executions that stepwell does not know of."""

from collections import Counter

from stepwell import current
from stepwell.testing.crashes import Case

LEDGER: list[tuple[int, str, int]] = []  # run, key, attempt


def note() -> None:
    """The body of a step is being executed."""
    context = current()
    LEDGER.append((int(context.run_id), context.key.partition("/")[2], context.attempt))


def assert_nothing_recorded_ran_again(case: Case) -> None:
    """Fail if an attempt whose outcome was recorded when the worker was lost was executed by the next worker too."""
    run_id = int(case.life.run_id)
    executions = Counter((key, attempt) for run, key, attempt in LEDGER if run == run_id)
    again = {pair: count for pair, count in executions.items() if pair in case.recorded and count != 1}
    assert not again, f"{case}: executed again although recorded: {again}"
    assert all(count <= 2 for count in executions.values()), f"{case}: one crash, and yet {executions}"
