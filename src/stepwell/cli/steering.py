"""Commands that steer one run: why it stands still, hold it back, let it go on, signal it, fork it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.asking import Asked, asks_store

if TYPE_CHECKING:
    from stepwell.records import Run, StepInfo
    from stepwell.store.store import Store


@click.command()
@click.argument("run")
@asks_store
def why(asked: Asked, run: str) -> None:
    """Say why a run does not go on, until when, and what helps.

    RUN is a run's number, its key, workflow:key, @last or @failed.

    \b
    Examples:
      stepwell why order-7
    """
    asked.do(lambda store: _why(store, asked, run))


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--reason", help="Why; `stepwell why` says it.")
@asks_store
def pause(asked: Asked, runs: Sequence[str], *, reason: str | None) -> None:
    """Hold runs back until `stepwell resume`.

    Signals are kept for them, moments pass, their children go on. One that a worker executes is given back by it soon:
    what its steps recorded stays, the body that is under way runs again later. (`stepwell queue pause` is for a whole
    workflow.)

    \b
    Examples:
      stepwell pause order-7 --reason "the disk is full"
    """
    asked.do(lambda store: _pause(store, asked, runs, reason))


@click.command()
@click.argument("run")
@click.argument("step", required=False)
@click.argument("data", nargs=-1)
@asks_store
def resume(asked: Asked, run: str, step: str | None, data: Sequence[str]) -> None:
    """Let a run go on that was paused, or whose step has paused itself.

    Without STEP it undoes `stepwell pause`. With STEP, the step (or wait) of that name returns DATA: one value, JSON if
    it is that, else a text; or name=text and name:=json, for an object; null without any. It counts once in a run.

    \b
    Examples:
      stepwell resume order-7
      stepwell resume order-7 approval "grace said yes"
      stepwell resume order-7 approval by=grace cents:=4900
    """
    asked.do(lambda store: _unpause(store, asked, run) if step is None else _resume(store, asked, run, step, data))


@click.command()
@click.argument("run")
@click.argument("name")
@click.argument("data", nargs=-1)
@click.option("--key", help="Of several signals with this name and key the first counts.")
@click.option("--no-check", is_flag=True, help="Send it though the run waits for another type: for code to come.")
@asks_store
def signal(asked: Asked, run: str, name: str, data: Sequence[str], *, key: str | None, no_check: bool) -> None:
    """Send a signal to a run: its wait for NAME returns DATA.

    It is kept if the run does not wait yet; each signal is taken by one wait, once. DATA is one value, JSON if it is
    that, else a text; or name=text and name:=json, for an object; null without any. (`stepwell send` is for a
    message to a queue.)

    \b
    Examples:
      stepwell signal order-7 approved by=grace
      stepwell signal order-7 budget 4900 --key decision
    """
    asked.do(lambda store: _signal(store, asked, run, name, data, key=key, check=not no_check))


@click.command()
@click.argument("run")
@click.option("--at", metavar="STEP", required=True, help="The first step that is executed anew: its name, or name#2.")
@click.option("--set", "edits", metavar="STEP=JSON", multiple=True, help="Let an earlier step have returned this.")
@click.option("--reason", help="Why; kept with the new run.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@asks_store
def fork(asked: Asked, run: str, *, at: str, edits: Sequence[str], reason: str | None, dry_run: bool) -> None:
    """Begin a new run at a step of this one, with the same input.

    It has what the other one recorded before that step, and executes that step and the rest. The other run is left
    alone, whatever its status; the new one has no key.

    \b
    Examples:
      stepwell fork order-7 --at charge
      stepwell fork order-7 --at charge --set price=900 --reason "a complaint"
    """
    asked.do(lambda store: forked(store, asked, run, at, edits=edits, reason=reason, dry_run=dry_run))


async def _why(store: Store, asked: Asked, name: str) -> None:
    from stepwell.cli.advice import advice
    from stepwell.cli.naming import called, run_named
    from stepwell.cli.output import ago, plain, say, say_json, say_next

    run = await run_named(store, name, deleted=None)
    told = await store.why(run.id)
    next_ = advice(run, told, await store.steps(run.id))
    if asked.as_json:
        say_json({"run": run.id, **plain(told), "next": next_})
        return
    say(f"{called(run)}: {told.message}")
    facts = [told.reason.lower()]
    if told.until is not None:
        facts.append(f"goes on by itself {ago(told.until)}")
    if told.waits_for:
        facts.append(f"{'at' if run.status.finished else 'waits for'} {', '.join(told.waits_for)}")
    say(f"  {' · '.join(facts)}", dim=True)
    say_next(next_)


async def _pause(store: Store, asked: Asked, names: Sequence[str], reason: str | None) -> int:
    from stepwell.cli.exits import OK, REFUSED
    from stepwell.cli.naming import called, names_given, run_named
    from stepwell.cli.output import say, say_json, say_next

    answers: list[dict[str, Any]] = []
    for name in names_given(names):
        run = await run_named(store, name)
        held = await store.pause(run.id, reason=reason)
        answers.append({"run": run.id, "paused": held})
        if not asked.as_json:
            say(f"{called(run)} {_held(run) if held else _unheld(run)}")
    if asked.as_json:
        say_json(answers)
    else:
        say_next(f"stepwell resume {answers[-1]['run']}")
    return OK if all(one["paused"] for one in answers) else REFUSED


def _held(run: Run[Any]) -> str:
    from stepwell.records import RunStatus

    if run.status == RunStatus.RUNNING:
        return "is being executed: its worker was asked to give it back; recorded steps will not run again"
    return "is held back: nothing makes it go on until it is resumed; recorded steps will not run again"


def _unheld(run: Run[Any]) -> str:
    return f"is {run.status}, or is being cancelled: nothing was changed"


async def _unpause(store: Store, asked: Asked, name: str) -> int:
    from stepwell.cli.advice import advice
    from stepwell.cli.exits import OK, REFUSED
    from stepwell.cli.naming import called, run_named
    from stepwell.cli.output import say, say_json, say_next

    run = await run_named(store, name)
    done = await store.unpause(run.id)
    if asked.as_json:
        say_json({"run": run.id, "resumed": done})
    elif done:
        say(f"{called(run)} goes on where it was; recorded steps will not run again")
        say_next(f"stepwell show {run.id} -f")
    else:
        told = await store.why(run.id)
        say(f"{called(run)} is not held back, so nothing was changed: {told.message}")
        say_next(advice(run, told, await store.steps(run.id)))
    return OK if done else REFUSED


async def _resume(store: Store, asked: Asked, name: str, step: str, data: Sequence[str]) -> int:
    from stepwell.cli.naming import run_named
    from stepwell.records import SignalAnswer

    run = await run_named(store, name)
    said = {
        SignalAnswer.WOKE: f"goes on: {step} returns this, and will not run again",
        SignalAnswer.KEPT: f"has not come to {step} yet: this is kept for it",
        SignalAnswer.TOO_LATE: f"is finished, or its {step} was resumed before; nothing was changed",
    }
    return _answer(asked, run, await store.resume(run.id, step, _value(data)), said)


async def _signal(
    store: Store, asked: Asked, name: str, signal: str, data: Sequence[str], *, key: str | None, check: bool
) -> int:
    from stepwell.cli.naming import run_named
    from stepwell.records import SignalAnswer

    run = await run_named(store, name)
    said = {
        SignalAnswer.WOKE: f"waits for {signal} just now, and goes on"
        if run.held_at is None
        else f"waits for {signal} just now, and goes on when it is resumed: it is held back",
        SignalAnswer.KEPT: f"does not wait for {signal} yet: it is kept for its next wait of that name",
        SignalAnswer.TOO_LATE: f"is finished, or has had a {signal} with this key; nothing was kept",
    }
    return _answer(asked, run, await store.signal(run.id, signal, _value(data), key=key, check=check), said)


def _value(data: Sequence[str]) -> Any:
    from stepwell.cli.given import parsed

    by_place, by_name = parsed(data)
    return by_name or (by_place[0] if by_place else None)


def _answer(asked: Asked, run: Run[Any], answer: Any, said: dict[Any, str]) -> int:
    from stepwell.cli.exits import OK, REFUSED
    from stepwell.cli.naming import called
    from stepwell.cli.output import say, say_json, say_next

    if asked.as_json:
        say_json({"run": run.id, "answer": answer})
    else:
        say(f"{called(run)} {said[answer]}")
        say_next(f"stepwell show {run.id} -f" if answer else f"stepwell why {run.id}")
    return OK if answer else REFUSED


async def forked(
    store: Store,
    asked: Asked,
    name: str,
    at: str,
    *,
    edits: Sequence[str] = (),
    reason: str | None = None,
    dry_run: bool = False,
) -> None:
    """Fork a run, or say what a fork would keep and do."""
    from stepwell.cli.naming import called, run_named
    from stepwell.cli.output import say, say_json, say_next

    run = await run_named(store, name)
    outputs = _edits(edits)
    kept, first = _kept(run.id, await store.steps(run.id), at)
    number = None if dry_run else await store.fork(run.id, at=first, outputs=outputs, reason=reason)
    if asked.as_json:
        say_json({"run": number, "fork_of": run.id, "at": first, "kept": kept, "dry_run": dry_run})
        return
    is_new = "a new run would go" if dry_run else f"run {number} goes"
    say(f"{is_new} on at {first}, with the input of {called(run)}, which is left as it is")
    say(f"  recorded, will not run again: {', '.join(kept) or 'nothing'}", dim=True)
    if outputs:
        say(f"  edited: {', '.join(outputs)}", dim=True)
    say_next("the same without --dry-run" if dry_run else f"stepwell show {number} -f")


def _kept(run_id: int, steps: Sequence[StepInfo], at: str) -> tuple[list[str], str]:
    """What a fork at this step keeps, and that step's key."""
    from stepwell.records import RunStatus
    from stepwell.store.forking import step_called

    first: str = step_called(run_id, [{"key": step.key} for step in steps], at)["key"]
    place = [step.key for step in steps].index(first)
    ended = (RunStatus.SUCCESS, RunStatus.ERROR)
    return [step.key for step in steps[:place] if step.status in ended], first


def _edits(edits: Sequence[str]) -> dict[str, Any]:
    from stepwell.cli.exits import USAGE, Stop
    from stepwell.cli.given import whole

    outputs: dict[str, Any] = {}
    for one in edits:
        step, found, value = one.partition("=")
        if not found or not step:
            raise Stop(USAGE, f"--set takes STEP=JSON, not {one!r}", "--set price=900")
        outputs[step] = whole(value)
    return outputs
