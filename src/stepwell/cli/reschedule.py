"""The command that moves waiting work to another moment or another priority."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.command import ChangeAnswer, Invocation, asks_store, change_each, names_given

if TYPE_CHECKING:
    from stepwell.store.store import Store

SAID = {
    "RESCHEDULED": "is rescheduled",
    "RUNNING": "is being executed, or is taken by hand: nothing was changed",
    "WAITING": "waits for what its own code says, not for a moment that can be moved: nothing was changed",
    "TOO_LATE": "is finished, or is being cancelled: nothing was changed",
}


@click.command()
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option("--in", "delay", metavar="SPAN", help="How long from now: 90s, 15m, 24h; 0 is at once.")
@click.option("--at", metavar="MOMENT", help="When, in ISO 8601; UTC if it names no time zone.")
@click.option("--priority", type=int, help="A higher priority is executed first.")
@click.option("--reason", help="The reason; kept in the run's history.")
@asks_store
def reschedule(
    asked: Invocation,
    names: Sequence[str],
    *,
    delay: str | None,
    at: str | None,
    priority: int | None,
    reason: str | None,
) -> None:
    """Execute waiting work at another moment, or with another priority.

    RUN is a run's number, its key, workflow:key, or the number of a message. What a worker executes is refused, and so
    is a run that sleeps or waits for a signal: its own code has said until when.

    \b
    Examples:
      stepwell reschedule order-7 --in 0
      stepwell reschedule order-7 order-8 --at 2030-01-01T06:00 --priority 5
    """
    from stepwell.cli.schedule import moment_of

    if delay is None and at is None and priority is None:
        raise click.UsageError("say what to change: --in 15m, --at MOMENT, --priority 5")
    options = {
        "delay": delay,
        "run_at": None if at is None else moment_of(at),
        "priority": priority,
        "reason": reason,
    }
    asked.do(lambda store: _reschedule(store, asked, names, options))


async def _reschedule(store: Store, asked: Invocation, names: Sequence[str], options: dict[str, Any]) -> int:
    async def rescheduled(name: str) -> ChangeAnswer:
        number, called = await _named(store, name)
        answer = await store.reschedule(number, **options)
        return ChangeAnswer({"task": number, "answer": answer}, f"{called} {SAID[answer]}", done=bool(answer))

    return await change_each(
        asked, names_given(names), rescheduled, lambda last: f"stepwell show {last.record['task']}"
    )


async def _named(store: Store, name: str) -> tuple[int, str]:
    """The number of a run or a message, and what it is called."""
    from stepwell.errors import RunNotFound
    from stepwell.operate.lookup import called, run_named

    try:
        run = await run_named(store, name)
    except RunNotFound as missing:
        if missing.kind != "MESSAGE":
            raise
        return int(missing.run_id or 0), f"message {missing.run_id}"
    return int(run.id), called(run)
