"""Commands on queues and dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from stepwell.cli.command import (
    FAILED,
    NOT_FOUND,
    OK,
    REFUSED,
    USAGE,
    ChangeAnswer,
    Invocation,
    Stop,
    asks_store,
    change_each,
    sure,
)
from stepwell.cli.output import patiently, say, say_json, say_next, table
from stepwell.operate.format import ago, many, short, span

if TYPE_CHECKING:
    from stepwell.store.store import Store

# The texts for a message that was changed, and for one that was not.
RELEASED: Final = ("is given back, with its attempt", "is not taken by hand; nothing was changed")
ARCHIVED: Final = ("is archived: never delivered again", "is finished, or not there; nothing was changed")
DELETED: Final = ("is deleted, and can be restored until it is pruned", "was deleted before, or is not there")
REQUEUED: Final = ("is delivered again, with all attempts", "is not finished, or its key is taken; nothing was changed")
CANCELLED: Final = ("is cancelled, or will be as soon as its worker stops it", "is finished; nothing was changed")
RESTORED: Final = ("is back as it was", "is not there, or was not deleted; nothing was changed")


@click.group()
def queue() -> None:
    """List, pause, drain and empty queues; each workflow has one, too."""


@queue.command("ls")
@click.option(
    "--exact", is_flag=True, help="Count all tasks, instead of 10,000 of each sort; in a full store it takes long."
)
@asks_store
def ls(asked: Invocation, *, exact: bool) -> None:
    """List the queues and how full they are."""
    asked.do(lambda store: _list(store, asked, exact=exact))


@queue.command()
@click.argument("name")
@asks_store
def pause(asked: Invocation, name: str) -> None:
    """Stop workers from claiming from a queue; it still takes messages.

    Messages that are being executed are finished.
    """
    done = f"{name} is paused: nothing of it is claimed; what is under way goes on"
    asked.do(lambda store: _said(asked, store.pause_queue(name), done, f"stepwell queue resume {name}"))


@queue.command()
@click.argument("name")
@asks_store
def resume(asked: Invocation, name: str) -> None:
    """Let workers claim from a paused queue again."""
    asked.do(lambda store: _said(asked, store.resume_queue(name), f"{name} is claimed from again", "stepwell queue ls"))


@queue.command()
@click.argument("name")
@click.option(
    "--wait", metavar="SPAN", default="0s", help="Wait this long for it to become empty; exit code 1 if it does not."
)
@asks_store
def drain(asked: Invocation, name: str, wait: str) -> None:
    """Refuse new messages while workers finish those that are there.

    Drain a queue before you take its workers away.
    """
    asked.do(lambda store: _drain(store, asked, name, wait))


@queue.command()
@click.argument("name")
@asks_store
def reopen(asked: Invocation, name: str) -> None:
    """Let a draining queue take messages again."""
    asked.do(lambda store: _said(asked, store.reopen_queue(name), f"{name} takes messages again", "stepwell queue ls"))


@queue.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks_store
def purge(asked: Invocation, name: str, *, yes: bool) -> None:
    """Delete a queue's messages for good.

    Finished and dead messages are deleted, too. Messages that are being executed stay.
    """
    asked.do(lambda store: _purge(store, asked, name, yes=yes))


@click.group()
def message() -> None:
    """List messages; cancel, give back, archive, requeue or delete some."""


@message.command("ls")
@click.argument("queue")
@click.option(
    "--state",
    type=click.Choice(["ready", "waiting", "running", "finished"]),
    default="ready",
    show_default=True,
    help="Those that can be claimed, that wait or were taken by hand, that workers handle, or that are finished.",
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of rows.")
@click.option("--after", metavar="PLACE", help="Continue after the page that printed this PLACE.")
@asks_store
def list_messages(asked: Invocation, queue: str, state: Any, limit: int, after: str | None) -> None:
    """List the messages of a queue.

    Those that are ready come in the order in which they are claimed, those that are finished with the newest first.
    `stepwell dead ls` lists those that failed.

    \b
    Examples:
      stepwell message ls emails
      stepwell message ls emails --state finished --limit 100
    """
    asked.do(lambda store: _list_messages(store, asked, queue, state, {"limit": limit, "after": after}))


@message.command("cancel")
@click.argument("ids", metavar="ID...", nargs=-1, type=int, required=True)
@click.option("--reason", help="The reason; kept with the messages.")
@asks_store
def cancel_message(asked: Invocation, ids: Sequence[int], reason: str | None) -> None:
    """Cancel messages, also while they are handled.

    If a worker handles a message, it stops it within about a second.
    """
    asked.do(lambda store: _each(asked, ids, lambda one: _cancelled(store, one, reason), CANCELLED))


@message.command()
@click.argument("ids", metavar="ID...", nargs=-1, type=int, required=True)
@click.option("--delay", metavar="SPAN", default="0s", help="Deliver them again after this time.")
@asks_store
def release(asked: Invocation, ids: Sequence[int], delay: str) -> None:
    """Give back messages that were taken by hand.

    Their attempts are given back, too. A message that a worker executes is refused: stop the worker, which gives it
    back.
    """
    asked.do(lambda store: _each(asked, ids, lambda one: store.release(one, delay=delay), RELEASED))


@message.command()
@click.argument("ids", metavar="ID...", nargs=-1, type=int, required=True)
@asks_store
def archive(asked: Invocation, ids: Sequence[int]) -> None:
    """Mark messages as SUCCESS, so that they are never delivered again.

    It takes messages that wait or were taken by hand. A message that a worker executes is refused.
    """
    asked.do(lambda store: _each(asked, ids, store.archive, ARCHIVED))


@message.command()
@click.argument("ids", metavar="ID...", nargs=-1, type=int, required=True)
@click.option("--reason", help="The reason; kept with the messages.")
@asks_store
def delete(asked: Invocation, ids: Sequence[int], reason: str | None) -> None:
    """Delete messages so that they can be restored until they are pruned."""
    asked.do(lambda store: _each(asked, ids, lambda one: store.delete(one, reason), DELETED))


@message.command()
@click.argument("ids", metavar="ID...", nargs=-1, type=int, required=True)
@asks_store
def restore(asked: Invocation, ids: Sequence[int]) -> None:
    """Bring back deleted messages as they were."""
    asked.do(lambda store: _each(asked, ids, store.restore, RESTORED))


@message.command("requeue")
@click.argument("ids", metavar="ID...", nargs=-1, type=int, required=True)
@asks_store
def requeue_message(asked: Invocation, ids: Sequence[int]) -> None:
    """Deliver messages again that are dead, or that succeeded.

    They get all their attempts again; each keeps its id and its key.
    """
    asked.do(lambda store: _each(asked, ids, lambda one: _requeued(store, one), REQUEUED))


@click.group()
def dead() -> None:
    """List, requeue and drop dead letters: tasks that failed for good."""


@dead.command("ls")
@click.option("--queue", help="Only dead letters of this queue.")
@click.option("--error", help="Only dead letters with this type of error.")
@click.option("--instance", nargs=2, metavar="TYPE ID", help="Only dead letters of this instance of a decider.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of rows.")
@click.option("--after", metavar="PLACE", help="Continue after the page that printed this PLACE.")
@asks_store
def list_dead(asked: Invocation, **filters: Any) -> None:
    """List dead letters, oldest first.

    \b
    Examples:
      stepwell dead ls --queue emails
      stepwell dead ls --instance order 42
    """
    asked.do(lambda store: _list_dead(store, asked, filters))


@dead.command()
@click.argument("ids", metavar="[ID]...", nargs=-1, type=int)
@click.option("--queue", help="All dead letters of this queue.")
@click.option("--error", help="All dead letters with this type of error.")
@asks_store
def requeue(asked: Invocation, ids: Sequence[int], **filters: Any) -> None:
    """Give dead letters all their attempts again.

    Recorded steps of a run are kept.

    \b
    Examples:
      stepwell dead requeue 12 15
      stepwell dead requeue --error SMTPServerDisconnected
    """
    asked.do(lambda store: _requeue(store, asked, ids, filters))


@dead.command()
@click.argument("ids", metavar="[ID]...", nargs=-1, type=int)
@click.option("--queue", help="All dead letters of this queue.")
@click.option("--error", help="All dead letters with this type of error.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks_store
def drop(asked: Invocation, ids: Sequence[int], *, yes: bool, **filters: Any) -> None:
    """Delete dead letters for good."""
    asked.do(lambda store: _drop(store, asked, ids, filters, yes=yes))


async def _list(store: Store, asked: Invocation, *, exact: bool) -> None:

    stats = await store.queue_stats(exact=exact)
    if asked.as_json:
        say_json(stats)
        return
    if not stats:
        say("there are no queues")
        say_next("stepwell worker APP, which makes those it serves")
        return
    rows = [(one.queue, one.ready, one.running, one.waiting, one.dead, span(one.oldest), _state(one)) for one in stats]
    table(("QUEUE", "READY", "RUNNING", "WAITING", "DEAD", "OLDEST", "STATE"), rows)
    say_next("stepwell dead ls" if any(one.dead for one in stats) else "stepwell workers")


def _state(one: Any) -> str:
    alone = f"{one.suspects} executed alone"
    words = (("paused", one.paused), ("draining", one.draining), (alone, one.suspects))
    return ", ".join(word for word, so in words if so)


async def _said(asked: Invocation, work: Any, done: str, next_: str) -> None:

    await work
    if asked.as_json:
        say_json({"done": done, "next": next_})
        return
    say(done)
    say_next(next_)


async def _each(asked: Invocation, ids: Sequence[int], change: Any, said: tuple[str, str]) -> int:
    """Change messages one by one, and print the result of each."""

    async def changed(one: int) -> ChangeAnswer:
        done = await change(one)
        return ChangeAnswer({"task": one, "done": done}, f"{one} {said[0] if done else said[1]}", done=bool(done))

    return await change_each(asked, ids, changed, lambda _: "stepwell queue ls")


async def _cancelled(store: Store, task_id: int, reason: str | None) -> bool:
    return bool(await store.cancel(task_id, reason=reason))


async def _list_messages(store: Store, asked: Invocation, queue: str, state: Any, place: dict[str, Any]) -> None:
    page = await store.messages(queue, state, **place)
    if asked.as_json:
        say_json({"messages": list(page), "next": page.next})
        return
    if not page:
        say(f"{queue} has no message that is {state}")
        say_next("stepwell queue ls")
        return
    ended = state == "finished"
    rows = [
        (one.id, one.key, one.status, one.attempt, ago(one.finished_at if ended else one.created_at), short(one.input))
        for one in page
    ]
    table(("ID", "KEY", "STATUS", "ATTEMPT", "FINISHED" if ended else "CREATED", "PAYLOAD"), rows)
    say_next(f"stepwell message ls {queue} --state {state} --after {page.next}" if page.next else "stepwell queue ls")


async def _requeued(store: Store, task_id: int) -> bool:
    return bool(await store.requeue(task_id, succeeded=True))


async def _drain(store: Store, asked: Invocation, name: str, wait: str) -> int:
    from stepwell.base.durations import seconds_of

    patience = seconds_of(wait, "wait")
    left = await patiently(asked, store.drain_queue(name, wait=patience), f"{name} is being worked off")
    if asked.as_json:
        say_json({"queue": name, "left": left})
    else:
        drained = "it is drained: its workers may go" if not left else f"{left} to go"
        say(f"{name} takes nothing new; {drained}")
        say_next(f"stepwell queue {'reopen' if not left else 'drain'} {name}{' --wait 10m' if left else ''}")
    return FAILED if left and patience else OK


async def _purge(store: Store, asked: Invocation, name: str, *, yes: bool) -> None:

    counts = await store.counts(name, exact=True)  # its progress is told, too
    held = ", ".join(f"{count} {status}" for status, count in counts.items()) or "nothing"
    sure(f"Delete what is in {name} for good ({held})?", yes=yes)
    removed = await patiently(asked, store.purge(name), f"deleting from {name}", sum(counts.values()))
    done = f"{many(removed, 'message')} of {name} deleted for good; what is being executed was left"
    _counted(asked, removed, done, "stepwell queue ls")


def _counted(asked: Invocation, count: int, done: str, next_: str) -> None:

    if asked.as_json:
        say_json({"count": count})
        return
    say(done)
    say_next(next_)


async def _list_dead(store: Store, asked: Invocation, filters: dict[str, Any]) -> None:
    from stepwell.errors import DeciderNotFound

    try:
        page = await store.dead_letters(**filters)
    except DeciderNotFound as unknown:
        raise Stop(NOT_FOUND, f"the store has no decider {unknown.type}", "stepwell decider ls") from unknown
    if asked.as_json:
        say_json({"dead_letters": list(page), "next": page.next})
        return
    if not page:
        say("no dead letters")
        return
    rows = [(one.id, one.kind, one.queue, one.key, one.attempt, ago(one.finished_at), one.last_error) for one in page]
    table(("ID", "KIND", "QUEUE", "KEY", "ATTEMPTS", "DIED", "ERROR"), rows)
    [(error, count)] = Counter(str((one.error or {}).get("type")) for one in page).most_common(1)
    if len(page) > 1:
        say(short(f"{count} of these {len(page)} died of {error}", 100), dim=True)
    these = " ".join(str(one.id) for one in page[:5]) if filters["instance"] else f"--error {error}"
    say_next(f"stepwell dead requeue {these}" + (f"   more: --after {page.next}" if page.next else ""))


def _checked(ids: Sequence[int], filters: dict[str, Any]) -> None:

    if bool(ids) == any(filters.values()):
        raise Stop(USAGE, "name dead letters by their ids, or all of a --queue or type of --error", "stepwell dead ls")


async def _requeue(store: Store, asked: Invocation, ids: Sequence[int], filters: dict[str, Any]) -> int:

    _checked(ids, filters)
    count = await patiently(asked, store.requeue(*ids, **filters), "queueing again", len(ids) or None)
    again = many(count, "task is", "tasks are")
    done = f"{again} queued again with all attempts; recorded steps will not run again" if count else "nothing is done"
    left = f"; {many(len(ids) - count, 'id')} named no dead letter, or its key is taken" if count < len(ids) else ""
    _counted(asked, count, f"{done}{left}", "stepwell queue ls" if count else "stepwell dead ls")
    return REFUSED if count < len(ids) else OK


async def _drop(store: Store, asked: Invocation, ids: Sequence[int], filters: dict[str, Any], *, yes: bool) -> int:

    _checked(ids, filters)
    sure(f"Delete {'these' if ids else 'all'} dead letters that fit for good?", yes=yes)
    count = await patiently(asked, store.drop(*ids, **filters), "deleting", len(ids) or None)
    _counted(asked, count, f"{many(count, 'dead letter')} deleted for good", "stepwell dead ls")
    return REFUSED if count < len(ids) else OK
