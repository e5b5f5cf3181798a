"""APP on the command line: `module`, for everything defined in it, or `module:attribute`.

The attribute is a workflow, a handler, a list of these, or a function of the store that returns any of them.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from stepwell.cli.exits import NOT_FOUND, USAGE, Stop
from stepwell.queue import Handler
from stepwell.store.store import Store
from stepwell.worker import each_served
from stepwell.workflow import Workflow

Named = Handler[Any] | Workflow[..., Any]


def load(app: str) -> Any:
    """What APP names; its module is looked for in the current folder first, as `python -m` does."""
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
    """All that APP stands for; ends the command if that is nothing."""
    found = load(app)
    if callable(found) and not isinstance(found, Handler | Workflow):
        found = found(store)
        found = await found if inspect.isawaitable(found) else found
    several = (
        [found] if isinstance(found, Handler | Workflow | ModuleType) or not isinstance(found, Iterable) else found
    )
    serves = list(each_served(several))
    if not serves:
        raise Stop(NOT_FOUND, f"{app} defines no workflow and no handler", "@workflow or @handler(queue) on a function")
    return serves


def name_of(one: Named) -> str:
    """The queue it serves."""
    return one.name if isinstance(one, Workflow) else one.queue


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise Stop(NOT_FOUND, f"there is no module {name} in {Path.cwd()} or on the path") from error


def _offers(module: ModuleType) -> str:
    return ", ".join(_offered(module)) or "(nothing that a worker could serve)"


def _offered(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if isinstance(value, Handler | Workflow):
            yield f"{module.__name__}:{name}"
