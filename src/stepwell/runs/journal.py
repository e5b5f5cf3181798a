"""What a run has recorded, and which record answers a call. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from stepwell.errors import NonDeterminismError
from stepwell.records import RunStatus
from stepwell.store.rows import ACCEPTED, MARK, TOLD, StepRow
from stepwell.values.codec import decode
from stepwell.values.versions import may_be_equal

BRANCH_ENDS: Final = "/"
# Calls, and branches, that are named by stepwell and not by the workflow.
OWN_STEPS: Final = (
    *("race()", "results()", "trigger_many()", "emit()", "reply()", "signal()", "cancel()", "ask()"),
    *("as_completed()", "receive()", "tag()", "untag()"),
)
OWN_CALLS: Final = frozenset((*OWN_STEPS, "sleep", "now", "task/", "shield()/"))


class StoppedStep(msgspec.Struct, frozen=True, tag_field="type", tag="Cancelled"):
    """The note on a step that its workflow has cancelled: in which attempt of the run, and how far into that turn."""

    attempt: int
    after: float  # seconds
    message: str = "the workflow has cancelled it"


@dataclass(frozen=True, slots=True)
class Due:
    """No record answers this call: its body is due, as this attempt; `failed` is the attempt before it, if any."""

    attempt: int
    has_row: bool
    failed: StepRow | None = None
    cancelled: bool = False  # by the workflow, if it is a wait
    stopped: StoppedStep | None = None  # by the workflow, if it is a step


@dataclass(frozen=True, slots=True)
class Replay:
    """The call was made before and returned this JSON text; `error` is set if a wait timed out."""

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

FIRST: Final = Due(1, has_row=False)


class Journal:
    """The recorded steps of one run, and which of them this turn has asked for."""

    def __init__(self, run_id: int, recorded: Iterable[StepRow] = (), *, strict: bool = False) -> None:
        self._run_id = run_id
        rows = {row.key: row for row in recorded}
        self.marks = {key: rows.pop(key) for key in tuple(rows) if key.startswith(MARK)}
        self._recorded = rows
        self._unasked = dict(rows)
        self._begun: set[str] = set()  # paths of the branches that this turn has begun
        self._cleared: set[str] = set()  # branches beside which no step is missing
        self._places = max((row.place for row in rows.values()), default=0)
        self.strict = strict
        self.contradiction: NonDeterminismError | None = None  # the first one, even if the workflow has caught it

    def ask(self, key: str) -> None:
        """The run has made this call: its record has been reached."""
        if self._unasked:
            self._unasked.pop(key, None)

    def ask_under(self, path: str) -> None:
        """All records of a branch count as reached: it has lost a race, and does not begin again."""
        for key in [key for key in self._unasked if key.startswith(path)]:
            del self._unasked[key]

    def begin(self, path: str) -> None:
        """The run has begun this branch, which will reach its own records."""
        if self._unasked:
            self._begun.add(path)

    def answer(self, key: str, input: str | None) -> Verdict:
        """The record that answers this call; raises if it was recorded with other arguments: that is another call."""
        if self.contradiction is not None:
            raise self.contradiction
        row = self._recorded.get(key)
        if row is None:
            return FIRST
        if row.input != input and not may_be_equal(row.input, input):
            recorded, asked = f"{key} with {row.input}", f"{key} with {input}"
            self._contradict(recorded, asked)
        match row.status:
            case RunStatus.SUCCESS:
                return Replay(row.output, row.error)
            case RunStatus.ERROR:
                return GaveUp(row.error or "{}")
            case RunStatus.PAUSED:
                return Waiting(row)
            case RunStatus.RUNNING | RunStatus.CANCELLED:
                # Its worker was lost in the middle of it, or its run ended then, or its workflow cancelled it.
                is_cancelled = row.status is RunStatus.CANCELLED
                return Due(row.attempt, has_row=True, cancelled=is_cancelled, stopped=_stopped(row))
            case _:
                return Due(row.attempt + 1, has_row=True, failed=row)

    def record(self, row: StepRow) -> None:
        """The database has written this row."""
        self._recorded[row.key] = row

    def knows(self, row: StepRow) -> bool:
        """True if exactly this row was written or read."""
        return self._recorded.get(row.key) is row

    def has(self, key: str) -> bool:
        """True if something is recorded under this key."""
        return key in self._recorded

    def under(self, path: str) -> list[StepRow]:
        """What is recorded under keys that begin so."""
        return [row for key, row in self._recorded.items() if key.startswith(path)]

    def told(self, branch: str) -> int:
        """How often a branch had reported under a name when this turn began."""
        mark = self.marks.get(TOLD + branch)
        return 0 if mark is None else int(mark.output or "0")

    def place(self, key: str) -> int:
        """The number of a step in the order in which the run first asked for its steps."""
        if (row := self._recorded.get(key)) is not None:
            return row.place
        self._places += 1
        return self._places

    @property
    def unasked(self) -> tuple[str, ...]:
        """The recorded steps that this turn has not reached, in their order."""
        return tuple(row.key for row in sorted(self._unasked.values(), key=lambda row: row.place))

    @property
    def is_behind(self) -> bool:
        """True while this turn has not reached all records: a new call may be a renamed step."""
        return bool(self._unasked)

    def skipped(self, key: str) -> tuple[str, ...]:
        """The names that this branch has recorded, that this turn has not reached and no operator has accepted."""
        branch = _branch_of(key)
        names = dict.fromkeys(_name_of(one) for one in self._unasked if _branch_of(one) == branch)
        return tuple(name for name in names if ACCEPTED + name not in self.marks)

    def gone(self, key: str, declared: Container[str]) -> tuple[str, ...]:
        """The recorded names that this call may have replaced: not reached, not accepted, and not declared any more.

        Those of its own branch and of the branches above it: steps by their name, and branches that this turn has not
        begun by the name of their function, followed by a `/`.
        """
        branch = _branch_of(key)
        if not self._unasked or branch in self._cleared:
            return ()
        beside = [name for name in self._beside(key) if name not in OWN_CALLS and ACCEPTED + name not in self.marks]
        found = [name for name in beside if name not in declared]
        if found:
            asked = self._asked_names()
            found = [name for name in found if name not in asked]
        if not found:
            self._cleared.add(branch)  # for this turn: the records that were not reached only become fewer
        return tuple(found)

    def _beside(self, key: str) -> dict[str, None]:
        mine = key.split(BRANCH_ENDS)[:-1]
        found: dict[str, None] = {}
        for recorded in self._unasked:
            first, ends, _ = recorded.partition(BRANCH_ENDS)
            if ends and first + ends in self._begun and first not in mine[:1]:
                continue  # of another branch that has begun, perhaps one of thousands
            *path, call = recorded.split(BRANCH_ENDS)
            shared = _shared(mine, path)
            if shared == len(path):
                found[_name_of(call)] = None
            elif BRANCH_ENDS.join([*path[: shared + 1], ""]) not in self._begun:
                found[_label_of(path[shared])] = None
        return found

    def _asked_names(self) -> frozenset[str]:
        """The names of steps and branches that this turn has reached: the program has them, declared or not."""
        steps = {_name_of(key) for key in self._recorded if key not in self._unasked}
        return frozenset(steps | {_label_of(path.split(BRANCH_ENDS)[-2]) for path in self._begun})

    def _contradict(self, recorded: str, asked: str) -> NoReturn:
        self.contradiction = NonDeterminismError(self._run_id, recorded=recorded, asked=asked)
        raise self.contradiction


def _stopped(row: StepRow) -> StoppedStep | None:
    if row.status is not RunStatus.CANCELLED or '"Cancelled"' not in (row.error or ""):
        return None
    return decode(row.error or "{}", StoppedStep)


def _branch_of(key: str) -> str:
    return key.rpartition(BRANCH_ENDS)[0]


def _name_of(key: str) -> str:
    """The name of a call, without its branch and its number."""
    return key.rpartition(BRANCH_ENDS)[2].rpartition("#")[0]


def _label_of(branch: str) -> str:
    """The function of a branch, without its number, followed by a mark that no step's name ends with."""
    return branch.rpartition(":")[0] + BRANCH_ENDS


def _shared(mine: list[str], theirs: list[str]) -> int:
    """The number of branches that two calls have in common."""
    pairs = zip(mine, theirs, strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), min(len(mine), len(theirs)))
