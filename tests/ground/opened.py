"""Pytest plugin: open stores on every database, with a clock that tests move by hand or with the database's own.

`STEPWELL_TEST_BARE=1` opens them with every optional part switched off: the core does without.
`STEPWELL_TEST_CODEC=msgpack` opens them with that codec: whatever is stored, programs see the same.
With `encrypted`, and `STEPWELL_KEYS`, only what a test says of messages of errors and of stored text differs.
"""

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import Store, connect
from stepwell.base.clock import TestClock
from stepwell.errors import StepwellError
from stepwell.store.driver import Call, Ddl, Script

BARE: dict[str, Any] = {"audit": "off", "listen": False} if os.environ.get("STEPWELL_TEST_BARE") else {}
READS_AUDIT = pytest.mark.skipif("audit" in BARE, reason="it compares what the audit has noted, which is off")
BARE |= {"codec": codec} if (codec := os.environ.get("STEPWELL_TEST_CODEC")) else {}


@pytest.fixture
def clock() -> TestClock:
    """A clock that stands still until it is moved."""
    return TestClock()


@pytest.fixture
async def store(store_url: str, backend: str, clock: TestClock) -> AsyncIterator[Store]:
    """An open store that goes by `clock`, on each backend in turn."""
    async with connect(store_url, clock=clock, **BARE) as opened:
        await assert_engine(opened, backend)
        yield opened


@pytest.fixture
async def live_store(store_url: str, backend: str) -> AsyncIterator[Store]:
    """An open store that goes by the database's clock, on each backend in turn; its lease is short."""
    async with connect(store_url, lease=2, **BARE) as opened:
        await assert_engine(opened, backend)
        yield opened


async def rows_of(store: Store, statement: str, **params: Any) -> list[Any]:
    """What a named statement of the store answers, read beside whatever is being written."""
    return await store.database.driver.read(Call(statement, {"now": None, "beat_now": None, "tenant": "", **params}))


async def assert_engine(store: Store, backend: str) -> None:
    """Fail unless the engine behind the store is the one the test says it is on, by its own word.

    One question does: tests/store/test_engine_names.py asks every engine those of the others too.
    """
    assert await answers(store, ENGINES[backend]), f"this is not {backend}"


_IF = "select sqlite_compileoption_used('THREADSAFE'), json(iif({}, '1', 'no')) from pragma_database_list where seq = 0"
ENGINES = {  # a question that only this engine can answer
    "sqlite": _IF.format("file <> ''"),
    "turso": "select turso_version()",
    "postgres": "select pg_backend_pid()",
    "memory": _IF.format("file = ''"),
}


async def answers(store: Store, question: str) -> bool:
    """True if the engine behind the store can answer."""

    def ask() -> Script[None]:
        yield Ddl(question)

    try:
        await store.database.driver.transact(ask)
    except StepwellError:
        return False
    return True
