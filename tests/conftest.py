import contextlib
import signal

import pytest

pytest_plugins = ["pytester", "tests.proves", "tests.ground.stores", "tests.ground.opened"]


def pytest_configure(config: pytest.Config) -> None:
    """Let what tests start be interrupted: a process in the background of a script ignores SIGINT, and so do its own."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, signal.default_int_handler)
