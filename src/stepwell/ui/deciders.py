"""Deciders: their instances, and one of them at any version, with its states drawn and an input tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from stepwell.deciders.diagram import status_of
from stepwell.deciders.history import InstanceInfo
from stepwell.deciders.registry import Family
from stepwell.engine import Engine
from stepwell.errors import DeciderNotFound
from stepwell.operate.instance import parts_of, value_as_json
from stepwell.operate.time_travel import Visit, machine_of, observed_machine, visit
from stepwell.ui.dashboard import Dashboard, answered, here, known_names, one_line, url_of
from stepwell.ui.fields import Field, Unfit, fields_of_schema, value_of
from stepwell.ui.guard import Form
from stepwell.ui.state_diagram import drawing_of
from stepwell.values.fields import schema_of

PAGE: Final = 30
MOST_READ: Final = 5_000  # events that a list reads for the states of its instances
MOST_LOOKED_AT: Final = 90  # instances, for those in one state
INPUTS: Final = ":inputs"


async def deciders(dashboard: Dashboard, request: Request) -> Response:
    """The instances of one type, or of all."""
    store, asked = dashboard.store, request.query_params
    type_, name = asked.get("type") or None, asked.get("id", "").strip()
    known = dashboard.engine
    types = {one.name.removesuffix(INPUTS) for one in await store.queues() if one.name.endswith(INPUTS)}
    types |= {family.type for family in known.registry} if known else set()
    family = _family(known, type_)
    machine = None if family is None else machine_of(family)
    states = () if machine is None else tuple(info.status for info in machine.states)
    state = known_names(states, asked.get("state"))
    found = await _instances(known or Engine(store), type_, asked.get("after"), state)
    return await dashboard.page(
        request,
        "deciders",
        types=sorted(types),
        type=type_,
        id=name,
        states=states,
        state=state,
        instances=found.rows,
        looked_at=found.looked_at,
        following=found.following,
        drawing=None if machine is None else drawing_of(machine, state, {}),
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """Instances with their status, of how many that were looked at, and where the list goes on."""

    rows: Sequence[tuple[InstanceInfo, str | None]]
    looked_at: int
    following: str | None


async def _instances(engine: Engine, type_: str | None, after: str | None, state: str | None) -> Listed:
    """A page of instances; if a state is given, those in it of as many as may be looked at."""
    rows: list[tuple[InstanceInfo, str | None]] = []
    looked_at = 0
    while True:
        page = await engine.instances(type_, limit=PAGE, after=after)
        looked_at, after = looked_at + len(page), page.next
        rows += [one for one in await _with_status(engine, page) if state in (None, one[1])]
        if state is None or after is None or len(rows) >= PAGE or looked_at >= MOST_LOOKED_AT:
            return Listed(rows, looked_at, after)


def _family(engine: Engine | None, type_: str | None) -> Family | None:
    if engine is None or type_ is None:
        return None
    return next((family for family in engine.registry if family.type == type_), None)


async def _with_status(engine: Engine | None, page: Sequence[InstanceInfo]) -> list[tuple[InstanceInfo, str | None]]:
    """These instances with their status; without it where too many events would have to be read for the list."""
    left, found = MOST_READ, []
    for one in page:
        status = await _status(engine, one.type, one.id) if one.version <= left else None
        left -= one.version if one.version <= left else 0
        found.append((one, status))
    return found


async def _status(engine: Engine | None, type_: str, id_: str) -> str | None:
    """The status of an instance where its decider's code is here and says one."""
    family = _family(engine, type_)
    if engine is None or family is None or machine_of(family) is None:
        return None
    try:
        return status_of(family.decider, await engine.state(family.decider.__class__, id_))
    except Exception as error:  # noqa: BLE001 - the code of the application; the list is shown all the same
        return f"({type(error).__name__})"


async def instance(dashboard: Dashboard, request: Request) -> Response:
    """One instance at a version: `at`; with `input` and its fields, what it would decide now."""
    asked = request.query_params
    if "form_token" in asked:  # the form that tries an input has it, and no address should
        return RedirectResponse(here(request, form_token=None, back=None), 303)
    type_, id_, at = asked.get("type", ""), asked.get("id", ""), asked.get("at", "")
    version = int(at) if at.isdecimal() and len(at) < 10 else None
    look = await visit(dashboard.store, dashboard.engine, type_, id_, version, waypoints=dashboard.waypoints)
    family = _family(dashboard.engine, type_)
    hidden = dashboard.is_hidden(request, type_)
    current, machine = look.status, look.machine or observed_machine(type_, look.way)
    return await dashboard.page(
        request,
        "instance",
        look=look,
        drawing=None if machine is None else drawing_of(machine, current, look.way),
        inputs=[] if family is None else _inputs(family, id_, asked.get("input"), Form(list(asked.multi_items()))),
        tried=await _tried(dashboard, request, family),
        observed=await _observed(dashboard, look),
        hidden=hidden,
        can_reveal=dashboard.hides(type_),
    )


def _inputs(family: Family, id_: str, chosen: str | None, form: Form) -> list[tuple[str, list[Field], bool]]:
    """The inputs of a decider, each with its fields; the one that names the instance is filled."""
    made = []
    for name, kind in family.inputs.by_name.items():
        fields = fields_of_schema(schema_of(kind))
        given = {field.name: form.get(f"field.{field.name}") for field in fields}
        filled = [
            field if given[field.name] is None or chosen != name else _with(field, str(given[field.name]))
            for field in fields
        ]
        made.append(
            (
                name,
                [_with(one, id_) if at == 0 and not one.value else one for at, one in enumerate(filled)],
                name == chosen,
            )
        )
    return made


def _with(field: Field, value: str) -> Field:
    return Field(field.name, field.kind, value, field.required, field.type, field.choices, field.schema, field.nullable)


def _read(family: Family, name: str, form: Form) -> Any:
    """The input that a form says."""
    if name not in family.inputs.by_name:
        raise Unfit(f"{family.type} has no input {name[:60]}")
    value = value_of(fields_of_schema(schema_of(family.inputs.by_name[name])), form)
    return family.inputs.read_named({name: value or {}})


async def _tried(dashboard: Dashboard, request: Request, family: Family | None) -> dict[str, Any] | None:
    """What an instance would decide if it were sent the input that the address has; nothing is written."""
    name = request.query_params.get("input")
    if name is None or family is None or dashboard.engine is None:
        return None
    form = Form(list(request.query_params.multi_items()))
    try:
        read = _read(family, name, form)
        dry = await dashboard.engine.dry_run(read)
    except Exception as error:  # noqa: BLE001 - the decider's own refusal is what is shown
        return {"name": name, "refused": f"{type(error).__name__}: {one_line(error)}"}
    parts = parts_of(dry)
    return {
        "name": name,
        "refused": None,
        "parts": parts,
        "state": value_as_json(dry.state),
        "ended": dry.decision is None,
    }


async def _observed(dashboard: Dashboard, look: Visit) -> Any:
    """The inputs of an instance and how each was answered, if they are recorded."""
    if dashboard.engine is None or not look.has_code:
        return []
    return await dashboard.engine.observations(look.type, look.id, limit=20)


async def send(dashboard: Dashboard, request: Request) -> Response:
    """Send an input to an instance, which decides it now."""
    form, engine = request.state.form, dashboard.engine
    type_, name = form.get("type", ""), form.get("input", "")
    family = _family(engine, type_)
    if engine is None or family is None:
        raise DeciderNotFound(type_, ())
    read = _read(family, name, form)
    try:
        receipt = await engine.execute(read, key=form.get("key") or None)
    except Exception as error:  # noqa: BLE001 - the decider's own refusal goes to the person who asked
        told = f"{name} was refused: {type(error).__name__}: {one_line(error)}"
        return answered(
            request, url_of(request, "/deciders/one", type=type_, id=family.identify(read)), told, level="problem"
        )
    id_ = family.identify(read)
    back = url_of(request, "/deciders/one", type=type_, id=id_)
    said = {
        "applied": f"{name} was applied: version {receipt.first} to {receipt.last}."
        if receipt.first
        else f"{name} was applied.",
        "duplicate": f"{name} had been applied before with this key: nothing is done twice.",
        "completed": f"{type_} {id_} has ended: nothing was decided.",
    }
    return answered(request, back, said[receipt.outcome], level="good" if receipt.outcome == "applied" else "warning")
