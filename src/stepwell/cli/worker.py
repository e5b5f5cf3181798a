"""Commands that run a worker, and one that restarts it when its code changes."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.command import LOOPS, NOT_FOUND, OWN, Invocation, Stop, asks_store
from stepwell.cli.output import say, say_json

if TYPE_CHECKING:
    from stepwell.cli.parse import Named
    from stepwell.cli.supervisor import Above
    from stepwell.store.store import Store


@click.command()
@click.argument("app")
@click.option("--once", is_flag=True, help="Do everything that is due now and what follows from it, then end.")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME[:N]",
    help="Serve only this queue, N tasks at once; may be repeated.",
)
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Tasks at once.")
@click.option("--processes", type=click.IntRange(1, 1_000), default=1, show_default=True, help="Worker processes.")
@click.option("--grace", metavar="SPAN", default="25s", show_default=True, help="How long SIGTERM waits for tasks.")
@click.option(
    "--health", metavar="[HOST:]PORT", help="Answer /healthz, /readyz and /metrics; on this host only by default."
)
@click.option("--json-logs", is_flag=True, help="Log as JSON, one object per line.")
@click.option(
    "--loop",
    type=click.Choice(LOOPS),
    default="auto",
    show_default=True,
    help="The event loop; auto is uvloop if it is installed.",
)
@asks_store
def worker(asked: Invocation, app: str, **options: Any) -> None:
    """Run a worker for APP until SIGTERM or Ctrl-C.

    The worker is a child process. This process renews its lease while a task holds the interpreter, restarts it after a
    crash, and tells other workers at once when it is gone. It passes signals on and ends with the worker's exit code.

    APP is a module, for every workflow, handler and decider defined in it, or module:attribute: one of these, a list of
    them, an engine, or a function of the store that returns them. The tables are created or upgraded first.

    If the database does not answer at the start, the worker says so and waits for it; with --once it ends.

    The first signal lets tasks finish within the grace period; the second gives all tasks back at once.

    \b
    Examples:
      stepwell worker shop
      stepwell worker shop.flows:fulfil --concurrency 4 --health 8081
      stepwell worker shop --queue emails:2 --once
    """
    from stepwell.cli.supervisor import supervise

    processes, above = options.pop("processes"), _above()
    _set_up_logs(as_json=options["json_logs"])
    asked = dataclasses.replace(asked, to_log=options["json_logs"])
    if above is None and _is_to_be_supervised(processes, once=options["once"]):
        asked.end(lambda: supervise(processes))
    loop = options.pop("loop")
    patient = not options["once"]
    asked.do(lambda store: _work(store, asked, app, above, **options), install=True, patient=patient, loop=loop)


@click.command()
@click.argument("app")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Tasks at once.")
@click.option("--watch", "folders", multiple=True, metavar="FOLDER", help="Watch this instead of the current folder.")
@click.option("--port", type=click.IntRange(1, 65_535), default=7070, show_default=True, help="Of the dashboard.")
@click.option("--no-ui", is_flag=True, help="Without the dashboard.")
@asks_store
def dev(asked: Invocation, app: str, *, concurrency: int, folders: Sequence[str], port: int, no_ui: bool) -> None:
    """Run a worker and the dashboard; restart both as files change.

    The new worker goes on with the tasks of the old one: recorded steps are not executed again. Each run that ends is
    reported in one line. The dashboard is there if it is installed: pip install 'stepwell[ui]'.

    \b
    Examples:
      stepwell dev shop
    """
    from stepwell.cli.dev import run_reloaded
    from stepwell.cli.output import say
    from stepwell.cli.ui import missing

    absent = [] if no_ui else missing()
    if absent:
        say(f"without the dashboard, which needs {', '.join(absent)}: pip install 'stepwell[ui]'", to_stderr=True)
    wanted = None if no_ui or absent else port
    asked.end(lambda: run_reloaded(app, asked.url, concurrency, list(folders) or ["."], wanted))


def _above() -> Above | None:
    """The supervisor of this process, if it has one; then a hung process writes its stack when it is aborted."""
    import faulthandler

    from stepwell.cli.supervisor import Above

    if (above := Above.found()) is not None:
        faulthandler.enable()
    return above


def _is_to_be_supervised(processes: int, *, once: bool) -> bool:
    """Whether this process is the supervisor: not with `--once`, and not inside another program."""
    import os

    from stepwell.cli.supervisor import PARENT, end_with
    from stepwell.store.helper_process import can_start

    if parent := os.environ.pop(PARENT, ""):
        end_with(int(parent))
    wanted = not once and can_start() and click.get_current_context().find_root().obj is OWN
    if processes > 1 and not wanted:
        why = "--once is the work of one process" if once else "only `stepwell` itself, run by a Python, starts others"
        raise click.UsageError(f"--processes {processes}: {why}")
    return wanted


async def _work(
    store: Store,
    asked: Invocation,
    app: str,
    above: Above | None,
    *,
    once: bool,
    queues: Sequence[str],
    concurrency: int,
    grace: str,
    health: str,
    json_logs: bool,
) -> None:
    import logging
    from functools import partial

    from stepwell.cli.health import healthy
    from stepwell.cli.parse import left_out, names_of, served
    from stepwell.work.heartbeat import Heartbeat
    from stepwell.worker import Worker

    tell = logging.getLogger("stepwell.worker").info if json_logs else partial(say, to_stderr=True)
    store.database.actor = None  # what the application does is not done by the person who began this
    found = await served(app, store)
    if others := left_out(app, found):
        tell(f"note: {app} only imports {', '.join(others)}: not served here")
    serves, limits = _chosen(found, _limits(queues), store)
    names = [name for each in serves for name in names_of(each)]
    one = Worker(store, serves, concurrency=concurrency, limits=limits, grace=grace, tune_gc=True)
    if above is not None:
        Heartbeat.of(store.database).helper.supervised(above.pipe)
    async with healthy(health, store, one, 0 if above is None else above.number):
        if once:
            attempts = await one.drain()
            say_json({"attempts": attempts}) if asked.as_json else say(f"nothing is due any more: {attempts} attempts")
            return
        tell(_introduction(store, names, concurrency))
        _keep_what_is_here()
        await one.run(signals=True)
        tell("stopped: what was not finished goes on in another worker")


def _keep_what_is_here() -> None:
    """Exclude the imported modules from garbage collection: they stay until the end anyway.

    Otherwise every full collection visits all of them, which is a long pause in a large program.
    """
    gc.collect()
    gc.freeze()


def _introduction(store: Store, names: Sequence[str], concurrency: int) -> str:
    from stepwell._version import __version__

    return f"stepwell {__version__} on {store.database.driver.name}: serving {', '.join(names)}, {concurrency} at once"


def _limits(queues: Sequence[str]) -> dict[str, int | None]:
    """The named queues, with the number of their tasks that may run at once."""
    limits: dict[str, int | None] = {}
    for text in queues:
        name, _, most = text.rpartition(":")
        limits[name if name and most.isdecimal() else text] = int(most) if name and most.isdecimal() else None
    return limits


def _chosen(
    serves: Sequence[Named], limits: dict[str, int | None], store: Store
) -> tuple[Sequence[Named], dict[str, int]]:
    """What the named queues serve (all if none is named), with the limit of each; a decider has its own limit."""
    from stepwell.cli.parse import names_of
    from stepwell.decider import Decider
    from stepwell.engine import Engine

    if not limits:
        return serves, {}
    _check_named(limits, [name for one in serves for name in names_of(one)])
    chosen: list[Named] = []
    for one in serves:
        most = limits.get(names_of(one)[0])
        if isinstance(one, Decider) and most is not None:
            del limits[one.type]
            chosen.append(Engine(store).register(one, workers=most))
        elif any(name in limits for name in names_of(one)):
            chosen.append(one)
    return chosen, {name: most for name, most in limits.items() if most is not None}


def _check_named(limits: dict[str, int | None], names: Sequence[str]) -> None:

    if unknown := [name for name in limits if name not in names]:
        raise Stop(NOT_FOUND, f"APP serves no queue {unknown[0]}", f"--queue {' --queue '.join(names)}")


def _set_up_logs(*, as_json: bool) -> None:
    """Write the log to standard error; a library must not do this, a command has to."""
    import logging

    from stepwell.cli.health import JsonLines

    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if as_json else plain)
    logging.captureWarnings(as_json)  # otherwise Python writes them as plain lines
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
