"""Which queues a worker claims from: its handlers', or those whose names begin as it was told."""

import asyncio
from typing import Any

import pytest

from stepwell import Count, InvalidName, InvalidOption, Store, Worker, handler, poll_all, workflow
from tests.ground.waiting import until


@handler("media.scale")
async def scale(number: int) -> None:
    """Do nothing."""


@handler("email.send")
async def send(number: int) -> None:
    """Do nothing."""


async def fill(store: Store, *queues: str) -> None:
    for queue in queues:
        await store.create_queue(queue)
        await store.enqueue(queue, 1)


async def finished(store: Store, queue: str, counts: dict[str, int]) -> None:
    async def so() -> bool:
        return await store.counts(queue) == counts

    await until(so)


async def living(store: Store, count: int) -> bool:
    return sum(worker.alive for worker in await store.workers()) == count


async def statuses(store: Store) -> dict[str, dict[str, Count]]:
    return {queue.name: await store.counts(queue.name) for queue in await store.queues()}


@pytest.mark.proves("PR-11", "PR-13")
async def test_without_prefixes_a_worker_takes_what_it_has_handlers_for(store: Store) -> None:
    await fill(store, "media.scale", "media.cut", "default.a")
    assert await Worker(store, [scale]).drain() == 1
    assert await statuses(store) == {
        "default.a": {"PENDING": 1},
        "media.cut": {"PENDING": 1},
        "media.scale": {"SUCCESS": 1},
    }


@pytest.mark.proves("PR-09", "W-12", "W-18")
async def test_with_prefixes_it_takes_what_begins_so_and_fails_what_it_has_no_handler_for(store: Store) -> None:
    await fill(store, "media.scale", "media.cut", "email.send", "a.b", "a.c")
    assert await Worker(store, [scale, send], prefixes=["media.", "a."]).drain() == 4
    assert await statuses(store) == {
        "a.b": {"ERROR": 1},
        "a.c": {"ERROR": 1},
        "email.send": {"PENDING": 1},
        "media.cut": {"ERROR": 1},
        "media.scale": {"SUCCESS": 1},
    }
    letters = await store.dead_letters()
    assert {letter.last_error for letter in letters} == {"no_handler_registered"}
    assert {letter.attempt for letter in letters} == {1}, "it was tried again"


@pytest.mark.proves("W-12", "DP-06")
async def test_what_it_has_no_handler_for_can_be_left_to_others(store: Store) -> None:
    await fill(store, "media.scale", "media.cut", "email.send")
    assert await Worker(store, [scale, send], prefixes=["media."], on_missing_handler="release").drain() == 1
    assert (await statuses(store))["media.cut"] == {"PENDING": 1}
    assert (await statuses(store))["email.send"] == {"PENDING": 1}
    with pytest.raises(InvalidOption, match="do nothing"):
        Worker(store, [scale], prefixes=["audio."], on_missing_handler="release")


@pytest.mark.proves("PR-10", "CF-04", "W-15")
async def test_one_program_takes_another_role_by_its_environment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(store, "media.scale", "email.send")
    monkeypatch.setenv("WORKER_TYPE_PREFIXES", " media., ,audio.")
    assert await Worker(store, [scale, send]).drain() == 1
    assert (await statuses(store))["media.scale"] == {"SUCCESS": 1}
    monkeypatch.setenv("WORKER_TYPE_PREFIXES", "email.")
    assert await Worker(store, [scale, send]).drain() == 1
    assert (await statuses(store))["email.send"] == {"SUCCESS": 1}
    await store.enqueue(scale, 2)
    assert await Worker(store, [scale, send], prefixes=()).drain() == 1, "what the program says goes first"


@pytest.mark.proves("PR-12")
async def test_prefixes_match_letter_by_letter(store: Store) -> None:
    await fill(store, "a_b.x", "aXb.x", "A_b.x", "a-b.x")
    await Worker(store, [], prefixes=["a_b."]).drain()
    after = await statuses(store)
    assert after.pop("a_b.x") == {"ERROR": 1}
    assert set(map(str, after.values())) == {"{'PENDING': 1}"}
    with pytest.raises(InvalidName):
        Worker(store, [], prefixes=["a%"])


@pytest.mark.proves("MT-03")
@pytest.mark.parametrize("sign", ["_", "."])
async def test_a_worker_of_a_prefix_serves_the_queues_of_one_tenant(store: Store, sign: str) -> None:
    served: list[str] = []

    def program(tenant: str) -> list[Any]:
        @handler(f"{tenant}{sign}mail")
        async def send(number: int) -> None:
            served.append(f"{tenant} mail")

        @workflow(name=f"{tenant}{sign}report")
        async def report() -> None:
            served.append(f"{tenant} report")

        return [send, report]

    programs = {tenant: program(tenant) for tenant in ("ann", "anna", "bob")}
    for send, report in programs.values():
        await store.enqueue(send, 1)
        await report.trigger().options(require_worker="ignore").execute(store)
    everybody = [one for program in programs.values() for one in program]
    for tenant in ("bob", "ann"):
        served.clear()
        assert await Worker(store, everybody, prefixes=[f"{tenant}{sign}"]).drain() == 2
        assert sorted(served) == [f"{tenant} mail", f"{tenant} report"]
    assert [await store.counts(f"anna{sign}{name}") for name in ("mail", "report")] == [{"PENDING": 1}] * 2


@pytest.mark.proves("PR-11", "PR-16")
async def test_a_worker_of_nothing_takes_the_default_pool(store: Store) -> None:
    await fill(store, "default.a", "other")
    await Worker(store, []).drain()
    assert await statuses(store) == {"default.a": {"ERROR": 1}, "other": {"PENDING": 1}}


async def test_a_queue_made_later_is_found_and_the_worker_says_what_it_serves(live_store: Store) -> None:
    async with Worker(live_store, [scale], prefixes=["media."]):
        [worker] = await live_store.workers()
        assert worker.handlers == ("media.scale", "media.*")
        await fill(live_store, "media.new")
        await finished(live_store, "media.new", {"ERROR": 1})


@pytest.mark.proves("W-05", "W-04")
async def test_several_workers_are_run_by_one_call_and_stopped_one_by_one(live_store: Store) -> None:
    first, second = Worker(live_store, [scale]), Worker(live_store, [send])
    polling = asyncio.ensure_future(poll_all([first, second]))
    await live_store.enqueue(scale, 1)
    await finished(live_store, "media.scale", {"SUCCESS": 1})
    first.stop()
    await until(lambda: living(live_store, 1))
    await live_store.enqueue(send, 1)
    await finished(live_store, "email.send", {"SUCCESS": 1})
    assert not polling.done()
    second.stop()
    await polling
    await poll_all([])


@pytest.mark.proves("W-05")
async def test_a_worker_that_cannot_start_ends_the_others_and_is_heard_of(live_store: Store) -> None:
    broken = Worker(live_store, [send])
    async with broken:
        with pytest.raises(InvalidOption, match="started already"):
            await poll_all([Worker(live_store, [scale]), broken])
