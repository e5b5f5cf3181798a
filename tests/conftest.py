import contextlib
import signal
from collections.abc import Iterator

import pytest

from stepwell import definitions

pytest_plugins = ["pytester", "tests.proves", "tests.ground.stores", "tests.ground.opened"]


def pytest_configure(config: pytest.Config) -> None:
    """Let what tests start be interrupted: in the background of a script SIGINT is ignored, by children too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def workflows_of_other_tests_return_what_they_returned() -> Iterator[None]:
    """A process knows one workflow of a name, the last defined: tests that choose the same name do not meet."""
    before = dict(definitions._results)
    yield
    definitions._results.update(before)
