"""A store that is dumped and restored into another cluster: its projections go on where they were."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from stepwell import Worker, connect
from tests.ground.postgres import PostgresServer
from tests.projections.books import Balances, Pay, balances, engine_of, handled
from tests.projections.shelves import AccountRow, accounts


def said(server: PostgresServer, program: str, *words: str, given: bytes = b"") -> bytes:
    """What a program of the server's release writes."""
    command = [str(server.binaries / program), *words]
    return subprocess.run(command, input=given, check=True, capture_output=True, cwd=server.folder).stdout


@pytest.mark.proves("PJ-03", "PJ-04")
@pytest.mark.timeout(120)
async def test_a_dump_restored_into_another_cluster_goes_on() -> None:
    with PostgresServer() as one, PostgresServer() as other:
        async with connect(one.url()) as store:
            engine = engine_of(store, Balances(), accounts)
            for number in range(30):
                await engine.execute(Pay(f"a{number % 3}", 1))
            await Worker(store, [engine]).drain()
            for number in range(6):  # not yet projected when the dump is made
                await engine.execute(Pay(f"a{number % 3}", 1))
            dump = await asyncio.to_thread(said, one, "pg_dump", one.url())
        await asyncio.to_thread(said, other, "psql", "-q", "-v", "ON_ERROR_STOP=1", other.url(), given=dump)
        async with connect(other.url()) as store:
            engine = engine_of(store, Balances(), accounts)
            assert [(one.lag, one.handled) for one in await store.projections()] == [(6, 30), (6, 30)]
            await engine.execute(Pay("a0", 1))
            await Worker(store, [engine]).drain()
            assert await balances(store) == {"a0": 13, "a1": 12, "a2": 12}
            assert [position for position, *_ in await handled(store)] == list(range(1, 38))
            assert [row.cents for row in await engine.query(AccountRow)] == [13, 12, 12]
