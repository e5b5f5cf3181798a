"""Others are told after the commit, alone, seldom, and by nobody who waits for it."""

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from stepwell import Store, connect
from stepwell.base.events import NotifyFailed
from stepwell.base.telemetry import Telemetry
from stepwell.errors import StoreUnavailable
from stepwell.store.driver import Hint
from stepwell.store.hints import wakeups
from stepwell.store.hints.listener import EveryQueue
from stepwell.store.hints.wakeups import Teller
from stepwell.store.postgres.listener import LONGEST_WORD, read, written
from tests.ground.faultproxy import FaultProxy
from tests.ground.waiting import until
from tests.wakeups.ways import CHANNEL, Mail, connections, hearing, overhearing

POSTGRES = pytest.mark.backends("postgres", reason="only Postgres is told; SQLite's file is watched")


@POSTGRES
@pytest.mark.usefixtures("backend")
@pytest.mark.proves("rule-18")
async def test_a_call_that_joins_the_users_transaction_tells_nobody(store_url: str) -> None:
    users = await asyncpg.connect(store_url)
    async with connect(store_url) as store, overhearing(store_url) as words:
        await store.create_queue("mail")
        async with users.transaction():
            await store.enqueue("mail", 1, tx=users)
            await store.enqueue_many("mail", [2, 3], tx=users)
        queue = await store.database.queue_id("mail")
        await store.enqueue("mail", 4)
        await until(lambda: words)
        # Notifications come in the order of their commits: had the transaction told anything, it would be here.
        assert [read(word).queues for word in words] == [frozenset({queue})]
        assert (await store.counts("mail"))["PENDING"] == 4
    await users.close()


@POSTGRES
@pytest.mark.usefixtures("backend")
@pytest.mark.proves("rule-18", "protocol-15")
async def test_telling_is_a_statement_alone_on_a_connection_that_no_caller_uses(
    store_url: str, proxy: FaultProxy
) -> None:
    async with connect(proxy.url(store_url)) as store:
        await store.create_queue("mail")
        for number in range(2):  # prepares what is to be counted, and opens the connections
            await store.enqueue("mail", number)
        await until(lambda: _told(proxy))
        [notifier] = await _connections_that_speak(proxy, store)
        before = list(proxy.trips_of)
        for number in range(20):
            await store.enqueue("mail", number)
        trips = [now - then for now, then in zip(proxy.trips_of, before, strict=True)]
        del trips[notifier]
        assert sum(trips) == 20
        assert len([count for count in trips if count]) <= store.database.driver.flush_slots
    told = [text for text in proxy.statements if "pg_notify" in text]
    assert set(told) == {"select pg_notify(cast($1 as text), cast($2 as text))"}
    assert len(told) < 22


@POSTGRES
@pytest.mark.usefixtures("backend")
@pytest.mark.proves("rule-18")
async def test_a_thousand_enqueues_in_a_burst_are_told_of_a_hundred_times_a_second(store_url: str) -> None:
    async with connect(store_url) as store, overhearing(store_url) as words:
        queues = []
        for name in ("a", "b", "last"):
            await store.create_queue(name)
            queues.append(await store.database.queue_id(name))

        async def send_a_hundred(queue: str) -> None:
            for number in range(100):
                await store.enqueue(queue, number)

        began = time.monotonic()
        await asyncio.gather(*(send_a_hundred("ab"[number % 2]) for number in range(10)))
        teller: Any = store.database.wakeups._teller
        await until(lambda: not teller._pending and teller._job is None, message="all is told")
        seconds = time.monotonic() - began
        await store.enqueue("last", 1)
        await until(lambda: words and words[-1].endswith(f":{queues[2]}"), message="the last of all words")
        assert 1 < len(words) <= seconds * 100 + 3
        assert set().union(*(read(word).queues or () for word in words)) == set(queues)


@POSTGRES
@pytest.mark.usefixtures("backend", "no_polls")
@pytest.mark.proves("rule-17", "rule-20")
async def test_an_idle_worker_has_seven_connections_at_most_and_does_not_hear_itself(
    store_url: str, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(store_url) as store, mail.worker_that_never_polls(store):
        await hearing(store)
        inside = store.database.wakeups._hearing
        assert inside is not None
        heard: list[Any] = []
        monkeypatch.setattr(inside._heard, "add", heard.append)
        async with overhearing(store_url) as words:
            store.database.wakeups.hint({1})
            await until(lambda: words)
            # A word of another comes after it on the same way, so had the own one been taken it would be here.
            await _say(store_url, "00:7,8")
            await _say(store_url, "by hand")
            await until(lambda: len(heard) == 2)
        assert heard == [{7, 8}, None]
        # One claims, one beats, one tells, one listens; and of the pool as many as were needed at once when it began:
        # the sweep, the removal of old rows and the look for held runs begin beside each other.
        queries = await connections(store_url)
        assert 4 <= len(queries) <= 7
        assert sum(query.startswith("LISTEN") for query in queries) == 1
        assert sum("pg_notify" in query for query in queries) == 1
    assert await connections(store_url) == []


class Telephone:
    """A driver that notes what is told, and can be made to fail."""

    def __init__(self) -> None:
        self.told: list[Hint] = []
        self.held = asyncio.Event()
        self.held.set()
        self.error: Exception | None = None

    async def notify(self, hint: Hint) -> None:
        self.told.append(hint)
        await self.held.wait()
        if self.error is not None:
            raise self.error


@pytest.mark.proves("rule-18")
async def test_the_first_is_told_at_once_and_the_rest_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "TELL_EVERY", 0.05)
    driver: Any = Telephone()
    teller = Teller(driver, Telemetry(log=False), "a")
    teller.tell({1})
    await asyncio.sleep(0)
    assert driver.told == [Hint("a", frozenset({1}))]
    for queue in (2, 3, 2):
        teller.tell({queue})
        await asyncio.sleep(0)
    assert len(driver.told) == 1
    await until(lambda: len(driver.told) == 2)
    assert driver.told[1] == Hint("a", frozenset({2, 3}))
    teller.tell({4})
    await teller.close()  # without waiting for the pause: whoever ends after an enqueue is heard too
    assert driver.told[2:] == [Hint("a", frozenset({4}))]


@pytest.mark.proves("rule-18")
async def test_one_is_under_way_at_a_time_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "TELL_EVERY", 0.001)
    driver: Any = Telephone()
    driver.held.clear()
    teller = Teller(driver, Telemetry(log=False), "a")
    teller.tell({1})
    await until(lambda: driver.told and teller._rest is None)
    teller.tell({2})
    await asyncio.sleep(0)
    assert len(driver.told) == 1
    closing = asyncio.create_task(teller.close())
    await asyncio.sleep(0)
    driver.held.set()
    await closing
    assert driver.told[1:] == [Hint("a", frozenset({2}))]  # what had gathered is still told


async def test_a_last_word_that_hangs_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "LAST_WORD", 0.01)
    driver: Any = Telephone()
    driver.held.clear()
    teller = Teller(driver, Telemetry(log=False), "a")
    teller.tell({1})
    await asyncio.sleep(0)
    teller.tell({2})
    await asyncio.wait_for(teller.close(), 5)
    assert len(driver.told) == 1
    assert teller._job is None


@pytest.mark.proves("rule-18", "rule-21")
async def test_a_failure_is_told_once_and_reaches_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "TELL_EVERY", 0.001)
    driver: Any = Telephone()
    telemetry = Telemetry(log=False)
    teller = Teller(driver, telemetry, "a")
    for error, streak in ((StoreUnavailable("away"), 1), (None, 1), (RuntimeError("a bug"), 2)):
        driver.error = error
        for _ in range(3):
            driver.told.clear()
            teller.tell({1})
            await until(lambda: driver.told and teller._rest is None, every=0.002)
        assert telemetry.counts[NotifyFailed] == streak
    await teller.close()


@pytest.mark.proves("rule-18")
@pytest.mark.parametrize(
    "hint",
    [
        Hint("a1", frozenset({1})), Hint("a1", frozenset({3, 2, 1})), Hint("a1"), Hint("a1", probe=7),
        Hint("ff", frozenset({2**53})),
    ],
)  # fmt: skip
def test_a_hint_comes_out_as_it_went_in(hint: Hint) -> None:
    assert read(written(hint)) == hint


def test_too_many_queues_are_all_queues() -> None:
    assert read(written(Hint("a1", frozenset(range(10_000, 20_000))))) == Hint("a1")
    assert len(written(Hint("a1", frozenset(range(10_000, 10_600))))) <= LONGEST_WORD + 3


@pytest.mark.parametrize("word", ["", "*", "stepwell", "a1:", "a1:1,", "a1:x", "a1:1;x", "a1:" + "9" * 30, "a1?", "?1"])
def test_what_others_say_there_is_a_hint_for_all(word: str) -> None:
    assert read(word).queues is None
    assert read(word).probe is None


def test_every_queue_has_something_in_common_with_any() -> None:
    assert not EveryQueue().isdisjoint([1])
    assert not EveryQueue().isdisjoint({})


async def _connections_that_speak(proxy: FaultProxy, store: Store) -> list[int]:
    """On which connections a hint alone goes out."""
    before, told = list(proxy.trips_of), len(_told(proxy))
    store.database.wakeups.hint({1})
    await until(lambda: len(_told(proxy)) > told)
    await until(lambda: proxy.trips_of != before)
    return [number for number, (now, then) in enumerate(zip(proxy.trips_of, before, strict=True)) if now > then]


def _told(proxy: FaultProxy) -> list[str]:
    return [text for text in list(proxy.statements) if "pg_notify" in text]


async def _say(url: str, word: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("select pg_notify($1, $2)", CHANNEL, word)
    await connection.close()
