"""Events that a projection cannot handle: its instance is parked, or it stops; and what operators do about it."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from stepwell import At, Engine, Store, Tx, Worker, projection
from stepwell.base.events import InstanceParked
from stepwell.projections import runner
from tests.projections.books import Balances, Paid, Pay, balances, engine_of, handled


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FIRST_PAUSE", 0.001)


class Bad:
    """Raises for payments of so many cents, for as long as they are listed."""

    def __init__(self, *cents: int) -> None:
        self.cents = set(cents)
        self.calls: list[int] = []

    async def __call__(self, event: Any, at: At) -> None:
        if isinstance(event, Paid):
            self.calls.append(event.cents)
            if event.cents in self.cents:
                raise ValueError(f"{event.cents} cents")


async def paid(engine: Engine, account: str, *cents: int) -> None:
    for each in cents:
        await engine.execute(Pay(account, each))


async def drained(store: Store, *projections: object) -> None:
    await Worker(store, [engine_of(store, *projections)]).drain()


@pytest.mark.proves("PJ-06", "PJ-12")
async def test_a_poison_event_parks_its_instance_and_the_others_go_on(store: Store) -> None:
    told: list[object] = []
    store.database.telemetry.subscribe(told.append)
    engine, bad = engine_of(store), Bad(13)
    await paid(engine, "a", 1)
    await paid(engine, "b", 2, 13, 4)
    await paid(engine, "c", 5)
    await drained(store, Balances(bad))
    assert await balances(store) == {"a": 1, "b": 2, "c": 5}
    assert bad.calls.count(13) == 1 + 3  # in its batch, and as often as it may be tried
    [info] = await store.projections()
    assert (info.lag, info.parked, info.handled, info.failures) == (0, 1, 3, 3)
    [parked] = await store.parked("balances")
    assert (parked.type, parked.id, parked.version, parked.error) == ("account", "b", 2, "ValueError: 13 cents")
    assert [one.id for one in told if isinstance(one, InstanceParked)] == ["b"]
    await paid(engine, "b", 6)  # it stays aside, in another process too
    await paid(engine, "a", 7)
    await drained(store, Balances(bad))
    assert await balances(store) == {"a": 8, "b": 2, "c": 5}


@pytest.mark.proves("PJ-06")
async def test_the_pause_after_a_failure_doubles_until_the_event_is_handled(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LONGEST_PAUSE", 0.005)
    told, pauses, backoff = Bad(13), list[float](), runner.Runner._backoff

    def noted(self: runner.Runner) -> float:
        pauses.append(backoff(self))
        if len(pauses) == 5:
            told.cents.clear()  # whatever was wrong is mended
        return pauses[-1]

    monkeypatch.setattr(runner.Runner, "_backoff", noted)

    @projection("patient", attempts=9)
    class Patient:
        async def handle(self, event: Paid, at: At, tx: Tx) -> None:
            await told(event, at)

    await paid(engine_of(store), "a", 13)
    await drained(store, Patient())
    assert pauses == [0.001, 0.002, 0.004, 0.005, 0.005]
    [info] = await store.projections()
    assert (info.state, info.lag, info.handled, info.failures, info.parked) == ("running", 0, 1, 5, 0)


@pytest.mark.proves("PJ-12")
async def test_a_parked_instance_is_retried_in_order_and_then_goes_on_with_the_others(store: Store) -> None:
    engine, bad = engine_of(store), Bad(13)
    await paid(engine, "b", 2, 13, 4, 0, 6)
    await drained(store, Balances(bad))
    assert await store.retry_projection("balances", ("account", "other")) is False
    assert await store.retry_projection("balances", ("account", "b")) is True
    await paid(engine, "a", 1)
    await drained(store, Balances(bad))  # it fails again
    [parked] = await store.parked("balances")
    assert (parked.version, parked.retried) == (2, False)
    bad.cents.clear()
    assert await store.retry_projection("balances", ("account", "b")) is True
    await paid(engine, "b", 8)
    await drained(store, Balances(bad))
    await drained(store, Balances(bad))
    assert await store.parked("balances") == []
    assert await balances(store) == {"a": 1, "b": 33}
    versions = [version for _, account, version in await handled(store) if account == "b"]
    assert versions == [1, 2, 3, 5, 6]


@pytest.mark.proves("PJ-12")
async def test_the_event_that_failed_is_skipped_and_the_rest_of_its_instance_is_handled(store: Store) -> None:
    engine, bad = engine_of(store), Bad(13)
    await paid(engine, "b", 2, 13, 4)
    await drained(store, Balances(bad))
    assert await store.skip_in_projection("balances", ("account", "b")) is True
    await paid(engine, "a", 1)
    await drained(store, Balances(bad))
    assert await balances(store) == {"a": 1, "b": 6}
    assert await store.parked("balances") == []


@projection("strict", events=[Paid], on_poison="stop", attempts=2)
class Strict(Balances):
    """Stops."""


@pytest.mark.proves("PJ-12")
async def test_a_projection_that_is_to_stop_stops_before_the_event(store: Store) -> None:
    engine, bad = engine_of(store), Bad(13)
    await paid(engine, "b", 2, 13, 4)
    await drained(store, Strict(bad))
    [info] = await store.projections()
    assert (info.state, info.error, info.parked) == ("stopped", "ValueError: 13 cents", 0)
    assert info.failed_at == info.position + 1
    assert await balances(store) == {"b": 2}
    await drained(store, Strict(bad))
    assert await balances(store) == {"b": 2}
    assert await store.retry_projection("strict") is True
    await drained(store, Strict(bad))
    assert (await store.projections())[0].state == "stopped"
    assert await store.skip_in_projection("strict") is True
    await drained(store, Strict(bad))
    assert await balances(store) == {"b": 6}
    assert await store.skip_in_projection("strict") is False
    assert await store.retry_projection("strict") is False


@pytest.mark.proves("PJ-12")
async def test_attempts_are_counted_over_processes_and_before_the_handler_is_called(store: Store) -> None:
    """An event that kills its process has used up an attempt each time."""
    engine = engine_of(store)
    await paid(engine, "a", 1)
    await paid(engine, "b", 13)
    verbs, feed = store.database.projections, store.database.feed
    await verbs.make("balances")
    rows = (await feed.between(0, 2, None, 10)).events
    for number in range(1, 4):
        session = await _session(store)
        held = await verbs.claim("balances", session)
        assert held is not None
        assert held.suspect is (number > 1)
        if number == 1:
            await verbs.move(held, rows[0].position, 0)
            held = held._replace(position=rows[0].position)
        assert await verbs.begin(held, rows[1].position) == (number, None)
        await store.database.sessions.end(session, "killed")  # and the projection is still its own
    await drained(store, Balances(Bad()))
    [parked] = await store.parked("balances")
    assert (parked.id, parked.error) == ("b", runner.DIED)


async def _session(store: Store) -> int:
    from tests.store.seam import begin  # noqa: PLC0415

    return await begin(store)


@pytest.mark.proves("PJ-12")
async def test_after_a_worker_died_events_are_handled_one_at_a_time(store: Store, monkeypatch: Any) -> None:
    engine = engine_of(store)
    verbs = store.database.projections
    await verbs.make("balances")
    session = await _session(store)
    assert await verbs.claim("balances", session) is not None
    await store.database.sessions.end(session, "killed")
    for number in range(15):
        await paid(engine, f"a{number}", 1)
    moves: list[int] = []
    said = verbs.moved

    def counted(held: Any, position: int, count: int, *, alone: bool = False) -> Any:
        moves.append(count)
        return said(held, position, count, alone=alone)

    monkeypatch.setattr(verbs, "moved", counted)
    await drained(store, Balances())
    assert moves == [1] * 10 + [5]  # as many as a batch has, then batches again


@pytest.mark.proves("PJ-08")
async def test_a_reset_replays_all_events_and_forgets_what_was_parked(store: Store) -> None:
    engine, bad = engine_of(store), Bad(13)
    await paid(engine, "b", 2, 13, 4)
    await drained(store, Balances(bad))
    bad.cents.clear()
    await store.reset_projection("balances")
    [info] = await store.projections()
    assert (info.position, info.parked) == (0, 0)
    await drained(store, Balances(bad))
    assert await balances(store) == {"b": 19}
    assert len(await handled(store)) == 3


async def test_a_paused_projection_stays_where_it_is_until_it_is_resumed(store: Store) -> None:
    engine = engine_of(store)
    await paid(engine, "a", 1)
    await drained(store, Balances())
    assert await store.pause_projection("balances") is True
    assert await store.pause_projection("balances") is False
    await paid(engine, "a", 2)
    await drained(store, Balances())
    assert await balances(store) == {"a": 1}
    assert [(one.state, one.lag) for one in await store.projections()] == [("paused", 1)]
    assert await store.resume_projection("balances") is True
    assert await store.resume_projection("balances") is False
    await drained(store, Balances())
    assert await balances(store) == {"a": 3}


async def test_a_pause_undoes_the_batch_under_way(store: Store) -> None:
    engine = engine_of(store)
    await paid(engine, "a", 1)

    @projection("paused", events=[Paid])
    class Paused:
        async def handle(self, event: Paid, at: At) -> None:
            # As another task of the program: in a handler the verb is refused.
            await asyncio.create_task(store.pause_projection("paused"), context=contextvars.Context())

    await drained(store, Paused())
    [info] = await store.projections()
    assert (info.state, info.position, info.handled) == ("paused", 0, 0)


async def test_an_event_that_this_code_cannot_read_is_left_to_other_code(store: Store) -> None:
    engine = engine_of(store)
    await paid(engine, "a", 1)
    await paid(engine, "b", 2)
    async with store.transaction() as tx:
        table = "stepwell.event" if store.database.driver.name == "postgres" else "stepwell_event"
        await tx.execute(f"update {table} set type_version = 2 where position = 2")
    await drained(store, Balances())
    [info] = await store.projections()
    assert (info.position, info.failures, info.tried, info.owner, info.parked) == (1, 0, 0, None, 0)
    assert await balances(store) == {"a": 1}
    async with store.transaction() as tx:
        await tx.execute(f"update {table} set type_version = 1 where position = 2")
    await drained(store, Balances())
    assert await balances(store) == {"a": 1, "b": 2}


@pytest.mark.proves("PJ-09", "MM-07")
async def test_lag_rate_failures_and_age_are_told(store: Store, clock: Any) -> None:
    engine, bad = engine_of(store), Bad(13)
    await paid(engine, "a", *[1] * 20)
    await paid(engine, "a", 13)
    await drained(store, Balances(bad))
    clock.advance(10)
    [info] = await store.projections()
    assert (info.handled, info.failures, info.lag) == (20, 3, 0)
    assert info.rate == 2.0
    assert info.age == 10.0
    await paid(engine, "b", 1, 1)
    [info] = await store.projections()
    assert info.lag == 2
    clock.advance(60)
    await drained(store, Balances(bad))
    [info] = await store.projections()
    assert info.rate == pytest.approx(2 / 70)
    assert info.age == 0.0
