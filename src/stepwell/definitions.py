"""Which workflows this process knows, and the type of their results: what lets a run be read as what it returned."""

from __future__ import annotations

from typing import Any, Final

_results: Final[dict[str, Any]] = {}


def know(name: str, returns: Any) -> None:
    """A workflow of this name is defined here, and returns this; the definition made last counts."""
    _results[name] = returns


def result_type(name: str) -> Any:
    """The type of what the workflow returns; Any if it says nothing, or is not defined in this process."""
    return _results.get(name, Any)
