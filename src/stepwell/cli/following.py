"""Following a run until it is finished: its steps as they are recorded, or nothing but the waiting."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

from stepwell.cli.looking import look_at
from stepwell.cli.output import drawable, is_lively, say
from stepwell.cli.timeline import lines_of
from stepwell.records import Run
from stepwell.store.store import Store

PAUSE: Final = 0.2


async def follow_run(store: Store, run: Run[Any], *, quiet: bool = False, until: float | None = None) -> Run[Any]:
    """The run when it is finished, or as it stands after `until` seconds; on a terminal it is redrawn meanwhile."""
    began = asyncio.get_running_loop().time()
    view = None if quiet or not is_lively(sys.stdout) else _Redrawn()
    told: set[tuple[str, str, int]] = set()
    try:
        while not run.status.finished:
            if until is not None and asyncio.get_running_loop().time() - began >= until:
                break
            if view is not None:
                view.show(lines_of(await look_at(store, run)))
            elif not quiet:
                await _tell_steps(store, run, told)
            await asyncio.sleep(PAUSE)
            run = await store.get_run(run.id)
    except asyncio.CancelledError:
        if view is not None:
            view.keep()
        say(f"no longer watched: run {run.id} itself is not stopped by that", to_stderr=True)
        say(f"next: stepwell show {run.id} -f", to_stderr=True, dim=True)
        raise
    finally:
        if view is not None:
            view.clear()
    return run


async def _tell_steps(store: Store, run: Run[Any], told: set[tuple[str, str, int]]) -> None:
    """Print what became of steps since it was printed last: for a pipe or a log."""
    for step in await store.steps(run.id):
        seen = (step.key, str(step.status), step.attempt)
        if seen not in told:
            told.add(seen)
            say(f"  {step.key} {step.status.lower()}{f', attempt {step.attempt}' if step.attempt > 1 else ''}")


class _Redrawn:
    """Lines of a terminal that are written over and over, and gone at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._encoding = sys.stdout.encoding  # asked before rich puts something of its own in its place
        self._live = Live(console=Console(file=sys.stdout, highlight=False), auto_refresh=False, transient=True)
        self._live.start()

    def show(self, lines: list[str]) -> None:
        from rich.text import Text

        shown = "\n".join(drawable(line, self._encoding) for line in lines)
        self._live.update(Text(shown, no_wrap=True, overflow="ellipsis"), refresh=True)

    def keep(self) -> None:
        """Leave what was shown last where it is."""
        self._live.transient = False
        self._live.stop()

    def clear(self) -> None:
        self._live.stop()
