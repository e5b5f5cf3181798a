"""The first of several: who won is recorded, so that every replay goes the same way."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any

from stepwell.codec import decode
from stepwell.engine.branches import CALLS, Branch, current_branch
from stepwell.engine.journal import Replay
from stepwell.engine.rename import in_order
from stepwell.engine.requests import Course, asked, at_stake, awaited
from stepwell.engine.run import RunTurn
from stepwell.errors import InvalidOption
from stepwell.records import RunStatus, StepRow
from stepwell.store.questions import EndRace, Recorded, Stake


def raced(branch: Branch, contenders: Sequence[Awaitable[Any]]) -> Coroutine[Any, Any, tuple[int, Any]]:
    """Begin them all, or on a replay only the one that won."""
    if not contenders:
        raise InvalidOption("contenders", (), "a race has at least one")
    for contender in contenders:
        if not inspect.isawaitable(contender):
            why = "pass calls, one by one: `race(ctx.wait(...), ctx.sleep(...))`; a child is `.wait().execute(ctx)`"
            raise InvalidOption("contenders", contender, why)
    run, key = branch.run, branch.key("race()")
    run.journal.ask(key)
    row = StepRow(run.task.id, run.task.generation, key, run.journal.place(key), RunStatus.SUCCESS)
    return _race(run, row, contenders)


async def _race(run: RunTurn, row: StepRow, contenders: Sequence[Awaitable[Any]]) -> tuple[int, Any]:
    run.check()
    verdict = run.journal.answer(row.key, None)
    if isinstance(verdict, Replay):
        winner = decode(verdict.output or "0", int)
        return winner, await _again(contenders, winner)
    try:
        run.admit(row.key)
        await awaited(in_order(run, row.key, verdict))
    except BaseException:
        for contender in contenders:
            _leave_out(contender)
        raise
    stake = Stake(row, {})
    tasks = [_begun(stake, place, contender) for place, contender in enumerate(contenders)]
    losers = set(tasks)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # Recorded before anybody acts on it: of two that are over, a replay must not choose the other.
        winner = await awaited(_ending(run, stake, next(place for place, task in enumerate(tasks) if task.done())))
        losers.discard(tasks[winner])
    finally:
        for task in losers:
            task.cancel()
    await asyncio.gather(*losers, return_exceptions=True)
    return winner, await tasks[winner]


def _begun(stake: Stake, place: int, contender: Awaitable[Any]) -> asyncio.Future[Any]:
    """Begin a contender; of those that are calls of ours, only one may take a signal."""
    if getattr(contender, "cr_code", None) not in CALLS:
        return asyncio.ensure_future(contender)
    token = at_stake.set((stake, place))
    try:
        return asyncio.ensure_future(contender)
    finally:
        at_stake.reset(token)


def _ending(run: RunTurn, stake: Stake, place: int) -> Course:
    """Record who has won: this place, unless a wait has won in the meantime."""
    run.admit(stake.row.key)
    if stake.winner is None:
        answer = yield from asked(run, EndRace(run.task, stake.row, stake, place))
        assert isinstance(answer, Recorded)
    return stake.winner


def _again(contenders: Sequence[Awaitable[Any]], winner: int) -> asyncio.Future[Any]:
    """Begin the winner as it was begun before; the others do not begin, but their labels are taken."""
    begun: asyncio.Future[Any] | None = None
    for place, contender in enumerate(contenders):
        if place == winner:
            begun = asyncio.ensure_future(contender)
        else:
            _leave_out(contender)
    assert begun is not None
    return begun


def _leave_out(contender: Awaitable[Any]) -> None:
    """Have a contender that has lost before not begin; what it recorded then was asked for."""
    if isinstance(contender, asyncio.Future):
        contender.cancel()
        return
    if inspect.iscoroutine(contender):
        branch = current_branch.get()
        branch.run.made.forgive()  # a call may be inside of it
        if contender.cr_code not in CALLS:
            branch.run.journal.ask_under(branch.child(contender.__qualname__).path)
        contender.close()
