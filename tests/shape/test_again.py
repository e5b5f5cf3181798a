"""Which red tests of a whole run may be chance, and are tried once more."""

import pytest

from scripts import again

ALONE = "tests/{}/test_it.py::test_it[sqlite]"


@pytest.mark.parametrize(
    ("names", "may_be"),
    [
        ([], False),
        ([ALONE.format("a")], True),
        (["tests/a/test_it.py::test_it[sqlite]", "tests/a/test_it.py::test_it[postgres]"], True),
        ([ALONE.format(name) for name in "abcd"], True),
        ([ALONE.format(name) for name in "abcde"], False),
        ([ALONE.format("a"), ALONE.format("b"), "tests/a/test_it.py::test_other"], False),
    ],
)
def test_few_red_tests_with_nothing_in_common_may_be_chance(names: list[str], may_be: bool) -> None:
    assert again.may_be_chance(names) is may_be
