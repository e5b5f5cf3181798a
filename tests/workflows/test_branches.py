"""Which record answers which call: branches are labelled alike on every replay, whoever makes the tasks."""

import asyncio
import contextlib
import gc
import sys
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from stepwell import Context, InvalidOption, Retry, Store, TaskFactoryReplaced, Worker, sleep, step, workflow
from stepwell.base.clock import TestClock
from tests.workflows.kit import begun, drained, executed, names_in, statuses


@step
async def mark(name: str) -> str:
    return name


async def library() -> None:
    """What a library does in the background, in one process and not in the next."""
    await asyncio.sleep(0)


async def pair(name: str) -> list[str]:
    return [await mark(f"{name} 1"), await mark(f"{name} 2")]


@pytest.mark.proves("protocol-19")
async def test_keys_are_as_documented_and_background_tasks_do_not_shift_them(store: Store, clock: TestClock) -> None:
    turns: list[list[Any]] = []

    @workflow
    async def shapes(ctx: Context) -> None:
        background = [asyncio.create_task(library()) for _ in range(0 if turns else 3)]
        found: list[Any] = [await mark("plain"), await asyncio.create_task(mark("task"))]
        found.append(await asyncio.gather(pair("a"), mark("beside"), pair("b")))
        found.append(await asyncio.wait_for(mark("wait_for"), 60))
        found.append(await asyncio.wait_for(pair("c"), 60))
        found.append(await asyncio.gather(asyncio.wait_for(pair("d"), 60)))
        async with asyncio.TaskGroup() as group:
            group.create_task(_nested())
            group.create_task(ctx.step("named", pair, "e"))
        async with anyio.create_task_group() as others:
            others.start_soon(pair, "f")
            others.start_soon(mark, "started")
        found.append(await ctx.step("plain", lambda: [str(n) for n in range(2)]))
        await asyncio.gather(*background)
        turns.append(found)
        await ctx.sleep(60)

    run_id = await begun(store, shapes)
    await drained(store, shapes)
    clock.advance(60)
    await drained(store, shapes)
    assert turns[0] == turns[1]
    assert (await store.get_run(run_id)).status == "SUCCESS"
    assert sorted(await statuses(store, run_id)) == [
        "_nested:1/mark#1",
        "_nested:1/pair:1/mark#1",
        "_nested:1/pair:1/mark#2",
        "mark#1",  # plain
        "mark#2",  # task: a task that is itself a step call is no branch
        "mark#3",  # beside
        "mark#4",  # wait_for
        "mark#5",  # c: `wait_for` goes on with the branch
        "mark#6",
        "mark#7",  # started
        "named#1",
        "pair:1/mark#1",
        "pair:1/mark#2",
        "pair:2/mark#1",
        "pair:2/mark#2",
        "pair:3/mark#1",
        "pair:3/mark#2",
        "plain#1",
        "sleep#1",
        "wait_for:1/mark#1",
        "wait_for:1/mark#2",
    ]


# How versions of anyio wrap what its task groups are given, and how a version yet to come may; and how OpenTelemetry
# wraps what becomes a task.
WRAPPERS = """
async def trace_coroutine(self, coro):
    return await coro
async def _run_wrapped_task(coro):
    await coro
async def _run_coro(self):
    await self.coro
async def _run(what):
    await what[0]
"""


@pytest.mark.proves("protocol-19")
async def test_a_branch_in_a_task_group_of_anyio_is_called_the_same_in_every_version_of_anyio(
    store: Store, clock: TestClock
) -> None:
    anyio_has: dict[str, Any] = {"__name__": "anyio._core._tasks"}
    exec(WRAPPERS, anyio_has)
    versions = [
        anyio_has["_run_wrapped_task"],
        lambda given: anyio_has["_run_coro"](SimpleNamespace(coro=given)),
        lambda given: anyio_has["_run"]([given]),
    ]
    installed = 0

    @workflow
    async def upgraded(ctx: Context) -> None:
        for _ in range(2):
            await asyncio.create_task(versions[installed](pair("a")))
        await ctx.sleep(60)

    run_id = await begun(store, upgraded)
    await drained(store, upgraded)
    installed = 1
    clock.advance(60)
    await drained(store, upgraded)
    assert (await store.get_run(run_id)).status == "SUCCESS"
    known = ["pair:1/mark#1", "pair:1/mark#2", "pair:2/mark#1", "pair:2/mark#2"]
    assert sorted(await statuses(store, run_id)) == [*known, "sleep#1"]
    installed = 2
    run_id = await begun(store, upgraded)
    await drained(store, upgraded)
    assert sorted(await statuses(store, run_id)) == ["sleep#1", *(one.replace("pair", "task") for one in known)]


@pytest.mark.proves("protocol-19")
async def test_tracing_that_is_switched_on_while_a_run_is_open_changes_no_key_not_even_in_a_race(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry: dict[str, Any] = {"__name__": "opentelemetry.instrumentation.asyncio"}
    exec(WRAPPERS, telemetry)
    begin = asyncio.ensure_future

    def traced(coroutine: Any) -> Any:
        return begin(telemetry["trace_coroutine"](None, coroutine))

    async def late(name: str) -> str:
        await sleep("5h")
        return await mark(name)

    async def early(name: str) -> str:
        return await mark(name)

    @workflow
    async def buy(ctx: Context) -> list[Any]:
        found = await ctx.race(late("visa"), early("amex"))
        await ctx.sleep("1h")
        return [*found, await asyncio.ensure_future(early("ship"))]

    runs = []
    for first, then in ((begin, traced), (traced, begin), (traced, traced)):
        monkeypatch.setattr(asyncio, "ensure_future", first)
        runs.append(await begun(store, buy))
        await drained(store, buy)
        monkeypatch.setattr(asyncio, "ensure_future", then)
        clock.advance("1h")
        await drained(store, buy)
    for run_id in runs:
        assert (await store.get_run(run_id)).output() == [1, "amex", "ship"]
        keys = names_in(sorted(await statuses(store, run_id)))
        assert keys == ["race()#1", "sleep#1", "early:1/mark#1", "early:2/mark#1", "late:1/sleep#1"]


async def _nested() -> None:
    await mark("nested")
    await asyncio.gather(pair("x"))


@pytest.mark.proves("protocol-19")
async def test_tasks_that_nobody_labelled_are_refused_and_a_factory_of_the_users_own_is_wrapped_and_put_back(
    store: Store,
) -> None:
    loop = asyncio.get_running_loop()
    made: list[str] = []

    def own(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def told(call: Any) -> str:
        with pytest.raises(TaskFactoryReplaced) as refused:
            await call()
        return str(refused.value)

    @workflow
    async def replacing(ctx: Context) -> list[str]:
        before = loop.get_task_factory()
        loop.set_task_factory(None)
        try:
            calls = [lambda: mark("a"), lambda: ctx.step("b", pair, "b"), lambda: ctx.sleep(0), lambda: _now(ctx)]
            return await asyncio.gather(*(told(call) for call in calls))
        finally:
            loop.set_task_factory(before)

    @workflow
    async def plain() -> list[Any]:
        return list(await asyncio.gather(pair("a"), pair("b")))

    async def swapped(ctx: Context) -> list[Any]:
        both = [pair("a"), pair("b")]
        with pytest.raises(InvalidOption, match=r"asyncio\.create_task"):
            [await one for one in asyncio.as_completed(both)]
        for one in both:
            one.close()
        return [await one for one in asyncio.as_completed([asyncio.create_task(pair("c"))])]

    unordered = workflow(name="unordered")(swapped)
    loop.set_task_factory(own)
    try:
        async with Worker(store, [replacing, plain, unordered]) as worker:
            wrapped = loop.get_task_factory()
            assert wrapped is not own
            runs = [await begun(store, replacing)]
            await worker.drain()  # alone: whatever is made meanwhile has no label
            runs += [await begun(store, one) for one in (plain, unordered)]
            async with Worker(store, [plain]):
                await worker.drain()
            assert loop.get_task_factory() is wrapped
        assert loop.get_task_factory() is own
    finally:
        loop.set_task_factory(None)
    found = [(await store.get_run(run_id)).output() for run_id in runs]
    assert [one.partition(" was")[0] for one in found[0]] == ["step mark", "step b", "step sleep", "step now"]
    assert all("set yours before the worker starts" in one for one in found[0])
    assert found[1:] == [[["a 1", "a 2"], ["b 1", "b 2"]], [["c 1", "c 2"]]]
    assert made.count("pair") == 3


async def _now(ctx: Context) -> object:
    return ctx.now()


@pytest.mark.proves("protocol-19")
async def test_a_factory_that_was_set_since_and_wraps_ours_labels_nothing_twice(store: Store) -> None:
    loop = asyncio.get_running_loop()

    @workflow
    async def plain() -> list[Any]:
        return list(await asyncio.gather(pair("a")))

    async with Worker(store, [plain]):
        ours = loop.get_task_factory()
        assert ours is not None

        def around(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
            return ours(loop, coroutine, **options)

        loop.set_task_factory(around)
        async with Worker(store, [plain]) as second:
            run_id = await begun(store, plain)
            await second.drain()
    try:
        assert loop.get_task_factory() is around  # not ours to take away
        runs = [run_id, (await executed(store, plain)).id]
    finally:
        loop.set_task_factory(None)
    for one in runs:
        assert (await store.get_run(one)).output() == [["a 1", "a 2"]]
        assert names_in(list(await statuses(store, one))) == ["pair:1/mark#1", "pair:1/mark#2"]


def test_a_worker_that_is_abandoned_with_its_loop_is_collected_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)

    @workflow
    async def trivial(ctx: Context) -> None:
        pass

    async def entered() -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        stack.enter_context(trivial.served(Retry()).while_served())
        return stack

    async def entered_and_left() -> None:
        (await entered()).close()

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        abandoned = loop.run_until_complete(entered())
    asyncio.run(entered_and_left())  # forgets the loops that are closed
    del abandoned
    gc.collect()
    assert complaints == []
