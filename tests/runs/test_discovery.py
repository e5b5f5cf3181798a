"""Decorated workflows: what they keep, what is known of them, and how a module's are found."""

import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from stepwell import (
    DuplicateWorkflow,
    InvalidName,
    InvalidOption,
    Retry,
    Store,
    Worker,
    Workflow,
    consumer,
    discover_workflows,
    workflow,
    workflow_decorator,
)
from stepwell.base.program import definition_of
from stepwell.values.arguments import Arguments
from tests.runs.kit import Order, Receipt, fulfil, pack
from tests.runs.sample import mail, media


@pytest.mark.proves("DD-01", "DD-02")
async def test_a_decorated_function_is_still_that_function() -> None:
    assert (fulfil.name, pack.name, media.resize.name) == ("fulfil", "zip.files", "media.resize")
    assert await fulfil(Order("a")) == Receipt("a")
    assert await pack(None, "ab", prefix="c") == 3
    assert media.crop("x") is True
    assert (vars(media.resize)["__name__"], media.resize.__doc__) == ("resize", "Make it smaller.")
    assert (fulfil.is_async, media.crop.is_async, repr(media.resize)) == (True, False, "<workflow media.resize>")
    assert workflow_decorator is workflow


@pytest.mark.proves("DD-03", "DD-05")
def test_a_modules_workflows_are_those_it_defines() -> None:
    before = set(sys.modules)
    found = discover_workflows(media)
    assert found == {"media.resize": media.resize, "crop": media.crop}
    assert discover_workflows(mail) == {"send": mail.send}
    assert discover_workflows(ModuleType("empty")) == {}
    assert set(sys.modules) == before


@pytest.mark.proves("DD-04")
def test_without_a_module_all_that_are_imported_are_found() -> None:
    program = """
from stepwell import discover_workflows, workflow
assert discover_workflows() == {}
from tests.runs.sample import media
handle = workflow("only-a-name")
assert sorted(discover_workflows()) == ["crop", "media.resize", "send"]
@workflow(name="crop")
async def another(name: str) -> None: ...
from stepwell import DuplicateWorkflow
try:
    discover_workflows()
except DuplicateWorkflow as error:
    assert "tests.runs.sample.media.crop" in str(error) and "__main__.another" in str(error), error
else:
    raise AssertionError("two of one name")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.proves("DD-06")
async def test_two_functions_for_one_name_are_refused_by_name(store: Store) -> None:
    first, second = (workflow(name="twice")(_function("both", name)) for name in "ab")
    with pytest.raises(DuplicateWorkflow, match=r"twice.* by both\.a and by both\.b"):
        Worker(store, [first, second])
    both = ModuleType("both")
    both.__dict__.update(first=first, second=second)
    with pytest.raises(DuplicateWorkflow, match=r"both\.a and by both\.b"):
        discover_workflows(both)


def _function(module: str, name: str) -> Any:
    async def made(given: int) -> None: ...

    made.__module__, made.__name__, made.__qualname__ = module, name, name
    return made


@pytest.mark.proves("DD-07", "T-06")
async def test_what_was_discovered_makes_working_workers(store: Store) -> None:
    run_id = await workflow_of("crop").trigger("x").execute(store)  # before anybody works
    for name, found in discover_workflows(media).items():
        await store.create_workflow(name)
        worker = await consumer("w", 8080, name).handler(found).create(store)
        await worker.drain()
        await worker.close()
    run = await media.crop.get_run(run_id, store)
    assert (run.status, run.output()) == ("SUCCESS", True)


def workflow_of(name: str) -> Workflow[..., Any]:
    return discover_workflows(media)[name]


@pytest.mark.proves("DD-09")
def test_what_is_known_of_each_can_be_read_at_run_time() -> None:
    known = {name: (one.parameters, one.returns, one.options) for name, one in discover_workflows(media).items()}
    options: dict[str, Any] = {"retry": Retry(4), "timeout": None, "concurrency": 2, "dead_letter": "media.broken"}
    options |= {"strict": True, "cleanup": None, "lease": None, "lifecycle": (), "limits": None}
    assert known["media.resize"] == ({"name": str, "width": int}, list[str], options)
    assert known["crop"][2] == dict.fromkeys(options) | {"strict": False, "lifecycle": ()}
    assert isinstance(media.crop.arguments, Arguments)
    assert [definition_of(name).returns for name in ("media.resize", "crop", "nobody-knows")] == [list[str], bool, Any]
    served = media.resize.served(Retry(9))
    assert (served.queue, served.retry, served.concurrency, served.is_workflow) == ("media.resize", Retry(4), 2, True)
    assert (media.crop.served(Retry(9), 5).retry, media.crop.served(Retry(9), 5).concurrency) == (Retry(9), 5)


def test_what_cannot_be_a_workflow_is_refused_when_it_is_declared() -> None:
    async def generator(n: int) -> Any:
        yield n

    async def stars(*args: int) -> None: ...

    async def fine(n: int) -> None: ...

    refused: list[Any] = [generator, stars, 7, workflow(name="fine")(fine)]
    for wrong in refused:
        with pytest.raises(InvalidOption):
            workflow(wrong)
    with pytest.raises(InvalidName):
        workflow(lambda n: n)
    options: list[dict[str, Any]] = [{"retry": 0}, {"concurrency": 0}, {"dead_letter": "a b"}, {"name": "a/b"}]
    for each in options:
        with pytest.raises((InvalidOption, InvalidName)):
            workflow(**each)
    with pytest.raises(InvalidOption, match="options belong to a definition"):
        workflow("zip", retry=3)  # type: ignore[call-overload]


def test_a_name_alone_has_no_function() -> None:
    handle = workflow("elsewhere")
    with pytest.raises(InvalidOption, match=r"define it with `@workflow\(name="):
        handle(1)
    with pytest.raises(InvalidOption, match=r"define it with `@workflow\(name="):
        handle.served(Retry())
