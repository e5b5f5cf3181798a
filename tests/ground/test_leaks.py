"""What a test leaves behind is found at its end, and charged to it."""

import asyncio
from typing import Any

import asyncpg

from tests import leaks


async def test_an_open_connection_is_named_with_the_code_that_opened_it(postgres_url: str) -> None:
    connection: Any = await asyncpg.connect(postgres_url)
    [told] = leaks.open_connections()
    assert "ground/test_leaks.py" in told
    connection.terminate()
    other: Any = await asyncpg.connect(postgres_url)
    await other.close()
    assert list(leaks.open_connections()) == []


def test_work_on_a_closed_loop_is_named() -> None:
    loop = leaks.known(asyncio.new_event_loop)()
    assert list(leaks.unfinished()) == []
    left: Any = loop.create_task(asyncio.sleep(0), name="left")
    loop.close()
    [told] = leaks.unfinished()
    assert "name='left'" in told
    left._log_destroy_pending = False
    left.get_coro().close()
