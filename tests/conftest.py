import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from stepwell.base import program
from stepwell.store.postgres.compose import Composer, Shape
from tests import leaks
from tests.ground.late_loop import LateLoop
from tests.store.flushes import noting_shapes, unknown_pieces

pytest_plugins = ["pytester", "tests.proves", "tests.racing", "tests.ground.stores", "tests.ground.opened"]
MADE: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop, "late": LateLoop}
LOOPS: Final = {name: leaks.known(make) for name, make in MADE.items()}

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    """Let what tests start be interrupted: in the background of a script SIGINT is ignored, by children too."""
    config.pluginmanager.register(leaks)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep what was collected out of every later garbage collection: thousands of tests, which stay to the end."""
    gc.collect()
    gc.freeze()


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    """The loop of a test: asyncio's own, or the one that `make test-loops` asks for; with `every_loop` each."""
    if item.get_closest_marker("every_loop") is not None:
        return LOOPS
    name = os.environ.get("STEPWELL_TEST_LOOP", "asyncio")
    return {name: LOOPS[name]}


@pytest.fixture(autouse=True)
def workflows_of_other_tests_return_what_they_returned() -> Iterator[None]:
    """Who names no workflow to a store gets the last defined of its name: tests that choose the same do not meet."""
    before = dict(program._known)
    yield
    program._known.update(before)


_flushed: set[tuple[Shape, ...]] = set()
Composer._compose_text = noting_shapes(_flushed)  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def no_flush_has_a_piece_whose_plan_is_not_tested() -> Iterator[None]:
    """What tests/store/test_bounds.py does not compose, nothing may: see tests/store/flushes.py."""
    yield
    flushed = set(_flushed)
    _flushed.clear()
    assert not (unknown := unknown_pieces(flushed)), f"add {unknown} to the flushes of tests/store/flushes.py"
