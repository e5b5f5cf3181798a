"""A count that ends somewhere says so, wherever it is printed, added up or told as JSON."""

import json
import pickle

import pytest

from stepwell import Count, QueueStats
from stepwell.operate.format import many, plain

FLOOR = Count(10_000, is_floor=True)


@pytest.mark.proves("MM-08")
@pytest.mark.parametrize(
    ("count", "told"),
    [(Count(3), "3"), (Count(10_000), "10000"), (FLOOR, "10k+"), (Count(7, is_floor=True), "7+")],
)
def test_a_floor_is_told_as_one(count: Count, told: str) -> None:
    assert (str(count), f"{count}", f"{count:>6}") == (told, told, told.rjust(6))
    assert many(count, "task waits", "tasks wait") == f"{told} tasks wait"


@pytest.mark.proves("MM-08")
def test_it_is_exact_up_to_the_most_that_are_counted() -> None:
    assert (Count.of(3, 3, 3), Count.of(3, 3, 3).is_floor) == (3, False)
    assert (Count.of(4, 4, 3), Count.of(4, 4, 3).is_floor) == (3, True)
    assert (Count.of(0, 4, 3), Count.of(0, 4, 3).is_floor) == (0, True), "others of the same walk may hide some"


@pytest.mark.proves("MM-08")
def test_a_sum_with_a_floor_is_one() -> None:
    for total in (FLOOR + 1, 1 + FLOOR, sum([Count(1), FLOOR])):
        assert isinstance(total, Count)
        assert (total, total.is_floor) == (10_001, True)
    assert not (Count(1) + Count(2)).is_floor
    assert (FLOOR == 10_000, json.dumps(FLOOR), pickle.loads(pickle.dumps(FLOOR)).is_floor) == (True, "10000", True)


@pytest.mark.proves("MM-08")
def test_json_names_the_counts_that_are_floors() -> None:
    told = plain(QueueStats("q", False, False, FLOOR, Count(1), Count(2), Count(0), None))
    assert (told["ready"], told["waiting"], told["at_least"]) == (10_000, 1, ["ready"])
    assert "at_least" not in plain({"SUCCESS": Count(1)})
    assert plain({"SUCCESS": FLOOR}) == {"SUCCESS": 10_000, "at_least": ["SUCCESS"]}
