"""The approval example: send the request, pause, let a webhook resume it with data, process; a crash in between."""

from dataclasses import dataclass

import pytest

from stepwell import Context, Paused, SignalAnswer, Store, step, workflow
from stepwell.testing import world
from tests.workflows.kit import begun, die, drained, statuses, task_of


@dataclass(frozen=True)
class Approval:
    by: str
    granted: bool


sent: list[str] = []
processed: list[str] = []
dying: list[bool] = []


@step
async def send_request(what: str) -> str:
    sent.append(what)
    return f"request for {what}"


@step
async def await_approval(request: str) -> Approval:
    raise Paused(f"waiting for an answer to {request}")


@step
async def process(what: str, by: str) -> str:
    processed.append(what)
    return f"{what}, granted by {by}"


@workflow
async def approval(ctx: Context, what: str) -> str:
    request = await send_request(what)
    if dying and dying.pop():
        await die(ctx._run.slot.database)  # the process is killed after the first step
    answer = await await_approval(request)
    return await process(what, answer.by) if answer.granted else "refused"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    for seen in (sent, processed, dying):
        seen.clear()


@pytest.mark.proves("P-12", "P-01", "P-02", "P-04")
@pytest.mark.parametrize("crashes", [False, True], ids=["undisturbed", "after a crash"])
async def test_a_request_is_sent_once_and_processed_when_it_is_granted(store: Store, *, crashes: bool) -> None:
    dying.extend([True] * crashes)
    run_id = await begun(store, approval, "a desk")
    await drained(store, approval)
    await drained(store, approval)
    assert (sent, processed) == (["a desk"], [])
    task = await task_of(store, run_id)
    assert (task.status, task.owner) == ("PAUSED", None)
    webhook = {"by": "ann", "granted": True}  # what comes over the wire
    assert await store.resume(run_id, "await_approval", webhook) is SignalAnswer.WOKE
    assert not await store.resume(run_id, "await_approval", webhook)  # delivered twice
    await drained(store, approval)
    assert (await store.get_run(run_id)).output() == "a desk, granted by ann"
    assert (sent, processed) == (["a desk"], ["a desk"])
    assert set((await statuses(store, run_id)).values()) == {"SUCCESS"}


@pytest.mark.proves("P-12", "S-26")
async def test_it_survives_a_crash_at_every_database_call() -> None:
    @workflow
    async def whole(ctx: Context, what: str) -> str:
        request = await send_request(what)
        place, answer = await ctx.race(ctx.wait("granted", str), ctx.sleep("24h"))
        return await process(request, str(answer)) if place == 0 else "nobody answered"

    async with world(whole) as w:
        report = await w.crash_everywhere(whole.trigger("a desk"))
    assert report.life.output == '"nobody answered"'
    assert report.cases > 20
