"""What a run has recorded, and which of it answers a call. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

from stepwell.errors import NonDeterminismError
from stepwell.records import RunStatus, StepRow

BRANCH_ENDS: Final = "/"


@dataclass(frozen=True, slots=True)
class Due:
    """Nothing answers this call yet: its body is to run, as this attempt; `failed` is the attempt before it, if any."""

    attempt: int
    has_row: bool
    failed: StepRow | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """The call has been made before and returned this, as JSON text; `error` says that nothing came in time."""

    output: str | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The call has been made before and waits: for a signal, for other runs, or to be resumed."""

    row: StepRow


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The call has been made before and failed for good, with this error as JSON text."""

    error: str


Verdict = Due | Replay | Waiting | GaveUp

_ANEW: Final = Due(1, has_row=False)


class Journal:
    """The recorded steps of one run, and which of them this turn has asked for."""

    def __init__(self, run_id: int, recorded: Iterable[StepRow] = (), *, strict: bool = False) -> None:
        self._run_id = run_id
        self._recorded = {row.key: row for row in recorded}
        self._unasked = dict(self._recorded)
        self._places = max((row.place for row in self._recorded.values()), default=0)
        self._strict = strict
        self.contradiction: NonDeterminismError | None = None  # the first one, whatever the workflow made of it

    def ask(self, key: str) -> None:
        """The run has made this call: whatever is recorded of it has been asked for."""
        if self._unasked:
            self._unasked.pop(key, None)

    def ask_under(self, path: str) -> None:
        """Whatever a branch has recorded has been asked for: it is known to have lost, and does not begin again."""
        for key in [key for key in self._unasked if key.startswith(path)]:
            del self._unasked[key]

    def answer(self, key: str, input: str | None) -> Verdict:
        """What answers this call; raises if it was recorded with other arguments, since then it is another call."""
        if self.contradiction is not None:
            raise self.contradiction
        row = self._recorded.get(key)
        if row is None:
            if self._strict:
                self._refuse_added(key)
            return _ANEW
        if row.input != input:
            recorded, asked = f"{key} with {row.input}", f"{key} with {input}"
            self._contradict(recorded, asked)
        match row.status:
            case RunStatus.SUCCESS:
                return Replay(row.output, row.error)
            case RunStatus.ERROR:
                return GaveUp(row.error or "{}")
            case RunStatus.PAUSED:
                return Waiting(row)
            case RunStatus.RUNNING:
                return Due(row.attempt, has_row=True)  # its worker was lost in the middle of it
            case _:
                return Due(row.attempt + 1, has_row=True, failed=row)

    def record(self, row: StepRow) -> None:
        """The database has this now."""
        self._recorded[row.key] = row

    def place(self, key: str) -> int:
        """The number of a step in the order in which the run first asked for its steps."""
        if (row := self._recorded.get(key)) is not None:
            return row.place
        self._places += 1
        return self._places

    @property
    def unasked(self) -> tuple[str, ...]:
        """Steps that are recorded and that this turn has not asked for, in their order."""
        return tuple(row.key for row in sorted(self._unasked.values(), key=lambda row: row.place))

    def _refuse_added(self, key: str) -> None:
        """Refuse a new step of a branch that has not asked for all it recorded: it was renamed, or comes too early."""
        branch = _branch_of(key)
        for recorded in self.unasked:
            if _branch_of(recorded) == branch:
                self._contradict(recorded, key)

    def _contradict(self, recorded: str, asked: str) -> NoReturn:
        self.contradiction = NonDeterminismError(self._run_id, recorded=recorded, asked=asked)
        raise self.contradiction


def _branch_of(key: str) -> str:
    return key.rpartition(BRANCH_ENDS)[0]
