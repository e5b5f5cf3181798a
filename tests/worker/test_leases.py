"""A lease for each type: its work is taken over after that time, whatever else its worker executes."""

import asyncio
import json
import os
import threading
from typing import Any

import pytest

from stepwell import (
    Context,
    InvalidOption,
    Reason,
    RunStatus,
    Store,
    StoreUnavailable,
    Worker,
    connect,
    handler,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.base.events import LateWriteRefused, SessionLost
from stepwell.store.helper_process import SIGN
from stepwell.store.recovery import Recovery
from stepwell.work.heartbeat import Heartbeat
from stepwell.work.helper_connection import CHILD, HelperConnection
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.worker.silence import silence, stillness
from tests.workflows.kit import begun


class Scene:
    """Work of two leases that stands still until it is let go; executed again, it ends at once."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go = asyncio.Event()

    async def body(self, name: str) -> None:
        self.begun.append(name)
        if self.begun.count(name) == 1:
            await self.go.wait()

    def serves(self) -> tuple[Any, Any]:
        @handler("quick", retry=5)
        async def quick(_: int) -> None:
            await self.body("quick")

        @workflow(name="slow", retry=5, lease="5m")
        async def slow() -> str:
            await self.body("slow")
            return "slow"

        return quick, slow


async def owners(store: Store) -> dict[str, int | None]:
    """The session that executes each of the tasks, by its queue."""
    text = "select queue.name, task.owner from {task} as task join {queue} as queue on queue.id = task.queue_id"
    return dict(await ask(store, text))


async def living(store: Store) -> dict[tuple[str, ...], float]:
    """The lease of each session that has not ended, by what it serves."""
    return {tuple(one.handlers): one.lease for one in await store.workers() if one.stopped_at is None}


@pytest.mark.proves("L-06", "CF-03")
@pytest.mark.parametrize(("options", "every"), [({}, 10.0), ({"beat": "2s"}, 2.0), ({"lease": "3s"}, 1.0)])
async def test_the_beat_can_be_set_and_no_type_has_fewer_than_three_in_its_lease(
    store_url: str, options: Any, every: float
) -> None:
    scene = Scene()
    quick, _ = scene.serves()

    @handler("tiny", lease=0.6)
    async def tiny(message: object) -> None: ...

    async with connect(store_url, **options) as store:
        async with Worker(store, [quick]):
            assert store.database.heartbeat._every == pytest.approx(every)
        async with Worker(store, [quick, tiny]):
            assert store.database.heartbeat._every == pytest.approx(0.2)


@pytest.mark.proves("CF-03")
async def test_a_beat_that_is_too_slow_is_refused(store_url: str) -> None:
    with pytest.raises(InvalidOption, match="at most a third of the lease, 10 s"):
        await connect(store_url, beat="11s")


@pytest.mark.proves("L-06", "CF-03", "L-03", "W-08", "TU-05")
async def test_what_a_killed_worker_held_is_taken_over_after_the_lease_of_its_type(
    store: Store, clock: TestClock
) -> None:
    scene = Scene()
    quick, slow = scene.serves()
    async with Worker(store, [quick, slow], grace=0):
        message, run_id = await store.enqueue(quick, 1), await begun(store, slow)
        await until(lambda: sorted(scene.begun) == ["quick", "slow"])
        assert await living(store) == {("quick",): 30.0, ("slow",): 300.0}
        await silence(store)
        held, recovery = await owners(store), Recovery(store.database)
        assert held["quick"] != held["slow"]
        clock.advance(29, leases=True)
        await recovery.look()
        clock.advance(10, leases=True)
        await recovery.look()
        clock.advance(10, leases=True)
        assert await recovery.look() == {await store.database.queue_id("quick")}
        assert await owners(store) == {"quick": None, "slow": held["slow"]}
        assert await Worker(store, [quick, slow]).drain() == 1, "a suspect, executed by a worker of both leases"
        assert (await store.get(message)).status == RunStatus.SUCCESS  # type: ignore[union-attr]
        why = await store.why(run_id)
        assert why.reason is Reason.RUNNING, "its worker has time"
        clock.advance(150, leases=True)
        await recovery.look()
        clock.advance(100, leases=True)
        assert await recovery.look() == set()
        clock.advance(2, leases=True)
        why = await store.why(run_id)
        assert (why.reason, "lease of 300 s" in (why.next or "")) == (Reason.WORKER_SILENT, True)
        assert await recovery.look() == {await store.database.queue_id("slow")}
        assert await Worker(store, [quick, slow]).drain() == 1
    assert await store.result(run_id, str) == "slow"
    assert (sorted(scene.begun[:2]), scene.begun[2:]) == (["quick", "slow"], ["quick", "slow"])


@pytest.mark.proves("L-06", "CF-03", "L-08")
async def test_a_frozen_worker_loses_what_has_the_shorter_lease_and_goes_on_with_the_rest(
    store: Store, clock: TestClock
) -> None:
    scene = Scene()
    quick, slow = scene.serves()
    events: list[Any] = []
    store.database.telemetry.subscribe(events.append)
    async with Worker(store, [quick, slow]) as worker:
        message, run_id = await store.enqueue(quick, 1), await begun(store, slow)
        await until(lambda: sorted(scene.begun) == ["quick", "slow"])
        held, recovery = await owners(store), Recovery(store.database)
        async with stillness(store):
            for seconds in (31, 11):  # the test's clock stands between: it is frozen for 42 s, and another worker looks
                clock.advance(seconds, leases=True)
                await recovery.look()
            assert (await owners(store))["quick"] is None
        [session] = [one for one in worker._runtime.leases if one.id == held["slow"]]
        assert await session.renew(0.0), "it is awake, and beats for all of its sessions"
        await until(lambda: _is(store, message, "SUCCESS"))  # acquitted: nothing was killed
        assert [event.worker_id for event in events if isinstance(event, SessionLost)] == [held["quick"]]
        scene.go.set()
        assert await store.result(run_id, str, timeout=10) == "slow"
        assert [one.id for one in worker._runtime.leases][1] == held["slow"], "its session was never ended"
        assert await living(store) == {("quick",): 30.0, ("slow",): 300.0}
    assert scene.begun.count("slow") == 1
    assert not [event for event in events if isinstance(event, LateWriteRefused)]


@pytest.mark.proves("L-08", "promise-14")
async def test_sessions_that_could_not_be_begun_while_the_database_was_away_are_begun_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    scene.go.set()
    quick, slow = scene.serves()
    begin, calls = store.database.sessions.begin, iter(["well", "away"])

    async def failing(*args: Any) -> int:
        if next(calls, "well") == "away":
            raise StoreUnavailable("away")
        return await begin(*args)

    async with Worker(store, [quick, slow], poll=0.05) as worker:
        before = {one.id for one in worker._runtime.leases}
        monkeypatch.setattr(store.database.sessions, "begin", failing)
        for session in worker._runtime.leases:
            session.beaten(alive=False, owned=[], sent_at=0.0)
        run_id = await begun(store, slow)
        assert await store.result(run_id, str, timeout=10) == "slow"
        now = {one.id for one in worker._runtime.leases}
        assert (len(now), now & before) == (2, set())


async def _is(store: Store, task_id: int, status: str) -> bool:
    task = await store.get(task_id)
    return task is not None and task.status == status


@pytest.mark.proves("L-06")
@pytest.mark.parametrize("own", ["900ms", "1h"])
async def test_one_beat_renews_all_sessions_as_often_as_the_shortest_lease_needs(store_url: str, own: str) -> None:
    lease = 900.0 if own == "900ms" else 0.9

    @handler("a", lease=own)
    async def a(_: int) -> None: ...

    @handler("b")
    async def b(_: int) -> None: ...

    async with (
        connect(f"{store_url}?lease={lease}") as store,
        connect(store_url) as other,
        Worker(store, [a, b]) as worker,
        Worker(other, [a]),
    ):
        sessions = [one.id for one in worker._runtime.leases]
        assert Heartbeat.of(store.database)._every == pytest.approx(0.3)
        before = await _beats(store, sessions)
        await until(lambda: _all_after(store, sessions, min(before) + 1_500_000))
        assert [one.id for one in worker._runtime.leases] == sessions, "more than a lease, and another worker watches"


async def _beats(store: Store, sessions: list[int]) -> list[int]:
    rows = await ask(store, f"select beat_at from {{beat}} where worker_id in ({', '.join(map(str, sessions))})")
    return [row[0] for row in rows]


async def _all_after(store: Store, sessions: list[int], moment: int) -> bool:
    beats = await _beats(store, sessions)
    return len(beats) == len(sessions) and min(beats) > moment


@pytest.mark.proves("L-06", "W-04")
async def test_a_worker_claims_each_queue_under_the_session_of_its_lease(store: Store) -> None:
    seen: dict[str, tuple[Any, ...]] = {}

    def served(queue: str, **options: Any) -> Any:
        @handler(queue, retry=1, **options)
        async def note(number: Any) -> None:
            text = "select worker.lease from {task} as task join {worker} as worker on worker.id = task.owner"
            seen[f"{queue} {number}"] = tuple(row[0] // 1_000_000 for row in await ask(store, text))

        return note

    handlers = [served("a"), served("b", lease=60), served("c", lease="1m", batch=2), served("d", lease=30)]
    for one in handlers:
        await store.enqueue(one, 1)
        await Worker(store, handlers).drain()
    async with Worker(store, handlers):
        for one in handlers:
            task_id = await store.enqueue(one, 2)  # handed over, where nothing else waits
            await until(lambda: _is(store, task_id, "SUCCESS"))  # noqa: B023
    assert seen == {f"{queue} {n}": (30,) for queue in "ad" for n in (1, 2)} | {
        f"{queue} {n}": (60,) for queue, numbers in (("b", (1, 2)), ("c", ([1], [2]))) for n in numbers
    }
    assert {one.handlers: one.lease for one in await store.workers()} == {("a", "d"): 30.0, ("b", "c"): 60.0}


@pytest.mark.proves("L-12", "L-06")
async def test_a_run_of_another_lease_hears_that_it_was_cancelled(store: Store, store_url: str) -> None:
    scene = Scene()
    quick, slow = scene.serves()
    async with Worker(store, [quick, slow]), connect(store_url, listen=False, clock=store.database.clock) as other:
        await store.enqueue(quick, 1)
        run_id = await begun(store, slow)
        await until(lambda: sorted(scene.begun) == ["quick", "slow"])
        await other.cancel(run_id)
        await until(lambda: _is(store, run_id, "CANCELLED"))
        scene.go.set()


@pytest.mark.proves("L-18", "L-06")
async def test_a_body_extends_the_lease_of_its_own_type(store_url: str) -> None:
    ready, go = asyncio.Event(), asyncio.Event()

    @workflow(lease=600)
    async def careful(ctx: Context) -> bool:
        ready.set()
        await go.wait()
        return await ctx.heartbeat()

    async with connect(store_url, lease=6000) as store, Worker(store, [careful]) as worker:
        run_id = await begun(store, careful)
        await asyncio.wait_for(ready.wait(), 10)
        session = worker._runtime.session
        assert session is not None
        assert await session.renew(0.0)
        session.renewed_at -= 101  # seconds: a sixth of its lease is 100, of the store's 1000
        before = session.renewed_at
        go.set()
        assert await store.result(run_id, bool, timeout=10)
        assert session.renewed_at > before + 101 - 1


@pytest.mark.proves("promise-13", "L-03")
@pytest.mark.backends("postgres", "sqlite", reason="no other process can open a Turso file, so nobody tells of its end")
async def test_a_session_claims_nothing_before_its_supervisor_knows_of_it(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed, claimed, answer = asyncio.Event(), threading.Event(), threading.Event()

    @handler("mail")
    async def send(number: int) -> None:
        executed.set()

    lines, pipe = os.pipe()
    os.set_blocking(lines, False)
    async with connect(store_url, lease=30) as store:
        await store.create_queue("mail")
        await store.enqueue(send, 1)
        helper = Heartbeat.of(store.database).helper
        helper.supervised(pipe)
        beat, claim, well, known = store.database.sessions.beat, store.database.tasks.claim, helper.well, []

        async def observed(*of: Any, **also: Any) -> Any:
            known.append(bool(helper._known))
            claimed.set()
            return await claim(*of, **also)

        # The line comes late, and the database does not answer the first beat before the message was executed.
        monkeypatch.setattr(helper, "well", lambda leases: (claimed.wait(0.3), well(leases))[1])
        monkeypatch.setattr(store.database.sessions, "beat", lambda *of, **also: answer.wait(20) and beat(*of, **also))
        monkeypatch.setattr(store.database.tasks, "claim", observed)
        try:
            async with Worker(store, [send]):
                await asyncio.wait_for(executed.wait(), 20)
                said = [json.loads(line) for line in os.read(lines, 65_536).splitlines()]
                assert [line["sessions"] for line in said if "sessions" in line] == [1]
                assert all(known)
                answer.set()
        finally:
            answer.set()
    os.close(lines)
    os.close(pipe)


@pytest.mark.backends("sqlite", "postgres", reason="no other process can open the database beside Turso")
async def test_the_helper_is_told_the_shortest_and_the_longest_lease(live_store: Store) -> None:
    line = HelperConnection(live_store.database)
    assert line.kind == CHILD

    def place(leases: dict[int, float]) -> tuple[float, float, float] | None:
        first = json.loads(line._words(leases).split(b"\n")[0])
        said = first.get("place")
        return None if said is None else (said["lease"], said["longest_lease"], said["hang_after"])

    assert place({1: 2.0, 2: 300.0}) == (2.0, 300.0, 300.0)
    assert line._words({1: 2.0, 2: 300.0}) == SIGN
    assert place({1: 2.0, 3: 300.0}) is None, "another session of the same leases: it knows them"
    assert place({3: 300.0}) == (300.0, 300.0, 300.0)
    assert place({4: 2.0}) == (2.0, 2.0, 60.0)


async def test_another_function_for_a_queue_keeps_its_lease(store: Store) -> None:
    done: list[float] = []

    @handler("a", lease="1m")
    async def first(_: int) -> None: ...

    @handler("a", lease="9m")
    async def second(_: int) -> None:
        done.extend((await living(store)).values())

    async with Worker(store, [first]) as worker:
        worker.set_handler(second)
        await store.enqueue("a", 1)
        await worker.drain()
    assert done == [60.0]


@pytest.mark.parametrize("lease", [0, 0.05, -1, "soon", True])
def test_a_lease_that_is_none_is_refused(lease: Any) -> None:
    with pytest.raises(InvalidOption, match="lease cannot be"):
        handler("a", lease=lease)
    with pytest.raises(InvalidOption, match="lease cannot be"):
        workflow(lease=lease)
