"""Four ways through the library, counted: `python -m tests.shape.ways`; `--json`, or `--list "show a run"` for one way.

Each way is executed on SQLite in this process, from the verb to the settlement: once to warm up, then some times more.
Counted are the modules and functions of stepwell that are passed every time, in all threads, and the smallest number of
calls: so what only happened to run beside (a poll, a beat, upkeep) is left out. A coroutine that goes on after an
`await` is not called again. A hop does nothing if its whole body is one call of another function of stepwell with the
arguments that it was given.

Names of modules are not written here: what is counted is whatever the code passes.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import dis
import functools
import io
import json
import operator
import os
import runpy
import sqlite3
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Self
from unittest import mock

from stepwell import Decider, Decision, EffectContext, Engine, Store, Worker, connect, handler, step, workflow
from tests.shape import sources

TIMES: Final = 8  # after the first, which warms up
UNFINISHED: Final = "select id from stepwell_task where finished_at is null limit 1"
NOT_FUNCTIONS: Final = ("<module>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")

Function = tuple[str, str]  # the module and the qualified name


# ---- what is counted -----------------------------------------------------------------------------------------------


@dataclass
class Passed:
    """What was called on one way."""

    functions: Counter[Function] = field(default_factory=Counter)
    called_on: set[Function] = field(default_factory=set)  # those that called another function of stepwell

    @property
    def modules(self) -> set[str]:
        """The modules of the functions."""
        return {module for module, _ in self.functions}

    @property
    def hops(self) -> list[str]:
        """Functions that only pass on what they were given, as `module.function`."""
        return sorted(".".join(one) for one in self.functions if one in self.called_on and one in hops())

    def figures(self) -> dict[str, int]:
        """The counts, for the table."""
        counts = {"modules": self.modules, "functions": self.functions, "hops that do nothing": self.hops}
        return {name: len(counted) for name, counted in counts.items()} | {"calls": self.functions.total()}


def common(each: Sequence[Passed]) -> Passed:
    """What was passed every time, and how often at the least."""
    return Passed(
        functools.reduce(operator.and_, (one.functions for one in each)),
        set.intersection(*(one.called_on for one in each)),
    )


class Profile:
    """Counts calls of stepwell in the threads that are started while it is on."""

    def __init__(self) -> None:
        self._passed: Passed | None = None

    @contextlib.contextmanager
    def counting(self) -> Iterator[Passed]:
        """Count what is called in the block."""
        self._passed = passed = Passed()
        try:
            yield passed
        finally:
            self._passed = None

    def __enter__(self) -> Self:
        threading.setprofile(self._hook)
        sys.setprofile(self._hook)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _hook(self, frame: FrameType, event: str, _: object) -> None:
        passed = self._passed
        if passed is None or event != "call" or (function := function_of(frame.f_code)) is None:
            return
        if frame.f_lasti > start_of(frame.f_code):
            return
        passed.functions[function] += 1
        if frame.f_back is not None and (caller := function_of(frame.f_back.f_code)) is not None:
            passed.called_on.add(caller)


@functools.cache
def function_of(code: CodeType) -> Function | None:
    """The name of a function of stepwell; None for the code of others, of a whole module or of a comprehension."""
    path = Path(code.co_filename)
    if code.co_name in NOT_FUNCTIONS or not path.is_relative_to(sources.PACKAGE):
        return None
    return sources.module(path), code.co_qualname


@functools.cache
def start_of(code: CodeType) -> int:
    """Where a function begins: a frame beyond that is one that goes on."""
    return next(one.offset for one in dis.get_instructions(code) if one.opname == "RESUME" and one.arg == 0)


@functools.cache
def hops() -> frozenset[Function]:
    """Every function of stepwell whose body is one call with its own arguments."""
    return frozenset(
        (sources.module(path), name)
        for path in sources.MODULES
        for name, function in functions_of(sources.tree(path))
        if is_hop(function)
    )


def functions_of(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of a module with their qualified names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield within + child.name, child
            yield from functions_of(child, f"{within}{child.name}.<locals>.")
        else:
            yield from functions_of(child, f"{within}{child.name}." if isinstance(child, ast.ClassDef) else within)


def is_hop(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True if all that it does is to call something with the arguments that it was given."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    value = body[0].value.value if isinstance(body[0].value, ast.Await) else body[0].value
    if not isinstance(value, ast.Call) or not is_name(value.func):
        return False
    given = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    passed = [
        one.value if isinstance(one, ast.Starred | ast.keyword) else one for one in (*value.args, *value.keywords)
    ]
    return all(isinstance(one, ast.Name) and one.id in given for one in passed)


def is_name(node: ast.expr) -> bool:
    """`f` or `self.store.f`, and not the name of a class: making something is not nothing."""
    if isinstance(node, ast.Attribute):
        return not node.attr[:1].isupper() and (is_name(node.value) or isinstance(node.value, ast.Name))
    return isinstance(node, ast.Name) and not node.id[:1].isupper()


# ---- the ways ------------------------------------------------------------------------------------------------------


@handler("greetings")
async def greet(name: str) -> None:
    """A handler that does nothing: the way is what counts."""


@step
async def double(number: int) -> int:
    """A step."""
    return 2 * number


@workflow
async def count_up(number: int) -> int:
    """A workflow of one step."""
    return await double(number) + 1


@dataclass(frozen=True)
class Pay:
    """An input."""

    order_id: str


@dataclass(frozen=True)
class Paid:
    """An event."""


@dataclass(frozen=True)
class Thank:
    """An effect."""


class Orders(Decider[int, Pay, Paid, Thank]):
    """A decider whose every input leads to one event and one effect."""

    type = "order"
    route = "order_id"

    def initial(self) -> int:
        """No payment."""
        return 0

    def decide(self, state: int, input: Pay, now: datetime) -> Decision[Paid, Thank, Pay]:
        """Yes."""
        return Decision.event(Paid()).with_effect(Thank())

    def evolve(self, state: int, event: Paid) -> int:
        """One payment more."""
        return state + 1

    async def handle(self, effect: Thank, ctx: EffectContext) -> None:
        """Nothing is sent."""


class Ways:
    """The ways through one process that has a store and a worker."""

    def __init__(self, store: Store, engine: Engine, file: Path, profile: Profile) -> None:
        self._store = store
        self._engine = engine
        self._file = file
        self._profile = profile

    async def count(self) -> dict[str, Passed]:
        """What is passed on each way that needs the worker."""
        return {
            "enqueue to settled": await self._repeat(self._enqueue),
            "trigger to result": await self._repeat(self._trigger),
            "input to effect": await self._repeat(self._send_input),
        }

    async def _repeat(self, way: Callable[[str], Awaitable[object]]) -> Passed:
        each: list[Passed] = []
        for number in range(TIMES + 1):
            with self._profile.counting() as passed:
                await way(f"key {number}")
                await self._settled()
            each.append(passed)
        return common(each[1:])

    async def _settled(self) -> None:
        """Return when every task is finished. A connection of its own asks, so that nothing of this is counted."""
        with contextlib.closing(sqlite3.connect(self._file)) as database:
            while database.execute(UNFINISHED).fetchone() is not None:  # noqa: ASYNC110 - nobody else is to know
                await asyncio.sleep(0.002)
        await asyncio.sleep(0.01)  # what was committed is told to those who asked for it

    # A key keeps a task from being handed over to the idle worker of this process: it is written, then claimed.

    async def _enqueue(self, key: str) -> None:
        await self._store.enqueue(greet, "Ada", key=key)

    async def _trigger(self, key: str) -> None:
        assert await self._store.result(await count_up.trigger(20).options(key=key).execute(self._store)) == 41

    async def _send_input(self, order: str) -> None:
        await self._engine.execute(Pay(order))


async def count_work(file: Path, profile: Profile) -> tuple[dict[str, Passed], int]:
    """The ways through a process with a worker; and a run to show."""
    async with connect(f"sqlite:///{file}", listen=False) as store:
        engine = Engine(store).register(Orders())
        async with Worker(store, [greet, count_up, engine]):
            ways = await Ways(store, engine, file, profile).count()
            run_id = await count_up.trigger(1).execute(store)
            await store.result(run_id)
            return ways, run_id


def count_show(file: Path, run_id: int, profile: Profile) -> Passed:
    """The way of `stepwell show RUN`, from the words of the command line to the last line that is printed."""
    each: list[Passed] = []
    for _ in range(TIMES + 1):
        words = ["stepwell", "show", str(run_id)]
        with (
            mock.patch.dict(os.environ, STEPWELL_URL=f"sqlite:///{file}"),
            mock.patch("sys.argv", words),
            contextlib.redirect_stdout(io.StringIO()) as said,
            contextlib.suppress(SystemExit),
            profile.counting() as passed,
        ):
            runpy.run_module("stepwell", run_name="__main__")
        assert count_up.name in said.getvalue()
        each.append(passed)
    return common(each[1:])


def count() -> dict[str, Passed]:
    """All four ways, on a file of their own."""
    with tempfile.TemporaryDirectory() as folder, Profile() as profile:
        file = Path(folder) / "ways.db"
        ways, run_id = asyncio.run(count_work(file, profile))
        return ways | {"show a run": count_show(file, run_id, profile)}


# ---- what is said --------------------------------------------------------------------------------------------------


def table(ways: dict[str, Passed]) -> str:
    """The counts as Markdown."""
    rows = ["| way | modules | functions | calls | hops that do nothing |", "|---|--:|--:|--:|---|"]
    for way, passed in ways.items():
        named = ", ".join(f"`{hop}`" for hop in passed.hops) or "none"
        figures = passed.figures()
        rows.append(f"| {way} | {figures['modules']} | {figures['functions']} | {figures['calls']} | {named} |")
    return "\n".join(rows)


def listing(passed: Passed) -> str:
    """Every function passed, below its module, with the number of its calls."""
    lines: list[str] = []
    for module in sorted(passed.modules):
        lines.append(module)
        lines += [
            f"  {calls:4}  {name}" for (where, name), calls in sorted(passed.functions.items()) if where == module
        ]
    return "\n".join(lines)


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the counts and the hops as JSON")
    parser.add_argument("--list", metavar="WAY", help="every function of one way, with the number of its calls")
    asked = parser.parse_args()
    ways = count()
    if asked.list:
        sys.stdout.write(listing(ways[asked.list]) + "\n")
    elif asked.json:
        said: dict[str, Any] = {way: {**passed.figures(), "hops": passed.hops} for way, passed in ways.items()}
        sys.stdout.write(json.dumps(said, indent=2) + "\n")
    else:
        sys.stdout.write(table(ways) + "\n")


if __name__ == "__main__":
    main()
