import functools
import logging
import shutil
from collections.abc import Callable, Iterator
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


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], Cli]:
    """Makes a store in a folder that the worker of an APP has been seen in: made once, then copied."""

    @functools.cache
    def made(app: str) -> Path:
        folder = tmp_path_factory.mktemp("seen")
        Cli(f"sqlite:///{folder}/store.db", app).serve()
        return folder

    def copied(app: str, folder: Path) -> Cli:
        shutil.copytree(made(app), folder, dirs_exist_ok=True)
        return Cli(f"sqlite:///{folder}/store.db", app)

    return copied


@pytest.fixture
def desk(seen: Callable[[str, Path], Cli], tmp_path: Path) -> Cli:
    """The command line on a store in a file, in which the runs of `tests.cli.desk` wait."""
    return seen("tests.cli.desk", tmp_path)
