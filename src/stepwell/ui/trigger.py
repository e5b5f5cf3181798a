"""The form that triggers a run: fields from the workflow's parameters, with the same as Python and as a command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from stepwell.errors import RunNotFound, StepwellError, StoreBusy, StoreClosed, StoreUnavailable
from stepwell.records import Run
from stepwell.store.store import Store
from stepwell.ui.dashboard import Dashboard, answered, one_line, url_of
from stepwell.ui.fields import PREFIX, Unfit, fields_of_value, fields_of_workflow, fits, is_whole, value_of
from stepwell.ui.guard import Form
from stepwell.values.stamp import has_version, read_value
from stepwell.workflow import Workflow, workflow

MOST_BEFORE: Final = 5  # inputs of earlier runs that are offered
TYPED: Final = "typed"  # a field of the form itself: what it says counts, also where it says nothing
AWAY: Final = (StoreUnavailable, StoreBusy, StoreClosed)


async def trigger(dashboard: Dashboard, request: Request) -> Response:
    """The workflows, or the form of one: with what was typed, with the input of the run `like`, or of the last one."""
    typed = Form(list(request.query_params.multi_items()))
    return await _form(dashboard, request, typed.get("workflow", ""), typed)


async def _form(
    dashboard: Dashboard, request: Request, name: str, typed: Form, *, told: str = "", status: int = 200
) -> Response:
    store = dashboard.store
    stored = {one.name for one in await store.workflows()}
    names = sorted(stored | set(dashboard.workflows))
    if not name:
        docs = {one: _doc(dashboard, one) for one in names}
        return await dashboard.page(request, "trigger", name="", names=names, docs=docs, fields=[], before=[], doc="")
    if name not in names:
        await store.get_workflow(name)  # raises `WorkflowNotFound`
    hidden = dashboard.is_hidden(request, name)
    before = [] if hidden or name not in stored else await store.runs(name, limit=MOST_BEFORE)
    like = await _like(store, request.query_params.get("like", ""), before)
    too_long = like is not None and not fits(like.input_text or "")
    given = None if like is None or hidden or too_long else like.input()
    known = dashboard.workflows.get(name)
    fields = fields_of_workflow(known, given) if known is not None else fields_of_value(given)
    if TYPED in typed:
        fields = [replace(field, value=typed.get(f"{PREFIX}{field.name}", "")) for field in fields]
        try:
            given = value_of(fields, typed)
        except Unfit as error:
            told = told or str(error)
    return await dashboard.page(
        request,
        "trigger",
        status=status,
        name=name,
        names=names,
        docs={},
        doc=_doc(dashboard, name),
        known=known is not None,
        fields=fields,
        before=before,
        like=like,
        too_long=too_long,
        told=told,
        typed=typed if TYPED in typed else {},
        served=not any(one.queue == name for one in await store.unserved()),
        command=_command(name, given),
        python=_python(name, given, known),
    )


async def _like(store: Store, asked: str, before: list[Run[Any]]) -> Run[Any] | None:
    if asked.isdecimal() and len(asked) < 19:
        try:
            return await store.get_run(int(asked), deleted=True)
        except RunNotFound:
            return None
    return before[0] if before else None


async def begin(dashboard: Dashboard, request: Request) -> Response:
    """Trigger the run that the form says; the workflow's own signature checks it where its code is here.

    With `show` nothing is triggered: what was typed is shown as a command and as Python.
    """
    form: Form = request.state.form
    name = form.get("workflow", "")
    if form.get("show"):
        return await _form(dashboard, request, name, form)
    options: dict[str, Any] = {"key": form.get("key") or None, "require_worker": "ignore"}
    if form.get("tags", "").strip():
        options["tags"] = form["tags"].split()
    if form.get("delay", "").strip():
        options["delay"] = form["delay"].strip()
    try:
        known = dashboard.workflows.get(name)
        asked = _asked(known or workflow(name), known, form)
        run_id = await dashboard.store.trigger(asked.options(**options))
    except AWAY:
        raise
    except (StepwellError, TypeError, ValueError) as error:  # it stays on the page, with what was typed
        return await _form(dashboard, request, name, form, told=one_line(error), status=400)
    dashboard.forget_tally()
    said = "is written, and will be executed even if every process dies" if run_id.created else "had this key before"
    return answered(request, url_of(request, f"/runs/{int(run_id)}"), f"Run {int(run_id)} of {name} {said}.")


def _asked(found: Workflow[..., Any], known: Workflow[..., Any] | None, form: Form) -> Any:
    fields = fields_of_workflow(known) if known is not None else fields_of_value(None)
    value = value_of(fields, form)
    if known is None or is_whole(fields):
        if isinstance(value, Mapping):
            return found.trigger(**value) if all(name.isidentifier() for name in value) else found.trigger(value)
        return found.trigger() if value is None else found.trigger(value)
    given = value if isinstance(value, dict) else {}
    return found.trigger(**{name: _typed(one, known.arguments.types[name], name) for name, one in given.items()})


def _typed(value: Any, type_: Any, name: str) -> Any:
    """The JSON value as the parameter's type, so that what a trigger stores is what the code would store."""
    if type_ is Any or has_version(type_):
        return value
    return read_value(json.dumps(value), type_, what=name)


def _doc(dashboard: Dashboard, name: str) -> str:
    known = dashboard.workflows.get(name)
    return "" if known is None else (known.fn.__doc__ or "").strip()


def _command(name: str, given: Any) -> str:
    """The same as a command."""
    words = ["stepwell", "trigger", name]
    if isinstance(given, Mapping) and all(str(one).isidentifier() for one in given):
        for each, value in given.items():
            simple = isinstance(value, str)
            words.append(f"{each}={value}" if simple else f"{each}:={json.dumps(value, ensure_ascii=False)}")
    elif given is not None:
        words.append(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))
    return shlex.join(words)[:2000]


def _python(name: str, given: Any, known: Workflow[..., Any] | None) -> str:
    """The same in Python."""
    if known is not None and isinstance(given, Mapping) and set(given) <= set(known.arguments.names):
        arguments = ", ".join(f"{each}={value!r}" for each, value in given.items())
        call = f"{getattr(known.fn, '__name__', name)}.trigger({arguments})"
    else:
        arguments = "" if given is None else f"**{given!r}" if isinstance(given, Mapping) else repr(given)
        call = f'workflow("{name}").trigger({arguments})'
    return f"await store.trigger({call})"[:2000]
