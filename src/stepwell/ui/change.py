"""What a person does to one run: each action says what became of it."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from stepwell.records import CancelAnswer, SignalAnswer
from stepwell.ui.desk import Desk, answered, url_of
from stepwell.ui.fields import fields_of_schema, is_whole, parsed_json, value_of
from stepwell.ui.guard import Refusal
from stepwell.ui.run import returns_of
from stepwell.ui.runs import actor_of, by, change_one
from stepwell.values.codec import encode
from stepwell.values.stamp import has_version, read_value

DONE = {
    "retry": (
        "goes on where it ended; what is recorded is not executed again, unless it was to clean up",
        "has not failed and is not cancelled, or another run has its key now",
    ),
    "pause": ("is held back, or its worker was asked to give it back", "is finished, or is being cancelled"),
    "unpause": ("goes on where it was", "was not held back"),
    "accept": ("goes on with the code as it is", "is not held for its code"),
    "delete": ("is deleted; until it is pruned it can be restored", "was deleted before"),
    "restore": ("is back as it was", "was not deleted, or is gone"),
}
SIGNALLED = {
    SignalAnswer.WOKE: ("took {name} and goes on", "good"),
    SignalAnswer.KEPT: ("does not wait for {name} yet: it is kept for its next wait of that name", "good"),
    SignalAnswer.TOO_LATE: ("is finished, or has taken {name} before: nothing was changed", "warning"),
}
CANCELLED = {
    CancelAnswer.CANCELLED: ("is cancelled, and the runs it asked for", "good"),
    CancelAnswer.REQUESTED: ("is being executed: its worker was asked to stop it", "good"),
    CancelAnswer.TOO_LATE: ("was finished before: nothing was changed", "warning"),
}


async def change(desk: Desk, request: Request) -> Response:
    """Do what the form says to the run, and go back to its page."""
    run_id, verb, form = request.path_params["run"], request.path_params["verb"], request.state.form
    back = form.get("back") or url_of(request, f"/runs/{run_id}")
    said = by(request)
    desk.forget_tally()
    match verb:
        case "retry" | "pause" | "unpause" | "delete":
            done = await change_one(desk.store, verb, run_id, said)
        case "accept":
            done = await desk.store.accept(run_id, **said)
        case "restore":
            done = await desk.store.restore(run_id, **said)
        case "cancel":
            became, level = CANCELLED[await desk.store.cancel(run_id, **said)]
            return answered(request, back, f"Run {run_id} {became}.", level=level)
        case "signal":
            return await _signal(desk, request, run_id, back)
        case "fork":
            return await _fork(desk, request, run_id)
        case _:
            raise Refusal(404, "there is no such action")
    good, bad = DONE[verb]
    if done:
        return answered(request, back, f"Run {run_id} {good}.")
    return answered(request, back, f"Nothing was changed: run {run_id} {bad}.", level="warning")


async def _signal(desk: Desk, request: Request, run_id: int, back: str) -> Response:
    """Send what the form says to the wait of this name, read by the type that the run waits for."""
    form, store = request.state.form, desk.store
    name = form.get("name", "").strip()
    run = await store.get_run(run_id)
    awaited = [one for one in await store.database.excerpts.awaited(run) if one.name == name]
    if "data" in form or not awaited:
        data = parsed_json(form.get("data", ""), "the data")
    else:
        fields = fields_of_schema(awaited[0].schema)
        data = value_of(fields, form)
        if not is_whole(fields) and not isinstance(data, dict):
            data = {}
    if form.get("how") == "resume":
        answer = await store.resume(run_id, name, data, actor=actor_of(request))
    else:
        answer = await store.signal(run_id, name, data, key=form.get("key") or None, actor=actor_of(request))
    said, level = SIGNALLED[answer]
    return answered(request, back, f"Run {run_id} {said.format(name=name)}.", level=level)


async def _fork(desk: Desk, request: Request, run_id: int) -> Response:
    """Begin a new run at a step, or after one whose output was edited."""
    form, store = request.state.form, desk.store
    at, edited = form.get("at", ""), form.get("edited", "")
    outputs: dict[str, Any] = {}
    if edited:
        outputs[edited] = _checked(edited, parsed_json(form.get("output", ""), f"the output of {edited}"))
        at = at or await _after(desk, run_id, edited)
    fork = await store.fork(run_id, at=at, outputs=outputs, **by(request))
    changed = f" with another output of {edited}" if edited else ""
    said = f"Run {int(fork)} is a fork of run {run_id} that goes on at {at}{changed}. Run {run_id} is left as it was."
    return answered(request, url_of(request, f"/runs/{int(fork)}"), said)


def _checked(step: str, output: Any) -> Any:
    """The output if the step could have returned it, where its code is here; else `SerializationError`."""
    name = step.rpartition("/")[2].rpartition("#")[0] or step
    if not has_version(type_ := returns_of(name)):
        read_value(encode(output, what=f"output of {step}"), type_, what=f"output of {step}")
    return json.loads(json.dumps(output))


async def _after(desk: Desk, run_id: int, key: str) -> str:
    """The step that was asked for after this one."""
    store = desk.store
    run = await store.get_run(run_id, deleted=True)
    record = await store.database.excerpts.step(run, key)
    if record is None:
        raise Refusal(404, "the run has recorded no such step")
    following = await store.database.excerpts.steps(
        run, skip=await store.database.excerpts.before(run, record.place) + 1, limit=1
    )
    if not following:
        raise Refusal(400, f"{key} is the last step that was recorded: no later one could use another output of it")
    return following[0].key
