"""The verbs about runs that are held for their code: accept what they are about to do, let them go to other code."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection
from functools import partial
from typing import Final

from stepwell.errors import RunNotFound
from stepwell.names import check_filter, check_id
from stepwell.records import ACCEPTED, HELD, NEVER
from stepwell.store.audit import Note, What
from stepwell.store.driver import Call, Row, Script
from stepwell.store.opened import Opened
from stepwell.store.repeat import repeated

MOST_LET_GO: Final = 500


class Holds(Opened):
    """Runs, as those who answer for a change of their code see them."""

    async def accept(self, run_id: int, *, reason: str | None = None) -> bool:
        """Let a run go on that is held for its code, as that is now; False if it is not held for that.

        What it has recorded under the names that it was held for is not asked for again, so the step that it was about
        to execute is executed. Only for this run, and its forks; for these names it will not be held again.
        """
        self.check()
        tries, said = itertools.count(), check_filter("reason", reason)
        let_go = await repeated(
            lambda: self.driver.transact(partial(self._accepting, check_id(run_id), said, again=next(tries) > 0)),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )
        if let_go is None:
            raise RunNotFound(run_id)
        self.tasks.hint({row["queue_id"] for row in let_go})
        return bool(let_go)

    async def any_held(self, queue_ids: Collection[int]) -> bool:
        """True if a run of these queues is held for its code."""
        rows = [(queue_id,) for queue_id in queue_ids]
        return bool(rows) and bool(await self.driver.read(Call("any_held", self._params(never=NEVER), rows)))

    async def let_go_held(self, queue_ids: Collection[int], code: str) -> int:
        """Let runs go on that are held for other code than the one with this fingerprint; how many that was."""
        let_go = await self.driver.transact(partial(self._letting_go_held, queue_ids, code))
        self.tasks.hint({row["queue_id"] for row in let_go})
        return len(let_go)

    def _accepting(self, run_id: int, reason: str | None, *, again: bool) -> Script[list[Row] | None]:
        params = self._params(id=run_id, never=NEVER)
        found = yield Call("lock_run", params)
        if not found:
            return None
        generation: int = found[0]["generation"]
        held = yield Call("hold_of", params)
        names = json.loads(held[0]["error"] or "{}").get("names", ()) if held else ()
        if not names:
            steps = (yield Call("steps_of", {}, [(run_id, generation)])) if again else ()
            # By the try before this one, whose reply was lost.
            return list(found) if any(step["key"].startswith(ACCEPTED) for step in steps) else []
        yield Call("mark_run", params, [(run_id, generation, ACCEPTED + name) for name in names])
        let_go = yield Call("let_go_accepted", params)
        detail = ", ".join(names) if reason is None else f"{', '.join(names)}: {reason}"
        yield from self.audit.noted(params, [Note(run_id, What.ACCEPTED, detail)])
        return let_go

    def _letting_go_held(self, queue_ids: Collection[int], code: str) -> Script[list[Row]]:
        params = self._params(never=NEVER, mark=HELD + code, limit=MOST_LET_GO)
        let_go = yield Call("let_go_held", params, [(queue_id,) for queue_id in queue_ids])
        yield from self.audit.of_all(params, let_go, What.UNPAUSED, f"a worker with other code, {code}, may have it")
        return let_go
