"""Waits of runs for broadcasts, under the locks of the runs: they begin, and take what was published, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.base.names import EVENT
from stepwell.records import RunStatus
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.rows import StepRow
from stepwell.store.wait_query import Subscriber, TakeEvent, does_not_fit


def taking(
    params: dict[str, Value], asked: Sequence[TakeEvent], runs: Mapping[int, Row]
) -> Script[dict[tuple[int, str], Row]]:
    """Begin the waits that are new, and take for each the first broadcast that it can read, if there is one."""
    wanted = {one.subscriber: one for one in asked if one.stake is None or one.stake.winner is None}
    if new := [one for one in wanted.values() if one.is_new]:
        yield Call("subscribe", params, [_begun(one, runs[one.task.id]["now"]) for one in new])
    taken: dict[tuple[int, str], Row] = {}
    while wanted:
        by_key = {(one.task.id, one.row.key): one for one in wanted.values()}
        found = {(row["run_id"], row["key"]): row for row in (yield Call("first_broadcasts", params, list(wanted)))}
        if not found:
            break
        yield Call("take_broadcasts", params, [(*by_key[key].subscriber, row["place"]) for key, row in found.items()])
        places = [(key[0], by_key[key].event, by_key[key].choice, row["place"]) for key, row in found.items()]
        yield Call("forget_taken", params, places)
        aside = {key for key, row in found.items() if _does_not_fit(by_key[key], row["data"])}
        taken |= {key: row for key, row in found.items() if key not in aside}
        wanted = {by_key[key].subscriber: by_key[key] for key in aside}
        if aside:  # passed over: the wait goes on behind it
            yield Call("ask_again", params, list(wanted))
    return taken


def _does_not_fit(one: TakeEvent, data: str | None) -> bool:
    return does_not_fit(one, {"name": one.names[0], "data": data})


def ended_wait(row: StepRow) -> Subscriber | None:
    """The wait for a broadcast that a row of a run ends without one, if it does."""
    is_over = row.status is RunStatus.CANCELLED or (row.status is RunStatus.SUCCESS and row.error is not None)
    if not is_over or not row.key.rpartition("/")[2].startswith(EVENT):
        return None
    return row.run_id, row.generation, row.key


def _begun(one: TakeEvent, now: int) -> tuple[Value, ...]:
    since = one.task.created_at if one.replay is None else now - one.replay
    return (*one.subscriber, one.event, one.choice, since)
