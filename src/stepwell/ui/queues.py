"""Queues, their messages, and dead letters: look, pause, drain, send, deliver again, drop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, get_args

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from stepwell.errors import InvalidOption
from stepwell.operate.format import many
from stepwell.operate.run_view import mark_of
from stepwell.records import RunStatus, TaskKind
from stepwell.store.excerpts import Sort
from stepwell.store.limits_info import LimitedKey, LimitsInfo
from stepwell.store.store import Store
from stepwell.ui.dashboard import Dashboard, answered, known_names, url_of
from stepwell.ui.failure import failure_of
from stepwell.ui.fields import fits, parsed_json
from stepwell.ui.guard import Refusal
from stepwell.ui.runs import actor_of, by

PAGE: Final = 50
MOST_GROUPED: Final = 2_000  # dead letters whose errors are counted
MOST_ERRORS: Final = 12
MOST_KEYS: Final = 50  # with limits of their own
SORTS: Final = get_args(Sort)


async def queues(dashboard: Dashboard, request: Request) -> Response:
    """Every queue with how full it is."""
    store = dashboard.store
    workflows = {one.name for one in await store.workflows()}
    stats = await store.queue_stats()
    return await dashboard.page(
        request,
        "queues",
        queues=[(one, _kind(one.queue, workflows)) for one in stats],
        metrics=await store.queue_metrics(window="1h"),
        groups={one.queue: one for one in await store.ordered_groups()},
        unserved={one.queue for one in await store.unserved()},
    )


def _kind(name: str, workflows: set[str]) -> str:
    if name in workflows:
        return "workflow"
    return "decider" if name.endswith((":inputs", ":effects")) else "queue"


async def queue(dashboard: Dashboard, request: Request) -> Response:
    """One queue and the first of its tasks."""
    store, name = dashboard.store, request.query_params.get("name", "")
    sort: Sort = known_names(SORTS, request.query_params.get("show")) or "ready"  # type: ignore[assignment]
    found = [one for one in await store.queue_stats() if one.queue == name]
    if not found:
        await store.database.queue_id(name)  # raises `QueueNotFound`
    return await dashboard.page(
        request,
        "queue",
        queue=found[0],
        sort=sort,
        sorts=SORTS,
        tasks=await store.database.excerpts.tasks(name, sort, limit=PAGE),
        is_workflow=name in {one.name for one in await store.workflows()},
        did=(await store.queue_metrics(window="1h")).get(name),
        limits=await limits_of(store, name),
        may_limit=not name.endswith((":inputs", ":effects")),
        hidden=dashboard.is_hidden(request, name),
    )


async def change(dashboard: Dashboard, request: Request) -> Response:
    """Pause, resume, drain, reopen or purge a queue, or send a message to it."""
    form, store = request.state.form, dashboard.store
    name, verb, actor = form.get("queue", ""), form.get("verb", ""), actor_of(request)
    back = form.get("back") or url_of(request, "/queues/one", name=name)
    dashboard.forget_tally()
    match verb:
        case "pause":
            await store.pause_queue(name, actor=actor)
            said = "is paused: what is being executed goes on, and nothing more is claimed"
        case "resume":
            await store.resume_queue(name, actor=actor)
            said = "goes on"
        case "drain":
            left = await store.drain_queue(name, actor=actor)
            said = f"takes nothing new; {many(left, 'task')} to go"
        case "reopen":
            await store.reopen_queue(name, actor=actor)
            said = "takes new messages again"
        case "purge":
            said = f"has lost {many(await store.purge(name, actor=actor), 'message')}"
        case "send":
            data = parsed_json(form.get("payload", ""), "the message")
            message = await store.enqueue(name, data, key=form.get("key") or None)
            said = f"has message {int(message)}" + ("" if message.created else ", which had this key before")
        case _:
            raise Refusal(404, "there is no such action")
    return answered(request, back, f"{name} {said}.")


async def dead(dashboard: Dashboard, request: Request) -> Response:
    """Tasks that failed for good, grouped by what went wrong."""
    asked = request.query_params
    queue_name, error, kind = asked.get("queue") or None, asked.get("error") or None, asked.get("kind") or None
    store = dashboard.store
    which: dict[str, Any] = {"queue": queue_name, "error": error, "kind": kind, "instance": None}
    page = await store.database.dead_letters.page(**which, limit=PAGE, after=asked.get("after"), whole=False)
    groups, looked_at = await store.database.excerpts.dead_by_error(queue_name, most=MOST_GROUPED, limit=MOST_ERRORS)
    return await dashboard.page(
        request,
        "dead",
        letters=page,
        following=page.next,
        groups=groups,
        all_grouped=looked_at < MOST_GROUPED,
        counts=await store.dead_letter_counts(),
        queue_name=queue_name,
        error=error,
        kind=kind,
        most_grouped=MOST_GROUPED,
    )


async def change_dead(dashboard: Dashboard, request: Request) -> Response:
    """Deliver dead letters again, or drop them: those named, or all of a queue and type of error."""
    form, store = request.state.form, dashboard.store
    verb, ids = form.get("verb", ""), [int(one) for one in form.all_of("id") if one.isdecimal() and len(one) < 19]
    which: dict[str, Any] = {}
    if not ids:
        which = {"queue": form.get("queue") or None, "error": form.get("error") or None}
        if not any(which.values()):
            raise InvalidOption("id", "", "choose dead letters, or all of a queue or type of error")
    if verb not in ("requeue", "drop"):
        raise Refusal(404, "there is no such action")
    done = await (store.requeue if verb == "requeue" else store.drop)(*ids, **which, actor=actor_of(request))
    dashboard.forget_tally()
    said = f"{many(done, 'task')} {'will be tried again' if verb == 'requeue' else 'dropped'}."
    if ids and done < len(ids):
        said += f" {len(ids) - done} had been changed by others before."
    return answered(request, form.get("back") or url_of(request, "/dead"), said, level="good" if done else "warning")


async def task(dashboard: Dashboard, request: Request) -> Response:
    """A message or other task; a run has a page of its own."""
    found = await dashboard.store.get(request.path_params["task"], deleted=True)
    if found is None:
        raise Refusal(404, f"there is no task {request.path_params['task']}")
    if found.kind is TaskKind.RUN:
        return RedirectResponse(url_of(request, f"/runs/{found.id}"), 303)
    hidden = dashboard.is_hidden(request, found.queue, found.queue.partition(":")[0])
    text = json.dumps(found.input, ensure_ascii=False, indent=2)
    return await dashboard.page(
        request,
        "task",
        task=found,
        stands=f"{_GLYPHS[found.status]} {_WORDS.get(found.status, found.status.lower())}",
        why=await dashboard.store.why(found.id) if found.kind is TaskKind.INPUT and found.deleted_at is None else None,
        failure=failure_of(found.error),
        marks=[mark_of(one) for one in await dashboard.store.history(found.id)][-200:],
        edited=text if fits(text) and not hidden else None,
        hidden=hidden,
        can_reveal=dashboard.hides(found.queue),
    )


async def change_task(dashboard: Dashboard, request: Request) -> Response:
    """Deliver a task again, drop, delete or restore it, or send an edited copy of a message."""
    task_id, verb, form, store = (
        request.path_params["task"],
        request.path_params["verb"],
        request.state.form,
        dashboard.store,
    )
    back, done, said, actor = url_of(request, f"/tasks/{task_id}"), True, "", actor_of(request)
    dashboard.forget_tally()
    match verb:
        case "requeue":
            done, said = bool(await store.requeue(task_id, actor=actor)), "will be tried again, with all its attempts"
        case "drop":
            done, said = bool(await store.drop(task_id, actor=actor)), "is dropped"
            back = url_of(request, "/dead")
        case "delete":
            done, said = (
                await store.delete(task_id, **by(request)),
                "is deleted; it can be restored",
            )
        case "restore":
            done, said = await store.restore(task_id, actor=actor), "is back as it was"
        case "archive":
            done, said = await store.archive(task_id, actor=actor), "is closed as done"
        case "copy":
            found = await store.get(task_id, deleted=True)
            if found is None or found.kind is not TaskKind.MESSAGE:
                raise Refusal(400, "only a message can be sent again with another payload")
            copy = await store.enqueue(found.queue, parsed_json(form.get("payload", ""), "the payload"))
            dropped = form.get("drop") == "on" and bool(await store.drop(task_id, actor=actor))
            said = f"{'is dropped' if dropped else 'is left as it is'}; its edited copy is message {int(copy)}"
            back = url_of(request, f"/tasks/{int(copy)}")
        case _:
            raise Refusal(404, "there is no such action")
    if done:
        return answered(request, back, f"Task {task_id} {said}.")
    return answered(request, back, f"Nothing was changed: task {task_id} was changed before.", level="warning")


_GLYPHS: Final = {
    RunStatus.PENDING: "◌",
    RunStatus.RUNNING: "◐",
    RunStatus.PAUSED: "‖",
    RunStatus.SUCCESS: "✓",
    RunStatus.ERROR: "✕",
    RunStatus.CANCELLED: "⊘",
}
_WORDS: Final = {RunStatus.SUCCESS: "succeeded", RunStatus.ERROR: "failed", RunStatus.PENDING: "queued"}


async def limits_of(store: Store, queue: str) -> tuple[LimitsInfo, Sequence[LimitedKey]] | None:
    """The limits of a queue and the first of its keys; None if it has none."""
    info = await store.limits.of(queue)
    return None if info is None else (info, await store.limits.keys(queue, limit=MOST_KEYS))


async def change_limits(dashboard: Dashboard, request: Request) -> Response:
    """Set or reset the limits of a queue, pause or resume one of its keys."""
    form, limits = request.state.form, dashboard.store.limits
    queue, key = form.get("queue", ""), form.get("key", "")
    match form.get("verb", ""):
        case "set":
            given: dict[str, Any] = {name: _number(form, name) for name in ("running", "per_key")}
            given |= {name: form[name].strip() or None for name in ("rate", "key_rate") if name in form}
            if "by" in form:  # a queue that has no limits yet: the field of its messages that is the key of the limit
                given["key"] = form["by"].strip() or None
                if not any(given.values()):
                    raise InvalidOption("running", "", "say how many may run or begin at once, of all or of each key")
            await limits.set(queue, **given)
            said = f"{queue} has these limits for all workers, until they are reset."
        case "reset":
            await limits.reset(queue)
            said = f"{queue} has the limits of its code again."
        case "pause":
            reason = " ".join(form.get("reason", "").split())[:300]
            await limits.pause(queue, key, reason=f"{reason or 'paused'} (by {actor_of(request)}, from the dashboard)")
            said = f"Nothing of {key} begins in {queue}; what runs goes on."
        case "resume":
            await limits.resume(queue, key)
            said = f"{key} goes on in {queue}."
        case _:
            raise Refusal(404, "there is no such action")
    return answered(request, form.get("back") or url_of(request, "/queues/one", name=queue), said)


def _number(form: dict[str, str], name: str) -> int | None:
    """A limit that a person has typed; None, which takes it away, if the field is empty."""
    text = form.get(name, "").strip()
    if text and not text.isdecimal():
        raise InvalidOption(name, text, "it is a whole number, or nothing for no limit")
    return int(text) if text else None
