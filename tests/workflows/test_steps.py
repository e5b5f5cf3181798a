"""A step from its call to its record: executed once, skipped on replay, executed again only if nothing came of it."""

import asyncio
import inspect
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from stepwell import (
    Context,
    NotInRun,
    PermanentError,
    Store,
    TransientError,
    Worker,
    connect,
    current,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.records import RunStatus
from stepwell.runs import branches
from stepwell.store.rows import StepRow
from tests.ground.waiting import until
from tests.store.seam import begin, claim, watched
from tests.workflows.kit import begun, die, drained, executed, statuses, steps_of, task_of


@pytest.mark.proves("S-01", "S-21")
async def test_a_step_that_takes_a_while_is_shown_at_work(store: Store) -> None:
    async def look() -> list[str]:
        run_id = current().run_id
        found = await until(lambda: steps_of(store, run_id), message="the step's row")
        row = found["slow#1"]
        assert (row.name, row.input, row.output, row.finished_at) == ("slow", None, None, None)
        assert row.started_at is not None
        return [row.status, str(row.attempt)]

    @workflow
    async def watched_at_work(ctx: Context) -> list[str]:
        return await ctx.step("slow", look)

    run = await executed(store, watched_at_work)
    assert run.output() == ["RUNNING", "1"]
    [row] = await store.steps(run.id)
    assert (row.status, row.attempt, row.output) == ("SUCCESS", 1, ["RUNNING", "1"])
    assert row.started_at is not None
    assert row.finished_at is not None


@pytest.mark.proves("S-01", "protocol-07")
async def test_a_short_step_is_one_row_and_one_commit(store: Store) -> None:
    store, driver = watched(store)
    await begun(store, nothing)
    worker = await begin(store)
    [task] = await claim(store, worker, "nothing")
    at_work = StepRow(task.id, 0, "a#1", 1, RunStatus.RUNNING, input="1")
    done = StepRow(task.id, 0, "a#1", 1, RunStatus.SUCCESS, input="1", output="2")
    driver.forget()
    beginning = store.database.steps.begin(at_work, worker, has_row=False)
    await store.database.steps.record(done, worker, beginning, has_row=False)
    calls = [call for flush in driver.flushes for call in flush if "steps" in call.statement]
    written = [row[5] for call in calls for row in call.rows or ()]
    assert written == ["SUCCESS"]
    assert await statuses(store, task.id) == {"a#1": "SUCCESS"}


@workflow
async def nothing() -> None:
    """Do nothing."""


@pytest.mark.proves("S-02", "S-03", "S-04", "S-07", "S-18", "R-06", "R-08", "R-09", "W-10")
async def test_after_a_crash_another_worker_goes_on_with_the_same_run(store: Store) -> None:
    called: list[str] = []
    recorded: list[dict[str, str]] = []

    @step
    async def charge(order: str, cents: int) -> dict[str, int]:
        called.append(f"charge {order}")
        return {"cents": cents}

    @step
    async def ship(order: str) -> str:
        called.append(f"ship {order}")
        recorded.append(await statuses(store, current().run_id))
        if called == ["charge a", "ship a"]:
            await until(lambda: _is_running(store, current().run_id))
            await die(store.database)
        return f"shipped {order}"

    @workflow
    async def ship_order(order: str) -> list[Any]:
        paid = await charge(order, 7)
        return [paid, await ship(order)]

    run_id = await begun(store, ship_order, "a")
    before = await store.get_run(run_id)
    await drained(store, ship_order)
    await drained(store, ship_order)
    run = await store.get_run(run_id)
    assert run.output() == [{"cents": 7}, "shipped a"]
    assert (run.id, run.input(), run.attempt, run.last_error) == (run_id, before.input(), 2, None)
    assert called == ["charge a", "ship a", "ship a"]
    assert [found["charge#1"] for found in recorded] == ["SUCCESS", "SUCCESS"]  # before the next body begins
    steps = await steps_of(store, run_id)
    assert steps["charge#1"].input == {"order": "a", "cents": 7}
    assert steps["ship#1"].input == "a"
    assert (steps["ship#1"].status, steps["ship#1"].attempt) == ("SUCCESS", 1)  # a crash is no failure of the step
    other = await executed(store, ship_order, "b")
    assert other.output() == [{"cents": 7}, "shipped b"]
    assert called[3:] == ["charge b", "ship b"]  # the same keys in another run are other steps
    again = await executed(store, ship_order, "a")
    assert (again.id != run_id, again.output()) == (True, run.output())
    assert called[5:] == ["charge a", "ship a"]  # with the same input too


async def _is_running(store: Store, run_id: int) -> bool:
    return (await statuses(store, run_id)).get("ship#1") == "RUNNING"


class DeclinedError(Exception):
    """A card was refused."""


@pytest.mark.proves("S-05", "S-06", "S-20", "R-05")
async def test_what_a_step_gave_up_with_is_the_same_on_the_first_run_and_on_every_replay(
    store: Store, clock: TestClock
) -> None:
    called: list[str] = []
    turns: list[list[Any]] = []

    @step(retry=1, raises=(DeclinedError, KeyError))
    async def charge() -> None:
        called.append("charge")
        raise DeclinedError("card", [7])

    @step
    async def ship() -> None:
        called.append("ship")
        raise PermanentError("no such street")

    @step(retry=1, raises=(DeclinedError,))
    async def odd() -> None:
        called.append("odd")
        raise DeclinedError(object())  # cannot be stored, so it cannot be built again

    @step
    async def quiet() -> None:
        called.append("quiet")

    async def attempted(one: Any) -> list[Any]:
        try:
            return [await one()]
        except Exception as error:  # noqa: BLE001 - whatever it is
            known = await statuses(store, current().run_id)
            return [type(error).__name__, str(error), known[f"{one.id}#1"]]

    @workflow
    async def careless(ctx: Context) -> None:
        turns.append([await attempted(one) for one in (charge, ship, odd, quiet)])
        await ctx.sleep(60)
        turns.append([await attempted(one) for one in (ship, quiet)])
        raise DeclinedError("the end")

    run_id = await begun(store, careless, max_attempts=1)
    await drained(store, careless)
    clock.advance(60)
    await drained(store, careless)
    first, again, last = turns
    assert first == again
    assert first[0] == ["DeclinedError", "('card', [7])", "ERROR"]  # recorded before it was raised
    assert first[1] == ["StepFailed", "step ship#1 gave up with PermanentError: no such street", "ERROR"]
    assert first[2][0] == "StepFailed"
    assert first[3] == [None]
    assert last[0][0] == "StepFailed"
    assert called == ["charge", "ship", "odd", "quiet", "ship", "quiet"]
    run = await store.get_run(run_id)
    assert (run.status, run.last_error) == ("ERROR", "DeclinedError: the end")
    steps = await steps_of(store, run_id)
    assert steps["ship#1"].error is not None
    assert steps["ship#1"].error["type"] == "PermanentError"
    assert "no such street" in steps["ship#1"].error["traceback"]


tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


@pytest.mark.proves("S-05")
async def test_what_a_body_sets_in_its_context_is_not_seen_by_the_run_which_a_replay_could_not_show_it(
    store: Store, clock: TestClock
) -> None:
    seen: list[tuple[object, str]] = []

    @step
    async def sign_in(name: str) -> str:
        tenant.set(name)
        await asyncio.sleep(0)
        return tenant.get()

    @step
    def sign_in_too(name: str) -> str:
        tenant.set(name)
        return tenant.get()

    @step(timeout=60)
    async def in_time(name: str) -> str:
        return await sign_in.local(name)

    @workflow
    async def visit(ctx: Context) -> None:
        tenant.set("somebody")
        for one in (sign_in, sign_in_too, in_time):
            signed_in = await ctx.step(one, "ada")
            seen.append((signed_in, tenant.get()))
        await ctx.sleep(60)

    @workflow
    def visit_too(ctx: sync.Context) -> None:
        tenant.set("somebody")
        for one in (sign_in, sign_in_too, in_time):
            signed_in = ctx.step(one, "ada")
            seen.append((signed_in, tenant.get()))
        ctx.sleep(60)

    for one in (visit, visit_too):
        run_id = await begun(store, one)
        await drained(store, one)
        clock.advance(60)
        await drained(store, one)
        assert (await store.get_run(run_id)).status == "SUCCESS"
    assert seen == [("ada", "somebody")] * 12


@pytest.mark.proves("S-05")
async def test_a_body_that_is_cut_off_in_its_context_is_closed_there(store: Store) -> None:
    ends: list[str] = []

    @step(retry=1)
    async def slow() -> None:
        tenant.set("ada")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append(f"cancelled as {tenant.get()}")
            raise
        finally:
            await asyncio.sleep(0)
            ends.append(f"closed as {tenant.get()}")

    @workflow(retry=1)
    async def impatient() -> str:
        try:
            await asyncio.wait_for(slow(), 0.01)
        except TimeoutError:
            return tenant.get()
        return "in time"

    assert (await executed(store, impatient)).output() == "nobody"
    assert ends == ["cancelled as ada", "closed as ada"]


def test_an_async_step_is_seen_to_be_async_by_whoever_asks() -> None:
    @step
    async def mail(to: str) -> str:
        return to

    @step
    def print_out(to: str) -> str:
        return to

    def is_async(called: Any) -> bool:  # as Starlette asks
        return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(called.__call__)

    for asks in (is_async, asyncio.iscoroutinefunction):
        assert [asks(one) for one in (mail, print_out)] == [True, False]
    assert asyncio.run(mail.__call__("ada")) == "ada"


class WithCode(Exception):  # noqa: N818 - as users call them
    """Makes its message of something else, as most do."""

    def __init__(self, code: int) -> None:
        super().__init__(f"declined with code {code}")
        self.code = code


class ByName(Exception):  # noqa: N818
    """Takes what it is given by name only."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason.upper())
        self.reason = reason
        self.note = None
        self.lock = threading.Lock()  # cannot be stored


class Below(WithCode):
    """Is caught as the class above it."""


@pytest.mark.proves("S-06", "S-20")
@pytest.mark.parametrize(
    ("raising", "raises", "expected"),
    [
        (lambda: WithCode(51), WithCode, ("declined with code 51", {"code": 51})),
        (lambda: Below(52), WithCode, ("declined with code 52", {"code": 52})),
        (lambda: ByName(reason="no"), ByName, ("NO", {"reason": "no", "note": None})),
        (lambda: FileNotFoundError(2, "no", "/there"), OSError, ("[Errno 2] no: '/there'", {})),
        (lambda: TransientError("slow", retry_after=7), TransientError, ("slow", {"retry_after": 7.0})),
    ],
    ids=["message", "subclass", "by name", "file", "after"],
)
async def test_an_exception_that_is_named_comes_back_with_its_message_and_what_it_holds(
    store: Store, clock: TestClock, raising: Any, raises: type[Exception], expected: tuple[str, dict[str, Any]]
) -> None:
    caught: list[tuple[str, dict[str, Any]]] = []

    @step(retry=1, raises=(KeyError, raises))
    async def charge() -> None:
        raise raising()

    @workflow
    async def careful(ctx: Context) -> None:
        try:
            await charge()
        except raises as error:
            held = {name: value for name, value in vars(error).items() if not name.startswith("__") and name != "lock"}
            caught.append((str(error), held))
        await ctx.sleep(60)

    run_id = await begun(store, careful)
    for _ in range(2):
        await drained(store, careful)
        clock.advance(60)
    assert (await store.get_run(run_id)).status == "SUCCESS"
    assert caught == [expected, expected]


@pytest.mark.proves("S-21", "S-22", "E-02", "E-13", "E-14", "R-11")
async def test_a_transient_failure_leaves_the_step_pending_and_the_run_waits_elsewhere(
    store: Store, clock: TestClock
) -> None:
    attempts: list[int] = []

    @step(retry=2)
    async def flaky(n: int) -> int:
        attempts.append(current().attempt)
        if current().attempt == 1:
            raise TransientError("not now", retry_after=60)
        return n

    @workflow
    async def patient() -> int:
        return await flaky(5)

    run_id = await begun(store, patient)
    due_from = clock.now()
    assert await drained(store, patient) == 1
    task, row = await task_of(store, run_id), (await steps_of(store, run_id))["flaky#1"]
    assert (task.status, task.owner, task.attempt, task.ready) == ("PENDING", None, 0, False)
    assert task.run_at is not None
    assert task.run_at.timestamp() * 1_000_000 == due_from + 60_000_000
    assert (row.status, row.attempt, row.output) == ("PENDING", 1, None)
    assert row.error is not None
    assert (row.error["message"], row.error["retry_after"]) == ("not now", 60)
    clock.advance(59)
    assert await drained(store, patient) == 0
    clock.advance(1)
    assert await drained(store, patient) == 1
    run, row = await store.get_run(run_id), (await steps_of(store, run_id))["flaky#1"]
    assert (run.output(), run.error, run.last_error) == (5, None, None)
    assert (row.status, row.attempt, row.output, row.error) == ("SUCCESS", 2, 5, None)
    assert attempts == [1, 2]


@pytest.mark.proves("S-09", "DD-10")
async def test_an_id_keeps_a_step_over_a_rename(store: Store, clock: TestClock) -> None:
    @step(id="charge")
    async def charge_card() -> str:
        return "by the old name"

    @step(id="charge")
    async def charge_account() -> str:
        raise AssertionError

    async def old(ctx: Context) -> str:
        paid = await charge_card()
        await ctx.sleep(60)
        return paid

    async def new(ctx: Context) -> str:
        paid = await charge_account()
        await ctx.sleep(60)
        return paid

    run_id = await begun(store, workflow(name="pay")(old))
    await drained(store, workflow(name="pay")(old))
    clock.advance(60)
    await drained(store, workflow(name="pay")(new))
    assert (await store.get_run(run_id)).output(str) == "by the old name"


@pytest.mark.proves("E-08", "S-10")
async def test_outside_a_run_a_step_is_its_function(store: Store) -> None:
    @step
    async def double(n: int) -> int:
        return 2 * n

    @step
    def triple(n: int) -> int:
        return 3 * n

    assert (await double(2), triple(2)) == (4, 6)

    @step
    async def both(n: int) -> list[int]:
        return [await double(n), triple(n), await double.local(n)]

    @workflow
    async def plain_calls() -> list[int]:
        return await both(1)

    run = await executed(store, plain_calls)
    assert run.output() == [2, 3, 2]
    assert await statuses(store, run.id) == {"both#1": "SUCCESS"}  # inside a body they are plain calls


@pytest.mark.proves("E-08")
async def test_a_step_is_its_function_again_after_a_stop_that_was_cut_off(store: Store) -> None:
    at_work = asyncio.Event()

    @step
    async def double(n: int) -> int:
        return 2 * n

    @workflow
    async def stuck() -> None:
        at_work.set()
        await asyncio.Event().wait()

    await stuck.trigger().execute(store)
    worker = asyncio.create_task(Worker(store, [stuck], grace=60).run())
    await at_work.wait()
    with pytest.raises(NotInRun):
        await double(2)
    while not worker.done():  # the first ends `run`, another cuts off the stop that waits for the body
        worker.cancel()
        await asyncio.wait([worker], timeout=0.05)
    assert await double(2) == 4


def test_a_loop_that_was_closed_under_its_worker_serves_nothing() -> None:
    loop = asyncio.new_event_loop()
    branches.install(loop)
    served = branches.is_serving()
    loop.close()
    assert (served, branches.is_serving()) == (True, False)


@pytest.mark.proves("S-24")
async def test_the_store_in_memory_is_enough_to_test_a_workflow(clock: TestClock) -> None:
    @step
    async def double(n: int) -> int:
        return 2 * n

    @workflow
    async def in_memory(ctx: Context, n: int) -> int:
        await ctx.sleep("1d")
        return await double(n)

    async with connect("memory:", clock=clock) as store:
        run_id = await begun(store, in_memory, 4)
        await drained(store, in_memory)
        clock.advance("1d")
        await drained(store, in_memory)
        assert (await store.get_run(run_id)).output() == 8
