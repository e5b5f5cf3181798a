"""Long work on a terminal: how far it is and since when, so that nobody thinks it hangs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from stepwell.cli.asking import Asked
from stepwell.cli.output import is_lively, say
from stepwell.store.pieces import watched

T = TypeVar("T")
APPEARS: Final = 1.0  # seconds after which it is worth a line


async def patiently(asked: Asked, work: Coroutine[Any, Any, T], what: str, total: int | None = None) -> T:
    """Do the work; if it lasts, say on standard error how much is done: to a person only, and never with `--json`."""
    if asked.as_json or not is_lively(sys.stderr):
        return await work
    try:
        with _shown(what, total) as did, watched(did):
            return await work
    except asyncio.CancelledError:
        say("interrupted: what is done stays done, and the same command does the rest", to_stderr=True)
        raise


@contextmanager
def _shown(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A line that appears when the work has lasted a while, counts what is told to it, and is gone at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

    columns: list[ProgressColumn] = [TextColumn("{task.description}")]
    if total is not None:
        columns += [BarColumn(30), TextColumn("{task.completed:,} of {task.total:,}")]
    else:
        columns.append(TextColumn("{task.fields[done]}"))
    progress = Progress(*columns, TimeElapsedColumn(), console=Console(file=sys.stderr), transient=True)
    line = progress.add_task(what, total=total, done="")

    def did(count: int) -> None:
        progress.advance(line, count)
        progress.update(line, done=f"{progress.tasks[0].completed:,} done")

    appears = asyncio.get_running_loop().call_later(APPEARS, progress.start)
    try:
        yield did
    finally:
        appears.cancel()
        progress.stop()
