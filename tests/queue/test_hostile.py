"""Text that would be SQL if anybody took it for that: everywhere it is stored, found and given back as what it is."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import Context, Engine, PermanentError, Store, Worker, connect, handler, workflow
from stepwell.store import schema
from tests.deciders.workbench import Bench, Do, labels
from tests.queue.raw import ask

HOSTILE = [
    "'; drop table stepwell_task; --",
    '"; delete from "stepwell".task where "a" = "a',
    "' or '1' = '1",
    "\\'); select pg_sleep(60); --",
    "$1 :now :rows %s ? {task} {{now}} %(name)s",
    '{1,2}, (3) "," \\N',
    "%_/* */ \N{FULLWIDTH APOSTROPHE} \u02bc",
]
SQL_WORDS = ["select", "user"]


@workflow
async def echo(ctx: Context, text: str) -> list[str]:
    return [text, await ctx.wait("word", str)]


@handler("mail", retry=1)
async def refuse(text: str) -> None:
    raise PermanentError(text)


@pytest.mark.proves("security-02")
async def test_what_is_given_as_a_value_stays_one(store: Store) -> None:
    engine = Engine(store).register(Bench())
    for text in HOSTILE:
        message = await store.enqueue(refuse, text, key=text, tags=[text])
        assert not (await store.enqueue(refuse, text, key=text)).created
        await _steer_a_run(store, text)
        await engine.execute(Do(text, text, ask=text, after=60, timer=text), key=text)
        await Worker(store, [refuse, engine], name=text).drain()
        task = await store.get(message)
        assert task is not None
        assert (task.key, task.status) == (text, "ERROR")
        assert await labels(engine, text) == [text, f"{text} answered"]
        assert [one.key for one in await engine.outstanding("bench", text)] == [text]
    assert {one.id for one in await engine.instances("bench")} == set(HOSTILE)
    assert len(await store.dead_letters(error="PermanentError")) == len(HOSTILE)
    assert list(await store.dead_letters(error=HOSTILE[2])) == []
    assert await ask(store, "select count(*) from {task} where kind = 'RUN'") == [(len(HOSTILE),)]
    await schema.verify(store.database.driver, store.database.statements)


async def _steer_a_run(store: Store, text: str) -> None:
    """Say the text wherever a run is asked for, found and steered."""
    run_id = await echo.trigger(text).options(key=text, tags=[text], require_worker="ignore").execute(store)
    assert await store.pause(run_id, reason=text)
    assert await store.unpause(run_id)
    assert await store.signal(run_id, "word", text, key=text)
    assert not await store.signal(run_id, "word", text, key=text)
    assert [run.id for run in await store.runs(key=text, tag=text)] == [run_id]
    await Worker(store, [echo]).drain()
    found = await store.find_run("echo", text)
    assert found is not None
    assert (found.id, found.output(), found.tags) == (run_id, [text, text], (text,))
    assert await store.delete(run_id, text)


@pytest.mark.proves("security-02")
async def test_a_tenant_is_a_value_and_a_word_of_sql_may_be_a_schema(store_url: str) -> None:
    for word, text in zip(SQL_WORDS, HOSTILE, strict=False):
        options: Any = {"schema": word, "tenant": text}
        async with connect(store_url, **options) as store, connect(store_url, **options) as other:
            await store.create_queue("mail")
            await store.enqueue("mail", word)
            [message] = await other.dequeue("mail")
            assert message.payload == word
        async with connect(store_url, schema=word) as stranger:
            assert await stranger.queues() == []
    async with connect(store_url, schema=SQL_WORDS[0]) as stranger:
        await schema.verify(stranger.database.driver, stranger.database.statements)
