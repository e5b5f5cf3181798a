"""Forks: a new run of the same workflow that goes on where another one was, with other results if wanted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, overload

from stepwell.codec import encode
from stepwell.errors import InvalidOption, QueueDraining, RunNotFound, StepNotFound
from stepwell.losses import refuse_unnamed
from stepwell.names import check_filter, check_id, check_key
from stepwell.records import ANSWERED, MARK, RunId
from stepwell.store.audit import Note, What
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.opened import Opened
from stepwell.store.repeat import repeated

R = TypeVar("R")


class Forking(Opened):
    """Runs, as those who try them again from the middle see them."""

    @overload
    async def fork(
        self, run_id: RunId[R], *, at: str, outputs: Mapping[str, Any] | None = None, reason: str | None = None
    ) -> RunId[R]: ...
    @overload
    async def fork(
        self, run_id: int, *, at: str, outputs: Mapping[str, Any] | None = None, reason: str | None = None
    ) -> RunId[Any]: ...
    async def fork(
        self, run_id: int, *, at: str, outputs: Mapping[str, Any] | None = None, reason: str | None = None
    ) -> RunId[Any]:
        """Begin a new run with the same input that goes on at a step of this one: what it had recorded before is kept.

        `at` is a step's key, such as "charge#1", or its name where the run has one of it; that step, and all it asked
        for later, is executed anew. `outputs` lets earlier steps have returned something else. The run itself is left
        alone, whatever its status; the new one has no key, and its `cause` says where it came from.
        """
        self.check()
        edits = {check_key(step, "step"): self._output(step, value) for step, value in (outputs or {}).items()}
        cause = f"fork of {check_id(run_id)} at {check_key(at, 'step')}"
        said = cause if reason is None else f"{cause}: {check_filter('reason', reason)}"
        [fork_id] = await self.ids.take(1)
        queue_id = await repeated(
            lambda: self.driver.transact(partial(self._forking, int(run_id), fork_id, at, edits, said)),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )
        self.tasks.hint({queue_id})
        forked: RunId[Any] = RunId(fork_id)
        if isinstance(run_id, RunId) and run_id.returns is not Any:
            forked.returns = run_id.returns
        return forked

    def _output(self, step: str, value: Any) -> str:
        text = encode(value, limit=self.options.payload_limit, what=f"output of {step}")
        refuse_unnamed(value, what=f"output of {step}")
        return text

    def _forking(self, run_id: int, fork_id: int, at: str, edits: Mapping[str, str], cause: str) -> Script[int]:
        params = self._params(id=run_id, fork_id=fork_id, cause=cause)
        found = yield Call("lock_run", params)
        if not found:
            raise RunNotFound(run_id)
        queue_id: int = found[0]["queue_id"]
        generation: int = found[0]["generation"]
        if not (yield Call("open_queue", self._params(queue_id=queue_id))):
            raise QueueDraining(found[0]["workflow"])
        recorded = yield Call("steps_of", {}, [(run_id, generation)])
        steps = [row for row in recorded if not row["key"].startswith(MARK)]
        first = step_called(run_id, steps, at)
        edited: list[tuple[Value, ...]] = []
        for step, output in edits.items():
            edited.append((fork_id, _before(step_called(run_id, steps, step), first), output))
        if (yield Call("fork_run", params)):  # else by a try before this one, whose reply was lost
            yield Call("copy_steps", {**params, "generation": generation, "place": first["place"]})
            edited += yield from self._answers(run_id, fork_id, [row for row in steps if row["place"] < first["place"]])
            if edited:
                yield Call("edit_steps", {}, edited)
            forked = Note(run_id, What.FORKED, f"as run {fork_id} at {first['key']}")
            yield from self.audit.noted(params, [forked, Note(fork_id, What.FORKED, cause)])
        return queue_id

    def _answers(self, run_id: int, fork_id: int, kept: Sequence[Row]) -> Script[list[tuple[Value, ...]]]:
        """What the finished ones answered of the children that the fork takes over, as marks: they may be removed."""
        ids = sorted({child for row in kept for child in _children_in(row)})
        found = (yield Call("ends_of", self._params(), [(child,) for child in ids])) if ids else []
        ended = {row["id"]: row for row in found if row["ended"] is not None and row["parent_id"] == run_id}
        if ended:
            yield Call("mark_run", self._params(), [(fork_id, 0, f"{ANSWERED}{child}") for child in ended])
        told = {child: {name: row[name] for name in ("ended", "output", "error")} for child, row in ended.items()}
        return [(fork_id, f"{ANSWERED}{child}", json.dumps(end)) for child, end in told.items()]


def _children_in(step: Row) -> list[int]:
    """The runs that a call has asked for, if it is one; what a child returned may look like that, and is none's id."""
    if not step["key"].rpartition("#")[0].endswith("()") or step["status"] != "SUCCESS":
        return []
    told = json.loads(step["output"] or "null")
    is_ids = isinstance(told, list) and all(isinstance(one, int) and 0 < one < 2**63 for one in told)
    return told if is_ids else []


def step_called(run_id: int, steps: Sequence[Row], called: str) -> Row:
    """The step with this key, or the only one with this name."""
    named = [step for step in steps if step["key"].rpartition("/")[2].rpartition("#")[0] == called]
    exact = [step for step in steps if step["key"] == called]
    match exact or named:
        case [step]:
            return step
        case []:
            raise StepNotFound(run_id, called, [step["key"] for step in steps])
        case several:
            keys = ", ".join(step["key"] for step in several[:10])
            raise InvalidOption("step", called, f"run {run_id} has several of this name; say which: {keys}")


def _before(step: Row, first: Row) -> str:
    key: str = step["key"]
    if step["place"] >= first["place"] or step["status"] not in ("SUCCESS", "ERROR"):
        why = f"the fork begins at {first['key']} and executes it anew; only what had ended before can be edited"
        raise InvalidOption("outputs", key, why)
    return key
