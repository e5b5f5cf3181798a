"""Commands that add work: trigger a run, send a message to a queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from stepwell.cli.command import FAILED, NOT_FOUND, OK, USAGE, Invocation, Stop, asks_store, with_headers
from stepwell.cli.output import say, say_json, say_next
from stepwell.operate.format import short, span

if TYPE_CHECKING:
    from stepwell.store.store import Store
    from stepwell.trigger import Trigger


def of_its_key(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say what a key means, and until when the work is worth beginning."""
    for option in reversed(KEY_OPTIONS):
        command = option(command)
    return command


KEY_OPTIONS: Final = (
    click.option("--unique", type=click.Choice(["ever", "unfinished", "waiting"]), help="How long the key is taken."),
    click.option(
        "--on-conflict",
        type=click.Choice(["existing", "replace", "error"]),
        help="If the key is taken: return that one, give it the new input if it has not begun, or fail.",
    ),
    click.option("--debounce", metavar="SPAN", help="Start this long after the last one with this key."),
    click.option("--debounce-max", metavar="SPAN", help="With --debounce: at the latest this long after the first."),
    click.option("--once-per", metavar="SPAN", help="Only the first with this key in each period of this length."),
    click.option("--newest", is_flag=True, help="Cancel those with this key that have not begun."),
    click.option("--expires", metavar="SPAN", help="Do not begin after this time."),
)


@click.command()
@click.argument("name")
@click.argument("input", nargs=-1)
@click.option("--app", metavar="APP", help="Check and convert the input with the workflow in this module.")
@click.option("--key", help="Key of the run: a second trigger with this key finds the first run.")
@click.option("--delay", metavar="SPAN", help="Start after this time: 90s, 15m, 24h, 7d.")
@click.option("--priority", type=int, default=0, show_default=True, help="A higher priority runs first.")
@of_its_key
@with_headers
@click.option("--run-timeout", metavar="SPAN", help="End the run if it is not finished so long after its start.")
@click.option("--tag", "tags", multiple=True, help="A word to find the run by; may be repeated.")
@click.option("--wait", is_flag=True, help="Wait for the result; exit code 1 if the run fails.")
@click.option("--timeout", metavar="SPAN", help="With --wait: maximum time to wait.")
@asks_store
def trigger(
    asked: Invocation,
    name: str,
    input: Sequence[str],
    *,
    app: str | None,
    wait: bool,
    timeout: str | None,
    run_timeout: str | None,
    **options: Any,
) -> None:
    """Trigger a run of the workflow NAME.

    INPUT is name=text or name:=json for each parameter. A workflow with one parameter also takes its value alone: as
    JSON if it parses, else as text. `@file.json` and `-` read it from a file or standard input.

    \b
    Examples:
      stepwell trigger fulfil cents:=1900 parcels:='["lamp"]' --key order-7
      stepwell trigger welcome ada@example.org --wait
      stepwell trigger fulfil cents=1900 parcels='["lamp"]' --app shop
      stepwell trigger welcome ada@example.org --header tenant=acme --run-timeout 1h
    """
    options |= {} if run_timeout is None else {"timeout": run_timeout}
    asked.do(lambda store: _trigger(store, asked, name, input, app=app, wait=wait, timeout=timeout, options=options))


@click.command()
@click.argument("queue")
@click.argument("payload", nargs=-1, required=True)
@click.option("--key", help="Key of the message: a second message with this key finds the first.")
@click.option("--delay", metavar="SPAN", help="Start after this time: 90s, 15m, 24h, 7d.")
@click.option("--priority", type=int, default=0, show_default=True, help="A higher priority runs first.")
@of_its_key
@with_headers
@asks_store
def send(asked: Invocation, queue: str, payload: Sequence[str], **options: Any) -> None:
    """Send a message to a queue.

    PAYLOAD is one value, as JSON if it parses, else as text; or an object, as name=text and name:=json. `@file.json`
    and `-` read it from a file or standard input.

    \b
    Examples:
      stepwell send emails ada@example.org
      stepwell send orders number=7 cents:=1900 --key order-7
    """
    asked.do(lambda store: _send(store, asked, queue, payload, options))


async def _trigger(
    store: Store,
    asked: Invocation,
    name: str,
    given: Sequence[str],
    *,
    app: str | None,
    wait: bool,
    timeout: str | None,
    options: dict[str, Any],
) -> int | None:

    asking = (await _asking(store, name, given, app)).options(**options, require_worker="ignore")
    _check_name("workflow", name, [one.name for one in await store.workflows()], defined=app is not None)
    run_id = await store.trigger(asking)
    served = not any(one.queue == name for one in await store.unserved())
    if wait:
        if not served:
            say(f"no living worker serves {name}: waiting for one (stepwell worker {app or 'APP'})", to_stderr=True)
        return await _waited(store, asked, run_id, timeout)
    if asked.as_json:
        say_json({"run": run_id, "created": run_id.created, "served": served})
        return None
    if run_id.created:
        say(f"run {run_id} of {name} is written, and will be executed even if every process dies")
    else:
        say(f"run {run_id} of {name} has this key already: {_found(options)}")
    if served:
        say_next(f"stepwell show {run_id} -f")
    else:
        say(f"no living worker serves {name}: it waits for one")
        say_next(f"stepwell worker {app or 'APP'}")
    return None


def _found(options: dict[str, Any]) -> str:
    """What became of work whose key another one has."""
    if options["on_conflict"] == "replace" or options["debounce"] is not None:
        return "if it had not begun, it has the new input now"
    return "nothing was written, and nothing is done twice"


def _check_name(what: str, name: str, names: Sequence[str], *, defined: bool = False) -> None:
    """End the command if nothing has this name, with the name that was probably meant."""
    from difflib import get_close_matches

    if not defined and name not in names and (near := get_close_matches(name, names, n=1)):
        raise Stop(NOT_FOUND, f"no {what} is named {name}", f"the same with {near[0]}")


async def _asking(store: Store, name: str, given: Sequence[str], app: str | None) -> Trigger[Any]:
    """The trigger, its input checked by the workflow's signature where that is known here."""
    from stepwell.cli.parse import fitted, parsed, served
    from stepwell.workflow import Workflow, workflow

    by_place, by_name = parsed(given)
    found = workflow(name)
    if app is not None:
        defined = {one.name: one for one in await served(app, store) if isinstance(one, Workflow)}
        if name not in defined:
            raise Stop(NOT_FOUND, f"{app} defines no workflow {name}", f"one of {', '.join(defined) or '(none)'}")
        found = defined[name]
        by_name = fitted(by_name, found.parameters)
    try:
        return found.trigger(*by_place, **by_name)
    except TypeError as error:
        wanted = [f"{one}{'=TEXT' if type_ is str else ':=JSON'}" for one, type_ in found.parameters.items()]
        asked_for = " ".join(wanted) or "name=text name:=json ..."
        raise Stop(USAGE, str(error), f"stepwell trigger {name} {asked_for}") from error


async def _waited(store: Store, asked: Invocation, run_id: int, timeout: str | None) -> int:
    """Follow the run to its end and print what it returned."""
    from stepwell.base.durations import seconds_of
    from stepwell.cli.timeline import follow_run
    from stepwell.operate.status import as_json, took
    from stepwell.records import RunStatus

    until = None if timeout is None else seconds_of(timeout, "timeout")
    run = await follow_run(store, await store.get_run(run_id), quiet=asked.as_json, until=until)
    succeeded = run.status == RunStatus.SUCCESS
    if asked.as_json:
        say_json(as_json(run))
    elif succeeded:
        say(f"✓ run {run.id} returned {short(run.output(object), 500)} in {span(took(run))}")
    elif run.status.finished:
        say(f"✕ run {run.id} is {run.status}: {run.last_error}")
        say_next(f"stepwell show {run.id}")
    else:
        say(f"run {run.id} is {run.status} after {timeout}, and goes on without us")
        say_next(f"stepwell show {run.id} -f")
    return OK if succeeded else FAILED


async def _send(store: Store, asked: Invocation, queue: str, given: Sequence[str], options: dict[str, Any]) -> None:
    from stepwell.cli.parse import parsed

    by_place, by_name = parsed(given)
    _check_name("queue", queue, [one.name for one in await store.queues()])
    task_id = await store.enqueue(queue, by_place[0] if by_place else by_name, **options)
    served = not any(one.queue == queue for one in await store.unserved())
    if asked.as_json:
        say_json({"task": task_id, "created": task_id.created, "served": served})
        return
    if task_id.created:
        say(f"message {task_id} is in {queue}, and will be handled even if every process dies")
    else:
        say(f"message {task_id} of {queue} has this key already: {_found(options)}")
    if not served:
        say(f"no living worker serves {queue}: it waits for one")
    say_next("stepwell queue ls" if served else "stepwell worker APP")
