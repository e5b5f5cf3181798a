"""Verbs that change many rows say after each piece how many that was, to whoever watches."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stepwell import PermanentError, Store, Worker, connect, handler, workflow
from stepwell.base.clock import TestClock
from stepwell.errors import SchemaNewer
from stepwell.store import bulk, dead_letters, queues, retention, schema
from stepwell.store.progress import tell_done, watched
from tests.store.place import NextRelease

MANY = 25


@handler("mails")
async def refuse(number: int) -> None:
    raise PermanentError("never")


@workflow
async def rest(number: int) -> int:
    return number


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 10)
    monkeypatch.setattr(dead_letters, "CHUNK", 10)
    monkeypatch.setattr(queues, "CHUNK", 10)
    monkeypatch.setattr(retention, "PIECE", 10)


@asynccontextmanager
async def told(expected: list[int]) -> AsyncIterator[None]:
    pieces: list[int] = []
    with watched(pieces.append):
        yield
    assert [one for one in pieces if one] == expected


async def test_every_long_verb_tells_its_pieces(store: Store, clock: TestClock) -> None:
    pieces = [10, 10, 5]
    await store.enqueue_many(refuse, range(MANY))
    await Worker(store, [refuse]).drain()
    async with told(pieces):
        assert await store.requeue(queue="mails") == MANY
    await Worker(store, [refuse]).drain()
    async with told(pieces):
        assert await store.drop(queue="mails") == MANY
    await store.enqueue_many(refuse, range(MANY))
    async with told(pieces):
        assert await store.purge("mails") == MANY
    await store.trigger_many([rest.trigger(number).options(require_worker="ignore") for number in range(MANY)])
    async with told(pieces):
        assert await store.cancel_runs(everything=True) == MANY
    clock.advance(1)
    async with told(pieces):
        assert await store.prune(0) == MANY


async def test_migrations_are_told_and_only_those_that_were_applied(store_url: str) -> None:
    applied: list[int] = []
    with watched(applied.append):
        async with connect(store_url) as store:
            known = len(store.database.statements.migrations())
            assert applied == [1] * known
            await schema.install(store.database.driver, NextRelease(store.database.statements.dialect, "stepwell"))
        with pytest.raises(SchemaNewer):
            await connect(store_url).__aenter__()
    assert applied == [1] * (known + 1)


def test_without_a_watcher_nothing_is_told_and_nothing_fails() -> None:
    tell_done(3)
    outer: list[int] = []
    with watched(outer.append):
        with watched(lambda _: None):
            tell_done(1)
        tell_done(2)
    assert outer == [2]
