"""Two workflows of one name in one process: each store reads results as the one that it uses says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import ExecutionFailed, Store, connect, workflow
from stepwell.base.clock import TestClock
from stepwell.base.program import Definition, definition_of, know
from tests.workflows.kit import begun, drained


@dataclass(frozen=True)
class Point:
    x: int


@dataclass(frozen=True)
class Size:
    x: int


class Wrong(Exception):  # noqa: N818 - a program's own name
    """Raised by one of the two."""


@workflow(name="twin", raises=(Wrong,))
async def pointing(x: int) -> Point:
    if x == 0:
        raise Wrong("nothing")
    return Point(x)


@workflow(name="twin")
async def sizing(x: int) -> Size:
    if x == 0:
        raise Wrong("nothing")
    return Size(x)


async def _read(store: Store, run_id: int) -> list[Any]:
    return [await store.result(int(run_id), timeout=0), (await store.get_run(int(run_id))).output()]


@pytest.mark.proves("compose-05", "RS-03")
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_store_reads_results_as_its_own_worker_or_trigger_says(
    store: Store, clock: TestClock, *, is_first: bool
) -> None:
    mine, other = (pointing, sizing) if is_first else (sizing, pointing)
    async with connect("memory:", clock=clock) as elsewhere:
        for at, used in ((store, mine), (elsewhere, other)):
            run_id = await begun(at, used, 7)
            failed = await begun(at, used, 0, max_attempts=1)
            await drained(at, used)
            expected = Point(7) if used is pointing else Size(7)
            assert await _read(at, run_id) == [expected, expected]
            with pytest.raises(Wrong if used is pointing else ExecutionFailed):
                await at.result(int(failed), timeout=0)
            with pytest.raises(Wrong if used is pointing else ExecutionFailed):
                (await at.get_run(int(failed))).output()


@pytest.mark.proves("RS-03")
def test_a_process_knows_of_a_name_what_was_defined_last_and_is_still_there() -> None:
    first, second = Freed(), Freed()
    know(first, "only", Definition(Point))
    know(second, "only", Definition(Size))
    assert definition_of("only") == Definition(Size)
    del second
    assert definition_of("only") == Definition(Point)
    del first
    assert definition_of("only") == Definition()


class Freed:
    """A definition."""
