"""The sealed audit: who did what, and whether it was changed since."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import PermanentError, Store, connect, sync, workflow
from stepwell.base.clock import TestClock
from stepwell.store import seals
from stepwell.store.audit import What
from tests.store.seam import ask, do, watched
from tests.workflows.kit import begun, drained


@workflow
async def order(cents: int) -> int:
    if cents < 0:
        raise PermanentError("less than nothing")
    return cents


@pytest.fixture
async def sealed(store_url: str, clock: TestClock) -> AsyncIterator[Store]:
    async with connect(store_url, clock=clock, seal_audit=True) as store:
        yield store


async def cancelled(store: Store, count: int) -> list[int]:
    """Runs that somebody has cancelled, each noted."""
    runs = [int(await begun(store, order, cents)) for cents in range(count)]
    for run in runs:
        await store.cancel(run, reason="a test", actor="ann")
    return runs


async def faults(store: Store, head: str | None = None) -> list[int]:
    found = await store.verify_audit(head=head)
    assert bool(found) is not bool(found.faults)
    return [one.seal for one in found.faults]


# Who


@pytest.mark.proves("A-01", "A-05")
async def test_each_verb_that_steers_notes_who_asked_and_why(store: Store) -> None:
    run = await begun(store, order, 1)
    said: Any = {"actor": "ann", "reason": "a test"}
    assert await store.pause(run, **said)
    assert await store.unpause(run, **said)
    assert await store.cancel(run, **said)
    assert await store.delete(run, **said)
    assert await store.restore(run, **said)
    failed = await begun(store, order, -1)
    await drained(store, order)
    assert await store.retry(failed, **said)
    await drained(store, order)
    assert await store.requeue(failed, **said) == 1
    fork = await store.fork(await done(store), at="now#1", **said)
    for one, verbs in ((run, 5), (failed, 2), (fork, 1)):
        acted = [note for note in await store.history(one) if note.actor is not None]
        assert len(acted) == verbs
        assert all(note.actor == "ann" and "a test" in str(note.detail) for note in acted)
    assert all(note.actor is None for note in await store.history(failed) if note.worker is not None)


@workflow
async def timed(ctx: Any) -> str:
    return str(ctx.now())


async def done(store: Store) -> int:
    run = await begun(store, timed)
    await drained(store, timed)
    return int(run)


@pytest.mark.proves("A-01")
async def test_what_is_done_to_the_store_itself_is_noted_too_and_belongs_to_its_tenant(
    store: Store, store_url: str, clock: TestClock
) -> None:
    await store.create_queue("mail")
    await store.enqueue("mail", 1)
    await store.pause_queue("mail", actor="ann", reason="the disk is full")
    await store.resume_queue("mail", actor="ann")
    await store.drain_queue("mail", actor="ann")
    await store.reopen_queue("mail", actor="ann")
    assert await store.purge("mail", actor="ann") == 1
    await store.delete_queue("mail", actor="ann")
    await store.begin_maintenance("upgrade", actor="ann")
    await store.end_maintenance(actor="ann")
    await store.prune("1d", actor="ann")
    notes = list(reversed(await store.audit()))
    assert [one.note.what for one in notes] == [
        *("queue paused", "queue resumed", "queue drained", "queue reopened", "queue purged", "queue deleted"),
        *("maintenance begun", "maintenance ended", "pruned"),
    ]
    assert {(one.note.actor, one.task_id, one.kind) for one in notes} == {("ann", None, None)}
    assert (notes[0].note.detail, notes[4].note.detail) == ("mail: the disk is full", "1 of mail")
    async with connect(store_url, clock=clock, tenant="bob") as bob:
        assert list(await bob.audit()) == []


@pytest.mark.proves("A-05")
def test_the_sync_face_says_who_and_verifies(store_url: str) -> None:
    with sync.connect(store_url, seal_audit=True) as store:
        store.create_queue("mail")
        store.pause_queue("mail", actor="ann")
        head = store.seal_audit()
        assert [one.note.actor for one in store.audit()] == ["ann"]
        assert store.verify_audit(head=head).notes == 1


# Seals


@pytest.mark.proves("security-11")
async def test_a_note_that_was_changed_removed_or_added_under_a_seal_is_found(sealed: Store) -> None:
    runs = await cancelled(sealed, 3)
    head = await sealed.seal_audit()
    found = await sealed.verify_audit(head=head)
    assert (bool(found), found.seals, found.notes, found.waiting, found.head) == (True, 1, 3, 0, head)
    columns = ("actor = 'eve'", "detail = '\"another\"'", "what = 'paused'", "recorded_at = 1", "attempt = 9")
    for changed in (*columns, "seal = 0", "seal = null", "task_id = 999999", "tenant = 'eve'", "worker_id = 7"):
        await do(sealed, "create table {copy} as select * from {audit}")
        await do(sealed, f"update {{audit}} set {changed} where task_id = {runs[1]}")
        assert await faults(sealed, head) == [1], changed
        await do(sealed, "delete from {audit}", "insert into {audit} select * from {copy}", "drop table {copy}")
        assert await faults(sealed, head) == []
    await do(
        sealed,
        f"insert into {{audit}} select task_id, 99, what, worker_id, turn, attempt, detail, recorded_at, "
        f"actor, tenant, seal from {{audit}} where task_id = {runs[0]}",
    )
    assert await faults(sealed) == [1]
    await do(sealed, "delete from {audit} where place = 99", f"delete from {{audit}} where task_id = {runs[2]}")
    assert await faults(sealed) == [1]


@pytest.mark.proves("security-11")
async def test_a_seal_that_was_changed_removed_or_made_anew_is_found(sealed: Store) -> None:
    head = ""
    for _ in range(3):
        await cancelled(sealed, 2)
        head = await sealed.seal_audit()
    assert await faults(sealed, head) == []
    await do(sealed, "create table {copy} as select * from {audit_seal}")
    for changed, found in (
        ("update {audit_seal} set hash = previous where id = 2", [2, 3]),
        ("update {audit_seal} set dropped_at = 1 where id = 2", [2, 2]),
        ("delete from {audit_seal} where id = 2", [2]),
        ("delete from {audit_seal} where id = 1", [1]),
        ("delete from {audit_seal} where id = 3", [3, 2]),  # its notes name it, and the head is not there
        ("delete from {audit_seal}", [1, 0]),
    ):
        await do(sealed, changed)
        assert await faults(sealed, head) == found, changed
        await do(sealed, "delete from {audit_seal}", "insert into {audit_seal} select * from {copy}")
    # Who may write to the database can cut off the end with its notes, and only the hash that is kept elsewhere tells.
    await do(sealed, "delete from {audit_seal} where id = 3", "delete from {audit} where seal = 3")
    assert await faults(sealed) == []
    assert await faults(sealed, head) == [2]


@pytest.mark.proves("security-11")
async def test_sessions_that_seal_at_the_same_time_seal_each_note_once(
    sealed: Store, store_url: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seals, "PIECE", 4)
    await cancelled(sealed, 10)
    if sealed.database.driver.name == "turso":  # has one process
        others = [sealed] * 3
        heads = await asyncio.gather(*(one.seal_audit() for one in others))
    else:
        async with connect(store_url, clock=clock, seal_audit=True) as second:
            heads = await asyncio.gather(*(one.seal_audit() for one in (sealed, second, sealed, second)))
    found = await sealed.verify_audit(head=heads[0])
    assert (bool(found), found.notes, found.waiting) == (True, 10, 0)
    assert found.seals >= 3


@pytest.mark.proves("security-11", "A-03")
async def test_where_it_is_not_asked_for_nothing_is_sealed_and_nothing_looks(store: Store) -> None:
    await cancelled(store, 2)
    store, driver = watched(store)
    await store.database.retention.round()
    assert not {"unsealed_notes", "old_seals"} & {call.statement for call in driver.said}
    assert await store.seal_audit() == ""
    assert [row["seal"] for row in await ask(store, "select seal from {audit}")] == [None, None]


# Retention


@pytest.mark.proves("security-11", "SD-08")
async def test_what_is_sealed_outlives_its_task_and_goes_seal_by_seal(store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock, seal_audit=True, keep_audit="10d") as store:
        [first] = await cancelled(store, 1)
        await store.seal_audit()
        clock.advance("6d")
        await cancelled(store, 1)
        head = await store.seal_audit()
        clock.advance("5d")
        await store.prune("7d", actor="ann")
        assert (await store.verify_audit(head=head)).notes == 2
        await store.database.retention.round()
        assert await store.get(first) is None
        found = await store.verify_audit(head=head)
        assert (bool(found), found.seals, found.dropped, found.notes, found.waiting) == (True, 2, 1, 1, 2)
        assert [one.note.what for one in await store.audit()] == [What.SEAL_DROPPED, What.PRUNED, What.CANCELLED]
        clock.advance("20d")
        await store.database.retention.round()
        assert (await store.verify_audit(head=head)).dropped == 2


@pytest.mark.proves("SD-08")
async def test_the_age_of_notes_can_be_set(store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock, keep=None, keep_audit="2d") as store:
        await cancelled(store, 1)
        clock.advance("1d")
        await store.database.retention.round()
        assert len(await store.audit()) == 1
        clock.advance("1d1s")
        await store.database.retention.round()
        assert len(await store.audit()) == 0
    async with connect(store_url, clock=clock, keep=None, keep_audit=None) as store:
        await cancelled(store, 1)
        clock.advance("400d")
        await store.database.retention.round()
        assert len(await store.audit()) == 1


@pytest.mark.proves("security-11")
async def test_who_dropped_or_purged_is_known_after_the_task_is_gone(sealed: Store) -> None:
    failed = await begun(sealed, order, -1)
    await drained(sealed, order)
    await sealed.create_queue("mail")
    message = await sealed.enqueue("mail", 1)
    assert await sealed.drop(failed, actor="ann", reason="nonsense") == 1
    assert await sealed.purge("mail", actor="bea") == 1
    noted = {(one.note.what, one.task_id, one.note.actor, one.note.detail) for one in await sealed.audit()}
    assert ("dropped", int(failed), "ann", "nonsense") in noted
    assert ("purged", int(message), "bea", None) in noted
    await sealed.seal_audit()
    assert await faults(sealed) == []
