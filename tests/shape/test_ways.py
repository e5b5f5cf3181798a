"""The ways through the library do not become longer."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.shape import sources
from tests.shape.ways import is_hop

BOUNDS = {  # modules, functions: as counted by `make ways`. A shorter way lowers them, a longer one has to be worth it
    # One module and up to two functions more on every way since headers travel with work; one and three to six since
    # a store encrypts for a subject, and since one timer keeps the deadlines of all callers.
    "enqueue to settled": (41, 167),
    # Three modules less since the usual step is one function and its result is not awaited by a chain of futures.
    # One more, and three functions, since each store knows the workflows that it uses; two more to show a run.
    "trigger to result": (60, 272),
    "input to effect": (49, 241),  # two more since the turns that deliver inputs, and codecs, have files of their own
    # One module and two functions more since the values that it has set are shown; one of each for encryption;
    # one and three since its children are found like any runs, by a filter of several words.
    "show a run": (61, 231),
}
TRIES = 4  # on a busy machine upkeep may run beside every repetition of a way, and a step may look slow


def counted() -> dict[str, Any]:
    """What `make ways` counts, in a process where nothing else runs."""
    command = [sys.executable, "-m", "tests.shape.ways", "--json"]
    done = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def longer(ways: dict[str, Any]) -> list[str]:
    return [
        f"{way}: {ways[way]['modules']} modules and {ways[way]['functions']} functions, bound {modules} and {functions}"
        for way, (modules, functions) in BOUNDS.items()
        if ways[way]["modules"] > modules or ways[way]["functions"] > functions
    ]


def test_no_way_through_the_library_becomes_longer() -> None:
    shortest = counted()
    assert set(shortest) == set(BOUNDS)
    for _ in range(TRIES - 1):
        if not longer(shortest):
            break
        again = counted()
        shortest = {way: min(shortest[way], again[way], key=lambda one: one["functions"]) for way in BOUNDS}
    assert longer(shortest) == []
    for way, (_modules, functions) in BOUNDS.items():
        assert shortest[way]["functions"] > functions / 2, f"{way}: so few that the counting is at fault"


@pytest.mark.parametrize(
    "function",
    [
        "def f(a, b): return g(a, b)",
        "async def f(self, a, *rest, **more): return await self._store.g(a, *rest, **more)",
        "def f(self): self._store.g()",
        "def f(a):\n  'Its promise.'\n  return g(a=a)",
    ],
)
def test_a_function_that_only_passes_on_its_arguments_is_a_hop(function: str) -> None:
    [node] = ast.parse(function).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    assert is_hop(node)


@pytest.mark.parametrize(
    "function",
    [
        "def f(a, b): return g(a, b, 1)",  # adds something
        "def f(a): return g(a.b)",  # looks into it
        "def f(a): return G(a)",  # makes something
        "def f(a): return g(h(a))",
        "def f(a): return a",
        "def f(a):\n  g(a)\n  h(a)",
        "def f(a): return g(a) + 1",
    ],
)
def test_a_function_that_does_something_is_no_hop(function: str) -> None:
    [node] = ast.parse(function).body
    assert isinstance(node, ast.FunctionDef)
    assert not is_hop(node)
