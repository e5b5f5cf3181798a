"""Pipelines: steps one after the other, a flow that branches on data, and tasks that another tool would draw."""

from __future__ import annotations

import asyncio
import json
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

import stepwell
from stepwell import Store, TransientError, Worker
from tests.seeds.loading import loaded

URL = "https://example.org/data.json"


class Web:
    """`requests`, as far as the text uses it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, url: str) -> SimpleNamespace:
        self.asked.append(url)
        return SimpleNamespace(text='{"rows": 3}')


class Json:
    """`json`, that fails at first."""

    def __init__(self) -> None:
        self.failures = 1

    def loads(self, text: str) -> Any:
        if self.failures:
            self.failures -= 1
            raise TransientError("not now", retry_after=0)
        return json.loads(text)


async def names_of(store: Store, run_id: int) -> list[str]:
    return [step.name for step in await store.steps(run_id)]


@pytest.mark.proves("S-09", "DD-02")
async def test_pipeline(live_store: Store) -> None:
    web = Web()
    program = loaded("pipeline", requests=web, json=json)
    async with Worker(live_store, [program.my_pipeline]):
        run_id = await program.my_pipeline.trigger(URL).execute(live_store)
        assert await live_store.result(run_id, timeout=30) == {"rows": 3}
    assert web.asked == [URL]
    assert await names_of(live_store, run_id) == ["fetch", "process"]


@pytest.mark.proves("S-02", "S-22", "R-08")
async def test_pipeline_goes_on_where_it_failed(live_store: Store) -> None:
    web, decoder = Web(), Json()
    program = loaded("pipeline", requests=web, json=decoder)
    async with Worker(live_store, [program.my_pipeline]):
        run_id = await program.my_pipeline.trigger(URL).execute(live_store)
        assert await live_store.result(run_id, timeout=30) == {"rows": 3}
    assert web.asked == [URL]
    assert [(step.name, step.attempt) for step in await live_store.steps(run_id)] == [
        ("fetch", 1),
        ("process", 2),
    ]


@pytest.mark.proves("R-14")
@pytest.mark.parametrize(("condition", "taken"), [(True, "step_b"), (False, "step_c")])
async def test_dynamic_flow(live_store: Store, condition: bool, taken: str) -> None:
    program = loaded("dynamic_flow", stepwell=stepwell, **{name: empty_step(name) for name in ABC})
    async with Worker(live_store, [program.dynamic_flow]):
        run_id = await program.dynamic_flow.trigger(condition).execute(live_store)
        assert await live_store.result(run_id, timeout=30) is None
    assert await names_of(live_store, run_id) == ["step_a", taken]


ABC = ("step_a", "step_b", "step_c")


def empty_step(name: str) -> stepwell.Step[[object], None]:
    @stepwell.step(id=name)
    def body(ctx: object) -> None:
        assert isinstance(ctx, stepwell.sync.Context)

    return body


@pytest.mark.proves("S-10", "S-20")
async def test_my_dag(live_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", commands.append)  # nobody waits five seconds for it
    program = loaded("my_dag")
    async with Worker(live_store, [program.my_dag]):
        run_id = await program.my_dag.trigger().execute(live_store)
        assert await live_store.result(run_id, timeout=30) is None
    assert commands == [["date"], ["sleep", "5"]]
    assert await names_of(live_store, run_id) == ["print_date", "sleep", "templated"]


@pytest.mark.proves("S-26")
async def test_the_parallel_branches_of_a_dag(live_store: Store) -> None:
    called: list[str] = []
    both = asyncio.Barrier(2)

    @stepwell.step
    async def t1() -> None:
        called.append("t1")

    @stepwell.step
    async def t2() -> None:
        called.append("t2")
        if stepwell.current().attempt == 1:
            await both.wait()  # t3 is under way at the same time
            raise TransientError("not now", retry_after=0)

    @stepwell.step
    async def t3() -> None:
        called.append("t3")
        await both.wait()

    @stepwell.workflow
    async def dag() -> None:
        await t1()
        await asyncio.gather(t2(), t3())

    async with Worker(live_store, [dag]):
        await dag.trigger().wait(30).execute(live_store)
    assert called == ["t1", "t2", "t3", "t2"]
