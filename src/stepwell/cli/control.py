"""Commands that steer runs: say why one does not go on, pause, resume, signal, accept new code, fork."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.command import (
    OK,
    REFUSED,
    USAGE,
    ChangeAnswer,
    Invocation,
    Stop,
    asks_store,
    change_each,
    names_given,
    with_headers,
)
from stepwell.cli.output import say, say_json, say_next
from stepwell.operate.format import ago, plain

if TYPE_CHECKING:
    from stepwell.records import Run, StepInfo
    from stepwell.store.store import Store


@click.command()
@click.argument("run")
@asks_store
def why(asked: Invocation, run: str) -> None:
    """Say why a run does not go on, until when, and what helps.

    RUN is a run's number, its key, workflow:key, @last or @failed; the number of an input that was submitted; or
    schedule:NAME, to ask why its last tick has no run.

    \b
    Examples:
      stepwell why order-7
      stepwell why schedule:nightly
    """
    if run.startswith("schedule:") and "@" not in run:
        asked.do(lambda store: _why_schedule(store, asked, run.removeprefix("schedule:")))
    else:
        asked.do(lambda store: _why(store, asked, run))


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--reason", help="The reason; `stepwell why` shows it.")
@asks_store
def pause(asked: Invocation, runs: Sequence[str], *, reason: str | None) -> None:
    """Hold runs back until `stepwell resume`.

    Signals are kept for them, timers run down, and their children go on. If a worker executes a run, it gives it back
    soon: recorded steps are kept, and the step that is being executed runs again later. (`stepwell queue pause` pauses
    a whole workflow.)

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
def resume(asked: Invocation, run: str, step: str | None, data: Sequence[str]) -> None:
    """Let a run go on that was paused, or whose step paused itself.

    Without STEP it undoes `stepwell pause`. With STEP, the step (or wait) of that name returns DATA: one value, as JSON
    if it parses, else as text; or an object, as name=text and name:=json; null if there is none. It counts once in a
    run.

    \b
    Examples:
      stepwell resume order-7
      stepwell resume order-7 approval "grace said yes"
      stepwell resume order-7 approval by=grace cents:=4900
    """
    asked.do(lambda store: _unpause(store, asked, run) if step is None else _resume(store, asked, run, step, data))


@click.command()
@click.argument("run")
@click.argument("step")
@click.argument("end", metavar="done|not-done", type=click.Choice(["done", "not-done"]))
@click.argument("data", nargs=-1)
@click.option("--reason", help="How you know; kept in the run's history.")
@asks_store
def resolve(asked: Invocation, run: str, step: str, end: str, data: Sequence[str], *, reason: str | None) -> None:
    """Say whether a step that begins at most once is done.

    Its run waits for that, since its body must not begin a second time. Look at what it does to the outside world. If
    it is done, the step returns DATA, as `stepwell resume` takes it; if it is not, and never will be, it begins again.

    \b
    Examples:
      stepwell resolve order-7 wire done id=4711
      stepwell resolve order-7 wire not-done --reason "no payment today, says the bank"
    """
    asked.do(lambda store: _resolve(store, asked, run, step, data, done=end == "done", reason=reason))


@click.command()
@click.argument("run")
@click.argument("name")
@click.argument("data", nargs=-1)
@click.option("--key", help="Only the first signal with this name and key counts.")
@click.option("--no-check", is_flag=True, help="Send it even if the run waits for another type: for code to come.")
@with_headers
@asks_store
def signal(asked: Invocation, run: str, name: str, data: Sequence[str], *, no_check: bool, **options: Any) -> None:
    """Send a signal to a run: its wait for NAME returns DATA.

    The signal is kept if the run does not wait for it yet; one wait takes it, once. DATA is one value, as JSON if it
    parses, else as text; or an object, as name=text and name:=json; null if there is none. (`stepwell send` sends a
    message to a queue.)

    \b
    Examples:
      stepwell signal order-7 approved by=grace
      stepwell signal order-7 budget 4900 --key decision
    """
    asked.do(lambda store: _signal(store, asked, run, name, data, check=not no_check, **options))


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--reason", help="The reason; kept in the run's history.")
@asks_store
def accept(asked: Invocation, runs: Sequence[str], *, reason: str | None) -> None:
    """Let runs go on that are held for their code.

    Such a run was about to execute a step that it has not recorded, and it has recorded a step that the program no
    longer has. If that is a new name for the same step, keep the old name with `@step(id=...)` and deploy: then the run
    goes on by itself. If it is another step, accept it: it is executed. `stepwell why RUN` names both steps.

    Or no code could read for a week what such a run has recorded: deploy code that can, then accept it.

    \b
    Examples:
      stepwell accept order-7
      stepwell accept order-7 --reason "charge is gone, weigh is new"
    """
    asked.do(lambda store: _accept(store, asked, runs, reason))


@click.command()
@click.argument("run")
@click.option("--at", metavar="STEP", help="The first step that is executed again: its name, or name#2; else all are.")
@click.option("--set", "edits", metavar="STEP=JSON", multiple=True, help="Replace what an earlier step returned.")
@click.option("--reason", help="The reason; kept with the new run.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@asks_store
def fork(
    asked: Invocation, run: str, *, at: str | None, edits: Sequence[str], reason: str | None, dry_run: bool
) -> None:
    """Begin a new run at a step of this one, with the same input.

    The new run has what the other run recorded before that step; it executes that step and the rest. Without --at it
    executes all, and the other run need not have begun. That one stays as it is; the new run has no key.

    \b
    Examples:
      stepwell fork order-7 --at charge
      stepwell fork order-7 --at charge --set price=900 --reason "a complaint"
    """
    asked.do(lambda store: forked(store, asked, run, at, edits=edits, reason=reason, dry_run=dry_run))


async def _why_schedule(store: Store, asked: Invocation, name: str) -> None:
    one = await store.get_schedule(name)
    if asked.as_json:
        say_json({"schedule": name, "state": one.state, "why": one.why})
    else:
        say(f"schedule {name}: {one.why}")
        say_next(f"stepwell schedule history {name}")


async def _why(store: Store, asked: Invocation, name: str) -> None:
    from stepwell.errors import RunNotFound
    from stepwell.operate.lookup import called, run_named
    from stepwell.operate.run_view import advice

    try:
        run = await run_named(store, name, deleted=None)
    except RunNotFound as missing:
        if missing.kind != "INPUT":
            raise
        told = await store.why(missing.run_id)
        subject, finished, next_ = f"input {missing.run_id}", False, told.next
        number = int(missing.run_id)
    else:
        told = await store.why(run.id)
        subject, finished, next_ = called(run), run.status.finished, advice(run, told, await store.steps(run.id))
        number = int(run.id)
    if asked.as_json:
        say_json({"run": number, **plain(told), "next": next_})
        return
    say(f"{subject}: {told.message}")
    facts = [told.reason.lower()]
    if told.until is not None:
        facts.append(f"goes on by itself {ago(told.until)}")
    if told.waits_for:
        facts.append(f"{'at' if finished else 'waits for'} {', '.join(told.waits_for)}")
    say(f"  {' · '.join(facts)}", dim=True)
    say_next(next_)


async def _pause(store: Store, asked: Invocation, names: Sequence[str], reason: str | None) -> int:
    from stepwell.operate.lookup import called, run_named

    async def paused(name: str) -> ChangeAnswer:
        run = await run_named(store, name)
        held = await store.pause(run.id, reason=reason)
        said = _held(run) if held else f"is {run.status}, or is being cancelled: nothing was changed"
        return ChangeAnswer({"run": run.id, "paused": held}, f"{called(run)} {said}", done=held)

    return await change_each(asked, names_given(names), paused, lambda last: f"stepwell resume {last.record['run']}")


def _held(run: Run[Any]) -> str:
    from stepwell.records import RunStatus

    if run.status == RunStatus.RUNNING:
        return "is being executed: its worker was asked to give it back; recorded steps will not run again"
    return "is held back: nothing makes it go on until it is resumed; recorded steps will not run again"


async def _unpause(store: Store, asked: Invocation, name: str) -> int:
    from stepwell.operate.lookup import called, run_named
    from stepwell.operate.run_view import advice

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


async def _resume(store: Store, asked: Invocation, name: str, step: str, data: Sequence[str]) -> int:
    from stepwell.cli.parse import value_of
    from stepwell.operate.lookup import run_named
    from stepwell.records import SignalAnswer

    run = await run_named(store, name)
    said = {
        SignalAnswer.WOKE: f"goes on: {step} returns this, and will not run again",
        SignalAnswer.KEPT: f"has not come to {step} yet: this is kept for it",
        SignalAnswer.TOO_LATE: f"is finished, or its {step} was resumed before; nothing was changed",
    }
    return _answer(asked, run, await store.resume(run.id, step, value_of(data)), said)


async def _resolve(
    store: Store, asked: Invocation, name: str, step: str, data: Sequence[str], *, done: bool, reason: str | None
) -> int:
    from stepwell.cli.parse import value_of
    from stepwell.operate.lookup import run_named
    from stepwell.records import SignalAnswer

    run = await run_named(store, name)
    answer = await store.resolve(run.id, step, done=done, value=value_of(data) if data else None, reason=reason)
    end = f"{step} is done and returns this" if done else f"{step} begins again"
    said = {
        SignalAnswer.WOKE: f"goes on: {end}",
        SignalAnswer.KEPT: f"goes on: {end}",
        SignalAnswer.TOO_LATE: "is finished; nothing was changed",
    }
    return _answer(asked, run, answer, said)


async def _signal(store: Store, asked: Invocation, name: str, signal: str, data: Sequence[str], **options: Any) -> int:
    from stepwell.cli.parse import value_of
    from stepwell.operate.lookup import run_named
    from stepwell.records import SignalAnswer

    run = await run_named(store, name)
    said = {
        SignalAnswer.WOKE: f"waits for {signal} just now, and goes on"
        if run.held_at is None
        else f"waits for {signal} just now, and goes on when it is resumed: it is held back",
        SignalAnswer.KEPT: f"does not wait for {signal} yet: it is kept for its next wait of that name",
        SignalAnswer.TOO_LATE: f"is finished, or already has a signal {signal} with this key; nothing was kept",
    }
    return _answer(asked, run, await store.signal(run.id, signal, value_of(data), **options), said)


def _answer(asked: Invocation, run: Run[Any], answer: Any, said: dict[Any, str]) -> int:
    from stepwell.operate.lookup import called

    if asked.as_json:
        say_json({"run": run.id, "answer": answer})
    else:
        say(f"{called(run)} {said[answer]}")
        say_next(f"stepwell show {run.id} -f" if answer else f"stepwell why {run.id}")
    return OK if answer else REFUSED


async def _accept(store: Store, asked: Invocation, names: Sequence[str], reason: str | None) -> int:
    from stepwell.operate.lookup import called, run_named

    async def accepted(name: str) -> ChangeAnswer:
        run = await run_named(store, name)
        done = await store.accept(run.id, reason=reason)
        said = "goes on with the code as it is" if done else "is not held for its code: nothing was changed"
        return ChangeAnswer({"run": run.id, "accepted": done}, f"{called(run)} {said}", done=done)

    def following(last: ChangeAnswer) -> str:
        return f"stepwell show {last.record['run']} -f" if last.done else f"stepwell why {last.record['run']}"

    return await change_each(asked, names_given(names), accepted, following)


async def forked(
    store: Store,
    asked: Invocation,
    name: str,
    at: str | None,
    *,
    edits: Sequence[str] = (),
    reason: str | None = None,
    dry_run: bool = False,
) -> None:
    """Fork a run, or say what a fork would keep and do."""
    from stepwell.operate.lookup import called, run_named

    run = await run_named(store, name)
    outputs = _edits(edits)
    kept, first = ([], None) if at is None else _kept(run.id, await store.steps(run.id), at)
    number = None if dry_run else await store.fork(run.id, at=first, outputs=outputs, reason=reason)
    if asked.as_json:
        say_json({"run": number, "fork_of": run.id, "at": first, "kept": kept, "dry_run": dry_run})
        return
    is_new = "a new run would go" if dry_run else f"run {number} goes"
    where = "on from its beginning" if first is None else f"on at {first}"
    say(f"{is_new} {where}, with the input of {called(run)}, which is left as it is")
    say(f"  recorded, will not run again: {', '.join(kept) or 'nothing'}", dim=True)
    if outputs:
        say(f"  edited: {', '.join(outputs)}", dim=True)
    say_next("the same without --dry-run" if dry_run else f"stepwell show {number} -f")


def _kept(run_id: int, steps: Sequence[StepInfo], at: str) -> tuple[list[str], str]:
    """What a fork at this step keeps, and that step's key."""
    from stepwell.records import RunStatus
    from stepwell.store.runs import step_called

    first: str = step_called(run_id, [{"key": step.key} for step in steps], at)["key"]
    place = [step.key for step in steps].index(first)
    ended = (RunStatus.SUCCESS, RunStatus.ERROR)
    return [step.key for step in steps[:place] if step.status in ended], first


def _edits(edits: Sequence[str]) -> dict[str, Any]:
    from stepwell.cli.parse import whole

    outputs: dict[str, Any] = {}
    for one in edits:
        step, found, value = one.partition("=")
        if not found or not step:
            raise Stop(USAGE, f"--set takes STEP=JSON, not {one!r}", "--set price=900")
        outputs[step] = whole(value)
    return outputs
