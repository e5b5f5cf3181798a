"""Commands that change runs, one or many: retry, cancel, delete and restore them, accept their code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.asking import Asked, asks_store
from stepwell.cli.picking import Picked, change_many, check_picked, picks_runs

if TYPE_CHECKING:
    from stepwell.records import Run
    from stepwell.store.store import Store


@click.command()
@picks_runs(["failed"])
@click.option("--from", "at", metavar="STEP", help="From this step, as a new run: the same as `stepwell fork`.")
@asks_store
def retry(asked: Asked, picked: Picked, *, at: str | None) -> None:
    """Execute failed runs again, from the step that failed.

    It is the same run: what its other steps recorded is kept and not done again. With --from it is a new one, which
    keeps what was recorded before that step. RUN is a run's number, its key, workflow:key, @last or @failed; `-` reads
    them from standard input.

    \b
    Examples:
      stepwell retry @failed
      stepwell retry order-7 order-8 --dry-run
      stepwell retry order-7 --from charge
      stepwell retry --workflow fulfil --since 24h --yes
    """
    asked.do(lambda store: _retry(store, asked, picked, at))


@click.command()
@picks_runs(["pending", "running", "paused"])
@click.option("--reason", help="Why; kept with the run.")
@asks_store
def cancel(asked: Asked, picked: Picked, *, reason: str | None) -> None:
    """Cancel runs, and the runs they asked for.

    One that a worker executes is stopped by it soon; what its steps have recorded stays. RUN is a run's number, its
    key, workflow:key, @last or @failed; `-` reads them from standard input.

    \b
    Examples:
      stepwell cancel order-7 --reason "customer called"
      stepwell cancel --workflow export --tag nightly --dry-run
      stepwell cancel --workflow export --tag nightly --yes
    """
    asked.do(lambda store: _cancel(store, asked, picked, reason))


@click.command()
@picks_runs(["pending", "running", "paused", "success", "failed", "cancelled"])
@click.option("--reason", help="Why; kept with the run.")
@asks_store
def delete(asked: Asked, picked: Picked, *, reason: str | None) -> None:
    """Delete runs so that they can be restored, until they are pruned.

    Nobody executes them any more, they are not listed, and their keys are free at once. RUN is a run's number, its key,
    workflow:key, @last or @failed; `-` reads them from standard input.

    \b
    Examples:
      stepwell delete order-7
      stepwell delete --workflow export --status cancelled --yes
    """
    asked.do(lambda store: _delete(store, asked, picked, reason))


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@asks_store
def restore(asked: Asked, runs: Sequence[str]) -> None:
    """Bring deleted runs back as they were.

    `stepwell runs --deleted` lists them. One that was waiting or in line goes on. Refused if another run has its key
    by now.

    \b
    Examples:
      stepwell restore 7
    """
    asked.do(lambda store: _restore(store, asked, runs))


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--reason", help="Why; kept in the run's history.")
@asks_store
def accept(asked: Asked, runs: Sequence[str], *, reason: str | None) -> None:
    """Let runs go on that are held for their code.

    Such a run was about to execute a step that it has not recorded, beside one that it has and that the program has no
    more. If that is a new name for the same step, keep the old one with `@step(id=...)` and deploy that: then it goes
    on by itself. If it is another step, accept it: it is executed. `stepwell why RUN` names both.

    \b
    Examples:
      stepwell accept order-7
      stepwell accept order-7 --reason "charge is gone, weigh is new"
    """
    asked.do(lambda store: _accept(store, asked, runs, reason))


async def _retry(store: Store, asked: Asked, picked: Picked, at: str | None) -> int | None:
    from stepwell.cli.exits import USAGE, Stop
    from stepwell.cli.steering import forked
    from stepwell.records import RunStatus

    check_picked(picked)
    if at is not None:
        if len(picked.names) != 1:
            raise Stop(USAGE, "--from goes on with one run", f"stepwell retry RUN --from {at}")
        await forked(store, asked, picked.names[0], at, dry_run=picked.dry_run)
        return None
    if not picked.by_filter:
        return await _retry_named(store, asked, picked)
    asking = "Execute again, from the step that failed,"
    words = (asking, "queueing again", "queued again; what other steps recorded is kept")
    failed = (RunStatus.ERROR,)
    await change_many(store, asked, picked, store.retry_runs, statuses=failed, words=words, then="stepwell runs")
    return None


async def _retry_named(store: Store, asked: Asked, picked: Picked) -> int:
    from stepwell.cli.exits import OK, REFUSED
    from stepwell.cli.naming import names_given, run_named
    from stepwell.cli.output import say_json, say_next
    from stepwell.records import RunStatus

    answers: list[dict[str, Any]] = []
    for name in names_given(picked.names):
        run = await run_named(store, name)
        steps = await store.steps(run.id)
        kept = [step.key for step in steps if step.status == RunStatus.SUCCESS]
        again = list((run.error or {}).get("steps", ()))
        fits = run.status == RunStatus.ERROR
        done = fits and (picked.dry_run or await store.retry(run.id))
        answers.append({"run": run.id, "retried": done and not picked.dry_run, "again": again, "kept": kept})
        if not asked.as_json:
            _say_retried(run, again, kept, fits=fits, done=done, dry_run=picked.dry_run)
    if asked.as_json:
        say_json({"dry_run": picked.dry_run, "runs": answers})
    else:
        say_next("the same without --dry-run" if picked.dry_run else f"stepwell show {answers[-1]['run']} -f")
    wanted = [one for one in answers if one["retried"] or picked.dry_run]
    return OK if len(wanted) == len(answers) else REFUSED


def _say_retried(
    run: Run[Any], again: Sequence[str], kept: Sequence[str], *, fits: bool, done: bool, dry_run: bool
) -> None:
    from stepwell.cli.naming import called
    from stepwell.cli.output import say

    if not done:
        taken = "its key belongs to another run now"
        why = taken if fits else f"it is {run.status}, and only failed runs are retried"
        say(f"{called(run)} is left as it is: {why}")
        return
    say(f"{called(run)} {'would go' if dry_run else 'goes'} on from {', '.join(again) or 'its beginning'}")
    say(f"  recorded, will not run again: {', '.join(kept) or 'nothing'}", dim=True)


async def _cancel(store: Store, asked: Asked, picked: Picked, reason: str | None) -> int | None:
    from functools import partial

    from stepwell.records import CancelAnswer
    from stepwell.store.bulk import UNFINISHED

    check_picked(picked)
    if picked.by_filter:
        words = ("Cancel", "cancelling", "cancelled, or the worker asked to stop; the runs asked for by them too")
        change = partial(store.cancel_runs, reason=reason)
        then = "stepwell runs --status cancelled"
        await change_many(store, asked, picked, change, statuses=UNFINISHED, words=words, then=then)
        return None
    said = {
        None: "would be cancelled, and the runs it asked for",
        CancelAnswer.CANCELLED: "is cancelled, and the runs it asked for",
        CancelAnswer.REQUESTED: "is being executed: its worker was asked to stop it, and no more of it is recorded",
        CancelAnswer.TOO_LATE: "was finished before; nothing was changed",
    }
    return await _each(store, asked, picked, partial(_cancelled, store, reason), said=said, then="show")


async def _cancelled(store: Store, reason: str | None, run: Run[Any]) -> Any:
    return await store.cancel(run.id, reason=reason)


async def _delete(store: Store, asked: Asked, picked: Picked, reason: str | None) -> int | None:
    from functools import partial

    from stepwell.records import RunStatus

    check_picked(picked)
    if picked.by_filter:
        words = ("Delete", "deleting", "deleted; until pruned, they can be restored")
        change = partial(store.delete_runs, reason=reason)
        then = "stepwell runs --deleted"
        await change_many(store, asked, picked, change, statuses=tuple(RunStatus), words=words, then=then)
        return None
    said = {
        None: "would be deleted, and could be restored until it is pruned",
        "deleted": "is deleted, and can be restored until it is pruned; nobody executes it any more",
        "gone": "was deleted before; nothing was changed",
    }
    return await _each(store, asked, picked, partial(_deleted, store, reason), said=said, then="restore")


async def _deleted(store: Store, reason: str | None, run: Run[Any]) -> str:
    return "deleted" if await store.delete(run.id, reason) else "gone"


async def _each(store: Store, asked: Asked, picked: Picked, change: Any, *, said: dict[Any, str], then: str) -> int:
    """Change the runs that were named, one by one, and say what came of each."""
    from stepwell.cli.exits import OK, REFUSED
    from stepwell.cli.naming import called, names_given, run_named
    from stepwell.cli.output import say, say_json, say_next

    answers: list[dict[str, Any]] = []
    for name in names_given(picked.names):
        run = await run_named(store, name)
        answer = None if picked.dry_run else await change(run)
        answers.append({"run": run.id, "answer": answer})
        if not asked.as_json:
            say(f"{called(run)} {said[None] if answer is None else said[answer]}")
    if asked.as_json:
        say_json(answers)
    else:
        say_next("the same without --dry-run" if picked.dry_run else f"stepwell {then} {answers[-1]['run']}")
    refused = list(said)[-1]
    return REFUSED if any(one["answer"] == refused for one in answers) else OK


async def _restore(store: Store, asked: Asked, names: Sequence[str]) -> int:
    from stepwell.cli.exits import OK, REFUSED
    from stepwell.cli.naming import called, names_given, run_named
    from stepwell.cli.output import say, say_json, say_next

    answers: list[dict[str, Any]] = []
    for name in names_given(names):
        run = await run_named(store, name, deleted=True)
        done = await store.restore(run.id)
        answers.append({"run": run.id, "restored": done})
        if not asked.as_json:
            back = "is back as it was: what it recorded is kept, and what it waited for still counts"
            say(f"{called(run)} {back if done else 'was not deleted; nothing was changed'}")
    if asked.as_json:
        say_json(answers)
    else:
        say_next(f"stepwell show {answers[-1]['run']}")
    return OK if all(one["restored"] for one in answers) else REFUSED


async def _accept(store: Store, asked: Asked, names: Sequence[str], reason: str | None) -> int:
    from stepwell.cli.exits import OK, REFUSED
    from stepwell.cli.naming import called, names_given, run_named
    from stepwell.cli.output import say, say_json, say_next

    answers: list[dict[str, Any]] = []
    for name in names_given(names):
        run = await run_named(store, name)
        done = await store.accept(run.id, reason=reason)
        answers.append({"run": run.id, "accepted": done})
        if not asked.as_json:
            what = "goes on with the code as it is" if done else "is not held for its code: nothing was changed"
            say(f"{called(run)} {what}")
    if asked.as_json:
        say_json(answers)
    else:
        last = answers[-1]
        say_next(f"stepwell show {last['run']} -f" if last["accepted"] else f"stepwell why {last['run']}")
    return OK if all(one["accepted"] for one in answers) else REFUSED
