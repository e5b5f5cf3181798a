"""Encryption: what is stored tells nothing without the keys, and opens only where it belongs."""

import asyncio
import base64
import json
import logging
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Compressed,
    Encrypted,
    Engine,
    InvalidOption,
    KeyMissing,
    Keyring,
    MessagePack,
    PermanentError,
    StepFailed,
    Store,
    StoreUnavailable,
    Worker,
    connect,
    handler,
    step,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.deciders.registry import Family
from stepwell.store.sealed_calls import PARTS
from stepwell.store.sql import Statements
from tests.deciders.workbench import Bench, Do
from tests.store.seam import ask, do
from tests.workflows.kit import begun, drained

OLD, NEW = os.urandom(32), os.urandom(32)
MARKER = "marker-4711"
PLAIN = frozenset(("options", "handlers", "tags", "accepts", "types"))  # columns of JSON that hold no values
RING = Keyring({"old": OLD}, "old")


@pytest.fixture
async def locked(store_url: str, clock: TestClock) -> AsyncIterator[Store]:
    async with connect(store_url, clock=clock, codec=Encrypted(keys=RING), audit="all") as store:
        yield store


@handler("mail", retry=1)
async def send(text: str) -> None:
    raise PermanentError(f"no such address: {text}")


@step
async def charge(text: str) -> str:
    return f"charged {text}"


@step(retry=1)
async def refuse(text: str) -> str:
    raise ValueError(f"refused {text}")


@workflow
async def order(ctx: Any, text: str) -> str:
    ctx.set_value("paper", text)
    ctx.stream("lines").write(text)
    ctx.progress({"at": text})
    logging.getLogger("shop").info("it says %s", text)
    await charge(text)
    await ctx.emit("order.placed", {"text": text})
    told = await ctx.wait("approved")
    try:
        await refuse(told)
    except StepFailed:
        raise PermanentError(f"it failed with {told}") from None
    return text


@workflow(cleanup="1m")
async def undone(ctx: Any, text: str) -> None:
    try:
        await ctx.wait("never")
    finally:
        async with ctx.shield():
            await refuse(text)


def under(store: Store) -> Store:
    """The same store without what opens its values."""
    sealed: Any = store.database.driver
    database = store.database
    return Store(sealed._inner, database.statements, database.options, database.clock, database.telemetry)


async def everything(store: Store) -> str:
    """All that the tables hold, as text."""
    database = store.database
    texts = [text for _, _, each in database.statements.migrations() for text in each]
    tables = {text.split()[2] for text in texts if text.startswith("create table")}
    assert len(tables) > 20
    rows = [row for name in sorted(tables) for row in await ask(under(store), f"select * from {name}")]
    return "\n".join(str(list(row)) for row in rows)


async def lived(store: Store) -> int:
    """A run, a message and an instance whose every value holds the marker; the number of the run."""
    run = await begun(store, order, MARKER)
    await store.create_queue("mail")
    await store.enqueue("mail", {"text": MARKER}, key="a")
    await store.enqueue("mail", MARKER)
    await store.emit("mail.sent", {"text": MARKER}, subject="a")
    await drained(store, order, send)
    await store.signal(run, "approved", MARKER)
    await drained(store, order, send)
    gone = await begun(store, undone, MARKER)
    await drained(store, undone)
    await store.cancel(gone)
    await drained(store, undone)
    engine = Engine(store).register(Bench(), snapshot_every=1, observe=True)
    await engine.execute(Do("a", MARKER, ask=MARKER, after=3600))
    await engine.submit(Do("a", MARKER, fail=MARKER))
    await Worker(store, [engine]).drain()
    return int(run)


# What is stored


@pytest.mark.proves("security-12")
async def test_a_marker_in_every_value_and_error_is_found_in_no_table_no_log_and_no_metric(
    locked: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    run = await lived(locked)
    assert MARKER not in await everything(locked)
    assert MARKER not in "".join(
        record.getMessage() + str(record.exc_text) for record in caplog.records if record.name != "shop"
    )
    assert MARKER not in await locked.prometheus()
    # With the keys all of it is there.
    found = await locked.get_run(run)
    assert (found.status, found.last_error) == ("ERROR", "PermanentError")
    assert found.input() == MARKER
    assert MARKER in str(found.error)
    assert await locked.value(run, "paper") == MARKER
    assert [MARKER in line.text async for line in locked.logs(run)] != []
    steps = {one.name: one for one in await locked.steps(run)}
    assert any(MARKER in str(one.output) for one in steps.values())
    assert any(MARKER in str(note.detail) for note in await locked.history(run))
    [first, *_] = await locked.dead_letters(queue="mail")
    assert MARKER in str(first.payload) + str(first.error)
    assert [letter.last_error for letter in await locked.dead_letters(queue="mail", error="PermanentError")] != []


@pytest.mark.proves("security-12")
def test_every_column_of_json_is_sealed_or_holds_no_value() -> None:
    texts = [text for _, _, each in Statements("postgres", "s").migrations() for text in each]
    columns = {name for text in texts for name in re.findall(r"(?:^|column )\s*(\w+) json\b", text, re.MULTILINE)}
    assert {"input", "reply", "plan"} < columns
    assert columns - PLAIN <= PARTS.keys()


@pytest.mark.proves("security-12")
async def test_without_the_keys_a_value_is_shown_as_it_is_stored_and_its_task_is_left_to_others(
    store_url: str, backend: str, clock: TestClock
) -> None:
    if backend == "memory":
        pytest.skip("its database goes with the store")
    async with connect(store_url, clock=clock, codec=Encrypted(keys=RING)) as store:
        await store.create_queue("mail")
        message = await store.enqueue("mail", MARKER)
    async with connect(store_url, clock=clock) as store:
        assert MARKER not in str(await store.get(message))
        await drained(store, send)
        found = await store.get(message)
        assert found is not None
        assert (found.status, found.attempt) == ("PENDING", 0)
        assert "aes" in str(found.last_error)
        plain = await store.enqueue("mail", "as before")
    with pytest.raises(KeyMissing, match="the key 'old', and the ring has new"):
        await connect(store_url, clock=clock, codec=Encrypted(keys=Keyring({"new": NEW}, "new")))
    with pytest.raises(KeyMissing, match="another key under the id old"):
        await connect(store_url, clock=clock, codec=Encrypted(keys=Keyring({"old": NEW}, "old")))
    async with connect(store_url, clock=clock, codec=Encrypted(Compressed(MessagePack), keys=RING)) as store:
        for one, said in ((message, MARKER), (plain, "as before")):  # what was written before is read beside it
            found = await store.get(one)
            assert found is not None
            assert found.input == said


# Where it opens


@pytest.mark.proves("security-13")
async def test_an_envelope_that_was_copied_to_another_row_part_or_tenant_does_not_open(
    locked: Store, store_url: str, clock: TestClock
) -> None:
    await locked.create_queue("mail")
    ours, theirs = [int(await locked.enqueue("mail", text)) for text in ("ours", "theirs")]
    await do(locked, f"update {{task}} set input = (select input from {{task}} where id = {ours}) where id = {theirs}")
    copied = await locked.get(theirs)
    assert copied is not None
    assert "$sw" in copied.input
    await do(locked, f"update {{task}} set output = input where id = {ours}")
    found = await locked.get(ours)
    assert found is not None
    assert (found.input, "$sw" in found.output) == ("ours", True)
    [row] = await ask(under(locked), f"select input as stored from {{task}} where id = {ours}")
    stored = str(row["stored"])
    middle = len(stored) // 2
    broken = stored[:middle] + ("A" if stored[middle] != "A" else "B") + stored[middle + 1 :]
    await do(locked, f"update {{task}} set input = '{broken}' where id = {ours}")
    found = await locked.get(ours)
    assert found is not None
    assert "$sw" in found.input
    async with connect(store_url, clock=clock, codec=Encrypted(keys=RING), tenant="bob") as bob:
        await bob.create_queue("mail")
        theirs = int(await bob.enqueue("mail", "bob's"))
        text = stored.replace("'", "''")
        await do(bob, f"update {{task}} set input = '{text}' where id = {theirs}")
        taken = await bob.get(theirs)
        assert taken is not None
        assert "$sw" in taken.input


@pytest.mark.proves("security-13")
async def test_a_fork_has_its_own_envelopes(locked: Store) -> None:
    run = await lived(locked)
    fork = await locked.fork(run, at="refuse#1")
    rows = await ask(under(locked), f"select input as stored from {{task}} where id in ({run}, {int(fork)})")
    assert len({str(row["stored"]) for row in rows}) == 2
    await locked.signal(fork, "approved", MARKER)
    await drained(locked, order)
    found = await locked.get_run(fork)
    assert (found.status, found.input()) == ("ERROR", MARKER)
    assert [one.name for one in await locked.steps(fork)][:2] == [one.name for one in await locked.steps(run)][:2]


@pytest.mark.proves("security-13", "headers-04", "ST-02")
async def test_headers_are_encrypted_and_a_fork_from_the_beginning_reads_them(locked: Store) -> None:
    run = await order.trigger(MARKER).options(headers={"tenant": MARKER}).execute(locked)
    fork = await locked.fork(run)
    await locked.signal(fork, "approved", headers={"user": MARKER})
    stored = await ask(under(locked), "select headers from {task} union all select headers from {signal}")
    assert len(stored) == 3
    assert not [row for row in stored if MARKER in str(row[0])]
    assert [(await locked.get_run(one)).headers for one in (run, fork)] == [{"tenant": MARKER}] * 2
    assert (await locked.get_run(fork)).input() == MARKER
    assert [one.headers for one in await locked.signals(fork)] == [{"user": MARKER}]


# Keys


@pytest.mark.proves("security-14")
async def test_keys_are_rotated_while_others_work_and_a_rotation_may_be_killed(
    store_url: str, backend: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "memory":
        pytest.skip("its database goes with the store")
    both = Keyring({"old": OLD, "new": NEW}, "new")
    async with connect(store_url, clock=clock, codec=Encrypted(keys=RING)) as store:
        await store.create_queue("mail")
        before = await store.enqueue("mail", "before")
    async with connect(store_url, clock=clock, codec=Encrypted(keys=both)) as store:
        inner: Any = store.database.driver
        write = inner._inner.write

        async def killed(call: Any) -> Any:
            if call.statement == "wrap_anew":
                raise StoreUnavailable("killed")
            return await write(call)

        monkeypatch.setattr(inner._inner, "write", killed)
        with pytest.raises(StoreUnavailable):
            await store.rotate_keys()
        monkeypatch.undo()
        async with asyncio.TaskGroup() as group:
            work = [group.create_task(store.enqueue("mail", f"meanwhile {n}")) for n in range(20)]
            rotations = [group.create_task(store.rotate_keys(actor="ann")) for _ in range(3)]
        assert sum(one.result() for one in rotations) == 1
        assert [(one.note.what, one.note.actor) for one in await store.audit()] == [("keys rotated", "ann")]
    async with connect(store_url, clock=clock, codec=Encrypted(keys=Keyring({"new": NEW}, "new"))) as store:
        for message, said in [(before, "before"), *((one.result(), f"meanwhile {n}") for n, one in enumerate(work))]:
            found = await store.get(message)
            assert found is not None
            assert found.input == said
        assert await store.rotate_keys() == 0


@pytest.mark.proves("security-14")
async def test_two_processes_that_open_a_new_store_at_once_have_one_data_key(store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock, codec=Encrypted(keys=RING)) as one:
        await one.create_queue("mail")
        await asyncio.gather(*(one.database.driver.unlock() for _ in range(3)))  # type: ignore[attr-defined]
        assert len(await ask(one, "select id from {data_key}")) == 1


@pytest.mark.proves("security-14")
def test_a_ring_is_checked_and_read_from_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="32 random bytes"):
        Keyring({"a": b"short"}, "a")
    with pytest.raises(InvalidOption, match="the ring has a"):
        Keyring({"a": OLD}, "b")
    assert "a" not in repr(Keyring({"a": OLD}, "a")).replace("Keyring(current='a')", "")
    file = tmp_path / "keys.json"
    with pytest.raises(InvalidOption, match="FileNotFoundError"):
        Keyring.read(file)
    file.write_text(json.dumps({"current": "a", "keys": {"a": base64.b64encode(OLD).decode()}}))
    assert Keyring.read(file) == Keyring({"a": OLD}, "a")


@pytest.mark.proves("security-12", "CF-06")
async def test_where_it_is_off_no_call_goes_through_it(store: Store) -> None:
    assert type(store.database.driver).__name__ != "SealedDriver"
    with pytest.raises(InvalidOption, match="without encryption"):
        await store.rotate_keys()


@pytest.mark.proves("security-12")
async def test_what_joins_a_transaction_is_sealed_too(locked: Store) -> None:
    await locked.create_queue("mail")
    run = await begun(locked, order, "waits")
    await drained(locked, order)
    async with locked.transaction() as tx:
        message = await locked.enqueue("mail", MARKER, tx=tx)
        await locked.signal(run, "approved", MARKER, tx=tx)
    many = await locked.enqueue_many("mail", [MARKER] * 3)
    assert MARKER not in await everything(locked)
    for one in (message, *many):
        found = await locked.get(one)
        assert found is not None
        assert found.input == MARKER


class Once(Bench):
    """A bench whose equal inputs count once in ten minutes."""

    dedupe = "10m"


@pytest.mark.proves("security-12", "II-04")
async def test_the_hash_of_an_input_is_keyed_and_stays_what_it_is_when_keys_are_rotated(
    store_url: str, backend: str, clock: TestClock
) -> None:
    if backend == "memory":
        pytest.skip("its database goes with the store")
    async with connect(store_url, clock=clock, codec=Encrypted(keys=RING)) as store:
        engine = Engine(store).register(Once())
        assert (await engine.execute(Do("a", MARKER))).outcome == "applied"
        [row] = await ask(store, "select key as stored from {receipt}")
        guess = Family.of(Once()).fingerprint(Do("a", MARKER))
        assert row["stored"].startswith("content:")
        assert row["stored"] != guess, "whoever guesses the input could tell that it was this one"
        assert row["stored"] == engine.registry.of_type("bench").fingerprint(Do("a", MARKER))
    async with connect(store_url, clock=clock, codec=Encrypted(keys=Keyring({"old": OLD, "new": NEW}, "new"))) as store:
        assert await store.rotate_keys() == 1
        engine = Engine(store).register(Once())
        assert (await engine.execute(Do("a", MARKER))).outcome == "duplicate"
    async with connect(store_url, clock=clock, codec=Encrypted(keys=RING), tenant="bob") as bob:
        assert Engine(bob).register(Once()).registry.of_type("bench").fingerprint(Do("a", MARKER)) != row["stored"]
        assert str(bob.database.options.secret) not in repr(bob.database.options)


@pytest.mark.proves("security-12")
async def test_the_same_payload_under_a_key_is_known_again_and_another_is_refused(locked: Store) -> None:
    await locked.create_queue("mail")
    first = await locked.enqueue("mail", {"a": 1}, key="k")
    again = await locked.enqueue("mail", {"a": 1}, key="k")
    assert (int(first), again.created) == (int(again), False)
    with pytest.raises(Exception, match="another payload"):
        await locked.enqueue("mail", {"a": 2}, key="k")
    [row] = await ask(under(locked), "select payload_hash as stored from {task} where key = 'k'")
    assert "$sw" in row["stored"]  # an open hash would tell a guess from the truth
