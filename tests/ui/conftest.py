"""Fixtures of the tests of the dashboard: how large things are in this run."""

from tests.ground.scale import measured, scale

__all__ = ["measured", "scale"]
