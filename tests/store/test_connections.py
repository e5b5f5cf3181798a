"""What a new connection to Postgres asks before its first statement: nothing that costs."""

from typing import Any

import asyncpg
import pytest

from stepwell import Worker, connect, handler, step, workflow


@pytest.mark.backends("postgres", reason="asyncpg asks for types that it does not know")
async def test_no_connection_asks_the_server_what_its_types_are(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a connection as ours are, the question takes the server longer than most statements."""
    asked: list[str] = []
    dial = asyncpg.connect

    async def watched(*args: Any, **options: Any) -> Any:
        connection = await dial(*args, **options)
        connection.add_query_logger(lambda record: asked.append(record.query))
        return connection

    monkeypatch.setattr(asyncpg, "connect", watched)

    @handler("mails")
    async def send(to: str) -> None: ...

    @step
    async def double(number: int) -> int:
        return 2 * number

    @workflow
    async def count() -> int:
        return await double(1) + await double(2)

    async with connect(store_url) as store, Worker(store, [send, count]):
        run = await count.trigger().execute(store)
        for number in range(3):
            await store.enqueue(send, f"{number}@example.org")
        assert await store.result(run, timeout=30) == 6
    assert [query for query in asked if "enqueue" in query or "task" in query]
    assert [query for query in asked if "pg_type" in query] == []
