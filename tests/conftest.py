import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import uvloop

from stepwell import definitions
from tests.ground.late_loop import LateLoop

pytest_plugins = ["pytester", "tests.proves", "tests.racing", "tests.ground.stores", "tests.ground.opened"]
LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop, "late": LateLoop}


def pytest_configure(config: pytest.Config) -> None:
    """Let what tests start be interrupted: in the background of a script SIGINT is ignored, by children too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    """The loop of a test: asyncio's own, or the one that `make test-loops` asks for; with `every_loop` each."""
    if item.get_closest_marker("every_loop") is not None:
        return LOOPS
    name = os.environ.get("STEPWELL_TEST_LOOP", "asyncio")
    return {name: LOOPS[name]}


@pytest.fixture(autouse=True)
def workflows_of_other_tests_return_what_they_returned() -> Iterator[None]:
    """A process knows one workflow of a name, the last defined: tests that choose the same name do not meet."""
    before = dict(definitions._results)
    yield
    definitions._results.update(before)
