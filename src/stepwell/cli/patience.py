"""Long work on a terminal: how long it has been going on, so that nobody thinks it hangs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import click

from stepwell.cli.output import is_lively

T = TypeVar("T")
EVERY: Final = 1.0


async def patiently(work: Coroutine[Any, Any, T], what: str) -> T:
    """Do the work; on a terminal, say every second that it is still being done."""
    doing = asyncio.ensure_future(work)
    seconds = 0
    while not (await asyncio.wait([doing], timeout=EVERY))[0]:
        seconds += 1
        if is_lively(sys.stderr):
            click.echo(f"\r{what}, {seconds} s ...", err=True, nl=False)
    if seconds and is_lively(sys.stderr):
        click.echo("\r\x1b[K", err=True, nl=False)
    return doing.result()
