"""`stepwell doctor`: is the store well, and if not, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stepwell.cli.asking import Asked, asks_store

if TYPE_CHECKING:
    from stepwell.cli.checks import Facts, Finding
    from stepwell.store.store import Store


@click.command()
@click.option("--quiet", is_flag=True, help="Say nothing if there is no problem: for a probe.")
@asks_store
def doctor(asked: Asked, *, quiet: bool) -> None:
    """Say what is wrong with the store, and the command that helps.

    It looks at the database, workers, queues and runs. Exit code 0 without a problem (warnings are none), 1 with one,
    5 if the store cannot be opened at all.
    """
    asked.do(lambda store: _examine(store, asked, quiet=quiet))


async def _examine(store: Store, asked: Asked, *, quiet: bool) -> int:
    from stepwell.cli.checks import findings
    from stepwell.cli.exits import FAILED, OK
    from stepwell.cli.output import say_json

    found = findings(await facts_of(store, asked.url))
    problems = sum(one.level == "problem" for one in found)
    if asked.as_json:
        say_json({"problems": problems, "findings": found})
    elif problems or not quiet:
        _tell(found, problems)
    return FAILED if problems else OK


async def facts_of(store: Store, url: str | None) -> Facts:
    """What there is to judge."""
    from stepwell.cli.checks import Facts, now
    from stepwell.connecting import Config
    from stepwell.redaction import redact_url
    from stepwell.store.schema import latest

    return Facts(
        place=redact_url(Config(url).url),
        needed_schema=latest(store.statements),
        health=await store.health(),
        queues=await store.queue_stats(),
        workers=await store.workers(),
        maintenance=await store.maintenance(),
        now=now(),
        aside=await store.set_aside(),
    )


def _tell(found: Sequence[Finding], problems: int) -> None:
    from stepwell.cli.output import say

    signs = {"good": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✕", "red")}
    for one in found:
        sign, colour = signs[one.level]
        say(f"{click.style(sign, fg=colour)} {one.about:<13} {one.said}", hang=16)
        if one.next is not None:
            say(f"  {'':<13} next: {one.next}", hang=None if one.next.startswith("stepwell") else 16, dim=True)
    warnings = sum(one.level == "warning" for one in found)
    say(f"{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
