"""A run drawn as a graph of its steps, and the source of its workflow with what the run has done of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from stepwell import Context, Store, Worker, step, workflow
from stepwell.records import RunStatus, StepInfo
from tests.ui import flows
from tests.ui.kit import dashboard
from tests.ui.test_actions import failed_run
from tests.workflows.kit import begun, drained

pytest.importorskip("starlette")
from stepwell.ui.failure import Failure, TraceFrame
from stepwell.ui.graph import StepGraph, graph_of
from stepwell.ui.run import steps_named
from stepwell.ui.source import source_of, view_of
from stepwell.ui.timeline import TimelineLane

pytestmark = pytest.mark.proves("dashboard-08")
TIMES = "\N{MULTIPLICATION SIGN}"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def ended(key: str, begin: float, end: float | None, status: RunStatus = RunStatus.SUCCESS) -> StepInfo:
    """A step that has executed in these seconds after noon."""
    finished = None if end is None else NOON + timedelta(seconds=end)
    begun_at = NOON + timedelta(seconds=begin)
    return StepInfo(key, key.rpartition("#")[0], status, 1, None, None, None, begun_at, finished)


def drawn(*steps: StepInfo) -> StepGraph:
    words = {RunStatus.SUCCESS: "succeeded", RunStatus.ERROR: "failed", RunStatus.RUNNING: "running"}
    lanes = [TimelineLane("✓", words[one.status], one.key, one.key, 0, "", "1 s", ()) for one in steps]
    return graph_of(steps, lanes)


def rows_of(graph: StepGraph) -> list[list[str]]:
    """The names of each row, from the top."""
    places = sorted({node.y for node in graph.nodes})
    return [[node.name for node in sorted(graph.nodes, key=lambda one: one.x) if node.y == y] for y in places]


def test_what_overlapped_stands_side_by_side_and_what_followed_below() -> None:
    graph = drawn(ended("a#1", 0, 1), ended("b#1", 1, 3), ended("b#2", 1, 2), ended("c#1", 3, None, RunStatus.RUNNING))
    assert rows_of(graph) == [["a#1"], ["b#1", "b#2"], ["c#1"]]
    assert len(graph.edges) == 1 + 2 + 2 + 1, "from the beginning, apart, together, to the end"
    for row in {node.y for node in graph.nodes}:
        boxes = sorted((node.x, node.x + node.width) for node in graph.nodes if node.y == row)
        assert all(one[1] < other[0] for one, other in pairwise(boxes))
        assert boxes[0][0] >= 0
        assert boxes[-1][1] <= graph.width


def test_many_of_one_name_are_one_box_that_leads_to_the_one_that_failed() -> None:
    beside = [ended(f"pack#{number}", 1, 5) for number in range(1, 1001)]
    beside[700] = ended("pack#701", 1, 4, RunStatus.ERROR)
    after = [ended(f"send#{number}", 5 + number, 5.5 + number) for number in range(1, 41)]
    graph = drawn(ended("a#1", 0, 1), *beside, *after, ended("z#1", 90, 91))
    assert rows_of(graph) == [["a#1"], [f"pack {TIMES}1000"], [f"send {TIMES}40"], ["z#1"]]
    [packed] = [node for node in graph.nodes if node.name == f"pack {TIMES}1000"]
    assert (packed.key, packed.word, packed.note) == ("pack#701", "failed", "1 failed")


def test_many_different_ones_side_by_side_take_several_rows() -> None:
    graph = drawn(*(ended(f"{'n' * 40}{number}#1", 0, 1) for number in range(9)))
    assert [len(row) for row in rows_of(graph)] == [4, 4, 1]
    assert graph.width < 1200


def test_a_run_without_steps_has_a_graph_without_boxes() -> None:
    assert (drawn().nodes, drawn().edges) == ([], [])


@step
async def fetch(number: int) -> int:
    return number


@workflow
async def child(number: int) -> int:
    return number


@workflow
async def varied(ctx: Context, count: int) -> int:
    """Calls "fetch(1)" in a text are no calls."""
    total = await fetch(1)  # fetch
    total += sum(
        await asyncio.gather(*(ctx.step(fetch, number) for number in range(count))),
    )
    total += await child(total)
    await ctx.wait("onwards", int)
    raise ValueError(f"no {total}")


def line_of(text: str) -> int:
    """The line of the workflow that has this text."""
    source = source_of(varied.fn)
    assert source is not None
    return source.first + next(at for at, line in enumerate(source.texts) if text in line)


def test_a_line_is_known_by_the_steps_that_it_calls() -> None:
    source = source_of(varied.fn)
    assert source is not None
    assert source.calls[line_of("await fetch(1)")] == {"fetch"}
    assert source.calls[line_of("ctx.step(fetch")] >= {"fetch"}
    assert source.calls[line_of("await child(")] == {"child()"}
    assert source.calls[line_of("ctx.wait(")] == {"onwards"}
    assert line_of('Calls "fetch') not in source.calls
    written = ["".join(text for _, text in line) for line in source.lines]
    assert written == list(source.texts), "what is painted is the text itself"
    assert ("j-key", "async") in source.lines[1]


def test_the_line_that_an_error_left_is_marked_only_if_it_reads_the_same_here() -> None:
    source = source_of(varied.fn)
    assert source is not None
    for code, differs in ((source.texts[-1].strip(), False), ("raise ValueError(1)", True)):
        frame = TraceFrame(source.file, line_of("raise"), "varied", code, own=True)
        view = view_of(source, [ended("fetch#1", 0, 1)], Failure("ValueError", "", [frame], frame, ""))
        failed = [line.number for line in view.lines if line.state == "failed"]
        assert (view.differs, failed) == (differs, [] if differs else [line_of("raise")])
        states = {line.number: line.state for line in view.lines}
        assert states[line_of("await fetch(1)")] == "succeeded"


def test_what_has_no_source_has_none() -> None:
    made: dict[str, Any] = {}
    exec("def nowhere(): pass", made)
    assert source_of(made["nowhere"]) is None


def test_a_step_beside_the_code_of_its_workflow_is_found_first() -> None:
    async def pay() -> None: ...

    pay.__module__ = "elsewhere"
    other = step(pay)
    assert steps_named("pay", flows.buy.fn) == [flows.pay]
    assert {other, flows.pay} <= set(steps_named("pay", None))


async def test_a_run_is_shown_as_a_graph_and_with_its_source(store: Store) -> None:
    run = await failed_run(store)
    async with dashboard(store, flows.ALL) as desk, dashboard(store) as bare:
        page = await desk.page(f"/runs/{run}?tab=graph")
        links = page.values("a", "href")
        assert "?tab=graph&step=price%231" in links
        assert "pay" in page.text
        page = await desk.page(f"/runs/{run}?tab=source")
        assert "return await pay(await price(what))" in page.text
        assert "failed here" in page.text, "in the step that failed"
        assert "raise PermanentError" in page.text
        page = await bare.page(f"/runs/{run}?tab=source")
        assert "The code of buy is not here" in page.text
        for tab in ("nothing", "../../etc/passwd"):
            assert "Fold" not in (await desk.page(f"/runs/{run}?tab={tab}")).text


async def test_the_input_of_a_failed_run_is_shown_when_the_run_itself_is_chosen(store: Store) -> None:
    run = await failed_run(store)
    async with dashboard(store, flows.ALL) as desk:
        assert "Input of the run" in (await desk.get(f"/runs/{run}?view=run"))
        assert "Input of the run" not in (await desk.get(f"/runs/{run}"))


async def test_a_run_that_waits_shows_at_which_line(store: Store) -> None:
    run = int(await begun(store, varied, 3))
    for _ in range(3):
        await drained(store, varied, child)
    async with dashboard(store, [varied, child]) as desk:
        text = await desk.get(f"/runs/{run}?tab=source")
        assert 'class="c-waiting"' in text
        await store.signal(run, "onwards", 1)
        await Worker(store, [varied, child]).drain()
        assert 'class="c-failed"' in await desk.get(f"/runs/{run}?tab=source")
