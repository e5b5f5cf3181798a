"""A reply that is lost is normal: what was written is written once, and whoever asked is told so in the end."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from stepwell import Store, Worker, connect, handler
from stepwell.base.events import OrphansReleased
from stepwell.base.telemetry import Telemetry
from stepwell.errors import LeaseLost, StoreUnavailable
from stepwell.records import TaskKind
from stepwell.store.rows import Claimed, Owned, Settlement
from stepwell.work.session import Session
from tests.ground.faultproxy import FaultProxy
from tests.ground.waiting import until
from tests.store.seam import (
    AGAIN,
    DONE,
    FAILED,
    RELEASED,
    begin,
    claim,
    count,
    once,
    one,
    owned,
    row_of,
    watched,
)

ON_THE_WIRE = pytest.mark.backends("postgres", reason="an embedded store has no wire; its own lost replies are above")
LOST = StoreUnavailable("reset after the work was done")


@pytest.fixture
async def proxied(backend: str, proxied_url: str) -> AsyncIterator[Store]:
    """A store behind the fault proxy; its waits are short."""
    async with connect(proxied_url, lease=2) as store:
        yield store


# An enqueue


@pytest.mark.proves("rule-04", "promise-01", "promise-02")
@pytest.mark.parametrize("key", [None, "k"], ids=["without a key", "with a key"])
async def test_an_enqueue_whose_reply_is_lost_is_written_once_and_returns_its_id(store: Store, key: str | None) -> None:
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)
    driver.forget()
    driver.after = once(LOST)
    task_id = await store.enqueue("q", 1, key=key)
    assert len(driver.flushes) == 2, "the reply was not lost: void"
    assert task_id.created
    row = await row_of(store, task_id)
    assert (row["input"], row["key"]) == ("1", key)
    assert await count(store) == 2


@pytest.mark.proves("rule-04", "promise-02")
async def test_a_batch_whose_reply_is_lost_is_written_once(store: Store) -> None:
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue_many("q", range(3))
    driver.after = once(LOST)
    ids = await store.enqueue_many("q", range(10))
    assert len(set(ids)) == 10
    assert all(task_id.created for task_id in ids)
    assert await count(store) == 13
    driver.after = once(LOST)
    keys = [f"k{number}" for number in range(5)]
    assert await store.enqueue_many("q", range(5), keys=keys) == await store.enqueue_many("q", range(5), keys=keys)
    assert await count(store) == 18


@pytest.mark.proves("rule-04", "promise-02")
async def test_two_that_use_one_key_agree_although_one_of_them_lost_its_reply(store: Store) -> None:
    first, driver = watched(store)
    second, _ = watched(store)
    await first.create_queue("q")
    driver.after = once(LOST)
    ids = await asyncio.gather(first.enqueue("q", 1, key="k"), second.enqueue("q", 1, key="k"))
    assert ids[0] == ids[1]
    assert await count(store) == 1


@ON_THE_WIRE
@pytest.mark.proves("rule-04", "promise-01", "promise-02")
@pytest.mark.parametrize("key", [None, "k"], ids=["without a key", "with a key"])
async def test_an_enqueue_whose_reply_is_lost_on_the_wire_is_written_once(
    proxied: Store, proxy: FaultProxy, key: str | None
) -> None:
    await proxied.create_queue("q")
    await proxied.enqueue("q", 0)
    trap = proxy.drop_reply(r"insert into \"stepwell\"\.task")
    task_id = await proxied.enqueue("q", 1, key=key)
    assert trap.sprung.is_set()
    assert task_id.created
    assert (await row_of(proxied, task_id))["key"] == key
    assert await count(proxied) == 2


@ON_THE_WIRE
@pytest.mark.proves("rule-04", "promise-01", "protocol-15")
async def test_a_whole_flush_whose_reply_is_lost_on_the_wire_is_written_once(proxied: Store, proxy: FaultProxy) -> None:
    await proxied.create_queue("q")
    await proxied.enqueue("q", 0)
    traps = [proxy.drop_reply("add_tasks|insert into"), proxy.cut_request("insert into")]
    ids = await asyncio.gather(
        *(proxied.enqueue("q", number, key=f"{number}" if number % 2 else None) for number in range(50))
    )
    assert all(trap.sprung.is_set() for trap in traps)
    assert len(set(ids)) == 50
    assert await count(proxied) == 51


# A settle


@pytest.mark.proves("rule-04", "protocol-02")
@pytest.mark.parametrize("settlement", [DONE, FAILED, AGAIN, RELEASED], ids=["done", "failed", "again", "released"])
async def test_a_settle_whose_reply_is_lost_is_success_and_not_a_lost_lease(
    store: Store, settlement: Settlement
) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    task = await one(store, worker)
    driver.forget()
    driver.after = once(LOST)
    assert await store.database.tasks.settle(task.id, worker, task.turn, settlement) == settlement.status
    assert len(driver.flushes) == 2, "the reply was not lost: void"
    row = await row_of(store, task.id)
    assert (row["status"], row["attempt"]) == (settlement.status, 1 - settlement.attempt_back)


@ON_THE_WIRE
@pytest.mark.proves("rule-04", "protocol-02")
async def test_a_settle_whose_reply_is_lost_on_the_wire_is_success(proxied: Store, proxy: FaultProxy) -> None:
    worker = await begin(proxied)
    task = await one(proxied, worker)
    trap = proxy.drop_reply("rows.attempt_back")
    assert await proxied.database.tasks.settle(task.id, worker, task.turn, DONE) == "SUCCESS"
    assert trap.sprung.is_set()


@pytest.mark.proves("protocol-02", "protocol-03")
async def test_a_settle_whose_reply_is_lost_is_still_refused_if_the_session_died_meanwhile(store: Store) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    task = await one(store, worker)

    async def bury_first(_: object) -> None:
        driver.before = None
        await store.database.sessions.end(worker, "lost")
        raise StoreUnavailable("reset before anything was done")

    driver.before = bury_first
    with pytest.raises(LeaseLost):
        await store.database.tasks.settle(task.id, worker, task.turn, DONE)
    assert (await row_of(store, task.id))["status"] == "PENDING"


@pytest.mark.proves("protocol-02", "protocol-03")
async def test_a_settle_whose_request_is_lost_is_refused_if_its_turn_was_over_before(store: Store) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    task = await one(store, worker)
    await store.database.tasks.settle(task.id, worker, task.turn, RELEASED)
    await claim(store, worker, "q")
    driver.before = once(StoreUnavailable("reset before anything was done"))
    with pytest.raises(LeaseLost):
        await store.database.tasks.settle(task.id, worker, task.turn, DONE)


# A claim


class Heard:
    """A session of the engine's, and what it says of itself."""

    def __init__(self, worker: int) -> None:
        self.lost = 0
        self.orphans: list[Owned] = []
        self.session = Session(worker, self._lost, self._found, lease=30.0)

    def _lost(self, _: Session) -> None:
        self.lost += 1

    def _found(self, _: Session, orphans: list[Owned]) -> None:
        self.orphans += orphans


@pytest.mark.proves("protocol-02", "rule-06")
async def test_tasks_of_a_claim_whose_reply_was_lost_are_released_at_the_second_beat_with_their_attempt(
    store: Store,
) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    held = await one(store, worker)
    await store.enqueue_many("q", range(3))
    heard = Heard(worker)
    heard.session.claimed([held])
    heard.session.claiming(1.0)
    driver.after = once(LOST)
    with pytest.raises(StoreUnavailable):
        await claim(store, worker, "q", 10)
    heard.session.claimed([])
    assert await count(store, "status = 'RUNNING'") == 4, "the claim was not written: void"
    heard.session.beaten(alive=True, owned=await owned(store, worker), sent_at=2.0)
    assert heard.orphans == []
    heard.session.beaten(alive=True, owned=await owned(store, worker), sent_at=3.0)
    assert len(heard.orphans) == 3
    assert held.id not in {orphan.task_id for orphan in heard.orphans}
    for orphan in heard.orphans:
        await store.database.tasks.settle(orphan.task_id, worker, orphan.turn, RELEASED)
    again = await claim(store, worker, "q", 10)
    assert [(task.turn, task.attempt) for task in again] == [(2, 1)] * 3


def claimed(task_id: int, turn: int) -> Claimed:
    return Claimed(task_id, TaskKind.MESSAGE, 1, 1, turn, 1, 3, 0, 0, None, None, 0, False, 0)


@pytest.mark.proves("protocol-02")
def test_nothing_is_released_while_the_claim_that_may_have_taken_it_is_under_way() -> None:
    heard = Heard(1)
    heard.session.claiming(1.0)
    for sent_at in (2.0, 3.0, 4.0, 5.0):
        heard.session.beaten(alive=True, owned=[Owned(1, 7, 1)], sent_at=sent_at)
    assert heard.orphans == []
    heard.session.claimed([claimed(7, 1)])
    heard.session.beaten(alive=True, owned=[Owned(1, 7, 1)], sent_at=6.0)
    assert heard.orphans == []


@pytest.mark.proves("protocol-02")
def test_a_claim_that_began_while_a_beat_was_on_its_way_is_not_robbed_at_the_next() -> None:
    heard = Heard(1)
    # The beat is sent at 1.0; the claim begins at 1.1 and commits before the beat is answered; its reply is held up.
    heard.session.claiming(1.1)
    heard.session.beaten(alive=True, owned=[Owned(1, 7, 1)], sent_at=1.0)
    heard.session.beaten(alive=True, owned=[Owned(1, 7, 1)], sent_at=2.0)
    assert heard.orphans == []
    heard.session.claimed([claimed(7, 1)])
    heard.session.beaten(alive=True, owned=[Owned(1, 7, 1)], sent_at=3.0)
    assert heard.orphans == []


@pytest.mark.proves("protocol-02")
def test_an_orphan_is_released_even_if_later_claims_are_always_under_way() -> None:
    heard = Heard(1)
    heard.session.claiming(1.0)
    heard.session.claimed([])
    heard.session.claiming(1.5)
    heard.session.beaten(alive=True, owned=[Owned(1, 7, 1)], sent_at=2.0)
    heard.session.claimed([])
    heard.session.claiming(2.5)
    heard.session.beaten(alive=True, owned=[Owned(1, 7, 1)], sent_at=3.0)
    assert [orphan.task_id for orphan in heard.orphans] == [7]


@pytest.mark.proves("protocol-02", "protocol-03")
def test_a_task_held_at_an_earlier_turn_is_an_orphan_at_its_later_one() -> None:
    heard = Heard(1)
    heard.session.claimed([claimed(7, 1)])
    heard.session.beaten(alive=True, owned=[Owned(1, 7, 2)], sent_at=1.0)
    heard.session.beaten(alive=True, owned=[Owned(1, 7, 2)], sent_at=2.0)
    assert [(orphan.task_id, orphan.turn) for orphan in heard.orphans] == [(7, 2)]


@pytest.mark.proves("L-05", "L-08")
def test_a_session_that_was_declared_dead_hears_it_once() -> None:
    heard = Heard(1)
    heard.session.beaten(alive=True, owned=[], sent_at=1.0)
    heard.session.beaten(alive=False, owned=[], sent_at=2.0)
    heard.session.beaten(alive=False, owned=[], sent_at=3.0)
    assert (heard.lost, heard.session.lost) == (1, True)


@ON_THE_WIRE
@pytest.mark.proves("protocol-02", "promise-01", "rule-06")
async def test_a_worker_whose_claim_lost_its_reply_on_the_wire_executes_the_task_with_its_first_attempt(
    backend: str, proxy: FaultProxy, proxied_url: str
) -> None:
    attempts: list[int] = []

    @handler("q", retry=1)
    async def work(number: int) -> None:
        attempts.append(number)

    telemetry = Telemetry(log=False)
    async with connect(proxied_url, lease=2, telemetry=telemetry) as store:
        task_id = await store.enqueue(work, 7)
        trap = proxy.drop_reply("skip locked.*returning task.id, task.kind")
        async with Worker(store, [work]):
            await until(lambda: count(store, "status = 'SUCCESS'"))
        row = await row_of(store, task_id)
    assert trap.sprung.is_set()
    assert telemetry.counts[OrphansReleased] == 1
    assert attempts == [7]
    assert (row["turn"], row["attempt"]) == (2, 1)
