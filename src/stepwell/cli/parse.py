"""The arguments APP and INPUT of commands.

APP is `module`, for everything defined in it, or `module:attribute`: a workflow, a handler, a decider, a list of these,
an engine, or a function that takes the store and returns any of them. If a module has instances of deciders, these are
served, else an instance of each class. INPUT is `name=text`, `name:=json`, `@file.json`, `-`, or one value as it is.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import traceback
import typing
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from stepwell.cli.command import NOT_FOUND, USAGE, Stop
from stepwell.decider import Decider
from stepwell.deciders.modules import deciders_in, is_decider, make
from stepwell.deciders.registry import Family
from stepwell.deciders.service import Service
from stepwell.engine import Engine
from stepwell.outbox import Outbox
from stepwell.queue import Handler
from stepwell.step import Step
from stepwell.store.store import Store
from stepwell.workflow import Workflow
from stepwell.workload import each_served

AnyDecider = Decider[Any, Any, Any, Any]
Named = Handler[Any] | Workflow[..., Any] | Outbox | AnyDecider | Service
ONE = (Handler, Workflow, Outbox, Step, Decider, Service, ModuleType)


def load(app: str) -> Any:
    """The object that APP names; its module is searched in the current folder first, as `python -m` does."""
    module_name, _, attribute = app.partition(":")
    if module_name.endswith(".py") or "/" in module_name or not module_name:
        name = Path(module_name).with_suffix("").as_posix().replace("/", ".").strip(".") or "module"
        raise Stop(USAGE, f"APP is a module, not a file: {app!r}", f"{name}{app[len(module_name) :]}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    module = _module(module_name)
    if not attribute:
        return module
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Stop(NOT_FOUND, f"module {module_name} has no {attribute}", f"one of {_offers(module)}")
        found = getattr(found, part)
    return found


async def served(app: str, store: Store) -> list[Named]:
    """What APP serves; ends the command if that is nothing."""
    found = load(app)
    if inspect.isclass(found) and issubclass(found, Decider):
        found = make(found)
    elif callable(found) and not isinstance(found, ONE):
        found = found(store)
        found = await found if inspect.isawaitable(found) else found
    several = [found] if isinstance(found, ONE) or not isinstance(found, Iterable) else list(found)
    deciders: list[AnyDecider | Service] = [one for one in several if isinstance(one, Decider | Service)]
    known = {name for one in deciders for name in names_of(one)}
    deciders += deciders_in((one for one in several if isinstance(one, ModuleType)), known)
    serves: list[Named] = [*each_served(one for one in several if not isinstance(one, Decider | Service)), *deciders]
    if not serves:
        said = f"{app} defines no workflow, handler or decider"
        if others := left_out(app, serves):
            raise Stop(NOT_FOUND, f"{said}; {', '.join(others)} is only imported there", f"one of {', '.join(others)}")
        raise Stop(NOT_FOUND, said, "@workflow or @handler(queue) on a function, or a class of Decider")
    return serves


def left_out(app: str, serves: Iterable[Named]) -> list[str]:
    """What the module of APP only imports, so that its worker does not serve it, as APP would name it."""
    module = load(app)
    if not isinstance(module, ModuleType):
        return []
    known = set(map(id, serves))
    values = {id(one): one for one in vars(module).values() if isinstance(one, Handler | Workflow)}
    others = [
        one
        for one in values.values()
        if id(one) not in known and not (isinstance(one, Workflow) and not one.is_defined)
    ]
    return sorted(f"{one.fn.__module__}:{getattr(one, '__name__', '')}" for one in others)


async def deciders_of(app: str, store: Store) -> Engine:
    """An engine with the deciders of APP; ends the command if it has none."""
    engine = Engine(store)
    for one in await served(app, store):
        if isinstance(one, Service):
            for family in one.registry:
                engine.register(family.decider, observe=family.observe)
        elif isinstance(one, Decider):
            engine.register(one)
    if not len(engine.registry):
        raise Stop(NOT_FOUND, f"{app} defines no decider", "a module with a class of Decider")
    return engine


def names_of(one: Named) -> list[str]:
    """The queue it serves, or the types of its deciders."""
    match one:
        case Workflow():
            return [one.name]
        case Handler() | Outbox():
            return [one.queue]
        case Service():
            return [family.type for family in one.registry]
        case _:
            return [one.type]


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _unusable(name, error) from error
        raise Stop(NOT_FOUND, f"there is no module {name} in {Path.cwd()} or on the path", _near(name)) from error
    except (Exception, SystemExit) as error:
        raise _unusable(name, error) from error


def _near(name: str) -> str:
    """The module of this folder that was probably meant, or all of them."""
    here = sorted(path.stem for path in Path.cwd().glob("*.py") if path.stem.isidentifier())
    if near := get_close_matches(name, here, n=1):
        return f"the same with {near[0]}"
    return f"one of {', '.join(here[:8])}" if here else "in the folder that has your module"


def _unusable(name: str, error: BaseException) -> Stop:
    """Why a module cannot be imported, and where the error is."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f" ({Path(place.filename).name}, line {place.lineno})" if "importlib" not in place.filename else ""
    said = f"{name} cannot be imported: {type(error).__name__}: {error}{where}"
    if isinstance(error, SystemExit) or "asyncio.run() cannot be called" in str(error):
        warnings.simplefilter("ignore", RuntimeWarning)  # or Python would warn of coroutines that it never awaited
        said = f"{name} does its work when it is imported, and a worker only wants what it defines"
        return Stop(USAGE, said, 'what it calls at its end below `if __name__ == "__main__":`')
    return Stop(USAGE, said, f'python -c "import {name}", which shows the whole traceback')


def _offers(module: ModuleType) -> str:
    return ", ".join(_offered(module)) or "(nothing that a worker could serve)"


def _offered(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if isinstance(value, Handler | Workflow | Decider) or is_decider(value, module):
            yield f"{module.__name__}:{name}"


def parsed(given: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """The positional values (none or one), and the values by name."""
    if not any(_name_of(one) for one in given):
        if len(given) > 1:
            raise Stop(USAGE, f"{given[1]!r} is neither name=text nor name:=json, and only one value can stand alone")
        return [whole(one) for one in given], {}
    named: dict[str, Any] = {}
    for one in given:
        name = _name_of(one)
        if not name:
            raise Stop(USAGE, f"{one!r} is neither name=text nor name:=json")
        if name in named:
            raise Stop(USAGE, f"{name} is given twice")
        named[name] = _value(one, name)
    return [], named


def value_of(given: Sequence[str]) -> Any:
    """What is sent to a run: one value, an object, or null."""
    by_place, by_name = parsed(given)
    return by_name or (by_place[0] if by_place else None)


def fitted(values: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """The values for their parameters: a text for a parameter of another type is read as JSON if possible."""
    return {name: _fitted(value, types.get(name, str)) for name, value in values.items()}


def input_of(family: Family, given: Sequence[str]) -> Any:
    """The given input: the name of its class and its fields, or the whole input as JSON."""
    first, *rest = given
    if first not in family.inputs.by_name:
        if rest or first.isidentifier():
            names = ", ".join(family.inputs.by_name)
            raise Stop(USAGE, f"{family.type} has no input {first}", f"one of {names}")
        return family.inputs.read_named(whole(first))
    _, fields = parsed(rest)
    types = typing.get_type_hints(family.inputs.by_name[first])
    return family.inputs.read_named({first: fitted(fields, types)})


def _fitted(value: Any, type_: Any) -> Any:
    if not isinstance(value, str) or type_ is str:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _name_of(text: str) -> str:
    """The name before the first `=`; "" if that cannot be the name of a parameter."""
    name = text.partition("=")[0].removesuffix(":")
    return name if "=" in text and name.isidentifier() else ""


def _value(text: str, name: str) -> Any:
    value = text[len(name) :]
    if value.startswith("="):
        return value[1:]
    return _json(value[2:], f"{name}:= takes JSON")


def whole(text: str) -> Any:
    """One value as the whole input: JSON if it parses, else text."""
    if text == "-":
        return _json(sys.stdin.read(), "standard input must be JSON")
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            return _json(path.read_text(encoding="utf-8"), f"{path} must contain JSON")
        except OSError as error:
            raise Stop(USAGE, f"cannot read {path}: {error.strerror}") from error
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(text: str, rule: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Stop(USAGE, f"{rule}: {error}") from error
