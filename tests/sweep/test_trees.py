"""Random workflows under random schedules, cut off at a random database call: they end as if nothing had happened."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.testing import world
from stepwell.testing.crashes import WHENS, When, check_same
from tests.sweep.conftest import Scale
from tests.sweep.ledger import LEDGER, assert_nothing_recorded_ran_again
from tests.sweep.trees import Tree, grow, schedule, trees


@pytest.mark.proves("S-02", "S-06", "S-11", "S-12", "S-13", "R-06", "R-14", "R-15", "E-08")
@pytest.mark.proves("promise-03", "promise-05", "protocol-18", "protocol-19", "protocol-21")
@pytest.mark.backends("sqlite", "postgres", reason="the same driver serves Turso")
def test_a_random_workflow_survives_a_crash_anywhere(
    backend: str, store_url: str, scale: Scale, measured: Callable[..., None]
) -> None:
    # A database in memory is enough for SQLite; one for all runs, so that the ledger can tell them apart.
    url = "sqlite:///:memory:" if backend == "sqlite" else store_url
    numbers: Counter[str] = Counter()

    @settings(
        max_examples=scale.of(25 if backend == "sqlite" else 8, 300),
        deadline=None,
        derandomize=not scale.is_full,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(trees, st.floats(0, 1, exclude_max=True), st.sampled_from(WHENS), st.integers(0, 10**6))
    def grown(tree: Tree, where: float, when: When, seed: int) -> None:
        schedule.seed(seed)
        numbers.update(asyncio.run(_grown(url, tree, where, when)))

    grown()
    assert numbers["crashes"] >= 0.9 * numbers["trees"], numbers
    measured("trees", **numbers)


async def _grown(url: str, tree: Tree, where: float, when: When) -> dict[str, int]:
    LEDGER.clear()
    async with world(grow, url=url) as w, w.crashes(grow.trigger(tree, 1)) as crashes:
        whole = await crashes.undisturbed()
        assert (whole.status, whole.unasked) == ("SUCCESS", ()), whole
        case = await crashes.cut_off(1 + int(where * len(whole.calls)), when)
        if case is not None:
            check_same(whole, case)
            assert_nothing_recorded_ran_again(case)
    return {"trees": 1, "steps": len(whole.steps), "crashes": int(case is not None)}
