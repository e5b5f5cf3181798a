"""Fixtures of the crash tests. The same tests run small in `make test` and full-size in `make soak`."""

from pathlib import Path

import pytest

from tests.crash.site import Site
from tests.ground.scale import Scale, measured, scale

__all__ = ["Scale", "measured", "scale", "site"]


@pytest.fixture
def site(store_url: str, tmp_path: Path) -> Site:
    """A fresh store with its witness, on each backend in turn."""
    return Site(store_url, tmp_path)
