"""Which event loop a command runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

LOOPS: Final = ("auto", "asyncio", "uvloop")


def factory_of(name: str) -> Callable[[], AbstractEventLoop] | None:
    """What makes the loop of this name, None for asyncio's own; `auto` is uvloop where that is installed."""
    from stepwell.cli.exits import USAGE, Stop

    if name == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if name == "auto":
            return None
        raise Stop(USAGE, "uvloop is not installed", "pip install uvloop") from None
    return uvloop.new_event_loop
