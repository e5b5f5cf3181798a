import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import flaws
from tests.cli.kit import Cli


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """`stepwell worker` sets up the process's log: put back what pytest had."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture(autouse=True)
def sold_out() -> Iterator[set[str]]:
    """What the shop does not have."""
    before = set(flaws.SOLD_OUT)
    yield flaws.SOLD_OUT
    flaws.SOLD_OUT.clear()
    flaws.SOLD_OUT.update(before)


@pytest.fixture
def empty(store_url: str) -> Cli:
    """The command line on a place where there is no store yet."""
    return Cli(store_url)


@pytest.fixture
def cli(empty: Cli) -> Cli:
    """The command line on a store that the shop's worker has been seen in."""
    empty("worker", "tests.cli.shop", "--once")
    return empty


@pytest.fixture
def desk(tmp_path: Path) -> Cli:
    """The command line on a store in a file, in which the runs of `tests.cli.desk` wait."""
    cli = Cli(f"sqlite:///{tmp_path}/desk.db", "tests.cli.desk")
    cli.serve()
    return cli
