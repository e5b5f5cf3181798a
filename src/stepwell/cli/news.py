"""What `stepwell dev` says of runs: a line for each that has ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from stepwell import sync
from stepwell.cli.exits import Stop
from stepwell.cli.opening import check_there
from stepwell.cli.output import short, span
from stepwell.cli.status import took, word_of
from stepwell.connecting import Config
from stepwell.errors import StepwellError
from stepwell.records import Run, RunStatus
from stepwell.telemetry import Telemetry

MOST: Final = 50  # runs that are looked at, the newest
PATIENCE: Final = 2.0  # seconds: changed files are not to wait for a database that hangs
SHARED: Final = ("sqlite:", "postgres")  # the databases that a second process may open


class News:
    """The runs of a store that have ended since it was asked last; nothing while it does not answer."""

    def __init__(self, url: str | None) -> None:
        self._config = Config(url, install=False, listen=False, timeout=PATIENCE, telemetry=Telemetry(log=False))
        self._store: sync.Store | None = None
        self._since = datetime.now(UTC)
        self._told: set[tuple[int, datetime | None]] = set()  # a run that is retried ends again

    def lines(self) -> list[str]:
        """A line for each of them, the first to end first."""
        if not self._config.url.startswith(SHARED):
            return []
        try:
            ended = [run for run in self._opened().runs(limit=MOST) if self._is_new(run)]
        except (StepwellError, Stop):
            self.close()
            return []
        self._told.update((run.id, run.finished_at) for run in ended)
        return [_line(run) for run in sorted(ended, key=lambda run: run.finished_at or self._since)]

    def close(self) -> None:
        """Let go of the store; asked again, it is opened again."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _opened(self) -> sync.Store:
        if self._store is None:
            check_there(self._config, install=False)
            self._store = sync.Store(self._config)
        return self._store

    def _is_new(self, run: Run[Any]) -> bool:
        ended = run.finished_at
        return ended is not None and ended > self._since and (run.id, ended) not in self._told


def _line(run: Run[Any]) -> str:
    ended = (run.finished_at or datetime.now(UTC)).astimezone()
    what = f"{ended:%H:%M:%S} {word_of(run)}  {run.workflow} {run.key or int(run.id)}  {span(took(run))}"
    if run.status != RunStatus.ERROR:
        return what
    return f"{what}  {short(run.last_error or '', 80)}\n         next: stepwell show {int(run.id)}"
