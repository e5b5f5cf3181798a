"""Commands that bring the work of another library into a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell.cli.command import Invocation, asks_store
from stepwell.cli.output import patiently, say, say_json, say_next, table
from stepwell.operate.format import many

if TYPE_CHECKING:
    from stepwell.store.store import Store


@click.group()
def move() -> None:
    """Bring the work of another library into the store."""


@move.command()
@click.argument("source")
@click.option("--schema", default="public", show_default=True, help="The schema that has its tables.")
@click.option("--name", default="pgqrs", show_default=True, help="What its tasks are called here: NAME/7.")
@click.option(
    "--max-attempts", type=click.IntRange(1), default=5, show_default=True, help="Deliveries until it gives up."
)
@click.option("--dry-run", is_flag=True, help="Only count; change nothing.")
@click.option("--anyway", is_flag=True, help="Move even if its workers seem to be at work.")
@asks_store
def pgqrs(
    asked: Invocation, source: str, *, schema: str, name: str, max_attempts: int, dry_run: bool, anyway: bool
) -> None:
    """Move messages, runs and steps from a database of pgqrs 0.15.

    What is not done is taken first: no consumer of pgqrs gets it any more. An interrupted move is called again; nothing
    arrives twice.

    \b
    Examples:
      stepwell move pgqrs postgresql://localhost/shop --dry-run
      stepwell move pgqrs postgresql://localhost/shop --url postgresql://localhost/shop
    """

    async def work(store: Store) -> None:
        from stepwell.move import move_from_pgqrs

        moving = move_from_pgqrs(
            store, source, schema=schema, name=name, max_attempts=max_attempts, dry_run=dry_run, anyway=anyway
        )
        counts = await patiently(asked, moving, "counting" if dry_run else "moving")
        if asked.as_json:
            say_json({"dry_run": dry_run, "moved": counts})
            return
        table(
            ("QUEUE", "KIND", "STATUS", "TASKS", "STEPS"),
            [(c.queue, c.kind, c.status, c.tasks, c.steps) for c in counts],
        )
        tasks = many(sum(one.tasks for one in counts), "task", "tasks")
        say(f"{tasks} would be moved" if dry_run else f"{tasks} moved; pgqrs gives none of them to a consumer any more")
        say_next("the same without --dry-run" if dry_run else "stepwell queue ls")

    asked.do(work, install=not dry_run)
