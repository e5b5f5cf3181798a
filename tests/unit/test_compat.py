"""Every piece of knowledge about the insides of others, one by one, against what is installed."""

from __future__ import annotations

import ast
import asyncio
import importlib.metadata
import inspect
import re
import subprocess
import sys
import threading
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from stepwell.base import compat
from tests.shape import sources


@asynccontextmanager
async def waiting(body: Callable[[asyncio.Future[None]], Awaitable[Any]]) -> AsyncIterator[asyncio.Task[Any]]:
    """A task that has come as far as it can, while the future that all of it waits for is open."""
    outside: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(body(outside))
    for _ in range(5):
        await asyncio.sleep(0)
    try:
        assert not task.done()
        yield task
    finally:
        outside.set_result(None)
        await task


async def for_a_future(outside: asyncio.Future[None]) -> None:
    await outside


async def for_a_task(outside: asyncio.Future[None]) -> None:
    await asyncio.create_task(for_a_future(outside))


async def in_gather(outside: asyncio.Future[None]) -> None:
    await asyncio.gather(for_a_future(outside), for_a_future(outside))


async def in_wait(outside: asyncio.Future[None]) -> None:
    await asyncio.wait([asyncio.create_task(for_a_future(outside))])


async def in_wait_for(outside: asyncio.Future[None]) -> None:
    await asyncio.wait_for(asyncio.create_task(for_a_future(outside)), 60)


async def in_wait_for_a_future(outside: asyncio.Future[None]) -> None:
    await asyncio.wait_for(outside, 60)


async def in_as_completed(outside: asyncio.Future[None]) -> None:
    for one in asyncio.as_completed([asyncio.create_task(for_a_future(outside))]):
        await one


async def in_a_group(outside: asyncio.Future[None]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(for_a_future(outside))


async def in_a_group_of_anyio(outside: asyncio.Future[None]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(for_a_future, outside)


async def for_a_lock_of_its_own(outside: asyncio.Future[None]) -> None:
    lock = asyncio.Lock()

    async def held() -> None:
        async with lock:
            await outside

    holder = asyncio.create_task(held())
    await asyncio.sleep(0)
    async with lock:
        await holder


SHARED = asyncio.Lock()


async def for_a_lock_of_all(outside: asyncio.Future[None]) -> None:
    async def held() -> None:
        async with SHARED:
            await outside

    holder = asyncio.create_task(held())
    await asyncio.sleep(0)
    async with SHARED:
        await holder


INSIDES = re.compile(
    r"_fut_waiter|_GatheringFuture|f_locals|_getframe|_current_frames|_is_coroutine|_args_from_interpreter_flags|"
    r"(anyio|opentelemetry)\b.*"
)


def names_and_texts(module: ast.Module) -> Iterator[str]:
    skip = sources.docstrings(module)
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skip:
            yield node.value


def test_the_insides_of_others_are_known_in_one_place() -> None:
    knowing = {
        sources.module(path)
        for path in sources.MODULES
        if any(INSIDES.fullmatch(text) for text in names_and_texts(sources.tree(path)))
    }
    assert knowing == {"base.compat"}


@pytest.mark.parametrize("library", compat.TRIED)
def test_what_is_installed_was_tried(library: str) -> None:
    if library == "Python":
        installed = sys.version
    else:
        try:
            installed = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(
                f"{library} is not installed: its wrappers are written down in tests/workflows/test_branches.py"
            )
    version = re.findall(r"^\d+\.\d+", installed)[0]
    assert version in compat.TRIED[library], f"{library} {installed}: run this file with it, then add it to TRIED"


async def test_the_future_that_a_task_waits_for_is_found() -> None:
    async with waiting(for_a_future) as task:
        assert isinstance(compat.waited_for(task), asyncio.Future)
    assert compat.waited_for(task) is None


@pytest.mark.parametrize(
    "body",
    [
        for_a_task,
        in_gather,
        in_wait,
        in_wait_for,
        in_as_completed,
        in_a_group,
        in_a_group_of_anyio,
        for_a_lock_of_its_own,
    ],
    ids=lambda body: body.__name__,
)
async def test_a_task_waits_for_other_tasks(body: Callable[..., Awaitable[Any]]) -> None:
    async with waiting(body) as task:
        assert compat.waits_for_tasks(task, compat.waited_for(task))


@pytest.mark.parametrize(
    "body", [for_a_future, in_wait_for_a_future, for_a_lock_of_all], ids=lambda body: body.__name__
)
async def test_a_task_waits_for_the_world(body: Callable[..., Awaitable[Any]]) -> None:
    async with waiting(body) as task:
        assert not compat.waits_for_tasks(task, compat.waited_for(task))


@asynccontextmanager
async def factory_that_notes(note: Callable[[Any], object]) -> AsyncIterator[list[Any]]:
    """Every task that is made in the block is noted by the task factory, which is where stepwell asks."""
    noted: list[Any] = []
    loop = asyncio.get_running_loop()

    def factory(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        noted.append(note(coro))
        return asyncio.Task(coro, loop=loop, **options)

    loop.set_task_factory(factory)
    try:
        yield noted
    finally:
        loop.set_task_factory(None)


def name_of(coro: Any) -> str | None:
    return getattr(compat.unwrapped(coro), "__qualname__", None)


async def nothing(_: object = None) -> None:
    """A body that is done at once."""


async def test_what_anyio_wraps_is_found() -> None:
    async with factory_that_notes(name_of) as names, anyio.create_task_group() as group:
        group.start_soon(nothing)
    assert names == ["nothing"]


async def test_what_opentelemetry_wraps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    instrumentation = pytest.importorskip("opentelemetry.instrumentation.asyncio")
    monkeypatch.setenv("OTEL_PYTHON_ASYNCIO_COROUTINE_NAMES_TO_TRACE", "nothing")
    instrumentor = instrumentation.AsyncioInstrumentor()
    instrumentor.instrument()
    try:
        async with factory_that_notes(lambda coro: (coro.__name__, name_of(coro))) as names:
            await asyncio.ensure_future(nothing())
    finally:
        instrumentor.uninstrument()
    assert names == [("trace_coroutine", "nothing")]


def test_what_cannot_be_found_is_none() -> None:
    wrapper = types.ModuleType("anyio.yet_to_come")
    exec("async def run(what): await what[0]", wrapper.__dict__)
    coroutine = wrapper.run([None])
    assert compat.unwrapped(coroutine) is None
    coroutine.close()


async def test_who_makes_a_task_is_found() -> None:
    async with factory_that_notes(lambda _: compat.made_by(above=2)) as makers:
        await asyncio.create_task(nothing())
        for one in asyncio.as_completed([nothing()]):
            await one
        await asyncio.wait_for(nothing(), 60)
    assert makers == [None, "as_completed", *(["wait_for"] if sys.version_info < (3, 12) else [])]


def test_the_caller_is_the_first_frame_outside_of_the_package() -> None:
    package = types.ModuleType("stepwell.pretended")
    exec("def ask(caller): return caller('stepwell')", package.__dict__)
    assert package.ask(compat.caller).f_code is sys._getframe().f_code


def test_an_object_passes_for_a_coroutine_function() -> None:
    class Called:
        async def __call__(self) -> int:
            return 7

    called = Called()
    assert not asyncio.iscoroutinefunction(called)
    compat.mark_as_async(called)
    assert asyncio.iscoroutinefunction(called)
    assert sys.version_info < (3, 12) or inspect.iscoroutinefunction(called)


def test_an_exception_that_code_has_raised_is_told_from_one_of_the_interpreter() -> None:
    def last(call: Callable[[], object]) -> types.TracebackType:
        try:
            call()
        except (ArithmeticError, ValueError) as error:
            trace = error.__traceback__
            assert trace is not None
            while trace.tb_next is not None:
                trace = trace.tb_next
            return trace
        raise AssertionError

    def raises() -> None:
        raise ValueError

    assert compat.was_raised(last(raises))
    assert not compat.was_raised(last(lambda: 1 / 0))


def test_the_frame_of_another_thread_is_seen() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait, args=(60,))
    thread.start()
    assert thread.ident is not None
    assert compat.frame_of(thread.ident) is not None
    go.set()
    thread.join()
    assert compat.frame_of(thread.ident) is None


def test_the_flags_of_the_interpreter_are_handed_on() -> None:
    code = "from stepwell.base import compat; print(compat.interpreter_flags())"
    said = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "-Werror" in said
