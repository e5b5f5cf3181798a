"""What a run waits for is given from its page: the data of a signal, a request, whether a step in doubt is done."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import Context, Store, Worker, step, workflow
from stepwell.records import RunStatus
from tests.ui.kit import dashboard
from tests.workflows.kit import begun, die, drained

pytestmark = pytest.mark.proves("dashboard-07")


@dataclass
class Assign:
    to: str
    hours: int = 1


@workflow
async def ticket(ctx: Context) -> str:
    async with ctx.request("assign", Assign) as request:
        if request.data.hours > 8:
            request.refuse("nobody works that long")
        else:
            request.reply({"booked": request.data.to})
    return str(request.data.to)


@dataclass
class Wired:
    reference: str
    cents: int


def paying(store: Store) -> tuple[Any, list[str]]:
    """A workflow whose step is interrupted once, and what was begun."""
    seen: list[str] = []

    @step(at_most_once=True)
    async def wire(cents: int) -> Wired:
        seen.append("wire")
        if len(seen) == 1:
            await die(store.database)
        return Wired("by the program", cents)

    @workflow
    async def pay(cents: int) -> str:
        return (await wire(cents)).reference

    return pay, seen


async def in_doubt(store: Store, flow: Any) -> int:
    run = int(await begun(store, flow, 5))
    for _ in range(2):
        await drained(store, flow)
    return run


async def test_a_step_in_doubt_is_said_to_be_done_by_the_form_of_what_it_returns(store: Store) -> None:
    pay, seen = paying(store)
    run = await in_doubt(store, pay)
    path = f"/runs/{run}"
    async with dashboard(store, [pay], authorize=None) as desk:
        page = await desk.page(path)
        assert "It is done" in page.text
        assert {"field.reference", "field.cents", "reason"} <= set(page.values("input", "name"))
        assert f"{path}/resolve" in page.values("form", "action")
        assert f"stepwell resolve {run} 'wire#1' done DATA" in page.text
        given: dict[str, Any] = {"name": "wire#1", "back": path}
        said = await desk.done(f"{path}/resolve", done="yes", field__reference="x", field__cents="much", **given)
        assert said.startswith("problem")
        assert (await desk.post(f"{path}/resolve", done="perhaps", **given)).status_code == 400
        fields = {"field__reference": "bank-4711", "field__cents": "5", "reason": "says the bank"}
        said = await desk.done(f"{path}/resolve", done="yes", **fields, **given)
        assert said == f"good: Run {run} goes on: wire#1 is done."
        said = await desk.done(f"{path}/resolve", done="no", **given)
        assert said.startswith("warning: Another person has said what became of wire#1"), "and the first one counts"
        await drained(store, pay)
        assert (await store.get_run(run)).output() == "bank-4711"
        assert seen == ["wire"]
        said = await desk.done(f"{path}/resolve", done="no", **given)
        assert "has no one step &#39;wire#1&#39; that is in doubt" in said
    assert "local" in [one.actor for one in await store.history(run)]


async def test_a_step_in_doubt_that_is_not_done_begins_again(store: Store) -> None:
    pay, seen = paying(store)
    run = await in_doubt(store, pay)
    async with dashboard(store, read_only=True) as desk:
        assert "/resolve" not in await desk.get(f"/runs/{run}")
        assert (await desk.post(f"/runs/{run}/resolve", name="wire#1", done="no")).status_code == 403
    async with dashboard(store, [pay]) as desk:
        assert "begins again" in await desk.done(f"/runs/{run}/resolve", name="wire#1", done="no")
        await drained(store, pay)
    assert (await store.get_run(run)).output() == "by the program"
    assert seen == ["wire", "wire"]


async def test_a_request_is_made_by_a_form_and_its_reply_is_told(store: Store) -> None:
    run = int(await begun(store, ticket))
    await drained(store, ticket)
    path = f"/runs/{run}"
    async with dashboard(store, [ticket]) as desk, dashboard(store, [ticket], redact=["ticket"]) as blind:
        page = await desk.page(path)
        assert "It waits for the request assign, of type Assign" in " ".join(page.text.split())
        assert f"{path}/ask" in page.values("form", "action")
        given: dict[str, Any] = {"name": "assign", "back": path}
        said = await desk.done(f"{path}/ask", field__to="ann", field__hours="many", **given)
        assert said.startswith("problem")
        async with Worker(store, [ticket]):
            said = await desk.done(f"{path}/ask", field__to="ann", field__hours="9", **given)
            assert "nobody works that long" in said
            other = int(await begun(store, ticket))
            asked = desk.done(f"/runs/{other}/ask", name="assign", data='{"to": "bob"}')
            assert await asked == f"good: Run {other} answered assign: {{&#34;booked&#34;: &#34;bob&#34;}}."
            third = int(await begun(store, ticket))
            said = await blind.done(f"/runs/{third}/ask", name="assign", data='{"to": "eve"}')
            assert said.endswith("answered assign: hidden here.")
            async with asyncio.timeout(20):
                await store.result(other)
    assert (await store.get_run(other)).status is RunStatus.SUCCESS
