"""A subject that was forgotten: nothing of it can be read again, by any way, and nothing else is lost."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from stepwell import (
    At,
    Encrypted,
    Engine,
    ExecutionFailed,
    InvalidOption,
    Keyring,
    PermanentError,
    StepFailed,
    Store,
    StoreUnavailable,
    SubjectForgotten,
    Tx,
    Worker,
    connect,
    handler,
    headers,
    projection,
    step,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.operate.run_view import view_of
from stepwell.store import subject_keys
from stepwell.store.run_log import last_lines
from stepwell.store.subject_keys import KNOWN_FOR, SubjectKeys
from stepwell.values.cipher import Key, new_subject_key, unwrapped_subject
from tests.deciders.workbench import Bench, Do, Noted
from tests.store.seam import ask, do
from tests.store.test_encryption import everything, under
from tests.workflows.kit import begun, drained

RING = Keyring({"old": os.urandom(32)}, "old")
ADA, BOB = {"subject": "customer/ada"}, {"subject": "customer/bob"}


@pytest.fixture
async def locked(store_url: str, clock: TestClock) -> AsyncIterator[Store]:
    async with connect(store_url, clock=clock, codec=Encrypted(keys=RING), audit="all") as store:
        yield store


@handler("mail", retry=1)
async def send(text: str) -> None:
    if "bad" in text:
        raise PermanentError(f"no such address: {text}")


@step
async def charge(text: str) -> str:
    return f"charged {text}"


@step(retry=1)
async def refuse(text: str) -> str:
    raise ValueError(f"refused {text}")


@workflow
async def child(text: str) -> str:
    return await charge(text)


@workflow(dead_letter="mourn", lifecycle={"dead_letter"})
async def order(ctx: Any, text: str) -> str:
    ctx.set_value("paper", text)
    ctx.stream("lines").write(text)
    ctx.progress({"at": text})
    logging.getLogger("shop").warning("it says %s", text)
    await child.trigger(text).execute()
    await ctx.emit("order.placed", {"text": text})
    told = await ctx.wait("approved")
    try:
        await refuse(told)
    except StepFailed:
        raise PermanentError(f"it failed with {told}") from None
    return text


@workflow
async def mourn(letter: Any) -> str:
    return str(letter)


class Kept(Bench):
    """A bench whose instances may be forgotten."""

    forgettable = True


async def lived(store: Store, text: str, whose: dict[str, str]) -> int:
    """A run, its child, its dead letter workflow, messages, and events for the outside world; the number of the run."""
    await store.create_queue("mail")
    with headers(whose):
        run = await begun(store, order, text)
        await store.enqueue("mail", f"bad {text}", key=f"mail {len(text)}{text[-1]}")
        await store.enqueue("mail", text)
        await store.emit("mail.sent", {"text": text}, subject="a")
        async with store.transaction() as tx:
            await store.enqueue("mail", text, tx=tx)
    await drained(store, order, child, mourn, send)
    await store.signal(run, "approved", text)
    await drained(store, order, child, mourn, send)
    return int(run)


async def told(store: Store) -> str:
    """All that the tables hold, as text, opened as everything is that the store reads."""
    texts = [text for _, _, each in store.database.statements.migrations() for text in each]
    tables = sorted({text.split()[2] for text in texts if text.startswith("create table")})
    return "\n".join([str(list(row)) for name in tables for row in await ask(store, f"select * from {name}")])


def forgetful(store: Store) -> None:
    """Let this process know no key any more, as after a minute."""
    driver: Any = store.database.driver
    driver.subjects = SubjectKeys()


@pytest.mark.proves("security-15")
async def test_a_forgotten_subject_is_read_nowhere_and_nothing_else_is_lost(locked: Store) -> None:
    ada, bob = await lived(locked, "marker-ada", ADA), await lived(locked, "marker-bob", BOB)
    before = await told(locked)
    counts = {name: before.count(name) for name in ("marker-ada", "marker-bob")}
    assert min(counts.values()) > 20, "void: too little was stored"
    assert await locked.forget_subject("customer/ada", actor="ann")
    after = await told(locked)
    assert (after.count("marker-ada"), after.count("marker-bob")) == (0, counts["marker-bob"])
    assert "marker" not in await everything(locked)
    with pytest.raises(ExecutionFailed, match="its subject was forgotten"):
        await locked.result(ada)
    with pytest.raises(ExecutionFailed, match="marker-bob"):
        await locked.result(bob)
    with pytest.raises(SubjectForgotten):
        await locked.value(ada, "paper")
    assert await locked.value(bob, "paper") == "marker-bob"
    with pytest.raises(SubjectForgotten):
        (await locked.get_run(ada)).input(str)
    assert (await locked.get_run(ada)).input() == {"$sw": {"c": "forgotten"}, "d": ""}  # for people, as it stands
    assert (await locked.get_run(ada)).headers == {}
    assert {one.name for one in await locked.steps(ada)} == {one.name for one in await locked.steps(bob)}
    assert len(await locked.history(ada)) == len(await locked.history(bob)) > 0
    assert [one.data for one in await locked.signals(ada)] != [one.data for one in await locked.signals(bob)]
    assert [one.name for one in await locked.values(ada)] == [one.name for one in await locked.values(bob)]
    assert len(await locked.dead_letters(queue="mail")) == 2
    with pytest.raises(SubjectForgotten):
        assert [line async for line in locked.logs(ada)] == []
    assert (await last_lines(locked.database, ada, step=None, limit=9)).lines == []
    assert (await last_lines(locked.database, bob, step=None, limit=9)).lines != []
    for run in (ada, bob):
        assert len((await view_of(locked, await locked.get_run(run))).steps) > 1
    assert [note.note.actor for note in await locked.audit() if note.note.what == "subject forgotten"] == ["ann"]
    assert not await locked.forget_subject("customer/ada"), "it was forgotten before"
    assert not await locked.forget_subject("customer/eve"), "nothing was ever stored of it"


@pytest.mark.proves("security-15")
async def test_open_work_of_a_forgotten_subject_fails_and_its_key_is_no_conflict(locked: Store) -> None:
    run = await begun(locked, child, "waits", headers=ADA)
    begun_before = await begun(locked, order, "has recorded steps", headers=ADA)
    await drained(locked, order, send)
    await locked.create_queue("mail")
    with headers(ADA):
        message = await locked.enqueue("mail", {"text": "waits"}, key="k")
    other = await locked.enqueue("mail", "bob's")
    await locked.forget_subject("customer/ada")
    await locked.signal(begun_before, "approved", "text")
    await drained(locked, child, order, mourn, send)
    for one in (run, begun_before):
        found = await locked.get_run(one)
        assert (str(found.status), found.last_error) == ("ERROR", "SubjectForgotten")
    [letter] = await locked.dead_letters(queue="mail")
    assert (letter.id, letter.last_error) == (int(message), "SubjectForgotten")
    done = await locked.get(other)
    assert done is not None
    assert str(done.status) == "SUCCESS"
    again = await locked.enqueue("mail", {"text": "another"}, key="k")
    assert (int(again), again.created) == (int(message), False)


@pytest.mark.proves("security-15")
async def test_nothing_is_added_to_a_forgotten_subject(locked: Store) -> None:
    await locked.create_queue("mail")
    with headers(ADA):
        await locked.enqueue("mail", "before")
        await locked.forget_subject("customer/ada")
        with pytest.raises(SubjectForgotten):
            await locked.enqueue("mail", "after")
        with pytest.raises(SubjectForgotten):
            await locked.enqueue_many("mail", ["after", "after"])
        with pytest.raises(SubjectForgotten):
            await begun(locked, child, "after")
        async with locked.transaction() as tx:
            with pytest.raises(SubjectForgotten):
                await locked.enqueue("mail", "after", tx=tx)
    assert len(await ask(locked, "select id from {task}")) == 1


@pytest.mark.proves("security-15")
async def test_what_a_process_writes_that_still_has_the_key_is_never_read(
    locked: Store, store_url: str, backend: str, clock: TestClock
) -> None:
    if backend in ("memory", "turso"):
        pytest.skip("its database is of one process")
    await locked.create_queue("mail")
    run = await begun(locked, order, "marker", headers=ADA)
    await drained(locked, order, child)
    async with connect(store_url, clock=clock, codec=Encrypted(keys=RING)) as other:
        assert await other.forget_subject("customer/ada")
    assert await locked.value(run, "paper") == "marker", "void: it does not have the key any more"
    await locked.signal(run, "approved", "marker late")
    with headers(ADA):
        await locked.enqueue("mail", "marker late")
    forgetful(locked)
    assert "marker" not in await told(locked)


@pytest.mark.proves("security-15")
async def test_a_key_is_kept_for_a_minute(
    locked: Store, store_url: str, backend: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend in ("memory", "turso"):
        pytest.skip("its database is of one process")
    await locked.create_queue("mail")
    with headers(ADA):
        message = await locked.enqueue("mail", "marker")
    async with connect(store_url, clock=clock, codec=Encrypted(keys=RING)) as other:
        await other.forget_subject("customer/ada")
    now = time.monotonic()
    for seconds, kept in ((KNOWN_FOR - 5, True), (KNOWN_FOR + 5, False)):
        monkeypatch.setattr(subject_keys, "time", SimpleNamespace(monotonic=lambda s=seconds: now + s))
        found = await locked.get(message)
        assert found is not None
        assert (found.input == "marker") is kept


@pytest.mark.proves("security-15")
async def test_an_instance_that_was_forgotten_has_ended_and_others_go_on(locked: Store) -> None:
    engine = Engine(locked).register(Kept(), snapshot_every=1, observe=True)
    for name in ("ada", "bob"):
        await engine.execute(Do(name, f"marker-{name}", ask=f"marker-{name}", after=3600))
        await engine.submit(Do(name, f"marker-{name}"))
    await Worker(locked, [engine]).drain()
    await engine.submit(Do("ada", "marker-ada"))
    before = (await told(locked)).count("marker-bob")
    assert await locked.forget_subject("bench/ada")
    found = await told(locked)
    assert (found.count("marker-ada"), found.count("marker-bob")) == (0, before)
    await Worker(locked, [engine]).drain()
    failed = await ask(locked, "select kind, last_error from {task} where status = 'ERROR'")
    assert [tuple(row) for row in failed] == [("INPUT", "SubjectForgotten")]
    with pytest.raises(SubjectForgotten):
        await engine.state(Kept, "ada")
    with pytest.raises(SubjectForgotten):
        await engine.execute(Do("ada", "more"))
    assert {event.event for event in await engine.events("bench", "ada")} == {None}
    seen = await engine.inspect("bench", "ada")
    assert (seen.state, seen.completed_at is None) == (None, False)
    assert (await engine.execute(Do("bob", "more"))).outcome == "applied"
    fresh = Engine(locked).register(Kept())
    assert await fresh.state(Kept, "bob") == await engine.state(Kept, "bob")


@pytest.mark.proves("security-15")
async def test_two_processes_that_meet_a_subject_at_once_have_one_key_for_it(
    locked: Store, store_url: str, backend: str, clock: TestClock
) -> None:
    if backend in ("memory", "turso"):
        pytest.skip("one process at a time")
    await locked.create_queue("mail")
    async with connect(store_url, clock=clock, codec=Encrypted(keys=RING)) as other:
        with headers(ADA):
            ids = await asyncio.gather(*(store.enqueue("mail", "text") for store in (locked, other) * 5))
        assert len(await ask(locked, "select id from {subject_key}")) == 1
        for one in ids:
            found = await other.get(one)
            assert found is not None
            assert found.input == "text"


@pytest.mark.proves("security-15")
async def test_a_key_that_was_made_in_a_transaction_that_was_rolled_back_is_not_used_again(locked: Store) -> None:
    await locked.create_queue("mail")
    with headers(ADA):
        with contextlib.suppress(RuntimeError):
            async with locked.transaction() as tx:
                await locked.enqueue("mail", "gone", tx=tx)
                raise RuntimeError
        kept = await locked.enqueue("mail", "kept")
    forgetful(locked)
    found = await locked.get(kept)
    assert found is not None
    assert found.input == "kept"


@pytest.mark.proves("security-13", "security-15")
async def test_an_envelope_of_one_subject_does_not_open_in_a_row_of_another(locked: Store) -> None:
    await locked.create_queue("mail")
    ids = []
    for whose in (ADA, BOB):
        with headers(whose):
            ids.append(int(await locked.enqueue("mail", whose["subject"])))
    ada, bob = ids
    await do(locked, f"update {{task}} set input = (select input from {{task}} where id = {ada}) where id = {bob}")
    found = await locked.get(bob)
    assert found is not None
    assert "$sw" in found.input
    [mine, theirs] = await ask(under(locked), "select wrapped from {subject_key} order by subject")
    await do(locked, f"update {{subject_key}} set wrapped = '{mine['wrapped']}' where subject = 'customer/bob'")
    forgetful(locked)
    assert theirs["wrapped"] != mine["wrapped"]
    [left] = await ask(locked, f"select id, input from {{task}} where id = {bob}")
    assert "$sw" in left["input"], "a key that was copied to another subject opens nothing"


@pytest.mark.proves("security-13", "security-15")
def test_the_key_of_a_subject_is_of_no_other_subject_and_no_other_tenant() -> None:
    ours, theirs = Key(bytes(32)), Key(bytes([1]) * 32)
    wrapped = new_subject_key(ours, "customer/ada")
    assert unwrapped_subject(ours, "customer/ada", wrapped) is not None
    assert unwrapped_subject(ours, "customer/bob", wrapped) is None
    assert unwrapped_subject(theirs, "customer/ada", wrapped) is None


@pytest.mark.proves("security-15")
async def test_a_fork_belongs_to_the_subject_of_its_run(locked: Store) -> None:
    run = await lived(locked, "marker-ada", ADA)
    fork = await locked.fork(run, at="refuse#1")
    await drained(locked, order, child, mourn)
    assert (await locked.get_run(fork)).input() == "marker-ada"
    await locked.forget_subject("customer/ada")
    assert "marker" not in await told(locked)


@pytest.mark.proves("security-15")
async def test_only_an_encrypted_store_can_forget(store: Store) -> None:
    with pytest.raises(InvalidOption, match="without encryption"):
        await store.forget_subject("customer/ada")


@pytest.mark.proves("security-15")
async def test_feeds_and_projections_leave_out_what_was_forgotten(locked: Store) -> None:
    seen: list[str] = []

    @projection("seen", events=[Noted])
    class Seen:
        async def handle(self, event: Noted, at: At, tx: Tx) -> None:
            seen.append(at.id)

    engine = Engine(locked).register(Kept()).register(Seen())
    for name in ("ada", "bob", "ada"):
        await engine.execute(Do(name, "text"))
    assert [one.at.id for one in (await engine.events_since(0)).events] == ["ada", "bob", "ada"]
    assert await locked.forget_subject("bench/ada")
    assert [one.at.id for one in (await engine.events_since(0)).events] == ["bob"]
    assert [one.at.id for one in (await Engine(locked).events_since(0)).events] == ["bob"]
    await Worker(locked, [engine]).drain()
    assert seen == ["bob"]
    await engine.execute(Do("bob", "more"))
    await Worker(locked, [engine]).drain()
    assert seen == ["bob", "bob"]


def calls_of(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that reach the database apart from scripts, from now on."""
    sealed: Any = store.database.driver
    seen: list[str] = []
    for name in ("read", "write"):
        whole = getattr(sealed._inner, name)

        async def noted(call: Any, whole: Any = whole) -> Any:
            seen.append(call.statement)
            return await whole(call)

        monkeypatch.setattr(sealed._inner, name, noted)
    return seen


@pytest.mark.proves("security-15")
async def test_without_a_subject_nothing_is_asked_for_one_and_with_one_its_key_is_read_once(
    locked: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await locked.create_queue("mail")
    seen = calls_of(locked, monkeypatch)
    for text in ("a", "b"):
        await locked.enqueue("mail", text)
        await begun(locked, child, text)
    await drained(locked, send, child)
    assert {one for one in seen if "subject" in one or "seals_of" in one} == set()
    with headers(ADA):
        for text in ("a", "b"):
            await locked.enqueue("mail", text)
            await begun(locked, child, text)
    await drained(locked, send, child)
    asked = [one for one in seen if "subject" in one or "seals_of" in one]
    assert (set(asked), asked.count("subject_keys")) == ({"subject_keys", "add_subject_keys"}, 2)


@pytest.mark.proves("security-14", "security-15")
async def test_subjects_are_read_with_the_new_key_and_forgotten_after_a_rotation(
    store_url: str, backend: str, clock: TestClock
) -> None:
    if backend == "memory":
        pytest.skip("its database goes with the store")
    keys = {name: os.urandom(32) for name in ("old", "new")}
    async with connect(store_url, clock=clock, codec=Encrypted(keys=Keyring({"old": keys["old"]}, "old"))) as store:
        await store.create_queue("mail")
        with headers(ADA):
            message = await store.enqueue("mail", "marker")
    async with connect(store_url, clock=clock, codec=Encrypted(keys=Keyring(keys, "new"))) as store:
        assert await store.rotate_keys() == 1
    async with connect(store_url, clock=clock, codec=Encrypted(keys=Keyring({"new": keys["new"]}, "new"))) as store:
        found = await store.get(message)
        assert found is not None
        assert found.input == "marker"
        assert await store.forget_subject("customer/ada")
        assert "marker" not in await told(store)


@pytest.mark.proves("security-15")
async def test_who_forgets_is_told_so_when_the_reply_of_the_commit_is_lost(
    locked: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await locked.create_queue("mail")
    with headers(ADA):
        await locked.enqueue("mail", "marker")
    inner: Any = locked.database.driver._inner  # type: ignore[attr-defined]
    whole, lost = inner.transact, [True]

    async def losing(*given: Any, **options: Any) -> Any:
        done = await whole(*given, **options)
        if lost.pop() if lost else False:
            raise StoreUnavailable("its reply was lost")
        return done

    monkeypatch.setattr(inner, "transact", losing)
    assert await locked.forget_subject("customer/ada")
    assert not await locked.forget_subject("customer/ada")
    assert [note.note.what for note in await locked.audit()].count("subject forgotten") == 1
