"""Write docs/reference.md from the signatures and docstrings of what is public: `python scripts/reference.py`.

Signatures are taken from the source, so that the page is the same under every Python. `--check` only compares.
"""

from __future__ import annotations

import ast
import enum
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, get_overloads

import stepwell
import stepwell.sync
import stepwell.testing
from stepwell import api

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
HEAD = """# Reference

Every public name, from its signature and docstring: written by `make reference`, and a test keeps it current. Of a
docstring it shows the first paragraph; `help(stepwell.Store)` shows the rest.
"""
ALIASES = {
    "Cancelled": "asyncio.CancelledError",
    "PauseError": "Paused",
    "UnknownWorkflowType": "DeciderNotFound",
    "WorkflowContext": "Context",
    "workflow_decorator": "workflow",
}
CODECS = {"JSON", "MessagePack", "Protobuf"}
GROUPS = {
    "Opening a store": "connect connect_with Config Store Tx admin Admin JSON MessagePack Protobuf Compressed Codec "
    "register_codec",
    "Queues": "handler Handler Message Retry",
    "Workflows": "workflow workflow_decorator Workflow Trigger discover_workflows step Step Context WorkflowContext "
    "current sleep wait race shield Cancelled condition Future Execute Skipped",
    "Deciders": "Decider Decision EffectContext Engine Receipt TimerCancelled StateMachine StateMachineDefinition "
    "StateMachineView StateInfo Transition ObservedMachine",
    "Workers": "Worker poll_all consumer Consumer",
    "What is read": "Task TaskId TaskKind Run RunId RunStatus StepInfo DeadLetter CancelAnswer SignalAnswer Why Reason "
    "Page QueueInfo QueueStats WorkflowInfo WorkerInfo Unserved Maintenance Health EventInfo InstanceInfo "
    "Inspection DryRun Observation ObservedTransition",
}
SYNC = "connect Store Worker Engine Message Context current sleep wait shield"
MADE_BY_HAND = {"Worker", "Engine", "Config"}  # whose options are what one looks for
# What one part of stepwell offers another, and the fields of a value that is asked by its methods.
WITHIN = (
    "accepts check decided execute_in_this_thread family joining life loop pending served submit_in_this_thread told"
)
SPREAD = {"MessageOptions", "RunFilter"}  # those of `connect` are the fields of Config
APART = {"sync", "__version__"}  # told of in other places


def page() -> str:
    names = {name: getattr(stepwell, name) for name in api.__all__ if name not in APART}
    parts = [HEAD]
    for heading, listed in GROUPS.items():
        parts += [f"## {heading}\n", *(told(name, names.pop(name)) for name in listed.split())]
    others = [name for name, value in names.items() if not is_error(value)]  # in no group: mostly what is read
    parts += [told(name, names.pop(name)) for name in others]
    parts += ["## Errors\n", *errors(names)]
    parts += ["## `stepwell.testing`\n", *(told(name, getattr(stepwell.testing, name)) for name in testing())]
    parts += ["## `stepwell.sync`\n", *sync()]
    return "\n".join(parts)


def told(name: str, value: Any) -> str:
    if name in CODECS:
        return f"### `{name}`\n\nA codec, for `connect(codec=...)`. {sentence(type(value))[0]}\n"
    if name in ALIASES:
        return f"### `{name}`\n\nAnother name of `{ALIASES[name]}`.\n"
    if inspect.isclass(value):
        lines = [f"### `{name}`", "", *sentence(value), *members(value)]
    else:
        lines = [f"### `{name}`", "", *(f"- `{signature}`" for signature in signatures(value)), "", *sentence(value)]
    return "\n".join(lines).rstrip() + "\n"


def errors(left: dict[str, Any]) -> Iterator[str]:
    """A table of all exceptions."""
    yield "| error | is a | means |\n|---|---|---|"
    for name, value in left.items():
        if name in ALIASES:
            yield f"| `{name}` | | another name of `{ALIASES[name]}` |"
        else:
            bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
            yield f"| `{name}` | {bases} | {' '.join(sentence(value)).strip()} |"
    yield ""


def is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def testing() -> list[str]:
    return sorted(stepwell.testing.__all__, key=lambda name: (name not in ("world", "given"), name))


def sync() -> Iterator[str]:
    yield "For programs without an event loop: the same verbs, which return when they are done.\n"
    for name in SYNC.split():
        value = getattr(stepwell.sync, name)
        if inspect.isfunction(value):
            yield f"- `{signatures(value)[0]}`: {' '.join(sentence(value)).strip()}"
        else:
            yield f"- `{name}`: {' '.join(sentence(value)).strip()}"
    yield ""


def members(value: type) -> Iterator[str]:
    """Fields and public methods, in the order in which they are written."""
    if issubclass(value, enum.Enum):
        yield ", ".join(f"`{member.name}`" for member in value)
        return
    if value.__name__ in MADE_BY_HAND:
        [made] = signatures(next(vars(one)["__init__"] for one in value.__mro__ if "__init__" in vars(one)))
        yield f"- `{made.replace('__init__', value.__name__).removesuffix(' -> None')}`"
    for field, kind in fields(value):
        yield f"- `{field}: {kind}`"
    for name, method in methods(value):
        if isinstance(method, property):
            assert method.fget
            returns = signatures(method.fget)[0].partition(" -> ")[2]
            yield f"- `{name}: {returns}`" + colon(method.fget)
        elif method.__name__ != name:
            yield f"- `{name}`: another name of `{method.__name__}`"
        else:
            written = signatures(method)
            yield from (f"- `{signature}`" for signature in written[:-1])
            yield f"- `{written[-1]}`" + colon(method)


def fields(value: type) -> Iterator[tuple[str, str]]:
    if "__dataclass_fields__" not in vars(value):
        return
    [written] = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    assert isinstance(written, ast.ClassDef)
    for line in written.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            name = line.target.id
            if not name.startswith("_") and name not in WITHIN.split():
                yield name, ast.unparse(line.annotation)


def methods(value: type) -> Iterator[tuple[str, Any]]:
    seen = set(WITHIN.split())
    for one in value.__mro__:
        if not one.__module__.startswith("stepwell"):
            continue
        for name, method in vars(one).items():
            plain = method.__func__ if isinstance(method, classmethod | staticmethod) else method
            if name.startswith("_") or name in seen or not isinstance(plain, FunctionType | property):
                continue
            seen.add(name)
            yield name, plain


def signatures(function: Callable[..., Any]) -> list[str]:
    function = inspect.unwrap(function)
    return list(dict.fromkeys(one_signature(written) for written in get_overloads(function) or [function]))


def one_signature(function: Callable[..., Any]) -> str:
    [written] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(written, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = written.args
    for place in (arguments.posonlyargs, arguments.args):
        if place and place[0].arg in ("self", "cls", "_self"):
            del place[0]
    returns = f" -> {ast.unparse(written.returns)}" if written.returns else ""
    begin = "await " if isinstance(written, ast.AsyncFunctionDef) else ""
    for block in (" -> AsyncIterator[",) if begin else (" -> AbstractAsyncContextManager[",):
        if returns.startswith(block):
            begin, returns = "async with ", f" as {returns[len(block) : -1]}"
    spread(arguments, inspect.unwrap(function).__globals__)
    return f"{begin}{written.name}({ast.unparse(arguments)}){returns}"


def spread(arguments: ast.arguments, names: dict[str, Any]) -> None:
    """Show the options of a typed dict one by one; the dict says what one that is left out means."""
    match arguments.kwarg:
        case ast.arg(annotation=ast.Subscript(value=ast.Name(id="Unpack"), slice=ast.Name(id=options))):
            if options in SPREAD:
                for name, kind in names[options].__annotations__.items():
                    arguments.kwonlyargs.append(ast.arg(name, ast.parse(kind.__forward_arg__, mode="eval").body))
                    arguments.kw_defaults.append(ast.Constant(...))
                arguments.kwarg = None


def sentence(value: Any) -> list[str]:
    """The first paragraph of its docstring."""
    paragraph = (inspect.getdoc(value) or "").split("\n\n")[0].strip()
    return [paragraph.replace("\n", " "), ""] if paragraph else []


def colon(method: Any) -> str:
    words = " ".join(sentence(method)).strip()
    return f": {words}" if words else ""


if __name__ == "__main__":
    new = page()
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == new else "docs/reference.md is not current: make reference")
    PAGE.write_text(new, encoding="utf-8")
    print(f"wrote {len(new.splitlines())} lines to docs/reference.md")
