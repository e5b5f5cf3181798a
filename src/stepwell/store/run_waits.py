"""Questions of a run under its own lock: has a signal come, add these children, have those ended.

A transaction that signals, cancels or ends a child changes the run's row first, so the answer is complete at one
moment, and it is recorded at that moment. Runs that ask at the same time share a transaction.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from stepwell.base.futures import begin_apart, resolve, resolve_all
from stepwell.base.names import is_shielded
from stepwell.errors import LeaseLost, StoreLocked, StoreUnavailable
from stepwell.store.add import SLOWEST_ROW, add_together
from stepwell.store.bisection import SEEKING, seek
from stepwell.store.draft import together
from stepwell.store.driver import LOCKS, Call, Row, Script, Value
from stepwell.store.event_waits import ended_wait, taking
from stepwell.store.held_keys import Ended
from stepwell.store.lock_queue import PATIENCE, Waiter, holder
from stepwell.store.ordered_groups import groups_of_tasks, lock_groups
from stepwell.store.rows import ANSWERED
from stepwell.store.steps import step_of, values_of
from stepwell.store.wait_query import (
    AddChildren,
    AddEvents,
    Answered,
    AnswerRequest,
    CancelRequested,
    EndRace,
    LookAtChildren,
    Question,
    Recorded,
    TakeEvent,
    TakeSignal,
    answered_before,
    does_not_fit,
    in_order_of_arrival,
    note_stake,
    raced,
    refusal,
    rows_of_answer,
    seen_children,
    signalled,
    taken_by,
)

if TYPE_CHECKING:
    from stepwell.store.database import Database

MOST_TOGETHER: Final = 500
Answers = dict[Question, Answered | CancelRequested]
KEYS_KEPT: Final = 3600.0  # seconds, at least, that the key of a signal is kept: its sender may try again
ASIDE: Final = "!"  # before the key of a wait that could not read the signal
FORGET_EVERY: Final = 100  # signals of a name that a run takes; then twice as many old ones are removed

Batch = Mapping[Question, asyncio.Future[Answered]]


class RunWaits:
    """Answers the questions of the runs that this process executes."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._driver, self._lock_queue = database.driver, database.lock_queue
        self._keep = database.options.keep
        self._asked: list[tuple[Question, asyncio.Future[Answered]]] = []
        self._answering: asyncio.Task[None] | None = None
        self._doubted: set[Question] = set()  # those that an earlier try whose reply was lost may have answered
        self._held: dict[Question, Waiter] = {}  # those whose run another transaction has locked
        self._watching: dict[int, Callable[[], object]] = {}

    def ask(self, question: Question) -> asyncio.Future[Answered]:
        """The answer, recorded if it is final; `LeaseLost` if this turn does not hold the run, or it was cancelled."""
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._ask(question, future)
        return future

    def withdraw(self, question: Question) -> bool:
        """Stop asking this; False if it is being asked, so that it will be answered."""
        if (waiter := self._held.get(question)) is not None and self._lock_queue.withdraw(waiter):
            del self._held[question]
            return True
        left = [asked for asked in self._asked if asked[0] is not question]
        withdrawn, self._asked = len(left) < len(self._asked), left
        return withdrawn

    def watch(self, run_id: int, woken: Callable[[], object]) -> None:
        """Call `woken` when this process signals the run or ends a child of it: a hint that no caller relies on."""
        self._watching[run_id] = woken

    def unwatch(self, run_id: int) -> None:
        """Stop calling it."""
        self._watching.pop(run_id, None)

    def woken(self, run_id: int | None) -> None:
        """Say that something happened that the run may wait for."""
        if run_id is not None and (watcher := self._watching.get(run_id)) is not None:
            watcher()

    def _ask(self, question: Question, future: asyncio.Future[Answered]) -> None:
        self._held.pop(question, None)
        self._asked.append((question, future))
        if self._answering is None:
            self._answering = begin_apart(self._answer_all(), "stepwell-waiting")

    async def _answer_all(self) -> None:
        while self._asked:
            await asyncio.sleep(0)  # other runs that are about to ask do so in this turn of the loop
            if batch := self._next():
                await self._answer(batch)
        self._answering = None

    def _next(self) -> dict[Question, asyncio.Future[Answered]]:
        """Some of the questions: one wait for each name of a run, since one wait takes a signal, and one of a race."""
        batch: dict[Question, asyncio.Future[Answered]] = {}
        left: list[tuple[Question, asyncio.Future[Answered]]] = []
        taken: set[object] = set()
        for question, future in self._asked:
            if self._lock_queue and self._lock_queue.holds((question.task.id,)):
                self._wait_aside(question, future, behind=True)
                continue
            takes = taken_by(question)
            if len(batch) == MOST_TOGETHER or takes & taken:
                left.append((question, future))
            else:
                batch[question] = future
            taken |= takes  # also of one that is left out: the first to ask is answered first
        self._asked = left
        return batch

    async def _answer(self, batch: Batch) -> None:
        """Answer a batch; a run that another transaction has locked waits aside."""
        if await self._answered(batch, LOCKS):
            return
        runs = sorted({one.task.id for one in batch})

        def of(some: Sequence[int]) -> Batch:
            return {one: future for one, future in batch.items() if one.task.id in some}

        def held(run_id: int) -> None:
            for question, future in of([run_id]).items():
                self._wait_aside(question, future, behind=False)

        await seek(runs, lambda some: self._answered(of(some), SEEKING), held)

    def _wait_aside(self, question: Question, future: asyncio.Future[Answered], *, behind: bool) -> None:
        until = asyncio.get_running_loop().time() + 10 * self._db.options.timeout

        async def attempt() -> bool:
            if future.done() or await self._answered({question: future}, PATIENCE):
                self._held.pop(question, None)
            elif asyncio.get_running_loop().time() >= until:
                self._held.pop(question, None)
                held = f"run {question.task.id} is held by {await holder(self._driver)}"
                resolve(future, StoreLocked(f"{held}; end that transaction, or try again later"))
            return question not in self._held

        run = frozenset({question.task.id})
        go_on = partial(self._ask, question, future) if behind else None
        waiter = Waiter(needs=run, held=run, attempt=attempt, drop=partial(resolve, future), go_on=go_on)
        self._held[question] = waiter
        self._lock_queue.put(waiter)

    async def _answered(self, batch: Batch, patience: float) -> bool:
        """Answer a batch; False, and nothing is done, if another transaction has locked one of its runs."""
        try:
            answers = await self._transacted(list(batch), patience)
        except StoreLocked:
            return False
        except Exception as error:  # noqa: BLE001 - each of those who wait is told, by its own fault if possible
            if len(batch) == 1 or isinstance(error, StoreUnavailable):
                resolve_all(batch.values(), error)
                return True
            for question, future in batch.items():
                await self._answer({question: future})
            return True
        added = [one for one in answers if isinstance(one, AddChildren) and isinstance(answers[one], Recorded)]
        queues = {queue_id for one in added for queue_id in one.queues}
        for each in answers.values():
            if isinstance(each, Recorded):
                queues |= each.added_to
        if queues:
            self._db.wakeups.hint(queues)
        for question, future in batch.items():
            answer = answers.get(question)
            note_stake(question, answer)
            if isinstance(question, AnswerRequest) or (isinstance(question, TakeSignal) and question.has_refused):
                self._db.wakeups.tell_reported(question.task.id)
            resolve(future, LeaseLost(question.task.owner, question.task.id) if answer is None else answer)
        return True

    async def _transacted(self, batch: Sequence[Question], patience: float) -> Answers:
        tries = itertools.count()
        timeout = self._db.options.timeout + SLOWEST_ROW * sum(
            len(one.ids) for one in batch if isinstance(one, AddChildren | LookAtChildren)
        )

        async def work() -> Answers | StoreLocked:
            again = next(tries) > 0 or not self._doubted.isdisjoint(batch)
            try:
                script = partial(self._answering_all, batch, again=again)
                return await self._driver.transact(script, timeout=timeout, patience=patience)
            except StoreLocked as error:
                return error
            except StoreUnavailable:
                self._doubted.update(batch)  # it may have been answered, even if another turn asks next
                raise

        # A short outage must not make the run ask anew for what it took or added.
        answers = await self._db.repeat(work, patience=10)
        if isinstance(answers, StoreLocked):
            raise answers
        self._doubted.difference_update(batch)
        return answers

    def _answering_all(self, batch: Sequence[Question], *, again: bool) -> Script[Answers]:
        """Answer all questions that may be answered, in one transaction; a question without an answer came too late."""
        params = self._db.params(slot=self._db.claim_slot)
        emitted = [one for one in batch if isinstance(one, AddEvents)]
        if emitted:
            yield from self._db.outboxes.locking([each for one in emitted for each in one.emissions])
        children = [one for one in batch if isinstance(one, AddChildren)]
        if groups := {group for one in children for group in groups_of_tasks(one.drafted.tasks)}:
            yield from lock_groups(groups)
        turns = sorted({(one.task.id, one.task.owner, one.task.turn) for one in batch})
        runs = {row["id"]: row for row in (yield Call("lock_turns", params, turns))}
        answers: dict[Question, Answered] = {}
        if again:  # an earlier try whose reply was lost may have answered them: its records stand
            rows = sorted({(one.task.id, one.task.generation) for one in batch if one.task.id in runs})
            found = (yield Call("steps_of", params, rows)) if rows else []
            done = {(row["run_id"], row["key"]): step_of(row) for row in found}
            answers = answered_before([one for one in batch if one.task.id in runs], done)
        stopped = {run_id for run_id, row in runs.items() if row["cancelled"]}
        asked = [one for one in batch if one.task.id in runs and one not in answers]
        refused = [one for one in asked if one.task.id in stopped and _is_refused(one)]
        asked = [one for one in asked if one not in refused]
        answers |= yield from self._signals(params, [one for one in asked if isinstance(one, TakeSignal)], runs)
        replies = [one for one in asked if isinstance(one, AnswerRequest)]
        if replies:
            yield Call("answer_requests", params, [one.answer for one in replies])
        answers |= {one: Recorded(one.row) for one in replies}
        answers |= {one: raced(one) for one in asked if isinstance(one, EndRace)}
        added = [one for one in children if one in asked]
        answers |= yield from self._added(params, added, runs, again=again)
        if emitted := [one for one in emitted if one in asked]:
            answers |= yield from self._emitted(emitted)
        answers |= yield from self._looked(params, [one for one in asked if isinstance(one, LookAtChildren)], runs)
        yield from self._record(params, {one: answers[one] for one in asked})
        return {**answers, **{one: CancelRequested() for one in refused}}

    def _record(self, params: dict[str, Value], answers: Mapping[Question, Answered]) -> Script[None]:
        made = {one: rows for one, answer in answers.items() if (rows := rows_of_answer(one, answer))}
        values = {(row.run_id, row.key): values_of(row, one.task.owner) for one, rows in made.items() for row in rows}
        found = (yield Call("change_steps", params, list(values.values()))) if values else []
        written = {(row["id"], row["answer"]) for row in found}
        if over := [key for rows in made.values() for row in rows if (key := ended_wait(row)) is not None]:
            yield Call("unsubscribe", params, over)
        for one, rows in made.items():
            # `lock_turns` has checked the fence and locks the run, so only a key that has a result could be left out,
            # and a turn asks for no key twice. If the answer is not the recorded one, the transaction is rolled back.
            assert (rows[0].run_id, rows[0].key) in written, f"run {one.task.id} has a result for {rows[0].key}"

    def _signals(
        self, params: dict[str, Value], asked: Sequence[TakeSignal], runs: Mapping[int, Row]
    ) -> Script[dict[Question, Answered]]:
        wanted = {(one.task.id, one.row.key): one for one in asked if one.stake is None or one.stake.winner is None}
        signals: dict[tuple[int, str], Row] = {}
        for one in asked:
            one.misfits.clear()  # of a try that was rolled back
        while wanted:
            names = [(run_id, name, key) for (run_id, key), one in wanted.items() for name in one.names]
            first = yield Call("first_signals", params, names)
            found = {(row["run_id"], row["key"]): row for row in sorted(first, key=in_order_of_arrival, reverse=True)}
            aside = {place for place, row in found.items() if does_not_fit(wanted[place], row)}
            taken = [
                (run_id, row["name"], row["place"], f"{ASIDE}{key}" if (run_id, key) in aside else key)
                for (run_id, key), row in found.items()
            ]
            if taken:
                yield Call("take_signals", params, taken)
                yield from self._forget([(*one[:3], runs[one[0]]["now"]) for one in taken])
            if refused := [
                refusal(wanted[place], found[place]["place"]) for place in aside if wanted[place].is_request
            ]:
                yield Call("answer_requests", params, refused)
            signals |= {place: row for place, row in found.items() if place not in aside}
            wanted = {place: wanted[place] for place in aside}
        if events := [one for one in asked if isinstance(one, TakeEvent) and (one.task.id, one.row.key) not in signals]:
            self._db.has_broadcasts = True
            signals |= yield from taking(params, events, runs)
        return {one: signalled(one, signals.get((one.task.id, one.row.key)), runs[one.task.id]) for one in asked}

    def _forget(self, taken: Sequence[tuple[int, str, int, int]]) -> Script[None]:
        """Now and then, remove signals taken long ago, so that a run that restarts for ever keeps a bounded number."""
        for run_id, name, place, now in taken:
            if self._keep is not None and place % FORGET_EVERY == 0:
                before = now - round(max(self._keep, KEYS_KEPT) * 1_000_000)
                params: dict[str, Value] = {"id": run_id, "name": name, "before": before, "limit": 2 * FORGET_EVERY}
                yield Call("forget_signals", params)

    def _added(
        self, params: dict[str, Value], asked: Sequence[AddChildren], runs: Mapping[int, Row], *, again: bool
    ) -> Script[dict[Question, Answered]]:
        answers: dict[Question, Answered] = {}
        if not asked:
            return answers
        numbers = [child for one in asked for child in one.ids]
        drafted, ended = together([one.drafted for one in asked]), Ended(self._db.audit)
        added = iter((yield from add_together(params, drafted, numbers, self._db.living, ended)))
        for one in asked:
            if any(
                child.conditions is not None and child.conditions.on_parent_end == "cancel"
                for child in one.drafted.tasks
            ):
                yield Call("note_ends_children", {**params, "id": one.task.id})
            ids = list(itertools.islice(added, len(one.ids)))
            own = not again and all(child.created for child in ids)
            needed = len(ids) - runs[one.task.id]["waiting"] if own else None
            answers[one] = Recorded(one.recorded(ids), needed)
        return answers

    def _emitted(self, asked: Sequence[AddEvents]) -> Script[dict[Question, Answered]]:
        """Write the events of all these questions; each is answered with its own row."""
        queues = yield from self._db.outboxes.writing([each for one in asked for each in one.emissions])
        return {one: Recorded(one.row, added_to=frozenset(queues)) for one in asked}

    def _looked(
        self, params: dict[str, Value], asked: Sequence[LookAtChildren], runs: Mapping[int, Row]
    ) -> Script[dict[Question, Answered]]:
        ids = sorted({child for one in asked for child in one.ids})
        found = (yield Call("ends_of", params, [(child,) for child in ids])) if ids else []
        children = {row["id"]: row for row in found}
        # A fork keeps the results of the children it took over, as marks: they are read if a child is gone.
        gone = {(one.task.id, one.task.generation) for one in asked if not children.keys() >= set(one.ids)}
        marks = (yield Call("steps_of", params, sorted(gone))) if gone else []
        kept = {(row["run_id"], row["key"]): row["output"] for row in marks if row["key"].startswith(ANSWERED)}
        return {one: seen_children(one, children, runs[one.task.id], kept) for one in asked}


def _is_refused(question: Question) -> bool:
    """Whether a run that was cancelled may not ask this."""
    is_result = isinstance(question, AddEvents) and question.is_result
    return not is_result and not is_shielded(question.row.key)
