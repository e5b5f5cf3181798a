"""A process that installs the schema, alone, in a crowd, or until it dies: `python -m tests.store.migrator ...`.

`install URL SCHEMA WHEN` waits for a moment and installs. `sweep URL` installs once for every moment at which a migrator
can die (before each statement, before and after each commit), in a forked process that ends there without a word, and
each time installs again over what is left and verifies; it prints how many deaths that were.
"""

import asyncio
import itertools
import os
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from stepwell.store import schema
from stepwell.store.driver import Call, Ddl, Driver, Row, Script
from stepwell.store.postgres import Postgres
from stepwell.store.sql import Statements
from stepwell.store.sqlite import open_sqlite
from stepwell.store.turso import open_turso

T = TypeVar("T")
DIED = 9


@asynccontextmanager
async def opened(url: str, name: str = "stepwell", *, timeout: float = 10.0) -> Any:
    """A driver and its statements at the seam, below `connect`."""
    parts = urlsplit(url)
    statements = Statements("postgres" if parts.scheme == "postgresql" else "sqlite", name)
    driver: Driver
    match parts.scheme:
        case "sqlite":
            driver = open_sqlite(parts.path, statements, timeout=timeout)
        case "turso":
            driver = open_turso(parts.path, statements, timeout=timeout)
        case _:
            driver = Postgres(url, statements, pool=4, timeout=timeout)
    await driver.open()
    try:
        yield driver, statements
    finally:
        await driver.close()


class Mortal:
    """A driver whose process ends at the n-th moment; without one it counts the moments."""

    def __init__(self, driver: Driver, dies_at: int | None) -> None:
        self._driver = driver
        self._moments = itertools.count()
        self._dies_at = dies_at
        self.passed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def transact(self, script: Callable[[], Script[T]], *, timeout: float | None = None) -> T:
        value = await self._driver.transact(lambda: self._watched(script()), timeout=timeout)
        self._moment()  # committed, and nobody was told
        return value

    def _watched(self, talk: Script[T]) -> Script[T]:
        answer: list[Row] | None = None
        while True:
            try:
                call: Call | Ddl = next(talk) if answer is None else talk.send(answer)
            except StopIteration as end:
                self._moment()  # everything said, nothing committed
                value: T = end.value
                return value
            self._moment()
            answer = yield call

    def _moment(self) -> None:
        self.passed = next(self._moments) + 1
        if self.passed - 1 == self._dies_at:
            os._exit(DIED)


async def install_until(url: str, name: str, dies_at: int | None) -> int:
    """Install, dying at the moment given; return how many moments were lived through."""
    async with opened(url, name) as (driver, statements):
        mortal = Mortal(driver, dies_at)
        await schema.install(mortal, statements)  # type: ignore[arg-type]  # the rest of it is the driver's own
        return mortal.passed


async def install_and_verify(url: str, name: str) -> int:
    """Install and verify."""
    async with opened(url, name) as (driver, statements):
        await schema.install(driver, statements)
        await schema.verify(driver, statements)
    return 0


def in_child(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Do the work in a forked process and return its exit code."""
    sys.stdout.flush()
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        code = asyncio.run(work())
    except BaseException:  # noqa: BLE001 - nothing may return into the parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def sweep(url: str) -> Iterator[int]:
    """Die at every moment in turn, each time in a place of its own."""
    for moment in itertools.count():
        place = url if url.startswith("postgresql") else f"{url}-{moment}"
        name = f"sweep_{moment}"

        async def first(place: str = place, name: str = name, moment: int = moment) -> int:
            await install_until(place, name, moment)
            return 0

        code = in_child(first)
        if code == 0:
            return  # it lived: there is no such moment
        if code != DIED or in_child(lambda place=place, name=name: install_and_verify(place, name)) != 0:  # type: ignore[misc]
            raise SystemExit(f"moment {moment}: exit code {code}, or not whole afterwards")
        yield moment


def main() -> None:
    match sys.argv[1:]:
        case ["install", url, name, when]:
            time.sleep(max(0.0, float(when) - time.time()))
            asyncio.run(install_and_verify(url, name))
        case ["sweep", url]:
            sys.stdout.write(f"{len(list(sweep(url)))}\n")
        case unknown:
            raise SystemExit(f"cannot {unknown}")


if __name__ == "__main__":
    main()
