"""The page of a run: what happened, why it stands where it stands, and what can be done."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from stepwell.base.program import declared
from stepwell.operate.format import span
from stepwell.operate.run_page import STEPS, RunPage, page_of
from stepwell.operate.run_view import advice, length_of, unrecorded
from stepwell.records import Run, RunStatus, StepInfo
from stepwell.step import Step
from stepwell.store.excerpts import Awaited
from stepwell.store.signals import name_of
from stepwell.store.why import Reason
from stepwell.ui.dashboard import Dashboard, known_names, principal_of
from stepwell.ui.failure import Failure, failure_of
from stepwell.ui.fields import Field, fields_of_schema, fits
from stepwell.ui.graph import graph_of
from stepwell.ui.guard import Refusal
from stepwell.ui.source import SourceView, source_of
from stepwell.ui.source import view_of as source_view
from stepwell.ui.timeline import shown_names, standing_of, timeline_of
from stepwell.values.fields import schema_of

TABS = ("timeline", "graph", "source")
ACTIVE = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED)


@dataclass(frozen=True, slots=True)
class OpenWait:
    """What a run waits for that a person can give, with the form for its data, and the same as a command."""

    awaited: Awaited
    resumes: bool  # a step that has paused the run: it is resumed, not signalled
    fields: Sequence[Field]
    command: str

    @property
    def verb(self) -> str:
        """What the form does."""
        return {"signal": "signal", "request": "ask", "doubt": "resolve"}[self.awaited.kind]


async def run(dashboard: Dashboard, request: Request) -> Response:
    """The page `/runs/7`; `step` chooses one, `from` is the first step of the part that is shown, `tab` how."""
    asked = request.query_params
    found = await dashboard.store.get_run(request.path_params["run"], deleted=True)
    first, chosen, tab = asked.get("from", ""), asked.get("step"), known_names(TABS, asked.get("tab")) or TABS[0]
    page = await page_of(
        dashboard.store,
        found,
        first=int(first[:9]) if first[:9].isdecimal() else None,
        chosen=chosen or None,
        choose=asked.get("view") != "run",
        all_logs=asked.get("logs") == "run",
    )
    fold = asked.get("fold") != "no"
    hidden = dashboard.is_hidden(request, found.workflow)
    timeline = timeline_of(page, datetime.now(UTC), fold=fold)
    return await dashboard.page(
        request,
        "run",
        run=found,
        page=page,
        tab=tab,
        tabs=TABS,
        timeline=timeline,
        graph=graph_of(page.steps, timeline.lanes) if tab == "graph" else None,
        sources=await asyncio.to_thread(_sources, dashboard, page) if tab == "source" else [],
        fold=fold,
        standing=standing_of(found, page.steps),
        names=shown_names([step.key for step in page.steps]),
        pages=_pages(page),
        failure=_banner(page),
        ended_by=tuple((found.error or {}).get("steps", ())) if found.status is RunStatus.ERROR else (),
        step=page.chosen.step if page.chosen else None,
        tried=_tried(page),
        step_failure=failure_of(page.chosen.step.error) if page.chosen else None,
        waits=[_wait(one, page, dashboard.code_of(found)) for one in page.awaited],
        kept=_kept(page),
        edited=None if page.chosen is None or hidden else _edited(page.chosen.step),
        facts=_facts(page, hidden=hidden),
        next_command=advice(found, page.why, page.steps),
        missing=unrecorded(page.view),
        hidden=hidden,
        can_reveal=dashboard.hides(found.workflow),
        verbs=_verbs(found, page),
    )


def _sources(dashboard: Dashboard, page: RunPage) -> list[SourceView]:
    """The source of the workflow, and of the chosen step, where their code is here."""
    if (known := dashboard.workflows.get(page.run.workflow)) is None:
        return []
    step = page.chosen.step if page.chosen else page.failed
    found = [(known.fn, failure_of(page.run.error))]
    if step is not None and len(named := steps_named(step.name, known.fn)) == 1:
        found.append((named[0].fn, failure_of(step.error)))
    read = [(source_of(fn), failure) for fn, failure in found]
    return [source_view(source, page.steps, failure) for source, failure in read if source is not None]


def _pages(page: RunPage) -> list[tuple[int, bool]]:
    """The first steps of the parts of a long run, and which of them is shown: some at each end, some around it."""
    starts = list(range(0, page.counts.total, STEPS))
    if len(starts) <= 1:
        return []
    near = {0, page.first, starts[-1], page.first - STEPS, page.first + STEPS}
    return [(start, start == page.first) for start in starts if start in near or len(starts) <= 9]


def _banner(page: RunPage) -> tuple[str | None, Failure, int] | None:
    """What a failed run failed of: the step, its failure, and how many steps are kept."""
    if page.run.status is not RunStatus.ERROR:
        return None
    failed = page.chosen.step if page.chosen and page.chosen.step.status is RunStatus.ERROR else page.failed
    failure = failure_of(failed.error if failed else None) or failure_of(page.run.error)
    if failure is None:
        failure = Failure("failed", page.run.last_error or "", (), None, "")
    return (failed.key if failed else None), failure, page.counts.by_status.get(RunStatus.SUCCESS, 0)


def _tried(page: RunPage) -> list[Any]:
    """What is known of the attempts of the chosen step."""
    key = page.chosen.step.key if page.chosen else None
    return [mark for mark in page.marks if mark.step == key] if key else []


def _wait(one: Awaited, page: RunPage, code: Callable[..., Any] | None) -> OpenWait:
    resumes = page.why.reason is Reason.STEP_PAUSED and one.schema is None and one.kind == "signal"
    verb = "resume" if resumes else {"signal": "signal", "request": "ask", "doubt": "resolve"}[one.kind]
    words = ["stepwell", verb, str(page.run.id), one.name, *(["done"] if one.kind == "doubt" else []), "DATA"]
    return OpenWait(one, resumes, fields_of_schema(schema_awaited(one, code)), shlex.join(words))


def schema_awaited(one: Awaited, code: Callable[..., Any] | None) -> Mapping[str, Any] | None:
    """The JSON schema of what a run waits for: what it says, else of a step in doubt what its code here returns."""
    if one.kind != "doubt" or one.schema is not None:
        return one.schema
    return schema_of(returns_of(name_of(one.name), code))


def _kept(page: RunPage) -> list[str]:
    """The steps before the chosen one whose results a run from there keeps."""
    if page.chosen is None:
        return []
    keys = [step.key for step in page.steps]
    place = keys.index(page.chosen.step.key) if page.chosen.step.key in keys else 0
    return [step.key for step in page.steps[:place] if step.status in (RunStatus.SUCCESS, RunStatus.ERROR)]


def _edited(step: StepInfo) -> str | None:
    """The output of a step as text to be edited; None where it has none, or one that is too long for a form."""
    if step.status is not RunStatus.SUCCESS:
        return None
    text = json.dumps(step.output, ensure_ascii=False, indent=2)
    return text if fits(text) else None


def returns_of(name: str, code: Callable[..., Any] | None) -> Any:
    """The type that the step of this name returns, where its code is here; else Any."""
    found = {one.definition.returns for one in steps_named(name, code)}
    return found.pop() if len(found) == 1 else Any


def steps_named(name: str, code: Callable[..., Any] | None) -> list[Step[..., Any]]:
    """The steps of this name whose code is here: those beside the code of the workflow, if there are any."""
    found = [one for one in declared() if isinstance(one, Step) and one.id == name]
    beside = [one for one in found if code is not None and one.fn.__module__ == code.__module__]
    return beside or found


def _facts(page: RunPage, *, hidden: bool) -> list[tuple[str, str]]:
    """A line of facts about the run."""
    run, task = page.run, page.task
    length = length_of(page.view)
    facts = [("took" if run.status.finished else "so far", span(length) or "not begun")]
    facts.append(("attempt", f"{run.attempt} of {run.max_attempts}"))
    if task is not None and task.last_worker is not None:
        facts.append(("worker", f"{task.last_worker_name or 'session'} #{task.last_worker}"))
    lost = sum(1 for mark in page.marks if mark.what == "worker lost")
    if lost:
        facts.append(("recoveries", str(lost)))
    if run.generation:
        facts.append(("generation", str(run.generation)))
    if run.priority:
        facts.append(("priority", str(run.priority)))
    if run.tags:
        facts.append(("tags", " · ".join(run.tags)))
    if run.headers and not hidden:
        facts.append(("headers", " · ".join(f"{name}={value}" for name, value in run.headers.items())))
    if run.cause:
        facts.append(("cause", run.cause))
    return facts


def _verbs(run: Run[Any], page: RunPage) -> set[str]:
    """What may be done to a run as it stands."""
    if run.deleted_at is not None:
        return {"restore"}
    verbs = {"delete"}
    if run.status in (RunStatus.ERROR, RunStatus.CANCELLED):
        verbs.add("retry")
    if run.status in ACTIVE:
        verbs |= {"cancel", "signal"} if run.cancel_requested_at is None else {"signal"}
        if page.why.reason is Reason.CODE_DIFFERS:
            verbs.add("accept")
        verbs.add("unpause" if run.held_at is not None else "pause")
    if page.chosen is not None:
        verbs.add("fork")
    return verbs


async def value(dashboard: Dashboard, request: Request) -> Response:
    """A value of a run or of one of its steps, whole, as JSON: `what` is input, output or error."""
    run = await dashboard.store.get_run(request.path_params["run"], deleted=True)
    if dashboard.hides(run.workflow) and not principal_of(request).may_act:
        raise Refusal(403, "what is stored here is hidden from those who may only look")
    what, key = request.query_params.get("what", "input"), request.query_params.get("step")
    if what not in ("input", "output", "error"):
        raise Refusal(404, "a value is the input, the output or the error")
    if key is None:
        text = {"input": run.input_text, "output": run.output_text, "error": run.error_text}[what] or "null"
    else:
        record = await dashboard.store.database.excerpts.step(run, key)
        if record is None:
            raise Refusal(404, "the run has recorded no such step")
        text = json.dumps(getattr(record.step, what), ensure_ascii=False)
    name = f"run-{int(run.id)}-{what}.json"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(text, media_type="application/json", headers=headers)
