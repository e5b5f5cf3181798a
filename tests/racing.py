"""Which tests race: those that start processes or threads, and those that say so. `make flakes` repeats them.

A test that races is marked by what it does, and by what the functions of the tests do that it calls: nobody has to
remember to mark it.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import pytest

# What starts processes and threads, lets several write at once, or goes by a real clock.
RACES = re.compile(
    r"\b(?:subprocess|multiprocessing|ThreadPoolExecutor|threading\.Thread|Barrier|Crew|spawn|FaultProxy)\b"
    r"|\.sleep\(0?\.\d|monotonic\(\) -"
)
FIXTURES = {"proxy", "proxied_url", "postgres_server"}
# These start programs that have no clock and no order to get wrong: compilers, checkers of types, builders of pages.
QUIET = ("tests.typing.", "tests.bench.", "tests.shape.", "tests.examples.", "tests.unit.", "tests.ground.")
# Names of modules whose tests all race.
NAMED = re.compile(r"^tests\.crash\.|race|contention|other_processes|lost_|deadlock|stall")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what races, where a run chooses by it: to read every test takes seconds in each process of a run."""
    if "racing" not in config.getoption("markexpr"):
        return
    for item in items:
        if isinstance(item, pytest.Function) and races(item.function, _fixtures_of(item)):
            item.add_marker(pytest.mark.racing)


def races(test: Any, fixtures: Mapping[str, Any]) -> bool:
    """True if a test or a fixture of it starts processes or threads, or its module says that it races."""
    module = test.__module__
    if module.startswith(QUIET):
        return False
    if NAMED.search(module) or not FIXTURES.isdisjoint(fixtures):
        return True
    return any(map(_starts, [inspect.unwrap(test), *filter(_is_ours, fixtures.values())]))


def _fixtures_of(item: pytest.Function) -> dict[str, Any]:
    info: Any = item._fixtureinfo
    return {name: inspect.unwrap(used[-1].func) for name, used in info.name2fixturedefs.items()}


def _starts(test: Any) -> bool:
    """True if this function of the tests says so, or one that it calls, or a class that it uses."""
    waiting, seen = [test], set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        if _says_so(one):
            return True
        waiting += _named_by(one)
    return False


@cache
def _says_so(one: Any) -> bool:
    return RACES.search(inspect.getsource(one)) is not None


@cache
def _named_by(one: Any) -> list[Any]:
    return list(_each_named_by(one))


def _each_named_by(one: Any) -> Iterator[Any]:
    functions = (
        [one] if isinstance(one, FunctionType) else [each for each in vars(one).values() if inspect.isfunction(each)]
    )
    for function in functions:
        for name in _names(function.__code__):
            found = function.__globals__.get(name)
            if _is_ours(found):
                yield found


def _is_ours(found: object) -> bool:
    """True for a function or a class of the tests; what they all stand on is known by its name."""
    module = found.__module__ if isinstance(found, FunctionType | type) else ""
    return module.startswith("tests.") and not module.startswith("tests.ground.")


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
