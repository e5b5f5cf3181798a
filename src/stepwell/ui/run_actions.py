"""What a person does to one run: each action says what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from stepwell.errors import Timeout
from stepwell.operate.format import short, span
from stepwell.records import CancelAnswer, SignalAnswer
from stepwell.ui.dashboard import Dashboard, answered, url_of
from stepwell.ui.fields import fields_of_schema, is_whole, parsed_json, value_of
from stepwell.ui.guard import Refusal
from stepwell.ui.run import returns_of, schema_awaited
from stepwell.ui.runs import actor_of, by, change_one
from stepwell.values.codec import encode
from stepwell.values.stamp import has_version, read_value

SOON = 5.0  # seconds for which a person waits for the reply to a request
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


async def change(dashboard: Dashboard, request: Request) -> Response:
    """Do what the form says to the run, and go back to its page."""
    run_id, verb, form = request.path_params["run"], request.path_params["verb"], request.state.form
    back = form.get("back") or url_of(request, f"/runs/{run_id}")
    said = by(request)
    dashboard.forget_tally()
    match verb:
        case "retry" | "pause" | "unpause" | "delete":
            done = await change_one(dashboard.store, verb, run_id, said)
        case "accept":
            done = await dashboard.store.accept(run_id, **said)
        case "restore":
            done = await dashboard.store.restore(run_id, **said)
        case "cancel":
            became, level = CANCELLED[await dashboard.store.cancel(run_id, **said)]
            return answered(request, back, f"Run {run_id} {became}.", level=level)
        case "signal":
            return await _signal(dashboard, request, run_id, back)
        case "ask":
            return await _ask(dashboard, request, run_id, back)
        case "resolve":
            return await _resolve(dashboard, request, run_id, back)
        case "fork":
            return await _fork(dashboard, request, run_id)
        case _:
            raise Refusal(404, "there is no such action")
    good, bad = DONE[verb]
    if done:
        return answered(request, back, f"Run {run_id} {good}.")
    return answered(request, back, f"Nothing was changed: run {run_id} {bad}.", level="warning")


async def _signal(dashboard: Dashboard, request: Request, run_id: int, back: str) -> Response:
    """Send what the form says to the wait of this name, read by the type that the run waits for."""
    form, store = request.state.form, dashboard.store
    name, data = await _data(dashboard, request, run_id, "signal")
    if form.get("how") == "resume":
        answer = await store.resume(run_id, name, data, actor=actor_of(request))
    else:
        answer = await store.signal(run_id, name, data, key=form.get("key") or None, actor=actor_of(request))
    said, level = SIGNALLED[answer]
    return answered(request, back, f"Run {run_id} {said.format(name=name)}.", level=level)


async def _ask(dashboard: Dashboard, request: Request, run_id: int, back: str) -> Response:
    """Make a request of the run and tell its reply, if that comes soon; the request stays either way."""
    name, data = await _data(dashboard, request, run_id, "request")
    try:
        reply = await dashboard.store.ask(run_id, name, data, timeout=SOON, actor=actor_of(request))
    except Timeout:
        said = f"Run {run_id} has the request {name}. It has not answered within {span(SOON)}: a worker will take it."
        return answered(request, back, said, level="warning")
    hidden = dashboard.hides((await dashboard.store.get_run(run_id)).workflow)
    return answered(request, back, f"Run {run_id} answered {name}: {'hidden here' if hidden else short(reply, 600)}.")


async def _resolve(dashboard: Dashboard, request: Request, run_id: int, back: str) -> Response:
    """Say what became of a step that is in doubt: it is done, and returns this, or it begins again."""
    form = request.state.form
    done = {"yes": True, "no": False}.get(form.get("done", ""))
    if done is None:
        raise Refusal(400, "say whether the step is done")
    step, value = await _data(dashboard, request, run_id, "doubt") if done else (form.get("name", ""), None)
    answer = await dashboard.store.resolve(run_id, step, done=done, value=value, **by(request))
    match answer:
        case SignalAnswer.TOO_LATE:
            return answered(request, back, f"Run {run_id} is finished: nothing was changed.", level="warning")
        case SignalAnswer.KEPT:  # another decision stands before it
            told = f"Another person has said what became of {step} of run {run_id}: that counts, and not this."
            return answered(request, back, told, level="warning")
    return answered(request, back, f"Run {run_id} goes on: {step} {'is done' if done else 'begins again'}.")


async def _data(dashboard: Dashboard, request: Request, run_id: int, kind: str) -> tuple[str, Any]:
    """The name of what a run waits for, and what the form gives it, read by the type that the run waits for."""
    form, excerpts = request.state.form, dashboard.store.database.excerpts
    name = form.get("name", "").strip()
    run = await dashboard.store.get_run(run_id)
    awaited = await excerpts.awaited(run)
    found = next((one for one in awaited if (one.kind, one.name) == (kind, name)), None)
    if "data" in form or found is None:
        return name, parsed_json(form.get("data", ""), "the data")
    fields = fields_of_schema(schema_awaited(found, dashboard.code_of(run)))
    data = value_of(fields, form)
    return name, data if is_whole(fields) or isinstance(data, dict) else {}


async def _fork(dashboard: Dashboard, request: Request, run_id: int) -> Response:
    """Begin a new run at a step, or after one whose output was edited."""
    form, store = request.state.form, dashboard.store
    at, edited = form.get("at", ""), form.get("edited", "")
    outputs: dict[str, Any] = {}
    if edited:
        code, output = dashboard.code_of(await store.get_run(run_id)), form.get("output", "")
        outputs[edited] = _checked(code, edited, parsed_json(output, f"the output of {edited}"))
        at = at or await _after(dashboard, run_id, edited)
    fork = await store.fork(run_id, at=at, outputs=outputs, **by(request))
    changed = f" with another output of {edited}" if edited else ""
    said = f"Run {int(fork)} is a fork of run {run_id} that goes on at {at}{changed}. Run {run_id} is left as it was."
    return answered(request, url_of(request, f"/runs/{int(fork)}"), said)


def _checked(code: Callable[..., Any] | None, step: str, output: Any) -> Any:
    """The output if the step could have returned it, where its code is here; else `SerializationError`."""
    name = step.rpartition("/")[2].rpartition("#")[0] or step
    if not has_version(type_ := returns_of(name, code)):
        read_value(encode(output, what=f"output of {step}"), type_, what=f"output of {step}")
    return json.loads(json.dumps(output))


async def _after(dashboard: Dashboard, run_id: int, key: str) -> str:
    """The step that was asked for after this one."""
    store = dashboard.store
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
