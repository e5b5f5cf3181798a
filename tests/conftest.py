import contextlib
import signal

import pytest

pytest_plugins = ["pytester", "tests.proves", "tests.ground.stores", "tests.ground.opened"]


def pytest_configure(config: pytest.Config) -> None:
    """Let what tests start be interrupted: in the background of a script SIGINT is ignored, by children too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, signal.default_int_handler)
