"""What a worker may serve, and the queues that this comes to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

import msgspec

from stepwell.base.limits import Limits, limits_of_steps
from stepwell.base.methods import members_of
from stepwell.base.names import check_whole
from stepwell.decider import Decider
from stepwell.deciders.modules import deciders_in, engines_in
from stepwell.deciders.service import Service
from stepwell.errors import DuplicateWorkflow, InvalidOption, SerializationError
from stepwell.outbox import Outbox
from stepwell.queue import Handler
from stepwell.runs.context import Context, SyncContext, current_run
from stepwell.step import Step
from stepwell.store.broadcasts import QUEUE as BROADCASTS
from stepwell.store.store import Store
from stepwell.values.arguments import Arguments
from stepwell.values.codec import names_unknown_class
from stepwell.work.body import Beside, Served, distinct
from stepwell.work.unreadable import Misfit
from stepwell.work.upkeep import fanning_out
from stepwell.workflow import DEFINED, Workflow

Named = Handler[Any] | Workflow[..., Any] | Outbox
Serves = Named | Step[..., Any] | Decider[Any, Any, Any, Any] | Service | ModuleType | object  # with methods
MOST_PLACES: Final = 10_000
NOTHING_GIVEN: Final = msgspec.Raw(b"null")


def all_served(
    serves: Iterable[Serves], limits: Mapping[str, int], store: Store
) -> tuple[list[Served], Sequence[Beside]]:
    """The queues that a worker claims from, with the body of each; and what it does beside them."""
    found: dict[str, Served] = {}
    if not isinstance(limits, Mapping):
        raise InvalidOption("limits", limits, "it says of queues how many run at once: pass a dict")
    if isinstance(serves, Handler | Workflow | Outbox | ModuleType) or not isinstance(serves, Iterable):
        raise InvalidOption("serves", serves, "pass a list of handlers and workflows")
    serves, services = _apart(serves, store)
    for decided in (one for service in services for one in service.served()):
        if decided.queue in found:
            raise InvalidOption("serves", decided.queue, "two engines of one worker have a decider of this type")
        found[decided.queue] = decided
    known: dict[str, Named] = {}
    for one in each_served(serves):
        name = one.name if isinstance(one, Workflow) else one.queue
        if (first := known.setdefault(name, one)) is not one:
            raise _twice(name, first, one)
        if (limit := limits.get(name)) is not None:
            check_whole(f"limits of {name}", limit, 1, MOST_PLACES)
        found[name] = one.served(store.database.options.retry, limit)
    if unknown := set(limits) - set(found):
        raise InvalidOption("limits", sorted(unknown), "these queues are not served")
    if triggered := [one for one in found.values() if one.events]:
        found[BROADCASTS] = fanning_out(store.database.options.retry, triggered[0].lease)
    return list(found.values()), distinct(one for service in services for one in service.beside())


def _apart(serves: Iterable[Serves], store: Store) -> tuple[list[Serves], list[Service]]:
    """What is served except for deciders, and those; what is named goes before what a module has."""
    serves = list(serves)
    others: list[Serves] = [one for one in serves if not isinstance(one, Decider | Service)]
    modules = [one for one in others if isinstance(one, ModuleType)]
    named = [one for one in serves if isinstance(one, Service)]
    engines = dict.fromkeys([*named, *engines_in(modules, store)])
    if strange := [one for one in engines if one.store is not store]:
        raise InvalidOption("serves", strange[0], "it is the engine of another store")
    alone = Service(store)
    for one in serves:
        if isinstance(one, Decider):
            alone.register(one)
    known = {family.type for engine in (*engines, alone) for family in engine.registry}
    for found in deciders_in(modules, known):
        alone.register(found)
    return others, [*engines, alone]


def each_served(serves: Iterable[Serves]) -> Iterator[Named]:
    """What is served, a module as what is defined in it, steps as a workflow for each of their queues."""
    steps: dict[int, Step[..., Any]] = {}
    instances: dict[object, object] = {}
    for one in serves:
        match one:
            case Handler() | Workflow() | Outbox():
                yield one
            case Step():
                steps[id(one)] = one
            case ModuleType():
                yield from discover_workflows(one).values()
                handlers = {id(each): each for each in vars(one).values() if isinstance(each, Handler)}
                yield from (each for each in handlers.values() if is_of(each.fn, one))
                yield from {id(each): each for each in vars(one).values() if isinstance(each, Outbox)}.values()
                steps |= {id(each): each for each in vars(one).values() if _is_spawned(each, one)}
            case _:
                for each in _methods_of(one, instances):
                    if isinstance(each, Step):
                        steps[id(each)] = each
                    else:
                        yield each
    yield from _workflows_of(steps.values())


def discover_workflows(module: ModuleType | None = None) -> dict[str, Workflow[..., Any]]:
    """The workflows that are defined in a module, by name; without one, all that are defined in this process.

    What the module only imports is not among them, but for what a package imports of its own modules; nothing is
    imported for it. Two of one name are refused.
    """
    if module is None:
        found: list[Workflow[..., Any]] = sorted((one for one in DEFINED if not one.is_method), key=_place)
    else:
        members = {id(one): one for one in vars(module).values() if isinstance(one, Workflow)}
        found = [one for one in members.values() if one.is_defined and is_of(one.fn, module)]
    named: dict[str, Workflow[..., Any]] = {}
    for one in found:
        if (first := named.setdefault(one.name, one)) is not one and _place(first) != _place(one):
            raise DuplicateWorkflow(one.name, _place(first), _place(one))
    return named


def is_of(fn: object, module: ModuleType) -> bool:
    """True if the function is defined in the module, or in a module of that package."""
    place = str(getattr(fn, "__module__", ""))
    return place == module.__name__ or (hasattr(module, "__path__") and place.startswith(f"{module.__name__}."))


def _methods_of(
    instance: object, instances: dict[object, object]
) -> Iterator[Handler[Any] | Workflow[..., Any] | Step[..., Any]]:
    """The methods of an instance that a worker serves, bound to it; those that its runs call themselves are left out.

    `instances` says of each method which instance has it: a run names the method, and not an instance.
    """
    members = [(name, member) for name, member in members_of(instance) if _is_decorated(member)]
    if not members:
        why = (
            "a worker serves what is decorated with @handler, @workflow or @step(queue=...), an instance of a class "
            "with such methods, outboxes, deciders, engines and modules"
        )
        if isinstance(instance, type) and any(map(_is_decorated, vars(instance).values())):
            why = f"it is a class: serve an instance of it, `Worker(store, [{instance.__name__}(...)])`"
        raise InvalidOption("serves", instance, why)
    for name, member in members:
        if isinstance(member, staticmethod | classmethod) or not member.is_method:
            owner = type(instance).__name__
            why = f"{owner}.{name} is no method of an instance: give it `self`, or make it a function outside of it"
            raise InvalidOption("serves", instance, why)
        if instances.get(member) is instance:
            continue  # it is named twice
        if (other := instances.setdefault(member, instance)) is not instance:
            why = (
                f"{type(other).__name__}.{name} is served by another instance already, and a run names the class only: "
                "serve one instance in a worker, or give a subclass methods with names of their own"
            )
            raise InvalidOption("serves", instance, why)
        if not isinstance(member, Step) or member.definition.queue is not None:
            yield getattr(instance, name)


def _is_decorated(member: object) -> bool:
    inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
    return isinstance(inner, Handler | Workflow | Step)


def _is_spawned(one: object, module: ModuleType) -> bool:
    return isinstance(one, Step) and one.definition.queue is not None and is_of(one.fn, module)


def _twice(name: str, first: object, second: object) -> Exception:
    if isinstance(first, Workflow) or isinstance(second, Workflow):
        return DuplicateWorkflow(name, _place(first), _place(second))
    if isinstance(second, Outbox):
        return InvalidOption("serves", second, f"two outboxes with the name {second.name}; give each its own")
    return InvalidOption("serves", second, f"two handlers for the queue {name}; give each its own")


def _place(one: object) -> str:
    """Where the function behind it is defined."""
    fn = getattr(one, "fn", one)
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(one))}"


def _workflows_of(steps: Iterable[Step[..., Any]]) -> list[Workflow[..., Any]]:
    """Steps that a worker executes for runs elsewhere: a workflow for each of their queues, which calls them."""
    queues: dict[str, dict[str, Step[..., Any]]] = {}
    for step in steps:
        if step.definition.queue is None:
            why = "it names no queue, so the runs that call it execute it themselves; say `@step(queue=...)`"
            raise InvalidOption("serves", step, why)
        known = queues.setdefault(step.definition.queue, {})
        if known.setdefault(step.id, step) is not step:
            raise InvalidOption("serves", step, f"two steps of the queue {step.definition.queue} are named {step.id}")
    return [
        Workflow(queue, _calling(queue, known), limits=_shared_limits(queue, known.values()), of_steps=True)
        for queue, known in queues.items()
    ]


def _shared_limits(queue: str, steps: Iterable[Step[..., Any]]) -> Limits | None:
    """The limits of a queue, as its steps declare them."""
    shared: Limits | None = None
    for definition in (step.definition for step in steps):
        if definition.limits is None:
            continue
        own = limits_of_steps(definition.limits, () if definition.arguments is None else definition.arguments.names)
        if shared not in (None, own):
            why = f"another step of the queue {queue} declares others: say them at one of its steps, or all the same"
            raise InvalidOption("limits", definition.limits, why)
        shared = own
    return shared


def _calling(queue: str, steps: Mapping[str, Step[..., Any]]) -> Any:
    async def call(ctx: Context, step: str, arguments: msgspec.Raw = NOTHING_GIVEN, key: str | None = None) -> Any:
        if (known := steps.get(step)) is None:
            why = f"this worker serves {queue} without the step {step}; serve the module that has it"
            raise current_run().hold(Misfit(SerializationError(why, what=f"run of {queue}"), was_read=True))
        definition = dataclasses.replace(known.definition, queue=None, known_as=key)
        taken = known.definition.arguments
        given = {} if taken is None else _given(taken, bytes(arguments).decode())
        face = ctx if definition.is_async else SyncContext(current_run())
        context = (face,) if taken is not None and taken.takes_context else ()
        return await ctx.step(Step(known.fn, definition), *context, **given)

    return call


def _given(taken: Arguments, text: str) -> dict[str, Any]:
    """The arguments of a step, judged like the input of a run if this code cannot read them."""
    try:
        return taken.decode(text)
    except SerializationError as error:
        raise current_run().hold(Misfit(error, was_read=names_unknown_class(error))) from None
