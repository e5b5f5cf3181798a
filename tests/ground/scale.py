"""Small in `make test`, full-size in `make soak`, which makes its report of what the tests tell it."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scale:
    """How large things are in this run."""

    is_full: bool

    def of(self, small: T, full: T) -> T:
        """The small number, or in a soak the full one."""
        return full if self.is_full else small


@pytest.fixture(scope="session")
def scale() -> Scale:
    return Scale(bool(os.environ.get("STEPWELL_SOAK")))


@pytest.fixture
def measured(backend: str) -> Callable[..., None]:
    """Tell what a test measured: `measured("kill", messages=600)`; a soak makes its report of it."""

    def tell(promise: str, **numbers: Any) -> None:
        if path := os.environ.get("STEPWELL_SOAK_REPORT"):
            with Path(path).open("a") as file:
                file.write(json.dumps({"promise": promise, "backend": backend, "numbers": numbers}) + "\n")

    return tell
