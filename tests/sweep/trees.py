"""Random workflows: a tree of steps, sequences, loops, branches, gathers, task groups, failures, sleeps, waits for
signals, children, races and cancelled runs.

A tree is plain data, so it is the input of one workflow that walks it. A value is handed from node to node, so that a
record that answered the wrong call would show in the arguments of the next one or in the result.
"""

import asyncio
import random
from typing import Any

from hypothesis import strategies as st

from stepwell import PermanentError, RunCancelled, StepFailed, TransientError, current, sleep, step, workflow
from stepwell.store.audit import UNSAID_BY
from tests.sweep.ledger import note

Tree = list[Any]
schedule = random.Random(0)  # how often each body lets the others go first; another every time it is asked


@step
async def add(a: int, b: int) -> int:
    note()
    await _yield()
    return a + b


@step
async def choose(a: int) -> int:
    note()
    await _yield()
    return a


@step(retry=2)
async def flaky(a: int, b: int) -> int:
    note()
    await _yield()
    if current().attempt == 1:
        raise TransientError("not yet", retry_after="7m")
    return a * b


@step
async def fail(a: int) -> int:
    note()
    await _yield()
    raise PermanentError(f"never {a}")


@step
async def name() -> str:
    """A name for a signal that no other call of the run has: that of this call."""
    note()
    return current().key.partition("/")[2].replace("/", ".").replace("#", "-")


@step
async def tell(word: str, a: int) -> None:
    note()
    await _yield()
    ctx = current()
    await ctx._run.slot.database.signals.send(ctx.run_id, word, a, ctx.key, check=True, tx=None)


@step
async def stop(run_id: int) -> None:
    note()
    await current()._run.slot.database.control.cancel(run_id, UNSAID_BY)


def threaded(a: int, b: int) -> int:
    note()
    return a - b


@workflow(name="sweep.tree")
async def grow(tree: Tree, value: int) -> int:
    return await walk(tree, value)


async def walk(tree: Tree, value: int) -> int:  # noqa: C901, PLR0912 - one case a kind of node
    match tree:
        case ["step", int(n)]:
            return await add(value, n)
        case ["thread", int(n)]:
            return await current().step("threaded", threaded, value, n)
        case ["flaky", int(n)]:
            return await flaky(value, n)
        case ["fail"]:
            return await fail(value)
        case ["sleep", int(minutes)]:
            await sleep(60 * minutes)
            return value + 1
        case ["told", int(n)]:
            word = await name()
            _, came = await asyncio.gather(tell(word, value + n), current().wait(word, int))
            return came
        case ["kept", int(n)]:
            word = await name()
            await tell(word, value * n)
            return await current().wait(word, int, timeout="1h", default=-1)
        case ["late", int(minutes)]:
            return await current().wait(await name(), int, timeout=60 * minutes, default=value + 3)
        case ["child", list(node)]:
            return await grow.trigger(node, value).wait().execute()
        case ["children", [*nodes]]:
            ids = await current().trigger_many([grow.trigger(node, value) for node in nodes])
            return _total(await current().results(ids))
        case ["cancelled", list(node)]:
            [run_id] = await current().trigger_many([grow.trigger(["sequence", [["sleep", 30], node]], value)])
            await stop(int(run_id))
            try:
                return _total(await current().results([run_id]))
            except RunCancelled:
                return value + 5
        case ["race", list(node)]:
            place, won = await current().race(current().wait(await name(), int), walk(node, value), sleep("1000d"))
            return int(won or 0) + place
        case ["sequence", [*nodes]]:
            for node in nodes:
                value = await walk(node, value)
            return value
        case ["loop", int(times), list(node)]:
            for _ in range(times):
                value = await walk(node, value)
            return value
        case ["branch", list(even), list(odd)]:
            return await walk(odd if await choose(value) % 2 else even, value)
        case ["gather", [*nodes]]:
            return _total(await asyncio.gather(*(walk(node, value) for node in nodes)))
        case ["gather all", [*nodes]]:
            found = await asyncio.gather(*(walk(node, value) for node in nodes), return_exceptions=True)
            return _total([1000 if isinstance(one, StepFailed) else one for one in found])
        case ["group", [*nodes]]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(walk(node, value)) for node in nodes]
            return _total([task.result() for task in tasks])
        case ["try", list(node), list(instead)]:
            try:
                return await walk(node, value)
            except StepFailed:
                return await walk(instead, value)
        case _:
            raise PermanentError(f"no tree: {tree}")


def _total(values: list[Any]) -> int:
    """Not their sum: it says as well which of them came where."""
    return sum(place * int(value) for place, value in enumerate(values, 1)) % 100_003


async def _yield() -> None:
    for _ in range(schedule.randrange(5)):
        await asyncio.sleep(0)


numbers = st.integers(0, 9)
leaves: st.SearchStrategy[Tree] = st.one_of(
    st.tuples(st.sampled_from(["step", "step", "thread", "flaky"]), numbers).map(list),
    st.tuples(st.sampled_from(["told", "kept"]), numbers).map(list),
    st.tuples(st.sampled_from(["sleep", "late"]), st.integers(1, 30)).map(list),
)


def _failing(nodes: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    """A sequence that fails at its end. Only in a `try` or `gather all`: whom it stops is up to the loop."""
    return st.lists(nodes, max_size=2).map(lambda before: ["sequence", [*before, ["fail"]]])


def _larger(nodes: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    some = st.lists(nodes, min_size=1, max_size=3)
    either = st.lists(st.one_of(nodes, _failing(nodes)), min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("sequence"), some).map(list),
        st.tuples(st.just("loop"), st.integers(0, 3), nodes).map(list),
        st.tuples(st.just("branch"), nodes, nodes).map(list),
        st.tuples(st.sampled_from(["gather", "group"]), some).map(list),
        st.tuples(st.just("gather all"), either).map(list),
        st.tuples(st.just("try"), _failing(nodes), nodes).map(list),
        st.tuples(st.sampled_from(["child", "cancelled", "race"]), nodes).map(list),
        st.tuples(st.just("children"), some).map(list),
    )


trees: st.SearchStrategy[Tree] = st.recursive(leaves, _larger, max_leaves=12).filter(lambda tree: tree[0] != "sleep")
