"""Which tests race: those that start processes or threads, and those that say so. `make flakes` repeats them.

A test that races is marked by what its module does, so that nobody has to remember to mark it.
"""

import inspect
import re
from functools import cache
from types import ModuleType

import pytest

# What starts processes and threads, lets several write at once, or goes by a real clock.
RACES = re.compile(
    r"\b(?:subprocess|multiprocessing|ThreadPoolExecutor|threading\.Thread|Barrier|Crew|spawn|FaultProxy|proxied_url"
    r"|postgres_server)\b|\.sleep\(0?\.\d|monotonic\(\) -"
)
# These start programs that have no clock and no order to get wrong: compilers, checkers of types, builders of pages.
QUIET = {"tests.typing", "tests.bench", "tests.shape", "tests.examples", "tests.unit", "tests.ground"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what races."""
    for item in items:
        module = getattr(item, "module", None)
        if isinstance(module, ModuleType) and races(module):
            item.add_marker(pytest.mark.racing)


@cache
def races(module: ModuleType) -> bool:
    """True if a test module starts processes or threads, or its name says that it races."""
    name = module.__name__
    if any(name.startswith(f"{one}.") for one in QUIET):
        return False
    last = name.rpartition(".")[2]
    return "race" in last or "contention" in last or name.startswith("tests.crash.") or _starts(module)


def _starts(module: ModuleType) -> bool:
    return RACES.search(inspect.getsource(module)) is not None
