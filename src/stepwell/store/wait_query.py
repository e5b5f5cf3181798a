"""The questions that a run may ask under its own lock, and their answers: plain values and functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from stepwell.base.names import REQUEST
from stepwell.records import RunStatus
from stepwell.store.draft import Drafted
from stepwell.store.driver import Row
from stepwell.store.emission import Emission
from stepwell.store.rows import ANSWERED, Claimed, StepRow
from stepwell.values.codec import decode, encode

TIMED_OUT: Final = "Timeout"
Subscriber = tuple[int, int, str]  # run, generation, and the key of the wait
RequestAnswer = tuple[int, str, int, str | None, str | None]  # run, name, place; a reply as JSON, or why it is refused


class Stake(msgspec.Struct, eq=False):
    """What the waits of one race share: as soon as one of them is answered the race is over for the others."""

    row: StepRow  # of the race; its result is the place of the winner
    waits: dict[int, StepRow]  # those that have asked, by their place
    winner: int | None = None


class TakeSignal(msgspec.Struct, frozen=True, eq=False):
    """Has a signal of one of these names come? If so, the run takes it, and records it as the result of the call.

    Of several the one that came first; then its name is recorded too. A signal that `misfit` cannot read is set
    aside, and the next is tried; the reason is added to `misfits`. The sender of a request is told of that, and a
    request is recorded with its place, to be answered.
    Else, if `due` has passed, it is recorded that none came in time; else `row` is recorded, unless it exists.
    In a race, an answer also records that this `place` has won; after another has won, no signal is taken.
    """

    task: Claimed
    row: StepRow
    names: tuple[str, ...]
    due: int | None
    is_new: bool
    stake: Stake | None = None
    place: int = 0
    misfit: Callable[[str, str], str | None] = lambda *_: None  # why the data of a signal of a name cannot be read
    takes_any: bool = False  # its result tells which of the names it was
    misfits: list[tuple[str, str]] = msgspec.field(default_factory=list)  # the names, and why

    @property
    def what(self) -> str:
        """What it waits for, for people."""
        return f"signal {', '.join(self.names)}"

    @property
    def is_request(self) -> bool:
        """Whether the sender waits for an answer."""
        return self.names[0].startswith(REQUEST)

    @property
    def has_refused(self) -> bool:
        """Whether it has answered requests that it could not read."""
        return self.is_request and bool(self.misfits)


class TakeEvent(TakeSignal, frozen=True, eq=False, kw_only=True):
    """Was an event of this name and choice broadcast? If so, the run takes it, and it is recorded as the result.

    It takes what was published since a moment: when the run was triggered, or `replay` microseconds before the wait
    began. An operator may let the call return something else, so a signal of its name is taken too.
    """

    event: str
    choice: str
    replay: int | None = None

    @property
    def what(self) -> str:
        """What it waits for, for people."""
        return f"event {self.event}"

    @property
    def subscriber(self) -> Subscriber:
        """The wait, as a row of the statements about it."""
        return self.task.id, self.task.generation, self.row.key


class AnswerRequest(msgspec.Struct, frozen=True, eq=False):
    """Answer the request that the run took from this place, with a reply as JSON or a reason why it is refused."""

    task: Claimed
    row: StepRow
    name: str
    place: int
    reply: str | None
    refused: str | None

    @property
    def answer(self) -> RequestAnswer:
        """As a row of the statement."""
        return self.task.id, self.name, self.place, self.reply, self.refused


class EndRace(msgspec.Struct, frozen=True, eq=False):
    """The contender at `place` has ended: record that it has won, unless a wait had won before."""

    task: Claimed
    row: StepRow
    stake: Stake
    place: int


class AddChildren(msgspec.Struct, frozen=True, eq=False):
    """Add these runs as children, and record what `recorded` makes of their ids."""

    task: Claimed
    row: StepRow
    drafted: Drafted
    ids: Sequence[int]
    queues: frozenset[int]
    recorded: Callable[[Sequence[int]], StepRow]


class AddEvents(msgspec.Struct, frozen=True, eq=False):
    """Write these events, and the row of the call or the step that emits them.

    If the row `is_result` of a body, it is written even if the run was cancelled meanwhile, as any other result is.
    """

    task: Claimed
    row: StepRow
    emissions: tuple[Emission, ...]
    is_result: bool = False


class LookAtChildren(msgspec.Struct, frozen=True, eq=False):
    """Have these runs ended? If so, record what `recorded` makes of that, or that `due` has passed before."""

    task: Claimed
    row: StepRow
    ids: Sequence[int]
    due: int | None
    is_new: bool
    recorded: Callable[[Sequence[End] | None], StepRow]


class CancelRequested(Exception):  # noqa: N818 - a word of ours, never seen by users
    """The question was not asked: the run was cancelled. It has to clean up, and does not know that yet."""


Question = TakeSignal | AnswerRequest | EndRace | AddChildren | AddEvents | LookAtChildren


class End(msgspec.Struct, frozen=True):
    """How an awaited run ended; CANCELLED also if it was deleted, or is gone."""

    id: int
    status: RunStatus
    output: str | None = None
    error: str | None = None
    workflow: str = ""


class Recorded(msgspec.Struct, frozen=True):
    """The call is answered, and this is recorded of it."""

    row: StepRow
    needed: int | None = None  # as in `Waits`, for the children that were added; None if they may have ended since
    added_to: frozenset[int] = frozenset()  # the queues of the events that were added


class Waits(msgspec.Struct, frozen=True):
    """Not yet: the run may pause, and then reports what it had seen."""

    wakes: int | None = None
    needed: int | None = None
    foreign: bool = False  # some of them are not its children: it is not told of their end, so it has to look again


Answered = Recorded | Waits


def does_not_fit(one: TakeSignal, signal: Row) -> bool:
    """Whether the wait cannot read the signal; then that is noted, the signal is set aside, and the wait goes on."""
    why = one.misfit(signal["name"], signal["data"] or "null")
    if why is not None:
        one.misfits.append((signal["name"], why))
    return why is not None


def in_order_of_arrival(signal: Row) -> tuple[int, int, str]:
    """What sorts the signals of a run by when they came; those of an earlier release have no number and come first."""
    return signal["arrival"] or 0, signal["sent_at"], signal["name"]


def refusal(one: TakeSignal, place: int) -> RequestAnswer:
    """The answer to a request that the wait could not read."""
    return one.task.id, one.names[0], place, None, one.misfits[-1][1]


def signalled(one: TakeSignal, signal: Row | None, run: Row) -> Answered:
    """A signal that is there wins; else the deadline, if it has passed by the database's clock."""
    if signal is not None:
        return Recorded(_ended(one.row, _taken(one, signal), None))
    if one.due is not None and one.due <= run["now"] and (one.stake is None or one.stake.winner is None):
        told = {"type": TIMED_OUT, "message": f"no {one.what} came in time"}
        return Recorded(_ended(one.row, None, encode(told)))
    return Waits(wakes=run["wakes"])


def _taken(one: TakeSignal, signal: Row) -> str | None:
    """The data of a signal; of a request with its place, to be answered; of one of several names with its name."""
    data: str | None = signal["data"]
    if one.is_request:
        return f'{{"request":{signal["place"]},"data":{data or "null"}}}'
    if one.takes_any:
        return f'{{"name":{json.dumps(signal["name"])},"data":{data or "null"}}}'
    return data


def raced(one: EndRace) -> Answered:
    winner = one.place if one.stake.winner is None else one.stake.winner
    return Recorded(msgspec.structs.replace(one.row, output=str(winner)))


def rows_of_answer(one: Question, answer: Answered) -> list[StepRow]:
    """The rows to write for an answer. The end of a race ends its other waits: they take no signal any more."""
    if isinstance(answer, Waits):
        if isinstance(one, TakeSignal) and one.stake is not None and one.stake.winner is not None:
            return [] if one.is_new else [msgspec.structs.replace(one.row, status=RunStatus.CANCELLED)]
        if isinstance(one, TakeSignal) and one.misfits:
            return [msgspec.structs.replace(one.row, error=with_misfit(one.row.error, one.misfits[-1][1]))]
        return [one.row] if isinstance(one, TakeSignal | LookAtChildren) and one.is_new else []
    if not isinstance(one, TakeSignal | EndRace) or one.stake is None:
        return [answer.row]
    if one.stake.winner is not None:
        return []  # it is written
    race = msgspec.structs.replace(one.stake.row, output=str(one.place))
    lost = [row for place, row in one.stake.waits.items() if place != one.place]
    return [answer.row, race, *(msgspec.structs.replace(row, status=RunStatus.CANCELLED) for row in lost)]


def taken_by(question: Question) -> set[object]:
    """What only one question at a time may get."""
    match question:
        case TakeSignal(task, stake=stake):
            names: set[object] = {(task.id, name) for name in question.names}
            return names if stake is None else {*names, (task.id, stake.row.key)}
        case EndRace(task, stake=stake):
            return {(task.id, stake.row.key)}
        case _:
            return set()


def note_stake(question: Question, answer: Answered | CancelRequested | None) -> None:
    """Remember, after the commit, who has asked in a race and who has won."""
    if not isinstance(question, TakeSignal | EndRace) or question.stake is None:
        return
    if answer is None or isinstance(answer, CancelRequested):
        return
    if isinstance(question, TakeSignal):
        question.stake.waits[question.place] = question.row
    if isinstance(answer, Recorded) and question.stake.winner is None:
        question.stake.winner = question.place


def seen_children(
    one: LookAtChildren, children: Mapping[int, Row], run: Row, kept: Mapping[tuple[int, str], str]
) -> Answered:
    ends = [_end_of(child, children.get(child), kept.get((one.task.id, f"{ANSWERED}{child}"))) for child in one.ids]
    unfinished = {child for child, end in zip(one.ids, ends, strict=True) if end is None}  # each ends once
    if not unfinished:
        return Recorded(one.recorded([end for end in ends if end is not None]))
    if one.due is not None and one.due <= run["now"]:
        return Recorded(one.recorded(None))
    own = all(children[child]["parent_id"] == one.task.id for child in unfinished)
    needed = len(unfinished) - run["waiting"] if own else None
    return Waits(needed=needed, foreign=needed is None)


def _end_of(child: int, row: Row | None, kept: str | None) -> End | None:
    if row is None and kept is not None:
        told = json.loads(kept)
        return End(child, RunStatus(told["ended"]), told["output"], told["error"], told.get("workflow", ""))
    if row is None:
        missing = {"type": "RunNotFound", "message": f"there is no run {child}"}
        return End(child, RunStatus.CANCELLED, None, encode(missing))
    if row["ended"] is None and row["deleted_at"] is not None:
        gone = {"type": "Deleted", "message": f"run {child} was deleted before it ended"}
        return End(child, RunStatus.CANCELLED, None, encode(gone))
    if row["ended"] is None:
        return None
    return End(child, RunStatus(row["ended"]), row["output"], row["error"], row["workflow"])


def with_misfit(noted: str | None, why: str) -> str:
    """The note of a wait, with the reason why the last signal was set aside."""
    return encode({**(decode(noted) if noted else {}), "misfit": why[:1000]})


def _ended(row: StepRow, output: str | None, error: str | None) -> StepRow:
    return msgspec.structs.replace(row, status=RunStatus.SUCCESS, output=output, error=error, accepts=None)


def answered_before(asked: Sequence[Question], done: Mapping[tuple[int, str], StepRow]) -> dict[Question, Answered]:
    answers: dict[Question, Answered] = {}
    for one in asked:
        row = done.get((one.task.id, one.row.key))
        # A wait for children that it added has its row from then on; any other wait had its row before it asked.
        added = isinstance(one, AddChildren) and row is not None and row.status is RunStatus.PAUSED
        if row is not None and (added or row.status in (RunStatus.SUCCESS, RunStatus.ERROR)):
            answers[one] = Recorded(row)
    return answers
