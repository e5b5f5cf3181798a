"""A process that installs the schema, alone, in a crowd, or until it dies: `python -m tests.store.migrator ...`.

`install URL SCHEMA WHEN` waits for a moment and installs. `sweep URL STEP` installs once for every moment, or every so
many, at which a migrator can die (before each statement, before and after each commit), in a forked process that ends
there without a word, and each time installs again over what is left and verifies; it prints how many deaths that were.
"""

import asyncio
import itertools
import os
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, TypeVar

from stepwell.store import schema
from stepwell.store.driver import Call, Ddl, Driver, Row, Script
from tests.store.place import opened

T = TypeVar("T")
DIED = 9


class Mortal:
    """A driver whose process ends at the n-th moment."""

    def __init__(self, driver: Driver, dies_at: int) -> None:
        self._driver = driver
        self._moments = itertools.count()
        self._dies_at = dies_at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def transact(
        self, script: Callable[[], Script[T]], *, timeout: float | None = None, patience: float | None = None
    ) -> T:
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
        if next(self._moments) == self._dies_at:
            os._exit(DIED)


async def install_until(url: str, name: str, dies_at: int) -> None:
    """Install, dying at the moment given."""
    async with opened(url, name) as place:
        mortal: Any = Mortal(place.driver, dies_at)
        await schema.install(mortal, place.statements)


async def install_and_verify(url: str, name: str) -> None:
    """Install and verify."""
    async with opened(url, name) as place:
        await place.install()
        await place.verify()


def in_child(work: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Do the work in a forked process and return its exit code."""
    sys.stdout.flush()
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        asyncio.run(work())
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may return into the parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def sweep(url: str, step: int) -> Iterator[int]:
    """Die at every moment in turn, or every so many, each time in a place of its own."""
    for moment in itertools.count(0, step):
        place, name = url if url.startswith("postgresql") else f"{url}-{moment}", f"sweep_{moment}"
        code = in_child(partial(install_until, place, name, moment))
        if code == 0:
            return  # it lived: there is no such moment
        if code != DIED or in_child(partial(install_and_verify, place, name)) != 0:
            raise SystemExit(f"moment {moment}: exit code {code}, or not whole afterwards")
        yield moment


def main() -> None:
    match sys.argv[1:]:
        case ["install", url, name, when]:
            time.sleep(max(0.0, float(when) - time.time()))
            asyncio.run(install_and_verify(url, name))
        case ["sweep", url, step]:
            sys.stdout.write(f"{len(list(sweep(url, int(step))))}\n")
        case unknown:
            raise SystemExit(f"cannot {unknown}")


if __name__ == "__main__":
    main()
