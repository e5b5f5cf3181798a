"""The list of runs: searched, counted, paged; and many of them changed at once, after a preview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from stepwell.base.count import Count
from stepwell.errors import InvalidOption, StepwellError
from stepwell.operate.format import STATUS_WORDS, many
from stepwell.operate.run_list import RunQuery, floor_of, found_by_name, listed, matching
from stepwell.records import Run, RunStatus
from stepwell.store.store import Store
from stepwell.ui.dashboard import Dashboard, answered, one_line, principal_of, url_of
from stepwell.ui.guard import Refusal
from stepwell.ui.timeline import Strip, strip_of

PAGE: Final = 40
MOST_AT_ONCE: Final = 1_000  # runs that one form names
MOST_SHOWN: Final = 25
MOST_WORKFLOWS: Final = 30
VERBS: Final[Mapping[str, tuple[str, frozenset[RunStatus]]]] = {
    "retry": ("Retry", frozenset((RunStatus.ERROR, RunStatus.CANCELLED))),
    "cancel": ("Cancel", frozenset((RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED))),
    "pause": ("Pause", frozenset((RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED))),
    "unpause": ("Resume", frozenset((RunStatus.PAUSED, RunStatus.PENDING))),
    "delete": ("Delete", frozenset(RunStatus)),
}
FACETS: Final[Sequence[tuple[RunStatus, str, str, str]]] = (
    (RunStatus.RUNNING, "running", "◐ running", "a worker executes it"),
    (RunStatus.PENDING, "pending", "◌ pending", "ready, scheduled, or to be tried again"),
    (RunStatus.PAUSED, "paused", "◷ waiting", "for a signal, a child, or a person"),
    (RunStatus.ERROR, "failed", "✕ failed", "for good, until it is retried"),
    (RunStatus.SUCCESS, "succeeded", "✓ succeeded", "it has returned"),
    (RunStatus.CANCELLED, "cancelled", "⊘ cancelled", "by a person or its parent"),
)


async def runs(dashboard: Dashboard, request: Request) -> Response:
    """The page `/runs`; what names one run leads to that run."""
    said = request.query_params.get("q", "").strip()
    store, now, told = dashboard.store, datetime.now(UTC), None
    try:
        query = RunQuery.parsed(said)
    except InvalidOption as error:
        query, told = RunQuery(), one_line(error)
    floor = await floor_of(store, query)
    if query.text is not None:
        if (run := await found_by_name(store, query.text, floor)) is not None and query.but(text=None) == RunQuery():
            return RedirectResponse(url_of(request, f"/runs/{int(run.id)}"), 303)
        told = f"No run has the number or key “{query.text[:80]}”."
    page: Sequence[Run[Any]] = []
    following = None
    if told is None:
        try:
            found = await listed(store, query, limit=PAGE, after=request.query_params.get("after"), floor=floor)
            page, following = found, found.next
        except StepwellError as error:
            told = one_line(error)
    counts = await store.database.excerpts.run_counts()
    return await dashboard.page(
        request,
        "runs",
        q=said,
        query=query,
        floor=floor,
        told=told,
        rows=await with_strips(store, page, now),
        following=following,
        facets=_facets(query, counts),
        by_workflow=_by_workflow(query, counts),
        verbs=_fitting(page, query),
    )


async def with_strips(store: Store, page: Sequence[Run[Any]], now: datetime) -> list[tuple[Run[Any], Strip]]:
    """Each of these runs with its steps as a small strip."""
    spans = await store.database.excerpts.spans(page)
    return [(run, strip_of(run, spans.get(int(run.id), ()), now)) for run in page]


def _fitting(page: Sequence[Run[Any]], query: RunQuery) -> list[tuple[str, str]]:
    """The actions that at least one of these runs may take."""
    if query.deleted is not None:
        return []
    there = {run.status for run in page}
    return [(verb, label) for verb, (label, statuses) in VERBS.items() if statuses & there]


def _facets(query: RunQuery, counts: Mapping[tuple[str, RunStatus], Count]) -> list[dict[str, Any]]:
    """Each status with how many runs of the workflow have it, and the query for them."""
    made = []
    for status, word, shown, title in FACETS:
        number = sum(
            (one for (name, each), one in counts.items() if each is status and query.workflow in (None, name)), Count()
        )
        chosen = query.status is not None and status in map(RunStatus, STATUS_WORDS[query.status.lower()])
        other = query.but(status=None if chosen else word, text=None)
        made.append({"shown": shown, "word": word, "count": number, "on": chosen, "q": str(other), "title": title})
    return made


def _by_workflow(query: RunQuery, counts: Mapping[tuple[str, RunStatus], Count]) -> list[dict[str, Any]]:
    names = sorted({name for name, _ in counts})
    number = {name: sum((one for (each, _), one in counts.items() if each == name), Count()) for name in names}
    made = []
    for name in sorted(names, key=lambda name: (name != query.workflow, -number[name], name))[:MOST_WORKFLOWS]:
        chosen = query.workflow == name
        other = query.but(workflow=None if chosen else name, text=None)
        made.append({"name": name, "count": number[name], "on": chosen, "q": str(other)})
    return made


async def preview(dashboard: Dashboard, request: Request) -> Response:
    """What an action on many runs would touch, before it touches any."""
    verb = _verb(request.query_params.get("do", ""))
    label, statuses = VERBS[verb]
    said, runs = request.query_params.get("q", ""), dashboard.store.database.runs
    left: list[Run[Any]] = []
    if request.query_params.get("all"):
        query = RunQuery.parsed(said).but(text=None)
        ids, more = await matching(dashboard.store, query, statuses, limit=MOST_AT_ONCE)
        shown = await runs.outlines(ids[:MOST_SHOWN])
    else:
        named = [one for one in request.query_params.getlist("id") if one.isdecimal() and len(one) < 19]
        found, more = await runs.outlines(list(dict.fromkeys(map(int, named[:MOST_AT_ONCE])))), False
        shown = [run for run in found if run.status in statuses and run.deleted_at is None]
        left = [run for run in found if run not in shown]
        ids = [int(run.id) for run in shown]
    return await dashboard.page(
        request,
        "bulk",
        verb=verb,
        label=label,
        q=said,
        ids=ids,
        shown=shown[:MOST_SHOWN],
        left_count=len(left),
        more=more,
        most=MOST_AT_ONCE,
    )


async def bulk(dashboard: Dashboard, request: Request) -> Response:
    """Change the runs that the preview has shown, one by one; each is told to whom it belongs."""
    form = request.state.form
    verb = _verb(form.get("do", ""))
    ids = [int(one) for one in form.all_of("id") if one.isdecimal() and len(one) < 19][:MOST_AT_ONCE]
    if not ids:
        raise Refusal(400, "no run was named")
    done, refused = 0, []
    for one in ids:
        try:
            done += bool(await change_one(dashboard.store, verb, one, by(request)))
        except StepwellError as error:
            refused.append(f"run {one}: {one_line(error)}")
    dashboard.forget_tally()
    past = {"retry": "retried", "cancel": "cancelled", "pause": "paused", "unpause": "resumed", "delete": "deleted"}
    said = f"{many(done, 'run')} {past[verb]}."
    if done < len(ids):
        said += f" {len(ids) - done} left as they were: others had changed them first."
    if refused:
        said += f" {refused[0]}"
    level = "good" if done == len(ids) else "warning"
    return answered(request, url_of(request, "/runs", q=form.get("q", "")), said, level=level)


async def change_one(store: Store, verb: str, run_id: int, said: Mapping[str, str | None]) -> bool:
    """Change one run; False if it was not as it had to be."""
    match verb:
        case "retry":
            return await store.retry(run_id, **said)
        case "cancel":
            return bool(await store.cancel(run_id, **said))
        case "pause":
            return await store.pause(run_id, **said)
        case "unpause":
            return await store.unpause(run_id, **said)
        case _:
            return await store.delete(run_id, **said)


def by(request: Request) -> dict[str, str | None]:
    """Who acts from the dashboard, and why, for the audit: as a verb of the store takes them."""
    given = " ".join(request.state.form.get("reason", "").split())[:300]
    return {"actor": actor_of(request), "reason": given or None}


def actor_of(request: Request) -> str:
    """The name under which the audit notes what this person does."""
    return principal_of(request).name


def _verb(given: str) -> str:
    if given not in VERBS:
        raise Refusal(400, f"there is no such action; there are {', '.join(VERBS)}")
    return given
