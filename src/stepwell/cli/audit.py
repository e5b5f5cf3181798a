"""Commands on the audit: read it, seal it, find out whether a row was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell.cli.command import FAILED, OK, Invocation, asks_store
from stepwell.cli.output import say, say_json, say_next, table
from stepwell.operate.format import many, short

if TYPE_CHECKING:
    from stepwell.store.store import Store


@click.group()
def audit() -> None:
    """Read who did what, and find out whether a row was changed since."""


@audit.command("ls")
@click.option("--limit", type=click.IntRange(1, 10_000), default=30, show_default=True, help="How many notes.")
@click.option("--after", metavar="PLACE", help="Continue after the page that printed this PLACE.")
@asks_store
def ls(asked: Invocation, *, limit: int, after: str | None) -> None:
    """List what was noted of tasks and the store, the newest first."""
    asked.do(lambda store: _list(store, asked, limit, after))


@audit.command()
@asks_store
def seal(asked: Invocation) -> None:
    """Seal now what waits for it, and print the hash of the newest seal.

    Workers do that once a minute, with `connect(seal_audit=True)`. Keep the hash where those who can write to the
    database cannot, for `stepwell audit verify --head`.
    """
    asked.do(lambda store: _seal(store, asked))


@audit.command()
@click.option("--head", metavar="HASH", help="The hash of a seal, kept elsewhere: the seals must still lead to it.")
@asks_store
def verify(asked: Invocation, *, head: str | None) -> None:
    """Compare each seal with its notes and with the seal before.

    The exit code is 1 if one does not fit.

    \b
    Examples:
      stepwell audit verify
      stepwell audit verify --head "$(cat /elsewhere/head)"
    """
    asked.do(lambda store: _verify(store, asked, head))


async def _list(store: Store, asked: Invocation, limit: int, after: str | None) -> None:
    page = await store.audit(limit=limit, after=after)
    if asked.as_json:
        say_json({"notes": list(page), "next": page.next})
        return
    if not page:
        say("nothing was noted")
        return
    rows = [
        (
            f"{one.note.at:%Y-%m-%d %H:%M:%S}",
            one.note.actor or ("" if one.note.worker is None else f"session {one.note.worker}"),
            one.note.what,
            "" if one.task_id is None else one.task_id,
            one.queue or "",
            short(one.note.detail or "", 60),
        )
        for one in page
    ]
    table(("WHEN", "WHO", "WHAT", "TASK", "OF", "DETAIL"), rows)
    say_next("stepwell audit verify" + (f"   more: --after {page.next}" if page.next else ""))


async def _seal(store: Store, asked: Invocation) -> None:
    head = await store.seal_audit()
    if asked.as_json:
        say_json({"head": head})
    else:
        say(head or "nothing is sealed: `connect(seal_audit=True)` says that the audit is to be")


async def _verify(store: Store, asked: Invocation, head: str | None) -> int:
    found = await store.verify_audit(head=head)
    if asked.as_json:
        say_json({"whole": bool(found), "verdict": found})
        return OK if found else FAILED
    for one in found.faults:
        say(f"✕ seal {one.seal}: {one.said}", hang=2, fg="red")
    gone = f", the notes of {found.dropped} were removed by retention" if found.dropped else ""
    waiting = f"; {many(found.waiting, 'note')} not sealed yet" if found.waiting else ""
    state = "fit" if found else f"{many(len(found.faults), 'fault')} in"
    say(f"{state} {many(found.seals, 'seal')} over {many(found.notes, 'note')}{gone}{waiting}")
    if found.head:
        say(f"head {found.head}")
    return OK if found else FAILED
