"""Forks: a new run of the same workflow that goes on where another run was, with other results if given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from stepwell.base.names import check_filter, check_id, check_key
from stepwell.errors import InvalidOption, QueueDraining, StepNotFound
from stepwell.records import RunId
from stepwell.store.audit import Note, What
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.rows import ANSWERED, MARK
from stepwell.values.lossless import refuse_unnamed
from stepwell.values.stamp import write_value
from stepwell.values.versions import stamped_like

if TYPE_CHECKING:
    from stepwell.store.database import Database


@dataclass(eq=False)
class Forks:
    """Begins runs in the middle of others."""

    _db: Database

    async def begin(self, run_id: int, at: str, outputs: Mapping[str, Any], reason: str | None) -> RunId[Any]:
        """Begin a new run that goes on at a step of this one, with these results of earlier steps."""
        self._db.check()
        edits = {check_key(step, "step"): self._output(step, value) for step, value in outputs.items()}
        cause = f"fork of {check_id(run_id)} at {check_key(at, 'step')}"
        said = cause if reason is None else f"{cause}: {check_filter('reason', reason)}"
        [fork_id] = await self._db.ids.take(1)
        queue_id = await self._db.transact(partial(self._forking, int(run_id), fork_id, at, edits, said))
        if queue_id is None:
            raise await self._db.no_run(run_id)
        self._db.tasks.hint({queue_id})
        forked: RunId[Any] = RunId(fork_id)
        if isinstance(run_id, RunId) and run_id.returns is not Any:
            forked.returns = run_id.returns
        return forked

    def _output(self, step: str, value: Any) -> str:
        text = write_value(value, limit=self._db.options.payload_limit, what=f"output of {step}")
        refuse_unnamed(value, what=f"output of {step}")
        return text

    def _forking(self, run_id: int, fork_id: int, at: str, edits: Mapping[str, str], cause: str) -> Script[int | None]:
        params = self._db.params(id=run_id, fork_id=fork_id, cause=cause)
        found = yield Call("lock_run", params)
        if not found:
            return None
        queue_id: int = found[0]["queue_id"]
        generation: int = found[0]["generation"]
        if not (yield Call("open_queue", self._db.params(queue_id=queue_id))):
            raise QueueDraining(found[0]["workflow"])
        recorded = yield Call("steps_of", {}, [(run_id, generation)])
        steps = [row for row in recorded if not row["key"].startswith(MARK)]
        first = step_called(run_id, steps, at)
        edited: list[tuple[Value, ...]] = []
        for step, output in edits.items():
            replaced = step_called(run_id, steps, step)
            edited.append((fork_id, _before(replaced, first), stamped_like(output, replaced["output"])))
        if (yield Call("fork_run", params)):  # else an earlier try whose reply was lost did it
            yield Call("copy_steps", {**params, "generation": generation, "place": first["place"]})
            edited += yield from self._answers(run_id, fork_id, [row for row in steps if row["place"] < first["place"]])
            if edited:
                yield Call("edit_steps", {}, edited)
            forked = Note(run_id, What.FORKED, f"as run {fork_id} at {first['key']}")
            yield from self._db.audit.noted(params, [forked, Note(fork_id, What.FORKED, cause)])
        return queue_id

    def _answers(self, run_id: int, fork_id: int, kept: Sequence[Row]) -> Script[list[tuple[Value, ...]]]:
        """The results of finished children that the fork takes over, as marks: the children may be removed later."""
        ids = sorted({child for row in kept for child in _children_in(row)})
        found = (yield Call("ends_of", self._db.params(), [(child,) for child in ids])) if ids else []
        ended = {row["id"]: row for row in found if row["ended"] is not None and row["parent_id"] == run_id}
        if ended:
            yield Call("mark_run", self._db.params(), [(fork_id, 0, f"{ANSWERED}{child}") for child in ended])
        told = {child: {name: row[name] for name in ("ended", "output", "error")} for child, row in ended.items()}
        return [(fork_id, f"{ANSWERED}{child}", json.dumps(end)) for child, end in told.items()]


def _children_in(step: Row) -> list[int]:
    """The runs that a call has asked for, if it is such a call. The result of a child may look like one, but is not."""
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
