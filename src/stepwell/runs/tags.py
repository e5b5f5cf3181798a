"""What a run came with, and the tags that it sets on itself: each call once in its life, like a step."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime

from stepwell.base.names import check_key
from stepwell.errors import InvalidOption, PermanentError
from stepwell.runs.branches import Branch
from stepwell.runs.caller import branch_of, made
from stepwell.runs.other_run import course_of_verb
from stepwell.runs.requests import Course, followed
from stepwell.runs.turn import RunTurn
from stepwell.store.ticks import tick_of
from stepwell.values.headers import Headers, headers_in
from stepwell.values.stamp import write_ordered


class Origin:
    """What a run came with: headers, and the tick of the schedule that has triggered it."""

    _run: RunTurn

    @property
    def headers(self) -> Headers:
        """The texts that travel with this run: what it was triggered with, and what that inherited."""
        return headers_in(self._run.task.headers)

    @property
    def schedule(self) -> str | None:
        """The schedule that has triggered the run; None if none has."""
        tick = tick_of(self._run.task.key)
        return None if tick is None else tick[0]

    @property
    def scheduled_for(self) -> datetime | None:
        """The moment of the tick for which a schedule has triggered the run; None if none has."""
        tick = tick_of(self._run.task.key)
        return None if tick is None else tick[1]


class TagsAsync:
    """What an async workflow changes of the tags of its run."""

    _run: RunTurn

    def tag(self, tag: str) -> Awaitable[None]:
        """Add a tag to this run, once in its life: `store.runs(tag="vip")` finds it from now on, also when it has
        ended.
        """
        branch = branch_of(self._run, "tag", is_sync=False)
        return made(branch, _tagging(branch, "tag()", tag, on=True), "tag")

    def untag(self, tag: str) -> Awaitable[None]:
        """Remove a tag from this run, once in its life; does nothing if the run does not have it."""
        branch = branch_of(self._run, "untag", is_sync=False)
        return made(branch, _tagging(branch, "untag()", tag, on=False), "untag")


class TagsSync:
    """What a sync workflow changes of the tags of its run."""

    _run: RunTurn

    def tag(self, tag: str) -> None:
        """Add a tag to this run, once in its life."""
        followed(_tagging(branch_of(self._run, "tag", is_sync=True), "tag()", tag, on=True))

    def untag(self, tag: str) -> None:
        """Remove a tag from this run, once in its life; does nothing if the run does not have it."""
        followed(_tagging(branch_of(self._run, "untag", is_sync=True), "untag()", tag, on=False))


def _tagging(branch: Branch, call: str, tag: str, *, on: bool) -> Course:
    name = check_key(tag, "tag")

    async def retag(run: RunTurn, _: str) -> None:
        try:
            await run.slot.database.task_edits.retag(run.task, name, on=on)
        except InvalidOption as error:  # too many: no attempt will do better
            raise PermanentError(str(error)) from None

    return course_of_verb(branch, branch.key(call), write_ordered(name), None, retag)
