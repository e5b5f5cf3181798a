"""`stepwell demo`: it chooses a view, plays the story in a temporary folder, and always cleans up."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from stepwell.cli.command import FAILED, INTERRUPTED, NO_STORE
from stepwell.cli.demo.processes import NoServer, PostgresServer
from stepwell.cli.demo.story import Result, Story, View
from stepwell.cli.demo.views import Plain, Silent
from stepwell.cli.output import is_lively
from stepwell.errors import DriverMissing, StepwellError


def run(*, as_json: bool, postgres: bool = False) -> int:
    """Play the demo and return its exit code: 0 only if the counts are right."""
    try:
        with _ended_cleanly():
            result = _as_json(postgres=postgres) if as_json else _shown(postgres=postgres)
    except KeyboardInterrupt:
        print("interrupted: the workers are killed and the temporary folder is removed", file=sys.stderr)
        return INTERRUPTED
    except (NoServer, DriverMissing) as error:
        print(f"error: {error}", file=sys.stderr)
        return NO_STORE
    except (StepwellError, OSError) as error:
        print(f"error: the demo could not run: {error}", file=sys.stderr)
        print(f"try: TMPDIR=/another/folder stepwell demo  (it used {tempfile.gettempdir()})", file=sys.stderr)
        return FAILED
    return 0 if result.ok else FAILED


def _shown(*, postgres: bool) -> Result:
    if not is_lively(sys.stdout):
        plain = Plain(sys.stdout)
        result = _played(plain, postgres=postgres)
        plain.tell(result)
        return result
    from stepwell.cli.demo.views import Live

    with Live(sys.stdout) as live:
        result = _played(live, postgres=postgres)
        live.tell(result)
        return result


def _as_json(*, postgres: bool) -> Result:
    result = _played(Silent(), postgres=postgres)
    print(json.dumps({"ok": result.ok, **dataclasses.asdict(result)}, indent=2))
    return result


def _played(view: View, *, postgres: bool) -> Result:
    with tempfile.TemporaryDirectory(prefix="stepwell-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if not postgres:
            return Story(folder, view, lambda store: f"sqlite:///{quote(str(folder / store))}.db").play()
        with PostgresServer(folder / "server") as server:
            view.say(0.0, "a Postgres server is started", "of its own, for this demo alone")
            return Story(folder, view, server.url, "Postgres").play()


@contextlib.contextmanager
def _ended_cleanly() -> Iterator[None]:
    """Treat SIGTERM and a closed terminal like Ctrl-C, so that nothing is left behind."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
